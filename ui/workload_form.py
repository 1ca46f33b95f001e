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
from engine.lab.workload_lengths import Empirical, Fixed, Lengths, LogNormal, Normal, Uniform
from engine.lab.workload_shapes import SHAPES
from ui.compare_places import Place
from ui.words_workload import ARRIVAL_KINDS, LENGTH_KINDS, WORKLOAD
from ui.workload_numbers import listed_lengths, number, seed_number, whole

TRACE: Final = "trace"
MAX_UPLOAD_MEGABYTES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFields:
    """A length distribution as its fields have it; what a kind has no use for is not looked at."""

    kind: str = LENGTH_KINDS[0]
    typical: Any = 100
    spread: Any = 30
    low: Any = 16
    high: Any = 400
    seen: Any = ""

    def lengths(self, own: Lengths) -> Lengths:
        """The distribution, or `own` where none was chosen; raises InvalidRequest."""
        if self.kind == "fixed":
            return Fixed(self._whole("typical"))
        if self.kind == LENGTH_KINDS[0]:
            return own
        if self.kind == "empirical":
            return Empirical(listed_lengths(WORKLOAD["seen"], self.seen))
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
        makers: dict[str, Callable[[], Arrivals | None]] = {
            ARRIVAL_KINDS[0]: lambda: None,
            "Poisson": lambda: Poisson(self._rate()),
            "gamma": self._gamma,
            "constant": lambda: Constant(self._rate()),
            "burst": self._burst,
            "closed loop": self._closed_loop,
            "all at once": lambda: Constant(math.inf),
        }
        if self.kind not in makers:
            raise InvalidRequest(
                f"{self.kind!r} is not a way to arrive; these are: {', '.join(ARRIVAL_KINDS)}."
            )
        return makers[self.kind]()

    def _rate(self) -> float:
        return number(WORKLOAD["rate"], self.rate)

    def _gamma(self) -> Arrivals:
        return Gamma(self._rate(), number(WORKLOAD["burstiness"], self.burstiness))

    def _burst(self) -> Arrivals:
        size = whole(WORKLOAD["burst"], self.burst, 1, MAX_REQUESTS)
        rate = self._rate()
        if rate <= 0:
            raise InvalidRequest(f"{WORKLOAD['rate']} must be above 0; got {rate:g}.")
        return Burst(size, size / rate)

    def _closed_loop(self) -> Arrivals:
        users = whole(WORKLOAD["users"], self.users, 1, 1_000)
        return ClosedLoop(users, number(WORKLOAD["think"], self.think))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Traffic as the form describes it: a shape as it was edited, or a trace file."""

    shape: str
    requests: Any = 24
    seed: Any = 0
    streamed: bool = True
    prompt: LengthFields = LengthFields()
    output: LengthFields = LengthFields()
    arrivals: ArrivalFields = ArrivalFields()
    file: str | None = None
    speed: Any = 1


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
    ).with_seed(seed_number(traffic.seed))


def load_trace(path: str | None) -> Trace:
    """The uploaded file; raises InvalidRequest for none, one too large, or one of no known form."""
    if not path:
        raise InvalidRequest(WORKLOAD["no_file"])
    size = Path(path).stat().st_size / 1e6
    if size > MAX_UPLOAD_MEGABYTES:
        raise InvalidRequest(WORKLOAD["too_large"].format(size=size, most=MAX_UPLOAD_MEGABYTES))
    return read_trace(Path(path))


def traffic_of_pairs(place: Place, traffic: Traffic) -> Callable[[int], Workload]:
    """The workload of each pair of runs by its number; raises InvalidRequest for what is wrong.

    Each pair has the next seed: other lengths, texts and arrivals of the same shape, or other texts
    of the lengths and times in a trace.
    """
    if traffic.shape == TRACE:
        trace, replay = load_trace(traffic.file), _replay(place, traffic)
        return lambda pair: to_workload(
            trace, place.source, replace(replay, seed=replay.seed + pair), place.coder
        )
    spec, context = spec_of(traffic), place.config.max_model_len
    return lambda pair: build(spec.with_seed(spec.seeds.text + pair), place.source).clipped(context)


def traffic_title(traffic: Traffic) -> str:
    """What everybody reads that the traffic is: its shape, or a trace file without its name."""
    return SHAPES[traffic.shape].title if traffic.shape in SHAPES else WORKLOAD["trace_title"]


def workload_experiment(
    place: Place, traffic: Traffic, limits: Limits | None = None, price: Any = 0
) -> Experiment:
    """One run of the traffic under the place's own settings; raises InvalidRequest.

    price: of an hour, in any currency; 0 for none.
    """
    workload = traffic_of_pairs(place, traffic)(0)
    return Experiment(
        title=traffic_title(traffic),
        configs=(place.config,),
        workload=lambda pair: workload,
        limits=limits or Limits(),
        price_per_hour=number(WORKLOAD["price"], price) or None,
    )


def _replay(place: Place, traffic: Traffic) -> Replay:
    return Replay(
        limit=whole(WORKLOAD["requests"], traffic.requests, 1, MAX_REQUESTS),
        speed=number(WORKLOAD["speed"], traffic.speed),
        arrivals=traffic.arrivals.arrivals() or Poisson(1.0),
        max_model_len=place.config.max_model_len,
        streamed=bool(traffic.streamed),
        seed=seed_number(traffic.seed),
        name=traffic_title(traffic),
    )
