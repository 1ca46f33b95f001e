"""The latency metrics, each defined by two timestamps of a request's record.

All values are seconds of the engine's clock. *Delivered* times are when the reader took a token,
*sampled* ones when the step that made it ended; what rests on the latter is named `engine_...`. A
request that is not streamed has no delivered times, and so no TTFT and no ITL. This module reads
records only: it knows no store, no page and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.core.records import RequestRecord
from engine.core.request import FinishReason

Samples = NDArray[np.float64]

GRID = 2.0**30
"""Times are rounded to 1 / GRID seconds, less than a nanosecond, before they are subtracted.

Differences and sums of multiples of a power of two are exact in binary floating point while they
stay below 2**53 of them (97 days), in whatever order they are added: so the four parts of TTFT add
up to it exactly.
"""

FINISHED = frozenset({FinishReason.STOP, FinishReason.LENGTH})
PERCENTILES = (50, 95, 99)
_CARRIED_FROM = {50: 2, 95: 20, 99: 100}


class RequestMetrics(NamedTuple):
    """One request's durations in seconds; None where one of the two timestamps is missing.

    ttft = input_preparation + queueing + prefill + delivery, exactly. tpot and longest_pause need
    two tokens; longest_pause is the largest output gap. e2e ends at the last token taken, and at
    the request's end when it is not streamed.
    """

    input_preparation: float | None
    queueing: float | None
    prefill: float | None
    delivery: float | None
    ttft: float | None
    tpot: float | None
    longest_pause: float | None
    e2e: float | None
    engine_ttft: float | None
    engine_tpot: float | None
    engine_e2e: float | None


def request_metrics(record: RequestRecord) -> RequestMetrics:
    """The metrics of one request, whatever became of it."""
    delivered = record.token_delivered if record.streamed else ()
    sampled = record.token_sampled
    first_delivered = delivered[0] if delivered else None
    last_delivered = delivered[-1] if delivered else None
    gaps = output_gaps([record])
    return RequestMetrics(
        input_preparation=between(record.submitted, record.queued),
        queueing=between(record.queued, record.scheduled),
        prefill=between(record.scheduled, record.first_token_sampled),
        delivery=between(record.first_token_sampled, first_delivered),
        ttft=between(record.submitted, first_delivered),
        tpot=_per_token(delivered),
        longest_pause=float(gaps.max()) if gaps.size else None,
        e2e=between(record.submitted, last_delivered if record.streamed else record.finished),
        engine_ttft=between(record.submitted, record.first_token_sampled),
        engine_tpot=_per_token(sampled),
        engine_e2e=between(record.submitted, sampled[-1] if sampled else None),
    )


def between(start: float | None, end: float | None) -> float | None:
    """Seconds from one time to another, both on the grid; None while either is missing."""
    if start is None or end is None:
        return None
    return round(end * GRID) / GRID - round(start * GRID) / GRID


def itl(records: Sequence[RequestRecord]) -> Samples:
    """Inter-token latencies of all requests, one for each token taken but a request's first.

    Tokens taken at one moment share the gap before that moment equally. Those taken together with
    the first token waited for nothing more and count as 0, so that the mean over one request is its
    TPOT.
    """
    return _pooled(itl_by_request(records))


def itl_by_request(records: Sequence[RequestRecord]) -> list[Samples]:
    """`itl` apart for each request, in the order given."""
    return _token_gaps([r.token_delivered if r.streamed else () for r in records])


def engine_itl(records: Sequence[RequestRecord]) -> Samples:
    """As `itl`, from the times at which tokens were sampled: what the engine alone did."""
    return _pooled(_token_gaps([record.token_sampled for record in records]))


def output_gaps(records: Sequence[RequestRecord]) -> Samples:
    """Undivided times between the moments at which one request's reader took tokens."""
    flat = _Flat([r.token_delivered if r.streamed else () for r in records])
    return flat.moment_gaps[~flat.first_moments]


def ttft(records: Sequence[RequestRecord]) -> Samples:
    """Times to first token of the requests whose reader has taken one."""
    ends = [
        (r.submitted, r.token_delivered[0]) for r in records if r.streamed and r.token_delivered
    ]
    times = _on_grid(np.array(ends, dtype=np.float64).reshape(-1, 2))
    return np.asarray(times[:, 1] - times[:, 0], dtype=np.float64)


def measures_latency(record: RequestRecord) -> bool:
    """Whether tokens this request delivered count as samples of TTFT and of gaps.

    A cancelled or still open request waited for its tokens as any other did; leaving it out would
    favour the quick ones. One that failed is counted, and averaged nowhere.
    """
    return record.finish_reason is not FinishReason.ERROR


def measures_whole(record: RequestRecord) -> bool:
    """Whether TPOT, E2E and longest pause of this request count: it came to its own end."""
    return record.finish_reason in FINISHED


@dataclass(frozen=True, slots=True)
class Distribution:
    """What samples amount to. Every value but the count is None when there are none.

    Percentiles are by linear interpolation between the samples; which of them a count can carry is
    said by `shown_percentiles`.
    """

    count: int
    mean: float | None = None
    min: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def describe(samples: Samples | Sequence[float]) -> Distribution:
    """Count, mean, extremes and percentiles of samples; NaN among them is left out."""
    values = np.asarray(samples, dtype=np.float64)
    return describe_sorted(np.sort(values[~np.isnan(values)]))


def describe_sorted(samples: Samples) -> Distribution:
    """`describe` for samples in ascending order without NaN, in a fraction of the time."""
    if not samples.size:
        return Distribution(0)
    low, high = float(samples[0]), float(samples[-1])
    p50, p95, p99 = (_interpolated(samples, q) for q in PERCENTILES)
    # A mean of equal samples may be rounded to just outside of them.
    mean = min(max(float(samples.mean()), low), high)
    return Distribution(samples.size, mean, low, p50, p95, p99, high)


def percentile(samples: Samples | Sequence[float], q: float) -> float | None:
    """The q-th percentile (0 to 100) by linear interpolation; None without samples.

    Linear as in `numpy.percentile(method="linear")`, and never outside the two samples around it.
    """
    values = np.sort(np.asarray(samples, dtype=np.float64))
    return _interpolated(values, q) if values.size else None


def shown_percentiles(count: int) -> tuple[str, ...]:
    """The columns of a `Distribution` to show for a count: percentiles it can carry, or `max`.

    p50 needs 2 samples, p95 20, p99 100; `max` stands in for those left out.
    """
    if count < 1:
        return ()
    carried = tuple(f"p{q}" for q, least in _CARRIED_FROM.items() if count >= least)
    return carried if len(carried) == len(_CARRIED_FROM) else (*carried, "max")


@dataclass(frozen=True, slots=True)
class Throughput:
    """Output tokens in the window `(start, end]`, those of failed requests apart.

    `tokens_per_second` is 0 when nothing came and None for a window without length.
    """

    start: float
    end: float
    tokens: int
    failed_tokens: int

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of requests that did not fail, over the length of the window."""
        return self.tokens / (self.end - self.start) if self.end > self.start else None


def throughput(records: Iterable[RequestRecord], start: float, end: float) -> Throughput:
    """Count output tokens in the window `(start, end]`, prompt tokens not included.

    A token counts when its reader took it, and in a request that is not streamed when it was
    sampled.
    """
    tokens = failed = 0
    for record in records:
        times = record.token_delivered if record.streamed else record.token_sampled
        if not times or times[-1] <= start:
            continue
        values = np.asarray(times)
        after_end, after_start = (int(np.count_nonzero(values > t)) for t in (end, start))
        if measures_latency(record):
            tokens += after_start - after_end
        else:
            failed += after_start - after_end
    return Throughput(start, end, tokens, failed)


def to_json_value(value: Any) -> Any:
    """A copy that strict JSON can hold: NaN and infinities become None, numpy and enums plain."""
    if isinstance(value, Enum):
        return to_json_value(value.value)
    if isinstance(value, np.generic | np.ndarray):
        return to_json_value(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(to_json_value(key)): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    return value


def _interpolated(in_order: Samples, q: float) -> float:
    position = q / 100 * (in_order.size - 1)
    index = min(int(position), in_order.size - 1)
    below = float(in_order[index])
    above = float(in_order[min(index + 1, in_order.size - 1)])
    return min(below + (above - below) * (position - index), above)


def _per_token(times: Sequence[float]) -> float | None:
    if len(times) < 2:
        return None
    span = between(times[0], times[-1])
    return None if span is None else span / (len(times) - 1)


def _on_grid(times: Samples) -> Samples:
    return np.asarray(np.round(times * GRID) / GRID, dtype=np.float64)


class _Flat:
    """Token times of many requests end to end, and the moments at which they came.

    `sizes` holds the tokens of each moment, `moment_gaps` the time since the one before it (0 for a
    request's first), `first_moments` whether it is a request's first.
    """

    def __init__(self, sequences: Sequence[Sequence[float]]) -> None:
        lengths = np.fromiter(map(len, sequences), np.intp, len(sequences))
        total = int(lengths.sum())
        times = _on_grid(np.fromiter(chain.from_iterable(sequences), np.float64, total))
        self.ends = np.cumsum(lengths)
        self.starts = (self.ends - lengths)[lengths > 0]
        begins = np.ones(total, dtype=np.bool_)
        begins[1:] = times[1:] != times[:-1]
        begins[self.starts] = True
        first_tokens = np.zeros(total, dtype=np.bool_)
        first_tokens[self.starts] = True
        moments = np.flatnonzero(begins)
        self.sizes = np.diff(moments, append=total)
        self.first_moments = first_tokens[moments]
        self.moment_gaps: Samples = np.diff(times[moments], prepend=0.0)
        self.moment_gaps[self.first_moments] = 0.0


def _token_gaps(sequences: Sequence[Sequence[float]]) -> list[Samples]:
    flat = _Flat(sequences)
    gaps = np.repeat(flat.moment_gaps / flat.sizes, flat.sizes)
    ends = flat.ends.tolist()
    return [
        gaps[end - len(times) + 1 : end] if times else gaps[:0]
        for times, end in zip(sequences, ends, strict=True)
    ]


def _pooled(parts: Sequence[Samples]) -> Samples:
    return np.concatenate(parts) if parts else np.empty(0)
