"""Where the runs of an experiment are made: on the real engine in an exclusive turn, or in the
simulation. A backend makes one run at a time and judges nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from engine.contracts import ModelInfo
from engine.core.capacity import Ceilings, ModelShape
from engine.core.config import EngineConfig
from engine.core.records import RequestRecord, StepRecord
from engine.core.request import SamplingParams
from engine.lab.driver import ClockPace, Driver
from engine.lab.runs import Progress, Run
from engine.lab.simulation import simulate
from engine.lab.workload import WorkItem, Workload
from engine.mailbox import TokenStream
from engine.service import EngineService, ExclusiveTurn


class Backend(Protocol):
    """Where runs are made."""

    simulated: bool
    needs_warm_up: bool

    def describe(self) -> dict[str, Any]:
        """Model, device and whatever else the numbers depend on; plain JSON values."""
        ...

    def seconds_left(self) -> float | None:
        """Until it has to be given back; None without a limit."""
        ...

    def run(
        self,
        workload: Workload,
        config: EngineConfig,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> Run:
        """Serve the workload from an empty cache."""
        ...


class SimulatedBackend:
    """Runs in virtual time on a described device."""

    simulated = True
    needs_warm_up = False

    def __init__(self, name: str, shape: ModelShape, ceilings: Ceilings) -> None:
        self._name = name
        self._shape = shape
        self._ceilings = ceilings

    def describe(self) -> dict[str, Any]:
        """Model and ceilings of the cost model."""
        return {"model": self._name, "device": "simulated", **asdict(self._ceilings)}

    def seconds_left(self) -> float | None:
        """No limit."""
        return None

    def run(
        self,
        workload: Workload,
        config: EngineConfig,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> Run:
        """See `simulate`."""
        return simulate(
            workload,
            config,
            self._shape,
            self._ceilings,
            progress=progress,
            should_stop=should_stop,
        )


class ServiceBackend:
    """Runs on the real engine, in an exclusive turn. Not to be used on an event loop's thread."""

    simulated = False
    needs_warm_up = True

    def __init__(self, service: EngineService, turn: ExclusiveTurn) -> None:
        self._service = service
        self._turn = turn

    def describe(self) -> dict[str, Any]:
        """Model and device."""
        info: ModelInfo | None = self._service.info
        if info is None:
            return {}
        machine = {"model": info.name, "dtype": info.dtype, "device": info.device}
        return machine | (asdict(info.ceilings) if info.ceilings else {})

    def seconds_left(self) -> float:
        """Until the turn is over."""
        return self._turn.ends_by - self._service.clock.now()

    def run(
        self,
        workload: Workload,
        config: EngineConfig,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> Run:
        """Empty the cache, serve the workload and read every answer to its end."""
        self._turn.prepare(config)
        steps = self._service.store.steps_since(0)
        driver = Driver(
            workload,
            self,
            ClockPace(self._service.clock),
            progress=progress,
            should_stop=lambda: should_stop() or self.seconds_left() <= 0,
        )
        return asyncio.run(driver.run(steps[-1].number if steps else 0))

    def submit(self, item: WorkItem, *, streamed: bool) -> TokenStream:
        """Send one request of the workload; it is answered with exactly the tokens planned."""
        params = SamplingParams(temperature=0.0, max_tokens=item.num_output_tokens, ignore_eos=True)
        return self._turn.submit(
            item.token_ids, params, streamed=streamed, priority=item.priority, label="experiment"
        )

    def record(self, number: int) -> RequestRecord | None:
        """The record of a request by its number."""
        return self._service.store.find(number)

    def steps_since(self, number: int) -> Sequence[StepRecord]:
        """The engine's steps after step `number`."""
        return self._service.store.steps_since(number)
