"""Pure functions that build the Plotly figures of one run: gaps from typical to worst, first tokens
over time, finished requests over time.

They hold the run's data in one grey that reads on both themes; the style sheet gives the colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from engine.core.records import RequestRecord
from engine.lab.measures import Limits
from engine.telemetry.metrics import measures_whole, request_metrics
from ui.figures import gap_percentiles
from ui.formats import duration
from ui.words_workload import WORKLOAD

NUM_BINS: Final = 20
_LEAST_SECONDS: Final = 1.0
_DECADE: Final = 10.0
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 50)
_GREY = "#7A8494"
_MARGIN: Final = {"l": 52, "r": 14, "t": 12, "b": 40, "pad": 0}


def gaps(percentiles: dict[str, float | None]) -> go.Figure:
    """Gaps between tokens by percentile (name to seconds, in order); y logarithmic."""
    figure = gap_percentiles({}, percentiles)
    # One run is neither A nor B.
    figure.data = figure.data[1:]
    # The worst is named above its mark: the labels below need the width.
    for note in figure.layout.annotations:
        note.text = note.text.replace("B ", "", 1)
        note.update(x="max", xref="x", xanchor="right", xshift=8, yshift=13)
    figure.update_layout(height=240, margin={"r": 14, "t": 22}, yaxis=_close_ticks(percentiles))
    figure.update_yaxes(visible=any(percentiles.values()))
    return figure


def first_tokens(records: Sequence[RequestRecord], limits: Limits) -> go.Figure:
    """TTFT (seconds) of each request over the moment it was submitted, and the limit if given."""
    points = [(record.submitted, ttft) for record in records if (ttft := _ttft(record)) is not None]
    dots = go.Scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="markers",
        cliponaxis=False,
        marker={"size": 7, "color": _GREY},
        hovertemplate="submitted at %{x:.2f} s: %{y:.3s}s<extra></extra>",
    )
    figure = go.Figure([dots], _layout("first token, s"))
    # Requests that come all at once are not drawn apart by milliseconds.
    span = max([_LEAST_SECONDS, *(x for x, _ in points)])
    figure.update_xaxes(range=[-0.04 * span, 1.04 * span])
    if limits.ttft_seconds is not None:
        words = WORKLOAD["ttft_limit_line"].format(time=duration(limits.ttft_seconds))
        figure.add_hline(
            limits.ttft_seconds,
            line={"dash": "dash", "width": 1.2, "color": _GREY},
            annotation={"text": words, "font": {"size": 11, "color": _GREY}},
        )
    return figure


def finished(records: Sequence[RequestRecord], limits: Limits, seconds: float) -> go.Figure:
    """Requests finished a second in `NUM_BINS` slices of the run: within the limits, and later.

    seconds: length of the run. Without limits every finished request is in the first trace.
    """
    counts = binned(records, limits, seconds)
    width = seconds / NUM_BINS
    middles = [(index + 0.5) * width for index in range(NUM_BINS)]
    bars = [
        go.Bar(
            x=middles,
            y=[count / width for count in row],
            width=width * 0.86,
            marker={"color": colour, "line": {"width": 1.2, "color": _GREY}},
            hovertemplate="%{x:.2f} s: %{y:.3g} requests a second<extra></extra>",
        )
        for row, colour in zip(counts, (_GREY, "rgba(0,0,0,0)"), strict=True)
    ]
    figure = go.Figure(bars, _layout("requests a second"))
    figure.update_layout(barmode="stack")
    return figure


def binned(
    records: Sequence[RequestRecord], limits: Limits, seconds: float
) -> tuple[list[int], list[int]]:
    """Requests finished in each of `NUM_BINS` slices: those within the limits, and the others."""
    good, late = [0] * NUM_BINS, [0] * NUM_BINS
    for record in records:
        if record.finished is None or not measures_whole(record) or seconds <= 0:
            continue
        index = min(int(record.finished / seconds * NUM_BINS), NUM_BINS - 1)
        (good if not limits.given or limits.met_by(record) else late)[index] += 1
    return good, late


def _close_ticks(percentiles: dict[str, float | None]) -> dict[str, Any]:
    """Ticks of a logarithmic axis for gaps that lie within a decade; nothing for wider ones."""
    known = [value for value in percentiles.values() if value]
    if not known or max(known) / min(known) > _DECADE:
        return {}
    low, high = min(known) * 0.8, max(known) * 1.25
    first = 10.0 ** math.floor(math.log10(low))
    ticks = [first * step for step in _STEPS if low <= first * step <= high]
    return {"tickvals": ticks, "ticktext": [duration(tick) for tick in ticks]}


def _ttft(record: RequestRecord) -> float | None:
    values = request_metrics(record)
    return values.ttft if record.streamed else values.engine_ttft


def _layout(title: str) -> go.Layout:
    axis: dict[str, Any] = {"zeroline": False, "fixedrange": True, "rangemode": "tozero"}
    return go.Layout(
        template=go.layout.Template(),
        autosize=True,
        height=240,
        margin=_MARGIN,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"size": 11, "color": _GREY},
        showlegend=False,
        hovermode="closest",
        dragmode=False,
        uirevision="fixed",
        xaxis={**axis, "showgrid": False, "title": {"text": "since start, s", "standoff": 6}},
        yaxis={**axis, "title": {"text": title, "standoff": 6}},
    )
