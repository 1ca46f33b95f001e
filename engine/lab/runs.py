"""What is left of one run of a workload: every request's record, the steps, and when each request
was planned and really sent. Simulated and real runs come out alike.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from engine.core.records import RequestRecord, StepRecord
from engine.lab.workload import Workload
from engine.telemetry.metrics import Distribution, describe


@dataclass(frozen=True, slots=True)
class Sent:
    """One request on its way: seconds since the run's start at which it was planned and sent.

    For a request that waits for another one's end the plan is that end plus its delay. `error` is
    the sentence it was refused with.
    """

    index: int
    planned: float
    actual: float
    error: str | None = None

    @property
    def lateness(self) -> float:
        """Seconds by which it was sent after its planned time."""
        return max(0.0, self.actual - self.planned)


@dataclass(frozen=True, slots=True)
class Run:
    """One workload served once under one configuration.

    records hold times of the clock that `start` and `end` are read from; a request that was refused
    when it was sent has none. `stopped` says that the run was ended before its end.
    """

    records: tuple[RequestRecord, ...]
    steps: tuple[StepRecord, ...]
    sends: tuple[Sent, ...]
    start: float
    end: float
    stopped: bool = False

    def lateness(self) -> Distribution:
        """How late requests were sent, in seconds."""
        return describe([sent.lateness for sent in self.sends])


Progress = Callable[[int, int], object]
"""Told how many requests of a run have ended, and how many there are."""


class Schedule:
    """The requests of a workload that are still to be sent, earliest first.

    Times are absolute, so that one late request delays no other. A request that waits for another
    joins when that one ends.
    """

    def __init__(self, workload: Workload) -> None:
        self._items = workload.items
        self._due: list[tuple[float, int]] = []
        self._waiting: dict[int, list[int]] = defaultdict(list)
        for index, item in enumerate(workload.items):
            if item.start.after is not None:
                self._waiting[item.start.after].append(index)
            else:
                self._due.append((item.start.time or 0.0, index))
        heapq.heapify(self._due)

    @property
    def next_time(self) -> float | None:
        """When the next request is planned; None while all that are left wait for another."""
        return self._due[0][0] if self._due else None

    def take(self, now: float) -> tuple[float, int] | None:
        """The next request that is due, as planned time and index; None while there is none."""
        return heapq.heappop(self._due) if self._due and self._due[0][0] <= now else None

    def ended(self, index: int, now: float) -> None:
        """Plan the requests that have waited for this one."""
        for waiting in self._waiting.pop(index, ()):
            heapq.heappush(self._due, (now + self._items[waiting].start.delay, waiting))
