"""When requests are sent: arrival processes as absolute times, so that a schedule cannot drift.

Open processes say a time for each request; a closed loop says who waits for whom. Nothing here
sleeps, sends or knows what a request asks.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

from engine.core.errors import InvalidRequest
from engine.lab.workload_lengths import check_number

MAX_USERS = 1_000


@dataclass(frozen=True, slots=True)
class Start:
    """When one request is sent: at `time` seconds of the run, or `delay` after another's end.

    `after` is the index of the request that has to end first; `time` is None then.
    """

    time: float | None = None
    after: int | None = None
    delay: float = 0.0


class Arrivals(Protocol):
    """One way to place requests in time."""

    def starts(self, rng: random.Random, count: int) -> list[Start]:
        """The starts of `count` requests in order; the first open one is at 0."""
        ...

    def describe(self) -> str:
        """The process in a few words."""
        ...


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals at `rate` requests a second; an infinite rate sends all at once."""

    rate: float

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def starts(self, rng: random.Random, count: int) -> list[Start]:
        """Exponential gaps of mean 1 / rate."""
        return Gamma(self.rate, 1.0).starts(rng, count)

    def describe(self) -> str:
        """Process and rate."""
        return _paced("Poisson", self.rate)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma-distributed gaps at `rate` a second, as in vLLM's benchmark.

    `burstiness` is the shape of the distribution: 1 is Poisson, below 1 burstier, above 1 more
    even. The mean gap is 1 / rate whatever it is.
    """

    rate: float
    burstiness: float

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_number("burstiness", self.burstiness, least=0.0, most=1_000.0, above=True)

    def starts(self, rng: random.Random, count: int) -> list[Start]:
        """Gaps of shape `burstiness` and scale 1 / (rate * burstiness)."""
        if math.isinf(self.rate):
            return [Start(0.0)] * count
        scale = 1.0 / (self.rate * self.burstiness)
        gaps = [rng.gammavariate(self.burstiness, scale) for _ in range(count - 1)]
        return [Start(time) for time in accumulate(gaps, initial=0.0)]

    def describe(self) -> str:
        """Process, rate and burstiness."""
        return _paced(f"gamma with burstiness {self.burstiness:g}", self.rate)


@dataclass(frozen=True, slots=True)
class Constant:
    """One request every 1 / rate seconds; an infinite rate sends all at once."""

    rate: float

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def starts(self, rng: random.Random, count: int) -> list[Start]:
        """Request i at i / rate."""
        return [Start(index / self.rate) for index in range(count)]

    def describe(self) -> str:
        """The rate."""
        return _paced("evenly spaced", self.rate)


@dataclass(frozen=True, slots=True)
class Burst:
    """`size` requests at once, `every` so many seconds."""

    size: int
    every: float

    def __post_init__(self) -> None:
        check_number("burst size", self.size, least=1)
        check_number("time between bursts", self.every, least=0.0, above=True)

    def starts(self, rng: random.Random, count: int) -> list[Start]:
        """Request i in burst i // size."""
        return [Start(index // self.size * self.every) for index in range(count)]

    def describe(self) -> str:
        """Size and distance of bursts."""
        return f"bursts of {self.size:,}, one every {self.every:g} s"


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`users` who each send a request, wait for its end, think, and send the next."""

    users: int
    think_seconds: float = 0.0

    def __post_init__(self) -> None:
        check_number("number of users", self.users, least=1, most=MAX_USERS)
        check_number("think time", self.think_seconds, least=0.0)

    def starts(self, rng: random.Random, count: int) -> list[Start]:
        """The first of every user at 0; request i after request i - users."""
        return [
            Start(0.0)
            if index < self.users
            else Start(after=index - self.users, delay=self.think_seconds)
            for index in range(count)
        ]

    def describe(self) -> str:
        """Users and think time."""
        return f"closed loop of {self.users:,} users who think for {self.think_seconds:g} s"


@dataclass(frozen=True, slots=True)
class TraceTimes:
    """Times seen elsewhere (seconds, ascending), played `speed` times as fast."""

    times: tuple[float, ...]
    speed: float = 1.0

    def __post_init__(self) -> None:
        check_number("speed factor", self.speed, least=0.0, above=True)
        if any(b < a for a, b in pairwise(self.times)):
            raise InvalidRequest("The times of a trace must ascend; sort them before.")

    def starts(self, rng: random.Random, count: int) -> list[Start]:
        """The first `count` times, counted from the first; raises InvalidRequest for too few."""
        if count > len(self.times):
            raise InvalidRequest(
                f"{count:,} requests are asked for, but the trace has {len(self.times):,} times."
            )
        return [Start((time - self.times[0]) / self.speed) for time in self.times[:count]]

    def describe(self) -> str:
        """Where the times are from and how fast they pass."""
        pace = "" if self.speed == 1.0 else f", {self.speed:g} times as fast"
        return f"as in the trace{pace}"


def check_rate(rate: float) -> None:
    """Raise InvalidRequest unless the rate is above 0; infinity is allowed."""
    if math.isnan(rate) or rate <= 0:
        raise InvalidRequest(
            f"The rate must be above 0 requests a second (infinity sends all at once); "
            f"got {rate:g}.",
            field="rate",
        )


def _paced(process: str, rate: float) -> str:
    if math.isinf(rate):
        return "all at once"
    return f"{process}, {rate:g} {'request' if rate == 1 else 'requests'} a second"
