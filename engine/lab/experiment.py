"""Runs one workload under one configuration or two, again and again, and makes a `Result` of it.

Runs are interleaved A B B A, so that a machine that grows slower harms both alike; each begins with
an empty cache. Where runs are made is the business of a `Backend`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from engine.core.config import EngineConfig
from engine.core.errors import InvalidRequest, PhaseScopeError
from engine.lab.backends import Backend, ServiceBackend
from engine.lab.measures import Limits
from engine.lab.reporting import make_result
from engine.lab.results import Result
from engine.lab.runs import Run
from engine.lab.verdict import MAX_PAIRS
from engine.lab.workload import Workload
from engine.lab.workload_arrivals import Start
from engine.service import EngineService
from engine.turns import MAX_TURN_SECONDS, TurnOver

WARM_UP_REQUESTS = 4
WARM_UP_TOKENS = 8
_POSITION_SECONDS = 0.25
# A pair is only begun when this many times the longest one so far is left of the turn.
_MARGIN = 1.2


class ExperimentStopped(PhaseScopeError):
    """It was stopped, or its time was up, before there was anything to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is to be run.

    configs: of A, and of B if there is one. workload: the traffic of each pair by its number, such
    as the same shape with another seed. num_pairs: runs of each side. price_per_hour: of the
    machine, in any currency.
    """

    title: str
    configs: tuple[EngineConfig, ...]
    workload: Callable[[int], Workload]
    num_pairs: int = 1
    limits: Limits = field(default_factory=Limits)
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.configs) <= 2:
            raise InvalidRequest(
                f"An experiment has one configuration or two; got {len(self.configs)}."
            )
        if not 1 <= self.num_pairs <= MAX_PAIRS:
            raise InvalidRequest(
                f"An experiment makes 1 to {MAX_PAIRS} runs of each side; got {self.num_pairs}."
            )

    def with_first_drawn(self) -> Experiment:
        """The same with the workload of its first pair drawn already."""
        first, draw = self.workload(0), self.workload
        return replace(self, workload=lambda pair: draw(pair) if pair else first)


@dataclass(frozen=True, slots=True)
class ExperimentProgress:
    """How far an experiment is: which run of how many, and requests ended in it."""

    run: int
    num_runs: int
    side: str
    requests_done: int
    num_requests: int


Report = Callable[[ExperimentProgress], object]


def interleaved(num_pairs: int, num_sides: int) -> list[tuple[int, int]]:
    """The order of runs as (pair, side): A B, then B A, then A B again."""
    order: list[tuple[int, int]] = []
    for pair in range(num_pairs):
        sides = range(num_sides) if pair % 2 == 0 else reversed(range(num_sides))
        order += [(pair, side) for side in sides]
    return order


def perform(
    experiment: Experiment,
    backend: Backend,
    *,
    report: Report = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Result:
    """Make all runs, or as many whole pairs as time and `should_stop` allow.

    Raises ExperimentStopped when no pair was completed; one run that was stopped is a result with
    a note where there is only one side.
    """
    return _Performance(experiment, backend, report, should_stop).result()


def perform_in_turn(
    experiment: Experiment,
    service: EngineService,
    *,
    report: Report = lambda progress: None,
    on_position: Callable[[int], object] = lambda position: None,
    should_stop: Callable[[], bool] = lambda: False,
    max_seconds: float = MAX_TURN_SECONDS,
) -> Result:
    """Wait for the service's next exclusive turn, tell the position meanwhile, and perform in it.

    Blocks the calling thread. Raises TurnsFull when too many wait, TurnOver when the engine stays
    busy, ExperimentStopped when it was given up.
    """
    # Everybody else waits during a turn: the first workload is drawn before it.
    experiment = experiment.with_first_drawn()
    if should_stop():
        raise ExperimentStopped("The experiment was given up before its turn.")
    ticket = service.turns.join(experiment.title)
    try:
        while not ticket.wait(_POSITION_SECONDS):
            if should_stop():
                raise ExperimentStopped("The experiment was given up while it waited for its turn.")
            on_position(ticket.position)
        with service.exclusive_turn(experiment.title, max_seconds=max_seconds) as turn:
            backend = ServiceBackend(service, turn)
            return perform(experiment, backend, report=report, should_stop=should_stop)
    finally:
        ticket.leave()


class _Performance:
    """One experiment while it is being performed."""

    def __init__(
        self,
        experiment: Experiment,
        backend: Backend,
        report: Report,
        should_stop: Callable[[], bool],
    ) -> None:
        self._experiment = experiment
        self._backend = backend
        self._report = report
        self._should_stop = should_stop
        self._longest_pair = 0.0
        self._notes: list[str] = []

    def result(self) -> Result:
        experiment = self._experiment.with_first_drawn()
        if self._backend.needs_warm_up and not self._should_stop():
            self._warm_up(experiment.workload(0))
        workloads: list[Workload] = []
        runs: list[list[tuple[int, int, Run]]] = [[] for _ in experiment.configs]
        for pair in range(experiment.num_pairs):
            if pair and not self._time_for_another():
                break
            began = time.monotonic()
            workload = experiment.workload(pair)
            made = self._runs_of(pair, workload)
            self._longest_pair = max(self._longest_pair, time.monotonic() - began)
            if not made:
                break
            workloads.append(workload)
            for side, (position, run) in made.items():
                runs[side].append((position, pair, run))
        num_made = len(workloads)
        if not num_made:
            raise ExperimentStopped("The experiment was stopped before its first pair of runs.")
        self._note_cut(num_made, runs[0][-1][2].stopped)
        return make_result(
            result_id=f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}",
            title=experiment.title,
            created=time.time(),
            simulated=self._backend.simulated,
            machine=self._backend.describe(),
            workloads=workloads,
            configs=experiment.configs,
            runs=runs,
            limits=experiment.limits,
            price_per_hour=experiment.price_per_hour,
            notes=self._notes,
        )

    def _runs_of(self, pair: int, workload: Workload) -> dict[int, tuple[int, Run]]:
        """The position and the run of each side; none where the pair was not completed."""
        # Drawing the workload may have taken a while.
        if self._should_stop():
            return {}
        num_sides = len(self._experiment.configs)
        order = interleaved(self._experiment.num_pairs, num_sides)
        try:
            made = {
                side: (position, self._run(position, len(order), side, workload))
                for position, (of_pair, side) in enumerate(order)
                if of_pair == pair
            }
        except TurnOver:
            return {}
        cut = any(run.stopped for _, run in made.values())
        return {} if cut and (num_sides > 1 or pair) else made

    def _warm_up(self, workload: Workload) -> None:
        """The first requests once under each side, cut short and all at once; none counts."""
        items = [
            replace(
                item,
                start=Start(0.0),
                num_output_tokens=min(item.num_output_tokens, WARM_UP_TOKENS),
            )
            for item in workload.items[:WARM_UP_REQUESTS]
        ]
        first = replace(workload, items=tuple(items))
        for config in self._experiment.configs:
            self._backend.run(first, config, lambda done, total: None, self._should_stop)
        self._notes.append(
            f"A warm-up of {min(WARM_UP_REQUESTS, len(workload.items))} requests came before the "
            f"first run of each side and is not counted."
        )

    def _run(self, position: int, num_runs: int, side: int, workload: Workload) -> Run:
        name = "AB"[side]

        def progress(done: int, total: int) -> None:
            self._report(ExperimentProgress(position + 1, num_runs, name, done, total))

        progress(0, len(workload.items))
        config = self._experiment.configs[side]
        return self._backend.run(workload, config, progress, self._should_stop)

    def _time_for_another(self) -> bool:
        left = self._backend.seconds_left()
        return not self._should_stop() and (left is None or left > _MARGIN * self._longest_pair)

    def _note_cut(self, num_made: int, stopped: bool) -> None:
        asked = self._experiment.num_pairs
        if stopped:
            self._notes.append("The run was stopped before its end.")
        elif num_made < asked:
            self._notes.append(
                f"{num_made} of {asked} runs of each side were made before the time was up or the "
                f"experiment was stopped."
            )


def config_with(base: EngineConfig, changes: dict[str, Any]) -> EngineConfig:
    """The configuration of a side; raises InvalidRequest naming a setting that is not one."""
    known = {item.name for item in fields(EngineConfig)} - {"fingerprint"}
    for name in changes:
        if name not in known:
            raise InvalidRequest(
                f"{name} is not a setting of the engine; these are: {', '.join(sorted(known))}.",
                field=name,
            )
    return replace(base, **changes)
