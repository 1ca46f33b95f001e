"""Text as inert HTML: nothing of it is lost, and nothing of it acts."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ui import markup

TEXTS = st.text(
    alphabet=st.sampled_from("a<b>&;*`#/\"'= \n$![](lt)") | st.characters(codec="utf-8")
)
OUR_TAGS = {"span", "b", "code"}


class _Reader(HTMLParser):
    """Collects what a browser would see: tags, and text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


@settings(deadline=None)
@given(TEXTS)
@example("if a<b then <pad> else </s> <T>")
@example("&lt;b&gt; &amp; &#60;")
@example("```py\nif a < b:\n    pass\n```\nafter **bold** and `code`")
@example("```\nnever closed <img src=x>")
@example("<span class='ps-mark'>forged</span>")
def test_the_text_comes_back_character_by_character(text: str) -> None:
    assert markup.plain(markup.render(text)) == text
    assert markup.plain(markup.verbatim(text)) == text


@settings(deadline=None)
@given(TEXTS)
@example("<img src=http://example.org/x.png onerror=alert(1)>")
@example("**<a href='javascript:1'>x</a>**")
@example("`<svg onload=1>`")
def test_no_tag_or_attribute_comes_out_of_a_text(text: str) -> None:
    reader = _read(markup.render(text))
    assert {tag for tag, _ in reader.tags} <= OUR_TAGS
    for _, attributes in reader.tags:
        assert attributes in ([], [("class", "ps-mark")], [("class", "ps-code")])
    assert _read(markup.verbatim(text)).tags == []


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**so**", "<span class='ps-mark'>**</span><b>so</b><span class='ps-mark'>**</span>"),
        (
            "a `b` c",
            "a <span class='ps-mark'>`</span><code>b</code><span class='ps-mark'>`</span> c",
        ),
        ("## Title", "<span class='ps-mark'>## </span><b>Title</b>"),
        ("2**3**4", "2**3**4"),
        ("2 ** 3 ** 4", "2 ** 3 ** 4"),
        ("#hash", "#hash"),
        ("a ## b", "a ## b"),
        ("[x](http://example.org)", "[x](http://example.org)"),
        ("$$x^2$$", "$$x^2$$"),
    ],
)
def test_code_bold_and_headings_are_shown_and_nothing_else(text: str, html: str) -> None:
    assert markup.render(text) == html


def test_code_in_a_fence_is_verbatim_also_while_it_is_open() -> None:
    closed = markup.render("so:\n\n```c\nif (a<b) **x**;\n```\n\nend")
    assert "<code class='ps-code'>if (a&lt;b) **x**;\n</code>" in closed
    assert closed.startswith("so:<span class='ps-mark'>\n\n```c\n</span>")
    assert closed.endswith("<span class='ps-mark'>```\n\n</span>end")
    assert "<code class='ps-code'>**x*</code>" in markup.render("```c\n**x*")


def test_plain_text_only_grows_at_its_end_as_it_is_streamed() -> None:
    """Gradio then sends the new characters alone."""
    assert markup.render("one two").startswith(markup.render("one t"))


@pytest.mark.parametrize("piece", ["\n", "`", "**", "```\n", "<", "# ", "a ** b"])
def test_rendering_stays_linear_in_the_length_of_a_text(piece: str) -> None:
    began = time.perf_counter()
    markup.render(piece * 20_000)
    assert time.perf_counter() - began < 2
