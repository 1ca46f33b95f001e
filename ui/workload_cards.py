"""Traffic in words and small pictures: the cards to choose a shape by, a shape as it was edited,
and what was read of a trace file.

Pure functions; every text of a file is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from engine.core.errors import InvalidRequest
from engine.lab.importing import Trace
from engine.lab.workload import WorkloadSpec
from engine.lab.workload_lengths import Lengths, extremes, histogram
from engine.lab.workload_shapes import SHAPES, Shape
from ui.words_workload import WORKLOAD
from ui.workload_form import TRACE, Traffic, spec_of

_LISTED_LINES = 20
_BAR_WIDTH, _HEIGHT = 4, 24
_CARD_BINS: Final = 24


def shape_cards(group: str, chosen: str) -> str:
    """A radio button for each shape and for a trace file; `group` is the name they share."""
    cards = "".join(_card(group, name, chosen, _shape(shape)) for name, shape in SHAPES.items())
    trace = _title(WORKLOAD["trace"]) + f'<span class="ps-cap">{WORKLOAD["trace_card"]}</span>'
    return (
        f'<fieldset class="ps-shapes"><legend>{WORKLOAD["shape"]}</legend>'
        f"{cards}{_card(group, TRACE, chosen, trace)}</fieldset>"
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


def _card(group: str, value: str, chosen: str, content: str) -> str:
    checked = " checked" if value == chosen else ""
    return (
        f'<label class="ps-shape"><input type="radio" name="{group}" value="{value}"{checked}>'
        f"{content}</label>"
    )


def _title(text: str) -> str:
    return f'<b class="ps-shape-title">{escape(text)}</b>'


def _shape(shape: Shape) -> str:
    lengths = "".join(
        f'<span class="ps-shape-lengths"><span>{WORKLOAD[part]}</span>'
        f"<b>{_range(drawn)}</b>{_drawn(WORKLOAD[part], histogram(drawn, _CARD_BINS))}</span>"
        for part, drawn in (("prompt", shape.prompt), ("output", shape.output))
    )
    return f'{_title(shape.title)}{lengths}<span class="ps-cap">{escape(shape.sharing)}</span>'


def _range(lengths: Lengths) -> str:
    low, high = extremes(lengths)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _parts(spec: WorkloadSpec) -> str:
    total = sum(part.weight for part in spec.parts)
    rows = []
    for part in spec.parts:
        percent = part.weight / total * 100
        share = f"{percent:.0f} % of the requests: " if len(spec.parts) > 1 else ""
        rows.append(
            f"<li>{share}{_described('prompt', part.prompt)}{_described('output', part.output)}"
            f"<span>{part.shared_share * 100:.0f} % of the typical prompt shared</span></li>"
        )
    return f"<ul>{''.join(rows)}</ul>"


def _described(part: str, lengths: Lengths) -> str:
    name, described = WORKLOAD[part], lengths.describe()
    return f"<span>{name} {escape(described)} {_drawn(name, histogram(lengths))}</span>"


def _drawn(name: str, bins: Sequence[tuple[int, int, float]]) -> str:
    # By density: some bins are a token wider than others.
    densities = [share / (last - first + 1) for first, last, share in bins]
    most = max(densities)
    bars = "".join(
        f'<rect x="{index * _BAR_WIDTH}" y="{_HEIGHT * (1 - density / most):.1f}" '
        f'width="{_BAR_WIDTH - 1}" height="{_HEIGHT * density / most:.1f}"/>'
        for index, density in enumerate(densities)
    )
    label = f"{name} lengths from {bins[0][0]:,} to {bins[-1][1]:,} tokens"
    return (
        f'<svg role="img" aria-label="{label}" width="{len(bins) * _BAR_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {len(bins) * _BAR_WIDTH} {_HEIGHT}" preserveAspectRatio="none">{bars}</svg>'
    )
