"""How long prompts and answers are: length distributions in tokens.

Each is given by its inverse distribution function `at`, so that drawing, the histogram and the
effective mean come from one definition. Nothing here knows a request or a tokenizer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Protocol

from engine.core.errors import InvalidRequest

MAX_LENGTH = 1_000_000
_GRID = 2_000
_RARE = 1e-6
_STANDARD = NormalDist()


class Lengths(Protocol):
    """A distribution of lengths, each at least 1 token."""

    def at(self, share: float) -> int:
        """The length that a `share` (0 < share < 1) of all lengths does not exceed."""
        ...

    def describe(self) -> str:
        """The distribution in a few words, its effective mean included where it is not plain."""
        ...


def draw(lengths: Lengths, rng: random.Random, count: int) -> list[int]:
    """`count` lengths, one random number each."""
    return [lengths.at(_open_unit(rng)) for _ in range(count)]


def effective_mean(lengths: Lengths) -> float:
    """The mean of what is drawn, after clipping and rounding."""
    return sum(_grid(lengths)) / _GRID


def extremes(lengths: Lengths) -> tuple[int, int]:
    """The shortest and the longest length, but for one in a million at either end."""
    return lengths.at(_RARE), lengths.at(1 - _RARE)


def histogram(lengths: Lengths, bins: int = 24) -> list[tuple[int, int, float]]:
    """Bins `(first, last, share)` that cover what is drawn; shares add up to 1.

    Their widths differ by one token at most, so compare them by their density.
    """
    values = _grid(lengths)
    low, span = values[0], values[-1] - values[0] + 1
    bins = min(bins, span)
    counts = [0] * bins
    for value in values:
        counts[(value - low) * bins // span] += 1
    firsts = [low - (-i * span // bins) for i in range(bins + 1)]
    return [
        (first, after - 1, n / _GRID)
        for (first, after), n in zip(pairwise(firsts), counts, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same length."""

    tokens: int

    def __post_init__(self) -> None:
        _check_length("length", self.tokens)

    def at(self, share: float) -> int:
        """The length."""
        return self.tokens

    def describe(self) -> str:
        """The length."""
        return f"{self.tokens:,} tokens"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every length from `low` to `high` equally often."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    def at(self, share: float) -> int:
        """Linear between the limits."""
        return min(self.high, self.low + int(share * (self.high - self.low + 1)))

    def describe(self) -> str:
        """The limits."""
        return f"{self.low:,} to {self.high:,} tokens, uniform"


@dataclass(frozen=True, slots=True)
class Normal:
    """Bell-shaped with `mean` and standard deviation `spread`, clipped to the limits.

    Clipping moves the mean: `effective_mean` says where to.
    """

    mean: float
    spread: float
    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        _check_number("mean length", self.mean, least=1.0)
        _check_number("spread of the length", self.spread, least=0.0)

    def at(self, share: float) -> int:
        """The normal quantile, rounded and clipped."""
        return _clip(self.mean + self.spread * _STANDARD.inv_cdf(share), self.low, self.high)

    def describe(self) -> str:
        """Asked-for and effective mean, spread and limits."""
        return (
            f"normal, mean {self.mean:g} and spread {self.spread:g} tokens, clipped to "
            f"{self.low:,} to {self.high:,}: effective mean {effective_mean(self):,.1f}"
        )


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Skewed with a long tail: `median`, and `sigma` of the logarithm; clipped to the limits."""

    median: float
    sigma: float
    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        _check_number("median length", self.median, least=1.0)
        _check_number("sigma of the length", self.sigma, least=0.0, most=10.0)

    def at(self, share: float) -> int:
        """The log-normal quantile, rounded and clipped."""
        value = self.median * math.exp(self.sigma * _STANDARD.inv_cdf(share))
        return _clip(value, self.low, self.high)

    def describe(self) -> str:
        """Median, sigma, limits and effective mean."""
        return (
            f"log-normal, median {self.median:g} tokens and sigma {self.sigma:g}, clipped to "
            f"{self.low:,} to {self.high:,}: effective mean {effective_mean(self):,.1f}"
        )


def mixture(parts: Sequence[tuple[float, Lengths]]) -> Lengths:
    """Lengths of several kinds together, each in proportion to its weight (above 0).

    One kind is itself; of more, `_GRID` evenly spread lengths stand for all.
    """
    if len(parts) == 1:
        return parts[0][1]
    total = sum(weight for weight, _ in parts)
    counts = [(max(1, round(_GRID * weight / total)), lengths) for weight, lengths in parts]
    return Empirical(
        tuple(lengths.at((i + 0.5) / count) for count, lengths in counts for i in range(count))
    )


@dataclass(frozen=True, slots=True)
class Empirical:
    """Lengths seen elsewhere, each as often as it was seen."""

    values: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise InvalidRequest("An empirical distribution needs at least one length; got none.")
        for value in self.values:
            _check_length("length", value)
        object.__setattr__(self, "values", tuple(sorted(self.values)))

    def at(self, share: float) -> int:
        """The seen length at that share."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def describe(self) -> str:
        """How many were seen, their range and mean."""
        mean = sum(self.values) / len(self.values)
        return (
            f"as seen in {len(self.values):,} requests, {self.values[0]:,} to "
            f"{self.values[-1]:,} tokens, mean {mean:,.1f}"
        )


def check_number(
    name: str, value: float, *, least: float, most: float = math.inf, above: bool = False
) -> None:
    """Raise InvalidRequest unless `value` is finite and from `least` (or above it) to `most`."""
    bound = f"above {least:g}" if above else f"at least {least:g}"
    limits = bound if math.isinf(most) else f"{bound} and at most {most:g}"
    too_low = value <= least if above else value < least
    if not math.isfinite(value) or too_low or value > most:
        raise InvalidRequest(f"The {name} must be a number {limits}; got {value:g}.", field=name)


def _check_number(name: str, value: float, *, least: float, most: float = MAX_LENGTH) -> None:
    check_number(name, value, least=least, most=most)


def _check_length(name: str, value: int) -> None:
    check_number(name, value, least=1, most=MAX_LENGTH)


def _check_range(low: int, high: int) -> None:
    _check_length("shortest length", low)
    _check_length("longest length", high)
    if low > high:
        raise InvalidRequest(
            f"The shortest length ({low:,}) must not exceed the longest ({high:,}).",
            field="shortest length",
        )


def _clip(value: float, low: int, high: int) -> int:
    return min(max(round(min(value, float(high))), low), high)


def _grid(lengths: Lengths) -> Sequence[int]:
    return [lengths.at((i + 0.5) / _GRID) for i in range(_GRID)]


def _open_unit(rng: random.Random) -> float:
    """A random number above 0 and below 1: a quantile at 0 would be minus infinity."""
    return (rng.getrandbits(52) + 0.5) / 2.0**52
