"""Answers token by token, shaded by the gaps before the tokens."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.request import SampledLogprob
from tests.ui.test_footer import _record
from ui import markup
from ui.waits import LEAST_SPAN, NUM_SHADES, Coloured, Scale, coloured


def _times(*gaps: float) -> tuple[float, ...]:
    return tuple(itertools.accumulate(gaps, initial=10.1))


def _colour(texts: list[str], *gaps: float, text: str | None = None, **values: Any) -> Coloured:
    record = _record(token_delivered=_times(*gaps), token_sampled=_times(*gaps), **values)
    made = coloured(record, texts, "".join(texts) if text is None else text, chr)
    assert made is not None
    return made


class _Spans(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "span"
        self.found.append(dict(attrs))


def _shades(made: Coloured) -> list[int | None]:
    shades = [re.search(r"ps-w(\d)", str(span["class"])) for span in _Spans(made.text).found]
    return [int(shade[1]) if shade else None for shade in shades]


def test_each_token_is_shaded_by_the_gap_before_it() -> None:
    made = _colour(["The", " <b>", " cat", " sat"], 0.033, 0.033, 0.302)
    assert _shades(made) == [None, 0, 0, NUM_SHADES - 1]
    values = [span["value"] for span in _Spans(made.text).found]
    assert values == ["1||100 ms", "2|33 ms|133 ms", "3|33 ms|166 ms", "4|302 ms|468 ms"]
    assert "&lt;b&gt;" in made.text


def test_a_character_of_several_tokens_is_one_piece_with_its_longest_gap() -> None:
    made = _colour(["a", "", "", "👋", ""], 0.03, 0.3, 0.03, 0.03)
    spans = _Spans(made.text).found
    assert [span["value"] for span in spans] == ["1||100 ms", "2-4|300 ms|460 ms"]
    assert _shades(made) == [None, NUM_SHADES - 1]


def test_gaps_that_are_alike_stay_pale() -> None:
    made = _colour(list("abcdef"), 0.030, 0.031, 0.033, 0.029, 0.035)
    assert set(_shades(made)) == {None, 0}


def test_tokens_that_came_together_share_their_gap() -> None:
    made = _colour(list("abc"), 0.1, 0.0)
    assert [span["value"] for span in _Spans(made.text).found][1:] == [
        "2|50 ms|200 ms",
        "3|50 ms|200 ms",
    ]


def test_the_legend_gives_the_start_of_each_shade() -> None:
    legend = re.sub("<[^>]+>", " ", _colour(list("abc"), 0.01, 0.01).legend)
    words = " ".join(legend.split())
    assert words == "gap before a token under 15 ms 15 ms 23 ms 35 ms 53 ms"


def test_shades_are_steps_of_equal_ratio_from_the_median() -> None:
    scale = Scale.of([0.0, 0.01, 0.03, 0.02])
    assert scale is not None
    starts = [scale.start(shade) for shade in range(NUM_SHADES + 1)]
    assert starts[0] == pytest.approx(0.02)
    assert starts[-1] == pytest.approx(0.02 * LEAST_SPAN)
    assert [scale.shade(start * 1.001) for start in starts[:-1]] == list(range(NUM_SHADES))
    assert Scale.of([0.02, 0.02, 5.0]) == (0.02, 5.0)
    assert Scale.of([0.0]) is None


@pytest.mark.parametrize("texts", [[], ["a"], ["", "a"]])
def test_an_answer_without_gaps_has_no_scale(texts: list[str]) -> None:
    made = _colour(texts, *[0.0] * max(0, len(texts) - 1))
    assert "no gaps" in made.legend
    assert markup.plain(made.text) == "".join(texts)


def test_probabilities_are_told_where_they_were_recorded() -> None:
    logprobs = (
        SampledLogprob(-0.2, ((ord("a"), -0.2), (ord(">"), -2.0), (ord("'"), -20.0))),
        SampledLogprob(-1.0, ()),
    )
    made = _colour(["a", "b"], 0.03, logprobs=logprobs)
    first, second = _Spans(made.text).found
    assert str(first["value"]).endswith("|82 %")
    assert first["label"] == "“a” 82 %, “>” 14 %, “'” below 0.01 %"
    assert str(second["value"]).endswith("|37 %")
    assert "label" not in second
    assert markup.plain(made.text) == "ab"


@settings(deadline=None)
@given(st.lists(st.text(max_size=4), max_size=8), st.text(max_size=5))
def test_the_text_comes_back_character_by_character(texts: list[str], ending: str) -> None:
    said = "".join(texts) + ending
    made = _colour(texts, *[0.02] * max(0, len(texts) - 1), text=said)
    assert markup.plain(made.text) == said


def test_tokens_of_another_text_colour_nothing() -> None:
    assert coloured(_record(), ["one"], "two", chr) is None
    assert coloured(_record(), ["a"] * 9, "a" * 9, chr) is None, "it has but four times"
