"""Many requests as tables: one row a request, and what they amount to.

Which request counts for which metric is decided here once, so that the page, the API and the
exports agree. The definitions themselves are in `metrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from engine.core.records import RequestRecord
from engine.core.request import FinishReason
from engine.telemetry import metrics
from engine.telemetry.metrics import RequestMetrics, Throughput, to_json_value

OUTCOMES = ("finished", "cancelled", "failed", "open")
_PER_FIRST_TOKEN = ("input_preparation", "queueing", "prefill", "delivery", "ttft")
_PER_FINISHED = ("tpot", "longest_pause", "e2e", "engine_tpot", "engine_e2e")


def request_table(records: Sequence[RequestRecord]) -> pd.DataFrame:
    """One row a request, whatever became of it: counts, and durations in seconds (else NaN).

    The columns after `submitted` are the fields of `RequestMetrics`.
    """
    counts = pd.DataFrame(
        {
            "number": [record.number for record in records],
            "id": [record.id for record in records],
            "label": [record.label for record in records],
            "outcome": [outcome(record) for record in records],
            "finish_reason": [record.finish_reason for record in records],
            "streamed": [record.streamed for record in records],
            "num_prompt_tokens": [record.num_prompt_tokens for record in records],
            "num_cached_tokens": [record.num_cached_tokens for record in records],
            "num_output_tokens": [record.num_output_tokens for record in records],
            "num_recomputed_tokens": [record.num_recomputed_tokens for record in records],
            "num_preemptions": [len(record.preemptions) for record in records],
            "submitted": [record.submitted for record in records],
        }
    )
    durations = pd.DataFrame(
        [metrics.request_metrics(record) for record in records],
        columns=list(RequestMetrics._fields),
        dtype="float64",
    )
    return pd.concat([counts, durations], axis=1)


def outcome(record: RequestRecord) -> str:
    """What became of a request, in one of the words of `OUTCOMES`."""
    if record.finish_reason is None:
        return "open"
    if record.finish_reason in metrics.FINISHED:
        return "finished"
    return "cancelled" if record.finish_reason is FinishReason.CANCELLED else "failed"


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """What the requests submitted in the window `[start, end]` amount to.

    latency: one row a metric, in seconds, with the columns of `Distribution`. `itl` and
    `engine_itl` pool the tokens of all requests, so that long answers weigh more; `tpot` has one
    sample a request, so that its mean is the average over requests. The two means differ by design.

    requests: how many requests came to each outcome. TTFT, its parts and gaps are taken from all
    but the failed ones; TPOT, E2E and longest pause from the finished ones.

    prompt_tokens, output_tokens: least and most of a request that did not fail, None without one.
    peak_concurrency: most requests between submission and end at one moment.
    prefix_hit_rate: prompt tokens found in the cache over prompt tokens, None without prompts.
    """

    start: float
    end: float
    requests: dict[str, int]
    latency: pd.DataFrame
    throughput: Throughput
    prompt_tokens: tuple[int, int] | None
    output_tokens: tuple[int, int] | None
    peak_concurrency: int
    prefix_hit_rate: float | None

    def to_json(self) -> dict[str, Any]:
        """The same as plain values for strict JSON, None where there is no value."""
        latency = {
            name: {**row, "count": int(row["count"])}
            for name, row in self.latency.to_dict("index").items()
        }
        rate = self.throughput.tokens_per_second
        value: dict[str, Any] = to_json_value(
            {
                "window": {"start": self.start, "end": self.end},
                "requests": self.requests,
                "latency_seconds": latency,
                "throughput": {**asdict(self.throughput), "tokens_per_second": rate},
                "prompt_tokens": self.prompt_tokens,
                "output_tokens": self.output_tokens,
                "peak_concurrency": self.peak_concurrency,
                "prefix_hit_rate": self.prefix_hit_rate,
            }
        )
        return value


def summarise(
    records: Sequence[RequestRecord], *, start: float | None = None, end: float | None = None
) -> Summary:
    """Sum up the requests submitted in `[start, end]`, by default all that are given.

    Without bounds the window reaches from the first submission to the last event. The throughput
    counts the tokens that all given requests delivered in the window.
    """
    if start is None:
        start = min((record.submitted for record in records), default=0.0)
    if end is None:
        end = max((_last_event(record) for record in records), default=start)
    within = [record for record in records if start <= record.submitted <= end]
    measured = [record for record in within if metrics.measures_latency(record)]
    outcomes = Counter(map(outcome, within))
    prompt_tokens = sum(record.num_prompt_tokens for record in measured)
    cached_tokens = sum(record.num_cached_tokens for record in measured)
    return Summary(
        start=start,
        end=end,
        requests={name: outcomes[name] for name in OUTCOMES},
        latency=_latency(measured),
        throughput=metrics.throughput(records, start, end),
        prompt_tokens=_range([record.num_prompt_tokens for record in measured]),
        output_tokens=_range([record.num_output_tokens for record in measured]),
        peak_concurrency=_peak_concurrency(within),
        prefix_hit_rate=cached_tokens / prompt_tokens if prompt_tokens else None,
    )


def _latency(measured: Sequence[RequestRecord]) -> pd.DataFrame:
    table = request_table(measured)
    # The parts of the same requests as TTFT, so that their means add up too.
    delivered = table[table["ttft"].notna()]
    finished = table[table["outcome"] == "finished"]
    samples = {
        **{name: delivered[name].to_numpy() for name in _PER_FIRST_TOKEN},
        "engine_ttft": table["engine_ttft"].to_numpy(),
        "itl": metrics.itl(measured),
        "output_gap": metrics.output_gaps(measured),
        "engine_itl": metrics.engine_itl(measured),
        **{name: finished[name].to_numpy() for name in _PER_FINISHED},
    }
    rows = {name: asdict(metrics.describe(values)) for name, values in samples.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def _range(values: Sequence[int]) -> tuple[int, int] | None:
    return (min(values), max(values)) if values else None


def _last_event(record: RequestRecord) -> float:
    times = (record.submitted, record.finished, record.last_token_delivered)
    return max(time for time in times if time is not None)


def _peak_concurrency(records: Sequence[RequestRecord]) -> int:
    # At one moment an end comes before a submission, so that neighbours in time do not overlap.
    changes = [(record.submitted, 1) for record in records]
    changes += [(record.finished, -1) for record in records if record.finished is not None]
    peak = current = 0
    for _, change in sorted(changes):
        current += change
        peak = max(peak, current)
    return peak
