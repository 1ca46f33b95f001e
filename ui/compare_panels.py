"""The static HTML of the Compare tab: the two timelines, and the bar that an experiment has on top.

Roles are found by the scripts assets/scripts/compare*.js. Words come from ui/words_compare.py.
"""

from __future__ import annotations

from ui.panels import attribute, lane_legend, table_button, table_slot
from ui.words_compare import BROWSER_COMPARE, COMPARE, KEYS_HINT
from ui.words_workload import WORKLOAD


def timelines() -> str:
    """A above B, or beside each other in a wide window, with one legend and one crosshair."""
    return _timelines("ps-compare-title", COMPARE["timelines"], "AB")


def single_timeline() -> str:
    """The one run of a workload."""
    return _timelines("ps-workload-title", COMPARE["one_timeline"], "A")


def live_lanes() -> str:
    """Lanes and engine steps as they happen."""
    return (
        '<section class="ps-card ps-live" aria-labelledby="ps-live-title">'
        '<div class="ps-card-head">'
        f'<h2 id="ps-live-title">{WORKLOAD["live"]}</h2>'
        f'<span class="ps-cap">{WORKLOAD["live_cap"]}</span>{table_button("requests")}</div>'
        f"{lane_legend()}"
        '<div class="ps-live-canvases"><canvas role="img" data-role="lanes"></canvas>'
        '<canvas role="img" data-role="steps"></canvas>'
        '<canvas data-role="axis" aria-hidden="true"></canvas></div>'
        f"{table_slot('requests')}</section>"
    )


def _timelines(title_id: str, title: str, names: str) -> str:
    sides = "".join(_side(name) for name in names)
    return (
        f'<section class="ps-card ps-compare-timelines" aria-labelledby="{title_id}" hidden '
        f'data-compare-words="{attribute(BROWSER_COMPARE)}">'
        f'<div class="ps-card-head"><h2 id="{title_id}">{title}</h2>'
        '<span class="ps-cap" data-role="label"></span><span class="ps-controls">'
        '<button type="button" class="ps-button" data-role="zoom-selection" hidden>Zoom in</button>'
        '<button type="button" class="ps-button" data-role="unzoom" hidden>Show all</button>'
        '<button type="button" class="ps-button" data-role="arrange" aria-pressed="false">'
        f"</button></span></div>{lane_legend()}"
        f'<div class="ps-pair">{sides}</div>'
        f'<details class="ps-as-table" data-role="table"><summary>{COMPARE["as_table"]}</summary>'
        f'<div class="ps-table" role="region" tabindex="0" aria-label="{title}"></div></details>'
        "</section>"
    )


def banner() -> str:
    """The bar that tells those who chat why they wait."""
    return (
        f'<div class="ps-notice ps-turn" role="status" hidden '
        f'data-compare-words="{attribute(BROWSER_COMPARE)}"><span></span></div>'
    )


def _side(name: str) -> str:
    return (
        f'<div class="ps-pair-side" data-side="{name}" role="group" tabindex="0" '
        f'aria-label="{KEYS_HINT.format(name=name)}">'
        f'<p class="ps-side-head"><i class="ps-badge" data-badge="{name}" aria-hidden="true">{name}'
        '</i><b data-role="title"></b><span data-role="note"></span></p>'
        '<div class="ps-pair-canvases">'
        f'<canvas role="img" data-role="lanes" aria-label="{name}"></canvas>'
        '<canvas data-role="steps" aria-hidden="true"></canvas>'
        '<canvas data-role="axis" aria-hidden="true"></canvas>'
        '<div class="ps-selection" hidden></div><div class="ps-crosshair" hidden></div></div></div>'
    )
