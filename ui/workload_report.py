"""A run of one workload in words and numbers, and a shape's lengths as small histograms.

Pure functions; every text of a file or a result is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from engine.core.errors import InvalidRequest
from engine.lab.importing import Trace
from engine.lab.measures import LATENCIES, PARTS
from engine.lab.results import Result
from engine.lab.workload import WorkloadSpec
from engine.lab.workload_lengths import Lengths, histogram
from engine.lab.workload_shapes import SHAPES
from engine.telemetry.metrics import shown_percentiles
from ui.formats import duration, rate
from ui.words import DASH
from ui.words_compare import METRICS
from ui.words_workload import WORKLOAD
from ui.workload_form import TRACE, Traffic, spec_of

HEADERS: Final = ["metric", "samples", "p50", "p95", "p99", "max"]
_LISTED_LINES = 20
_BAR_WIDTH, _HEIGHT = 6, 24

Row = list[str]


def result_rows(result: Result) -> list[Row]:
    """The result table: a row a metric; a percentile only where its samples carry it."""
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
        good = f"{side.goodput:.2f} requests/s, {side.good_share:.0%} within the limits"
        rows.append(_single("Goodput", runs, good))
    hits = DASH if side.prefix_hit_rate is None else f"{side.prefix_hit_rate:.0%}"
    rows.append(_single("Prefix hits", runs, hits))
    failed = side.requests["failed"] + side.requests["refused"]
    rows.append(_single("Failed or refused", f"{sum(side.requests.values()):,}", f"{failed:,}"))
    lateness = side.runs[0].lateness
    rows.append(_single("Sent late by at most", f"{lateness.count:,}", _cell(lateness.max)))
    if side.cost is not None:
        million, good_one = side.cost.per_million_output_tokens, side.cost.per_good_request
        rows.append(_single("Cost of a million output tokens", runs, _money(million)))
        rows.append(_single("Cost of a request within the limits", runs, _money(good_one)))
    return rows


def run_report(result: Result) -> str:
    """Settings and notes of a run; its mark tells the page's script which lanes to draw."""
    config = result.sides[0].config
    settings = (
        f"{config['policy']}, token budget {config['max_batched_tokens']:,}, "
        f"{config['max_running']} slots, {config['num_blocks']:,} KV blocks, prefix caching "
        f"{'on' if config['prefix_caching'] else 'off'}"
    )
    share = WORKLOAD["shared"].format(share=f"{result.workload['shared_share']:.0%}")
    streamed = "streamed" if result.workload["streamed"] else "not streamed"
    notes = [settings, share, streamed, *result.notes, *result.workload["notes"]]
    spans = "".join(f"<span>{escape(note)}</span>" for note in notes)
    return (
        f'<div class="ps-verdict" data-result="{escape(result.id)}">'
        f'<p class="ps-cap">{spans}</p></div>'
    )


def traffic_card(traffic: Traffic) -> str:
    """What a shape is as it was edited: lengths with their histograms, shared share, arrivals."""
    if traffic.shape == TRACE:
        return ""
    try:
        spec = spec_of(traffic)
    except InvalidRequest as error:
        return f'<p class="ps-status" role="status" data-kind="err">{escape(str(error))}</p>'
    explanation = SHAPES[traffic.shape].explanation
    turns = f", {spec.turns} turns a conversation" if spec.turns > 1 else ""
    return (
        f'<div class="ps-traffic"><p>{escape(explanation)}</p>{_parts(spec)}'
        f'<p class="ps-cap">{spec.num_requests:,} requests, {escape(spec.arrivals.describe())}'
        f"{turns}, {'streamed' if spec.streamed else 'not streamed'}</p></div>"
    )


def trace_card(trace: Trace) -> str:
    """What was loaded of a file, and which lines were not, with the reason."""
    shown = trace.rejected[:_LISTED_LINES]
    lines = [WORKLOAD["line"].format(line=f"{item.line:,}", reason=item.reason) for item in shown]
    if trace.num_rejected > len(shown):
        lines.append(WORKLOAD["more_lines"].format(n=f"{trace.num_rejected - len(shown):,}"))
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    notes = "".join(f"<span>{escape(note)}</span>" for note in trace.notes)
    return (
        f'<div class="ps-traffic"><p role="status">{escape(trace.summary())}</p>'
        f'<p class="ps-cap">{notes}</p><ul class="ps-rejected">{items}</ul></div>'
    )


def _parts(spec: WorkloadSpec) -> str:
    total = sum(part.weight for part in spec.parts)
    rows = []
    for part in spec.parts:
        share = f"{part.weight / total:.0%} of the requests: " if len(spec.parts) > 1 else ""
        rows.append(
            f"<li>{share}{_lengths('prompt', part.prompt)}{_lengths('output', part.output)}"
            f"<span>{part.shared_share:.0%} of the typical prompt shared</span></li>"
        )
    return f"<ul>{''.join(rows)}</ul>"


def _lengths(part: str, lengths: Lengths) -> str:
    name, described = WORKLOAD[part], lengths.describe()
    return f"<span>{name} {escape(described)} {_drawn(name, histogram(lengths))}</span>"


def _drawn(name: str, bins: Sequence[tuple[int, int, float]]) -> str:
    most = max(share for _, _, share in bins)
    bars = "".join(
        f'<rect x="{index * _BAR_WIDTH}" y="{_HEIGHT * (1 - share / most):.1f}" '
        f'width="{_BAR_WIDTH - 1}" height="{_HEIGHT * share / most:.1f}"/>'
        for index, (_, _, share) in enumerate(bins)
    )
    label = f"{name} lengths from {bins[0][0]:,} to {bins[-1][1]:,} tokens"
    return (
        f'<svg role="img" aria-label="{label}" width="{len(bins) * _BAR_WIDTH}" '
        f'height="{_HEIGHT}">{bars}</svg>'
    )


def _single(name: str, samples: str, value: str) -> Row:
    return [name, samples, value, "", "", ""]


def _cell(seconds: float | None) -> str:
    return DASH if seconds is None else duration(seconds)


def _money(value: float | None) -> str:
    return DASH if value is None else f"{value:,.4g}"
