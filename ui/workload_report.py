"""A run of one workload in words and numbers.

Pure functions; every text of a file or a result is escaped.
"""

from __future__ import annotations

from html import escape
from typing import Final

from engine.lab.measures import LATENCIES, PARTS
from engine.lab.results import Result
from engine.telemetry.metrics import request_metrics, shown_percentiles
from ui.compare_report import as_table, percent
from ui.formats import duration, rate
from ui.words import DASH
from ui.words_compare import METRICS
from ui.words_workload import WORKLOAD
from ui.workload_figures import NUM_BINS, binned

HEADERS: Final = ["metric", "samples", "p50", "p95", "p99", "max"]

Row = list[str]


def result_rows(result: Result) -> list[Row]:
    """Everything measured in a run, a row a metric; percentiles where the samples carry them."""
    side = result.sides[0]
    rows = []
    for metric in (LATENCIES[0], *PARTS, *LATENCIES[1:]):
        values = side.latency[metric]
        carried = shown_percentiles(values.count)
        cells = [_cell(getattr(values, name) if name in carried else None) for name in HEADERS[2:5]]
        rows.append([METRICS[metric][0], f"{values.count:,}", *cells, _cell(values.max)])
    runs = f"{len(side.runs)} run"
    rows.append(
        _single("Throughput", runs, DASH if side.throughput is None else rate(side.throughput))
    )
    if side.goodput is not None and side.good_share is not None:
        sent = f"{len(side.runs[0].sends):,}"
        rows.append(_single("Goodput", runs, f"{side.goodput:.2f} req/s"))
        rows.append(_single("Within the limits", sent, percent(side.good_share)))
    rows.append(_single("Prefix hits", runs, percent(side.prefix_hit_rate)))
    failed = side.requests["failed"] + side.requests["refused"]
    rows.append(_single("Failed or refused", f"{sum(side.requests.values()):,}", f"{failed:,}"))
    lateness = side.runs[0].lateness
    rows.append(_single("Sent late by at most", f"{lateness.count:,}", _cell(lateness.max)))
    if side.cost is not None:
        million, good_one = side.cost.per_million_output_tokens, side.cost.per_good_request
        rows.append(_single("Cost of a million output tokens", runs, money(million)))
        rows.append(_single("Cost of a request within the limits", runs, money(good_one)))
    return rows


def all_numbers(result: Result) -> str:
    """The same, folded away beneath the table of all runs."""
    title = WORKLOAD["all_numbers"]
    return as_table(title, HEADERS, result_rows(result), summary=title)


def run_report(result: Result) -> str:
    """Settings and notes of a run; its mark tells the page's script which lanes to draw."""
    config = result.sides[0].config
    settings = (
        f"{config['policy']}, token budget {config['max_batched_tokens']:,}, "
        f"{config['max_running']} slots, {config['queue_order']} queue, "
        f"{config['num_blocks']:,} KV blocks, prefix caching "
        f"{'on' if config['prefix_caching'] else 'off'}"
    )
    share = WORKLOAD["shared"].format(share=percent(result.workload["shared_share"]))
    streamed = "streamed" if result.workload["streamed"] else "not streamed"
    notes = [settings, share, streamed, *result.notes, *result.workload["notes"]]
    spans = "".join(f"<span>{escape(note)}</span>" for note in notes)
    return (
        f'<div class="ps-verdict" data-result="{escape(result.id)}">'
        f'<p class="ps-cap">{spans}</p></div>'
    )


def chart_captions(result: Result) -> tuple[str, str, str]:
    """Title and sentence of the charts: gaps, first tokens, finished requests."""
    side, limits = result.sides[0], result.limits
    gaps = side.latency["itl"].count
    of_gaps = WORKLOAD["gaps_cap"].format(samples=f"{gaps:,}") if gaps else WORKLOAD["no_gaps"]
    given = [
        f"{name} {duration(value)}"
        for name, value in (("TTFT", limits.ttft_seconds), ("TPOT", limits.tpot_seconds))
        if value is not None
    ]
    of_goodput = WORKLOAD["goodput_free"]
    if given:
        of_goodput = WORKLOAD["goodput_limited"].format(limits=" and ".join(given))
    return (
        _caption(WORKLOAD["gaps"], of_gaps),
        _caption(WORKLOAD["first_tokens"], WORKLOAD["first_tokens_cap"]),
        _caption(WORKLOAD["goodput"], of_goodput),
    )


def chart_tables(result: Result) -> tuple[str, str, str]:
    """The numbers of the charts, each folded away beneath its chart."""
    side = result.sides[0]
    records = side.timeline.requests
    values = [(record, request_metrics(record)) for record in records]
    first = [
        [
            f"R{number}",
            f"{record.submitted:.2f} s",
            _cell(each.ttft if record.streamed else each.engine_ttft),
        ]
        for number, (record, each) in enumerate(values, start=1)
    ]
    good, late = binned(records, result.limits, side.seconds)
    width = side.seconds / NUM_BINS
    slices = [
        [f"{i * width:.2f} to {(i + 1) * width:.2f} s", str(a), str(b)]
        for i, (a, b) in enumerate(zip(good, late, strict=True))
    ]
    gaps = [[name, _cell(value)] for name, value in side.gap_percentiles.items()]
    return (
        as_table(WORKLOAD["gaps"], ["", "gap"], gaps),
        as_table(WORKLOAD["first_tokens"], ["request", "submitted", "TTFT"], first),
        as_table(WORKLOAD["goodput"], ["since start", "within", "later"], slices),
    )


def _caption(title: str, sentence: str) -> str:
    return f'<h2>{title}</h2><p class="ps-cap">{escape(sentence)}</p>'


def _single(name: str, samples: str, value: str) -> Row:
    return [name, samples, value, "", "", ""]


def _cell(seconds: float | None) -> str:
    return DASH if seconds is None else duration(seconds)


def money(value: float | None) -> str:
    """An amount of an unnamed currency."""
    return DASH if value is None else f"{value:,.4g}"
