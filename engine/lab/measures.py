"""The numbers of one run, and of all runs of a side together: latencies, throughput, goodput, cost.

The definitions of the metrics are in `engine.telemetry.metrics`; here they are only put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.records import RequestRecord
from engine.lab.runs import Run, Sent
from engine.lab.workload_lengths import check_number
from engine.telemetry import metrics
from engine.telemetry.metrics import Distribution, describe
from engine.telemetry.summary import Summary, summarise

LATENCIES = ("ttft", "itl", "longest_pause", "tpot", "e2e")
PARTS = ("input_preparation", "queueing", "prefill", "delivery")
ENGINE_LATENCIES = ("engine_ttft", "engine_itl", "engine_tpot", "engine_e2e")
PERCENTILES = ("p50", "p95", "p99")
GAP_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a request has to keep to be good: seconds to its first token and for each further one.

    None does not limit. Goodput is the number of good requests a second, as in Zhong et al.,
    "DistServe: Disaggregating Prefill and Decoding for Goodput-optimized LLM Serving" (2024).
    """

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("TTFT", self.ttft_seconds), ("TPOT", self.tpot_seconds)):
            if value is not None:
                check_number(f"{name} limit in seconds", value, least=0.0, above=True)

    @property
    def given(self) -> bool:
        """Whether anything is limited."""
        return self.ttft_seconds is not None or self.tpot_seconds is not None

    def met_by(self, record: RequestRecord) -> bool:
        """Whether a request finished within the limits.

        TPOT counts only for two tokens or more. One that is not streamed is judged by the times at
        which its tokens were sampled, since nobody took them one by one.
        """
        if not metrics.measures_whole(record):
            return False
        values = metrics.request_metrics(record)
        ttft = values.ttft if record.streamed else values.engine_ttft
        tpot = values.tpot if record.streamed else values.engine_tpot
        return _within(ttft, self.ttft_seconds, missing=False) and _within(
            tpot, self.tpot_seconds, missing=True
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in numbers.

    position: its place in the order in which all runs were made, from 0; pair: which pair it
    belongs to. measures: `ttft.p50` and so on in seconds, `throughput` in output tokens a second,
    `goodput` in requests a second; None where there is no sample. sends: planned and actual times
    of every request. lateness: of those, in seconds.
    """

    position: int
    pair: int
    seconds: float
    measures: dict[str, float | None]
    requests: dict[str, int]
    prefix_hit_rate: float | None
    lateness: Distribution
    sends: tuple[Sent, ...]


def summarise_run(run: Run, limits: Limits, *, position: int, pair: int) -> RunSummary:
    """The numbers of one run; its window reaches from its start to its end."""
    summary = summarise(run.records, start=run.start, end=run.end)
    measures: dict[str, float | None] = {}
    for name, row in distributions(summary).items():
        for column in (*PERCENTILES, "max"):
            measures[f"{name}.{column}"] = getattr(row, column)
    measures["throughput"] = summary.throughput.tokens_per_second
    seconds = run.end - run.start
    good = num_good(run.records, limits)
    measures["goodput"] = good / seconds if good is not None and seconds > 0 else None
    return RunSummary(
        position=position,
        pair=pair,
        seconds=seconds,
        measures=measures,
        requests=dict(summary.requests) | {"refused": num_refused(run)},
        prefix_hit_rate=summary.prefix_hit_rate,
        lateness=run.lateness(),
        sends=run.sends,
    )


def num_refused(run: Run) -> int:
    """Requests that were turned away when they were sent: they are in no other count."""
    return sum(sent.error is not None for sent in run.sends)


def num_good(records: Sequence[RequestRecord], limits: Limits) -> int | None:
    """How many requests met the limits; None where there are none to meet."""
    return sum(map(limits.met_by, records)) if limits.given else None


def distributions(summary: Summary) -> dict[str, Distribution]:
    """The latency table of a summary, a `Distribution` for each metric, in seconds."""
    table = summary.latency
    rows: dict[str, Distribution] = {}
    for name in (*LATENCIES, *PARTS, *ENGINE_LATENCIES):
        row: dict[str, Any] = metrics.to_json_value(table.loc[name].to_dict())
        rows[name] = Distribution(**{**row, "count": int(row["count"])})
    return rows


def gap_percentiles(records: Sequence[RequestRecord]) -> dict[str, float | None]:
    """Gaps between tokens from typical to worst: `p50` to `p99.9` and `max`, in seconds."""
    gaps = metrics.itl([record for record in records if metrics.measures_latency(record)])
    values = {f"p{q:g}": metrics.percentile(gaps, q) for q in GAP_PERCENTILES}
    return values | {"max": describe(gaps).max}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What serving cost at a price for each hour of the machine; None where nothing was served."""

    per_hour: float
    per_million_output_tokens: float | None
    per_good_request: float | None


def cost(per_hour: float, seconds: float, output_tokens: int, good: int | None) -> Cost:
    """Cost of `seconds` of a machine, for each million output tokens and each good request."""
    check_number("price for an hour", per_hour, least=0.0)
    spent = per_hour * seconds / 3600
    return Cost(
        per_hour=per_hour,
        per_million_output_tokens=spent / output_tokens * 1e6 if output_tokens else None,
        per_good_request=spent / good if good else None,
    )


def _within(value: float | None, limit: float | None, *, missing: bool) -> bool:
    if limit is None:
        return True
    return missing if value is None else value <= limit
