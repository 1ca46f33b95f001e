"""Sends a workload to a running engine on schedule and reads every answer.

One event loop sends and reads; times are absolute and every wait is worked out anew, so a schedule
never drifts. It knows no policy and no experiment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.core.clock import Clock
from engine.core.errors import PhaseScopeError
from engine.core.records import RequestRecord, StepRecord
from engine.lab.runs import Progress, Run, Schedule, Sent
from engine.lab.workload import WorkItem, Workload
from engine.mailbox import TokenStream

# How often a driver with nothing to send looks whether it is to stop.
_LOOK_UP_SECONDS = 0.25
_RECORD_SECONDS = 5.0


class Target(Protocol):
    """Where a workload is sent."""

    def submit(self, item: WorkItem, *, streamed: bool) -> TokenStream:
        """Submit one request; raises PhaseScopeError where it is refused."""
        ...

    def record(self, number: int) -> RequestRecord | None:
        """The record of a request by its number."""
        ...

    def steps_since(self, number: int) -> Sequence[StepRecord]:
        """The engine's steps after step `number`."""
        ...


class Pace(Protocol):
    """The time a driver goes by."""

    def now(self) -> float:
        """Seconds of the engine's clock."""
        ...

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Let time pass until `event` is set, `seconds` at most."""
        ...


class ClockPace:
    """Real waiting, by the clock that the engine's records go by."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        """Seconds of the clock."""
        return self._clock.now()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Sleep until the event or the timeout."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)


class Driver:
    """One run of one workload; use it once."""

    def __init__(
        self,
        workload: Workload,
        target: Target,
        pace: Pace,
        *,
        progress: Progress = lambda done, total: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._workload = workload
        self._target = target
        self._pace = pace
        self._progress = progress
        self._should_stop = should_stop
        self._schedule = Schedule(workload)
        self._something_ended = asyncio.Event()
        self._reading: dict[int, tuple[TokenStream, asyncio.Task[None]]] = {}
        self._sends: list[Sent] = []
        self._records: dict[int, RequestRecord] = {}
        self._steps: list[StepRecord] = []
        self._num_ended = 0

    async def run(self, first_step: int = 0) -> Run:
        """Send everything and read it to the end; `first_step` is the last step before the run."""
        start = self._pace.now()
        stopped = False
        while self._reading or self._schedule.next_time is not None:
            if not stopped and self._should_stop():
                stopped = True
                for stream, _ in self._reading.values():
                    stream.cancel()
            if stopped and not self._reading:
                break
            self._something_ended.clear()
            if not stopped:
                self._send_due(start)
            self._collect_steps(first_step)
            if not self._something_ended.is_set():
                await self._pace.wait(self._something_ended, self._patience(start, stopped))
            else:
                await asyncio.sleep(0)
        end = self._pace.now()
        self._collect_steps(first_step)
        return Run(
            records=tuple(self._records[index] for index in sorted(self._records)),
            steps=tuple(self._steps),
            sends=tuple(self._sends),
            start=start,
            end=end,
            stopped=stopped,
        )

    def _send_due(self, start: float) -> None:
        while due := self._schedule.take(self._pace.now() - start):
            planned, index = due
            actual = self._pace.now() - start
            try:
                stream = self._target.submit(
                    self._workload.items[index], streamed=self._workload.streamed
                )
            except PhaseScopeError as error:
                self._sends.append(Sent(index, planned, actual, str(error)))
                self._ended(index, start)
                continue
            self._sends.append(Sent(index, planned, actual))
            task = asyncio.create_task(self._read(index, stream, start))
            self._reading[index] = (stream, task)

    async def _read(self, index: int, stream: TokenStream, start: float) -> None:
        # A failed request has its reason in its record.
        with contextlib.suppress(PhaseScopeError):
            async for _ in stream:
                pass
        record = await self._complete_record(stream.number)
        if record is not None:
            self._records[index] = record
        del self._reading[index]
        self._ended(index, start)

    def _ended(self, index: int, start: float) -> None:
        self._num_ended += 1
        self._schedule.ended(index, self._pace.now() - start)
        self._progress(self._num_ended, len(self._workload.items))
        self._something_ended.set()

    async def _complete_record(self, number: int) -> RequestRecord | None:
        """The final record, which the engine's thread completes a moment after the last token."""
        for _ in range(int(_RECORD_SECONDS / 0.002)):
            record = self._target.record(number)
            if record is None or record.complete:
                return record
            await asyncio.sleep(0.002)
        return self._target.record(number)

    def _collect_steps(self, first_step: int) -> None:
        newest = self._steps[-1].number if self._steps else first_step
        self._steps.extend(self._target.steps_since(newest))

    def _patience(self, start: float, stopped: bool) -> float:
        planned = self._schedule.next_time
        if stopped or planned is None:
            return _LOOK_UP_SECONDS
        return min(max(0.0, planned - (self._pace.now() - start)), _LOOK_UP_SECONDS)
