"""The static HTML of the page's panels.

Each function returns the markup a script in assets/scripts finds its way in by ``data-role``.
Numbers are never written here: they come from the live feed. Words come from ui/words.py.
"""

from __future__ import annotations

import json
from html import escape
from itertools import count

import plotly.graph_objects as go

from ui import figures, recording_panels, words
from ui.words_settings import SETTINGS

_tooltip_numbers = count(1)

_BRAND = (
    '<svg width="26" height="14" viewBox="0 0 26 14" aria-hidden="true">'
    '<path class="ps-mark-prefill" d="M0 0h5v14H0zM6.5 0h5v14h-5z"/>'
    '<path class="ps-mark-decode" d="M13.5 0h1.8v14h-1.8zM17 0h1.8v14H17zM20.5 0h1.8v14h-1.8z'
    'M24 0h1.8v14H24z"/></svg>'
)
_THEME_ICON = (
    '<svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">'
    '<circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.5"/>'
    '<path d="M8 1.8a6.2 6.2 0 0 1 0 12.4z" fill="currentColor"/></svg>'
)
_SETTINGS_ICON = (
    '<svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" fill="none" '
    'stroke="currentColor" stroke-width="1.5"><path d="M1 4h8M13 4h2M1 12h2M7 12h8"/>'
    '<circle cx="11" cy="4" r="2"/><circle cx="5" cy="12" r="2"/></svg>'
)
_TABLE_ICON = (
    '<svg width="12" height="12" viewBox="0 0 12 12" aria-hidden="true" fill="none" '
    'stroke="currentColor"><path d="M.5 1.5h11v9H.5zM.5 4.5h11M.5 7.5h11M4.5 4.5v6"/></svg>'
)
_LANE_LEGEND = (
    ("prep", "input preparation"),
    ("queue", "queue"),
    ("prefill", "prefill chunk"),
    ("first", "first token"),
    ("decode", "decode token"),
    ("last", "last token delivered"),
)


def attribute(value: object) -> str:
    """``value`` as JSON inside an HTML attribute of a Gradio template.

    Braces and dollar signs become entities: the template engine would take them for its own.
    """
    text = escape(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return text.replace("{", "&#123;").replace("}", "&#125;").replace("$", "&#36;")


def _figure(figure: go.Figure) -> str:
    return attribute(json.loads(figure.to_json()))


def _definition(name: str) -> str:
    """A metric's name that shows its definition on hover, focus and tap."""
    label, text = words.DEFINITIONS[name]
    tip = f"ps-tip-{next(_tooltip_numbers)}"
    return (
        f'<button type="button" class="ps-def" aria-describedby="{tip}">{label}</button>'
        f'<span role="tooltip" class="ps-tip" id="{tip}" hidden>{escape(text)}</span>'
    )


def _legend(entries: tuple[tuple[str, str], ...]) -> str:
    items = "".join(
        f'<span><i class="ps-key ps-key-{mark}" aria-hidden="true"></i>{label}</span>'
        for mark, label in entries
    )
    return f'<div class="ps-legend">{items}</div>'


def lane_legend() -> str:
    """The marks of a request's lane, in words."""
    return _legend(_LANE_LEGEND)


def table_button(name: str) -> str:
    """A button that shows a chart's numbers as a table, in the `table_slot` of the same panel."""
    title = words.CAPTIONS[name][0]
    return (
        f'<button type="button" class="ps-table-button" data-table="{name}" aria-expanded="false" '
        f'aria-label="Show as table: {title}">{_TABLE_ICON}</button>'
    )


def table_slot(name: str) -> str:
    """Where the table of a chart comes."""
    title = words.CAPTIONS[name][0]
    return (
        f'<div class="ps-table" data-table-of="{name}" role="region" tabindex="0" '
        f'aria-label="{title}, as a table" hidden></div>'
    )


def header() -> str:
    """Brand, model and machine, state, light or dark; it also carries the scripts' words."""
    return (
        f'<header class="ps-header" data-ps-words="{attribute(words.BROWSER)}">'
        f'<div class="ps-brand">{_BRAND}<h1>{words.TITLE}</h1></div>'
        '<div class="ps-meta"><span class="ps-machine" data-role="machine"></span>'
        '<span class="ps-state" role="status"><i data-role="dot" data-kind="warn"></i>'
        '<span data-role="state">Connecting…</span></span>'
        '<button type="button" class="ps-icon-button" data-role="theme" '
        f'aria-label="Switch between light and dark">{_THEME_ICON}</button>'
        '<button type="button" class="ps-icon-button" data-role="settings" aria-expanded="false" '
        f'aria-label="{SETTINGS["open"]}" hidden>{_SETTINGS_ICON}</button></div></header>'
    )


def chat_title() -> str:
    """Heading of the chat card, for those who move by headings; the tab shows the word."""
    return f'<h2 class="ps-unseen">{words.CHAT_TITLE}</h2>'


def notice() -> str:
    """The bar that says what is wrong or awaited, and offers the one thing to do about it."""
    return (
        '<div class="ps-notice" role="status" hidden><span data-role="text"></span>'
        '<progress max="1" aria-label="Loading the model" hidden></progress>'
        f'<input type="password" autocomplete="off" aria-label="{SETTINGS["key"]}" hidden>'
        '<button type="button" class="ps-button" hidden></button></div>'
    )


def _number(name: str, value: str, extra: str = "", caption: str = "") -> str:
    return (
        f'<div class="ps-kpi ps-kpi-{name}"><dt>{_definition(name)}{caption}</dt>'
        f"<dd>{value}{extra}</dd></div>"
    )


def _latency(name: str) -> str:
    quantile = (
        '<span class="ps-quantile" data-role="quantile" hidden><span data-role="name"></span>'
        '<b><span data-role="value"></span><u data-role="unit"></u></b></span>'
    )
    return (
        f'<div class="ps-kpi ps-kpi-latency" data-metric="{name}"><dt>{_definition(name)}'
        f'<small data-role="n"></small></dt><dd>{quantile}{quantile}</dd></div>'
    )


def headline() -> str:
    """The six headline numbers, dashes until the feed speaks."""
    meter = (
        '<span class="ps-meter" aria-hidden="true"><i data-role="meter-used"></i>'
        '<i data-role="meter-cached"></i></span>'
    )
    numbers = (
        _number(
            "running",
            f'<b data-role="running">{words.DASH}</b>',
            '<small data-role="slots"></small>',
        ),
        _number("waiting", f'<b data-role="waiting">{words.DASH}</b>', "<small>in queue</small>"),
        _number(
            "kv",
            f'<b><span data-role="kv">{words.DASH}</span><u>%</u></b>',
            meter,
            '<small class="ps-optional" data-role="kv-blocks"></small>',
        ),
        _number(
            "throughput",
            f'<b><span data-role="output">{words.DASH}</span><u>tok/s</u></b>',
            caption='<small data-role="output-window"></small>',
        ),
        _latency("ttft"),
        _latency("itl"),
    )
    return f'<dl class="ps-card ps-headline" aria-label="Headline numbers">{"".join(numbers)}</dl>'


def _band(name: str, overlay: str = "") -> str:
    title, caption = words.CAPTIONS[name]
    return (
        f'<div class="ps-band" data-band="{name}"><p class="ps-band-title"><b>{title}</b>'
        f"<span>{caption}</span>{table_button(name)}</p>"
        f'<div class="ps-canvas"><canvas role="img" aria-label="{title}"></canvas>{overlay}</div>'
        f"{table_slot(name)}</div>"
    )


def timeline() -> str:
    """The stack of bands on one time axis, with its controls and the one-token offset below."""
    options = "".join(
        f'<option value="{value}"{" selected" if value == "steps-400" else ""}>{label}</option>'
        for value, label in words.WINDOW_CHOICES
    )
    controls = (
        '<span data-role="selection-actions" hidden>'
        '<button type="button" class="ps-button" data-role="zoom-selection">Zoom in</button>'
        '<button type="button" class="ps-button" data-role="clear-selection">Clear</button></span>'
        '<button type="button" class="ps-button" data-role="unzoom" hidden>Follow</button>'
        f'<select class="ps-button" data-role="window" aria-label="Window">{options}</select>'
        '<button type="button" class="ps-button ps-pause" data-role="pause" aria-pressed="false">'
        '<i aria-hidden="true"></i><span data-role="pause-label">Pause</span></button>'
        f"{recording_panels.menu()}"
    )
    lanes = '<div class="ps-lanes" role="group" aria-label="Requests"></div>'
    bands = _band("requests", lanes) + _band("steps") + _band("gaps") + _band("growth")
    offset_caption = words.CAPTIONS["offset"][1]
    return (
        '<section class="ps-card ps-timeline" aria-labelledby="ps-timeline-title">'
        '<div class="ps-card-head"><h2 id="ps-timeline-title">Timeline</h2>'
        f'<span class="ps-cap" data-role="label"></span><span class="ps-controls">{controls}</span>'
        f'</div><div class="ps-stack" role="group" tabindex="0" aria-label="{words.KEYS_HINT}">'
        f'<div class="ps-stack-content">{lane_legend()}<div class="ps-bands">{bands}'
        '<div class="ps-selection" hidden></div><div class="ps-crosshair" hidden></div></div>'
        '<div class="ps-band"><p class="ps-band-title"><b data-role="offset-title">One-token offset'
        f"</b><span>{offset_caption}</span></p>"
        '<div class="ps-offset" data-role="offset"></div></div>'
        "</div></div></section>"
    )


def _card(name: str, body: str, actions: str = "") -> str:
    title, caption = words.CAPTIONS[name]
    return (
        f'<section class="ps-card ps-side-card" aria-labelledby="ps-{name}-title">'
        f'<div class="ps-card-head"><h2 id="ps-{name}-title">{title}</h2>'
        f'<span class="ps-controls">{actions}</span></div><div class="ps-card-body">'
        f'<p class="ps-cap" data-role="caption">{caption}</p>{body}</div></section>'
    )


def kv_map() -> str:
    """Block map and its legend."""
    return _card(
        "kv",
        '<div class="ps-canvas"><canvas role="img" aria-label="KV cache block map"></canvas></div>'
        f'<div class="ps-legend ps-kv-legend" data-role="legend"></div>{table_slot("kv")}',
        table_button("kv"),
    )


def ttft() -> str:
    """Time to first token, in parts or over time."""
    choices = (
        '<span class="ps-choice" role="group" aria-label="View">'
        '<button type="button" data-choose="parts" aria-pressed="true">Parts</button>'
        '<button type="button" data-choose="time" aria-pressed="false">Over time</button></span>'
    )
    legend = "".join(
        f'<span><i class="ps-key ps-key-{mark}" aria-hidden="true"></i>{_definition(name)}</span>'
        for mark, name in (
            ("prep", "preparation"),
            ("queue", "queue"),
            ("prefill", "prefill"),
            ("deliver", "delivery"),
        )
    )
    parts, over_time = _figure(figures.ttft_parts()), _figure(figures.ttft_over_time())
    return _card(
        "ttft",
        f'<div class="ps-legend" data-role="legend">{legend}</div>'
        '<p class="ps-empty" data-role="empty">No first token in this window.</p>'
        '<div class="ps-plot" role="img" aria-label="Time to first token in parts" '
        f'data-view="parts" data-figure="{parts}"></div>'
        '<div class="ps-plot" role="img" aria-label="Time to first token over time" '
        f'data-view="time" data-figure="{over_time}" hidden></div>{table_slot("ttft")}',
        choices + table_button("ttft"),
    )


def roofline() -> str:
    """Steps under the measured ceilings."""
    legend = _legend((("dot", "decode"), ("square", "with prefill"), ("hollow", "overhead-bound")))
    return _card(
        "roofline",
        f'{legend}<p class="ps-empty" data-role="empty" hidden></p>'
        '<div class="ps-plot ps-roofline" role="img" aria-label="Roofline" '
        f'data-figure="{_figure(figures.roofline())}"></div>{table_slot("roofline")}',
        table_button("roofline"),
    )


def settings_head() -> str:
    """Title of the settings panel and the way out of it."""
    return (
        f'<div class="ps-settings-head"><h2>{SETTINGS["title"]}</h2>'
        '<button type="button" class="ps-icon-button" data-role="close-settings" '
        f'aria-label="{SETTINGS["close"]}">✕</button></div>'
    )


def display_settings() -> str:
    """What only this browser keeps: colours and talk mode."""
    switches = "".join(
        f'<label><input type="checkbox" data-role="{name}"> {SETTINGS[name]}</label>'
        for name in ("dark", "talk")
    )
    return f'<h3>{SETTINGS["display"]}</h3><div class="ps-switches">{switches}</div>'


def drawer() -> str:
    """Details of one request; hidden until one is opened."""
    return (
        '<div class="ps-card ps-drawer" role="dialog" aria-label="Request details" hidden>'
        '<div class="ps-card-head"><h2 data-role="title"></h2>'
        '<span class="ps-cap" data-role="state">'
        '</span><button type="button" class="ps-icon-button" data-role="close" '
        'aria-label="Close details">✕</button></div><div class="ps-card-body">'
        '<table class="ps-facts"><thead><tr><th scope="col">moment</th><th scope="col">at</th>'
        '<th scope="col">part</th></tr></thead><tbody data-role="moments"></tbody></table>'
        '<p class="ps-cap" data-role="sum" hidden></p>'
        '<table class="ps-facts"><tbody data-role="facts"></tbody></table>'
        '<div class="ps-composition" data-role="composition" hidden></div>'
        '<p class="ps-files" data-role="files"><a class="ps-button" data-role="save" download>'
        'Save as JSON</a><a class="ps-button" data-role="trace" download '
        f'title="{words.TRACE_HINT}">Perfetto trace</a></p></div></div>'
    )
