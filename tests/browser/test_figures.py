"""The Plotly figures are pure, complete and painted by colour tokens only."""

from __future__ import annotations

import json
import re

import plotly.graph_objects as go
import pytest

from ui import figures, panels, words
from ui.page import ASSETS

FIGURES = {
    "parts": figures.ttft_parts,
    "time": figures.ttft_over_time,
    "roofline": figures.roofline,
}


def tokens() -> set[str]:
    return set(re.findall(r"--([\w-]+):", (ASSETS / "tokens.css").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", FIGURES)
def test_every_colour_is_a_token(name: str) -> None:
    figure = json.loads(FIGURES[name]().to_json())
    for part in (figure["layout"], *figure["data"]):
        assert set(part["meta"]["paint"].values()) <= tokens()
    colours = re.findall(r"#[0-9a-fA-F]{3,8}|rgba?\([^)]*\)", json.dumps(figure))
    assert set(colours) <= {"rgba(0,0,0,0)"}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_start_empty_and_keep_the_readers_view(name: str) -> None:
    figure = FIGURES[name]()
    assert isinstance(figure, go.Figure)
    assert all(trace.x is None and trace.y is None for trace in figure.data)
    assert figure.layout.uirevision == "fixed"


def test_two_calls_share_nothing() -> None:
    one, two = figures.ttft_parts(), figures.ttft_parts()
    one.layout.meta["paint"]["font.color"] = "err"
    assert two.layout.meta["paint"]["font.color"] == "ink-2"


def test_markup_holds_nothing_gradio_would_take_for_a_template() -> None:
    for markup in (
        panels.header(),
        panels.ttft(),
        panels.roofline(),
        panels.timeline(),
        panels.headline(),
    ):
        assert not re.search(r"[{}$]", markup)


def test_every_table_has_a_button_and_words() -> None:
    markup = "".join((panels.timeline(), panels.kv_map(), panels.ttft(), panels.roofline()))
    assert set(re.findall(r'data-table="(\w+)"', markup)) == set(words.BROWSER["tables"])
