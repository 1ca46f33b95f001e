"""The static HTML of recordings: the menu beside the timeline, and the bar that says what is shown.

assets/scripts/replay.js finds its way in by ``data-role``.
"""

from __future__ import annotations

from typing import Final

from ui.words_replay import REPLAY

SAVE_ROUTE: Final = "live/recording.json"
SPEEDS: Final = ("0.25", "0.5", "1", "2", "4")


def menu() -> str:
    """Save and open, among the timeline's controls."""
    return (
        f'<details class="ps-menu ps-recording-menu"><summary class="ps-button">{REPLAY["menu"]}'
        '</summary><div class="ps-menu-items">'
        f'<a href="{SAVE_ROUTE}" download data-role="save-recording">{REPLAY["save"]}</a>'
        f'<button type="button" data-role="open-recording">{REPLAY["open"]}</button>'
        "</div></details>"
    )


def bar() -> str:
    """What is shown instead of the live engine, with a player's controls; hidden while live."""
    speeds = "".join(
        f'<option value="{speed}"{" selected" if speed == "1" else ""}>{speed}&times;</option>'
        for speed in SPEEDS
    )
    return (
        '<p class="ps-notice ps-recording-error" role="alert" data-kind="err" hidden></p>'
        '<input type="file" accept=".json,.gz,application/json,application/gzip" hidden '
        f'aria-label="{REPLAY["open"]}" data-role="file">'
        f'<div class="ps-card ps-replay" role="region" aria-label="{REPLAY["region"]}" hidden>'
        '<p data-role="about" role="status"></p><span class="ps-player" data-role="player">'
        f'<button type="button" class="ps-button" data-role="play">{REPLAY["play"]}</button>'
        '<input type="range" min="0" max="1000" step="1" value="1000" data-role="position" '
        f'aria-label="{REPLAY["position"]}"><span data-role="time"></span>'
        f'<select class="ps-button" data-role="speed" aria-label="{REPLAY["speed"]}">{speeds}'
        "</select></span>"
        f'<button type="button" class="ps-button" data-role="back">{REPLAY["back"]}</button></div>'
    )
