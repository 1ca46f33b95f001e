"""Pure functions that build the page's Plotly figures.

The live ones are layout and empty traces: the browser fills in data with ``Plotly.react`` and sets
colours, ``meta["paint"]`` of a trace or layout mapping a property path to a colour token of
``assets/tokens.css``. Those of a result hold its data. Nothing here knows a request or a clock.
"""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from ui.formats import duration

# Readable on the light and on the dark surface.
_NEUTRAL = "#7A8494"
# Two labels closer than this on a log axis would cover each other.
_LABEL_DECADES = 0.16

_LAYOUT_PAINT = {
    "font.color": "ink-2",
    "xaxis.gridcolor": "grid",
    "xaxis.linecolor": "line-2",
    "xaxis.tickfont.color": "ink-3",
    "yaxis.gridcolor": "grid",
    "yaxis.linecolor": "line-2",
    "yaxis.tickfont.color": "ink-3",
    "hoverlabel.bgcolor": "surface",
    "hoverlabel.bordercolor": "line-2",
    "hoverlabel.font.color": "ink",
}


def _axis(**settings: Any) -> dict[str, Any]:
    return {
        "zeroline": False,
        "showline": False,
        "fixedrange": True,
        "automargin": False,
        **settings,
    }


def _layout(margin: dict[str, int], **settings: Any) -> go.Layout:
    return go.Layout(
        template=go.layout.Template(),  # without one, Plotly bakes in its own colours
        autosize=False,
        margin={**margin, "pad": 0},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"size": 11},
        showlegend=False,
        hovermode="closest",
        dragmode=False,
        uirevision="fixed",
        meta={"paint": _LAYOUT_PAINT},
        **settings,
    )


def _part(name: str, colour: str, **marker: Any) -> go.Bar:
    paint = {"marker.color": colour}
    if "pattern" in marker:
        paint = {"marker.pattern.fgcolor": "queue", "marker.pattern.bgcolor": "queue-soft"}
    if "line" in marker:
        paint["marker.line.color"] = "deliver-line"
    return go.Bar(
        name=name,
        orientation="h",
        marker=marker,
        hovertemplate="%{y}: " + name + " %{hovertext}<extra></extra>",
        meta={"paint": paint},
    )


def ttft_parts() -> go.Figure:
    """Stacked bars a request: preparation, queue, prefill, delivery, in the order they happen.

    x is time since submission in ticks of 0.1 ms; y are request labels, first row on top. The three
    parts without a hue are told apart by texture: solid, hatched, hollow.
    """
    bars = [
        _part("preparation", "prep"),
        _part("queue", "queue", pattern={"shape": "/", "size": 5, "solidity": 0.35}),
        _part("prefill", "prefill"),
        _part("delivery", "deliver", line={"width": 1.1}),
    ]
    layout = _layout(
        {"l": 44, "r": 52, "t": 20, "b": 22},
        barmode="stack",
        bargap=0.42,
        xaxis=_axis(side="bottom"),
        yaxis=_axis(
            type="category",
            showgrid=False,
            tickfont={"size": 12},
            ticks="outside",
            ticklen=6,
            tickcolor="rgba(0,0,0,0)",
        ),
    )
    layout.meta["paint"] = {**_LAYOUT_PAINT, "yaxis.tickfont.color": "ink-2"}
    return go.Figure(bars, layout)


def ttft_over_time() -> go.Figure:
    """A dot a request at its first token, and running p50 and p95 over the last 20 first tokens.

    Traces: others, own, p50, p95. Both axes are in ticks of 0.1 ms.
    """
    hover = "%{hovertext}<extra></extra>"
    dots = [
        go.Scatter(
            name=name,
            mode="markers",
            marker={"size": size, "opacity": opacity},
            cliponaxis=False,
            hovertemplate=hover,
            meta={"paint": {"marker.color": colour}},
        )
        for name, size, opacity, colour in (
            # Prefill is only a part of TTFT, so its colour would be wrong here.
            ("others", 6, 0.42, "ink"),
            ("yours", 9, 1, "ink"),
        )
    ]
    lines = [
        go.Scatter(
            name=name,
            mode="lines",
            line={"width": 1.4, "dash": dash},
            hoverinfo="skip",
            meta={"paint": {"line.color": colour}},
        )
        for name, dash, colour in (("p50", "solid", "ink"), ("p95", "dash", "ink-2"))
    ]
    layout = _layout({"l": 46, "r": 10, "t": 8, "b": 22}, xaxis=_axis(), yaxis=_axis())
    return go.Figure([*dots, *lines], layout)


def roofline() -> go.Figure:
    """Steps under the measured ceilings, log-log.

    Traces: roof, ridge, decode-only steps (circles), steps with prefill (squares), overhead-bound
    steps (hollow). x is FLOP per byte moved, y is FLOP per second in the unit the browser picks.
    """
    roof = go.Scatter(
        name="roof",
        mode="lines",
        line={"width": 1.6},
        hoverinfo="skip",
        meta={"paint": {"line.color": "ink"}},
    )
    ridge = go.Scatter(
        name="ridge",
        mode="lines",
        line={"width": 1, "dash": "dot"},
        hoverinfo="skip",
        meta={"paint": {"line.color": "line-2"}},
    )
    marks = [
        go.Scatter(
            name=name,
            mode="markers",
            marker={"symbol": symbol, "size": size, "opacity": opacity, "line": {"width": width}},
            hovertemplate="%{hovertext}: %{y:.3~g} at %{x:.3~g} FLOP per byte<extra></extra>",
            meta={"paint": paint},
        )
        for name, symbol, size, opacity, width, paint in (
            ("decode", "circle", 5, 0.3, 0, {"marker.color": "decode"}),
            ("prefill", "square", 5, 0.8, 0, {"marker.color": "prefill"}),
            ("overhead", "circle-open", 5.5, 0.9, 1.3, {"marker.color": "ink-3"}),
        )
    ]
    layout = _layout(
        {"l": 44, "r": 8, "t": 14, "b": 38},
        xaxis=_axis(
            type="log",
            title={"text": "FLOP per byte moved (log)", "standoff": 4, "font": {"size": 11}},
        ),
        yaxis=_axis(type="log"),
    )
    layout.meta["paint"] = {**_LAYOUT_PAINT, "xaxis.title.font.color": "ink-3"}
    return go.Figure([roof, ridge, *marks], layout)


def gap_percentiles(a: dict[str, float | None], b: dict[str, float | None]) -> go.Figure:
    """Gaps between tokens from typical to worst, both sides of a comparison, y logarithmic.

    a, b: percentile name to seconds, in order; None leaves a mark out. A is dashed with hollow
    squares, B solid with filled circles. The one chart whose colours are the style sheet's
    business: it is drawn by `gr.Plot`, in a grey that reads on both themes.
    """
    lines = [
        go.Scatter(
            name=name,
            x=list(values),
            y=list(values.values()),
            mode="lines+markers",
            cliponaxis=False,
            line={"width": 1.6, "dash": dash, "color": _NEUTRAL},
            marker={"symbol": symbol, "size": 8, "color": _NEUTRAL},
            hovertemplate=f"{name} %{{x}}: %{{y:.3s}}s<extra></extra>",
        )
        for name, values, dash, symbol in (
            ("A", a, "dash", "square-open"),
            ("B", b, "solid", "circle"),
        )
    ]
    known = [value for value in (*a.values(), *b.values()) if value]
    layout = _layout(
        {"l": 52, "r": 66, "t": 10, "b": 26},
        height=300,
        xaxis=_axis(type="category", showgrid=False),
        yaxis=_axis(type="log", **_log_ticks(known)),
    )
    layout.autosize = True
    layout.meta = None
    layout.font.color = _NEUTRAL
    figure = go.Figure(lines, layout)
    for name, y in zip(("A", "B"), _apart(a.get("max"), b.get("max")), strict=True):
        value = {"A": a, "B": b}[name].get("max")
        if value and y is not None:
            figure.add_annotation(
                x=1,
                xref="paper",
                xanchor="left",
                xshift=4,
                y=y,
                showarrow=False,
                text=f"<b>{name} {duration(value)}</b>",
            )
    return figure


def _log_ticks(values: list[float]) -> dict[str, Any]:
    """Range and ticks at 1 and 3 of each decade around the values, labelled as durations."""
    if not values:
        return {}
    low, high = math.log10(min(values) * 0.8), math.log10(max(values) * 1.25)
    decades = range(math.floor(low) - 1, math.ceil(high) + 1)
    steps = (1, 3) if high - low < 3 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    shown = [tick for tick in ticks if low <= math.log10(tick) <= high]
    return {"range": [low, high], "tickvals": shown, "ticktext": [_tick(tick) for tick in shown]}


def _tick(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _apart(a: float | None, b: float | None) -> list[float | None]:
    """Heights (log10) of the labels of two values, moved apart where they would overlap."""
    heights = [None if not value else math.log10(value) for value in (a, b)]
    if heights[0] is None or heights[1] is None or abs(heights[0] - heights[1]) > _LABEL_DECADES:
        return heights
    middle = (heights[0] + heights[1]) / 2
    up = _LABEL_DECADES / 2 if heights[0] > heights[1] else -_LABEL_DECADES / 2
    return [middle + up, middle - up]
