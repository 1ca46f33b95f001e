"""The form of the Workload tab as data: the traffic and the experiment that its fields ask for.

It knows no component: `ui.workload` hands the fields' values in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.core.errors import InvalidRequest
from engine.lab.experiment import Experiment
from engine.lab.importing import Trace, read_trace
from engine.lab.importing_replay import Replay, to_workload
from engine.lab.measures import Limits
from engine.lab.workload import MAX_REQUESTS, Workload, WorkloadSpec, build
from engine.lab.workload_arrivals import Arrivals, Burst, ClosedLoop, Constant, Gamma, Poisson
from engine.lab.workload_lengths import Fixed, Lengths, LogNormal, Normal, Uniform
from engine.lab.workload_shapes import SHAPES
from engine.lab.workload_text import TextCoder
from engine.service import EngineService
from ui.compare_form import limit_seconds, whole
from ui.compare_places import Place
from ui.words_compare import COMPARE
from ui.words_workload import ARRIVAL_KINDS, LENGTH_KINDS, WORKLOAD

TRACE: Final = "trace"
MAX_UPLOAD_MEGABYTES: Final = 20
_MAX_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFields:
    """A length distribution as its fields have it; what a kind has no use for is not looked at."""

    kind: str = LENGTH_KINDS[0]
    typical: Any = 100
    spread: Any = 30
    low: Any = 16
    high: Any = 400

    def lengths(self, own: Lengths) -> Lengths:
        """The distribution, or `own` where none was chosen; raises InvalidRequest."""
        if self.kind == "fixed":
            return Fixed(self._whole("typical"))
        if self.kind == LENGTH_KINDS[0]:
            return own
        low, high = self._whole("low"), self._whole("high")
        if self.kind == "uniform":
            return Uniform(low, high)
        typical, spread = self._number("typical"), self._number("spread")
        if self.kind == "normal":
            return Normal(typical, spread, low, high)
        if self.kind == "log-normal":
            return LogNormal(typical, spread, low, high)
        raise InvalidRequest(
            f"{self.kind!r} is not a distribution; these are: {', '.join(LENGTH_KINDS)}."
        )

    def _whole(self, name: str) -> int:
        return whole(WORKLOAD[name], getattr(self, name), 1, 1_000_000)

    def _number(self, name: str) -> float:
        return number(WORKLOAD[name], getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalFields:
    """How requests arrive, as the fields have it."""

    kind: str = ARRIVAL_KINDS[0]
    rate: Any = 2
    burstiness: Any = 1
    burst: Any = 8
    users: Any = 4
    think: Any = 1

    def arrivals(self) -> Arrivals | None:
        """The process; None for the shape's own. Raises InvalidRequest."""
        rate = number(WORKLOAD["rate"], self.rate)
        makers: dict[str, Callable[[], Arrivals | None]] = {
            ARRIVAL_KINDS[0]: lambda: None,
            "Poisson": lambda: Poisson(rate),
            "gamma": lambda: Gamma(rate, number(WORKLOAD["burstiness"], self.burstiness)),
            "constant": lambda: Constant(rate),
            "burst": lambda: self._burst(rate),
            "closed loop": self._closed_loop,
            "all at once": lambda: Constant(math.inf),
        }
        if self.kind not in makers:
            raise InvalidRequest(
                f"{self.kind!r} is not a way to arrive; these are: {', '.join(ARRIVAL_KINDS)}."
            )
        return makers[self.kind]()

    def _burst(self, rate: float) -> Arrivals:
        size = whole(WORKLOAD["burst"], self.burst, 1, MAX_REQUESTS)
        if rate <= 0:
            raise InvalidRequest(f"{WORKLOAD['rate']} must be above 0; got {rate:g}.")
        return Burst(size, size / rate)

    def _closed_loop(self) -> Arrivals:
        users = whole(WORKLOAD["users"], self.users, 1, 1_000)
        return ClosedLoop(users, number(WORKLOAD["think"], self.think))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Everything the form asks for. limits are milliseconds, price of an hour; 0 for none."""

    shape: str
    requests: Any = 24
    seed: Any = 0
    streamed: bool = True
    prompt: LengthFields = LengthFields()
    output: LengthFields = LengthFields()
    arrivals: ArrivalFields = ArrivalFields()
    file: str | None = None
    speed: Any = 1
    ttft_limit: Any = 0
    tpot_limit: Any = 0
    price: Any = 0


def spec_of(traffic: Traffic) -> WorkloadSpec:
    """The traffic of a shape as it was edited; raises InvalidRequest naming what is wrong."""
    shape = SHAPES.get(traffic.shape)
    if shape is None:
        raise InvalidRequest(f"{traffic.shape!r} is not a shape; these are: {', '.join(SHAPES)}.")
    parts = tuple(
        replace(
            part,
            prompt=traffic.prompt.lengths(part.prompt),
            output=traffic.output.lengths(part.output),
        )
        for part in shape.spec.parts
    )
    return replace(
        shape.spec,
        parts=parts,
        num_requests=whole(WORKLOAD["requests"], traffic.requests, 1, MAX_REQUESTS),
        arrivals=traffic.arrivals.arrivals() or shape.spec.arrivals,
        streamed=bool(traffic.streamed),
    ).with_seed(whole(WORKLOAD["seed"], traffic.seed, 0, _MAX_SEED))


def load_trace(path: str | None) -> Trace:
    """The uploaded file; raises InvalidRequest for none, one too large, or one of no known form."""
    if not path:
        raise InvalidRequest(WORKLOAD["no_file"])
    size = Path(path).stat().st_size / 1e6
    if size > MAX_UPLOAD_MEGABYTES:
        raise InvalidRequest(WORKLOAD["too_large"].format(size=size, most=MAX_UPLOAD_MEGABYTES))
    return read_trace(Path(path))


def workload_experiment(place: Place, traffic: Traffic, service: EngineService) -> Experiment:
    """One run of the traffic under the place's own settings; raises InvalidRequest."""
    price = number(WORKLOAD["price"], traffic.price)
    context = place.config.max_model_len
    if traffic.shape == TRACE:
        workload = _replayed(place, traffic, service)
    else:
        workload = build(spec_of(traffic), place.source).clipped(context)
    return Experiment(
        title=SHAPES[traffic.shape].title if traffic.shape in SHAPES else workload.name,
        configs=(place.config,),
        workload=lambda pair: workload,
        limits=Limits(
            ttft_seconds=limit_seconds(COMPARE["ttft_limit"], traffic.ttft_limit),
            tpot_seconds=limit_seconds(COMPARE["tpot_limit"], traffic.tpot_limit),
        ),
        price_per_hour=price or None,
    )


def number(label: str, value: Any) -> float:
    """A finite number from 0 on; raises InvalidRequest naming the field."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{label} must be a number; got {str(value or 'nothing')[:40]}.")
    if not 0 <= value < 1e9:
        raise InvalidRequest(f"{label} must be from 0 to 1,000,000,000; got {value:g}.")
    return float(value)


def _replayed(place: Place, traffic: Traffic, service: EngineService) -> Workload:
    trace = load_trace(traffic.file)
    replay = Replay(
        limit=whole(WORKLOAD["requests"], traffic.requests, 1, MAX_REQUESTS),
        speed=number(WORKLOAD["speed"], traffic.speed),
        arrivals=traffic.arrivals.arrivals() or Poisson(1.0),
        max_model_len=place.config.max_model_len,
        streamed=bool(traffic.streamed),
        seed=whole(WORKLOAD["seed"], traffic.seed, 0, _MAX_SEED),
    )
    coder = service.tokenizer if service.config is not None else None
    return to_workload(trace, place.source, replay, coder if isinstance(coder, TextCoder) else None)
