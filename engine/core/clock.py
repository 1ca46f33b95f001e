"""Clocks that the engine can be handed. Durations come from these and never from the wall clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of seconds that never goes back."""

    def now(self) -> float:
        """Seconds since an arbitrary fixed moment."""
        ...


class MonotonicClock:
    """The machine's monotonic clock, counted from the moment this object was made.

    `wall_start` is the wall-clock time (Unix seconds) of that moment, for display only.
    """

    def __init__(self) -> None:
        self.wall_start = time.time()
        self._start = time.monotonic()

    def now(self) -> float:
        """Seconds since this clock was made."""
        return time.monotonic() - self._start


class VirtualClock:
    """A clock that moves only when told to: simulation and tests."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """The current virtual time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward; raises ValueError for a negative step."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        self._now += seconds
