"""Stop strings: found however the text is cut into tokens, and never shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.request import SamplingParams
from engine.model.text import REPLACEMENT, DetokenizerStream
from tests.model.text_streams import FIRST_HALF, SECOND_HALF, of, stream_text
from tests.model.tiny_tokenizers import byte_level, ids_of


def test_a_stop_string_over_several_tokens_is_never_shown() -> None:
    pieces = ["Sure.", "\n", "Hu", "man", ":", " more"]
    tokenizer, ids = of(byte_level(pieces), ["Sure.", "\n", "\n", "Hu", "man", ":", " more"])
    deltas, stopped = stream_text(tokenizer, ids, stop=["\n\nHuman:"])
    assert stopped
    assert deltas == ["Sure.", "", "", "", "", "", ""]


def test_a_stop_string_that_ends_inside_a_token_is_found() -> None:
    pieces = ["A", " LASTLY", " more"]
    tokenizer, ids = of(byte_level(pieces), pieces)
    deltas, stopped = stream_text(tokenizer, ids, stop=["ST"])
    assert (deltas, stopped) == (["A", " LA", ""], True)


def test_a_partial_match_is_released_when_it_breaks_or_the_text_ends() -> None:
    tokenizer, ids = of(byte_level(["ab", "x"]), ["ab", "x", "ab"])
    assert stream_text(tokenizer, ids, stop=["abc"]) == (["", "abx", "", "ab"], False)


def test_a_partial_match_may_begin_again_inside_itself() -> None:
    tokenizer, ids = of(byte_level([]), list("aabaabaac!"))
    deltas, stopped = stream_text(tokenizer, ids, stop=["aabaac"])
    assert ("".join(deltas), stopped) == ("aab", True)


def test_a_stop_string_may_hold_a_character_of_several_tokens() -> None:
    tokenizer, ids = of(byte_level([FIRST_HALF, SECOND_HALF]), ["a", FIRST_HALF, SECOND_HALF, "b"])
    assert stream_text(tokenizer, ids, stop=["🦊"]) == (["a", "", "", ""], True)


def test_text_held_for_its_character_is_searched_at_the_end() -> None:
    tokenizer, ids = of(byte_level([]), ["a", b"\x80"])
    assert stream_text(tokenizer, ids, stop=[REPLACEMENT])[0] == ["a", "", ""]


def test_nothing_comes_after_a_stop() -> None:
    tokenizer, ids = of(byte_level(["stop", "go"]), ["stop", "go"])
    stream = DetokenizerStream(tokenizer, SamplingParams(stop=("stop",)))
    assert stream.push(ids[0]) == ("", True)
    assert stream.push(ids[1]) == ("", True)
    assert stream.flush() == ""


def test_flushing_twice_gives_the_rest_once() -> None:
    tokenizer, ids = of(byte_level(["ab"]), ["ab"])
    stream = DetokenizerStream(tokenizer, SamplingParams(stop=("abc",)))
    stream.push(ids[0])
    assert (stream.flush(), stream.flush()) == ("ab", "")


def test_the_prompt_is_not_searched_for_stop_strings() -> None:
    tokenizer, ids = of(byte_level(["Hu", "man:"]), ["Hu", "man:"])
    assert stream_text(tokenizer, ids[1:], stop=["Human:"], prompt=ids[:1])[0] == ["man:", ""]


@pytest.mark.parametrize(
    ("min_tokens", "text", "stopped"),
    [(0, "", True), (1, "", True), (2, "stop go ", True), (4, "stop go stop", False)],
)
def test_a_stop_string_complete_before_min_tokens_is_ordinary_text(
    min_tokens: int, text: str, stopped: bool
) -> None:
    tokenizer, ids = of(byte_level(["stop", " go "]), ["stop", " go ", "stop"])
    deltas, found = stream_text(tokenizer, ids, stop=["stop"], min_tokens=min_tokens)
    assert ("".join(deltas), found) == (text, stopped)


def test_a_stop_string_that_begins_before_min_tokens_may_end_after() -> None:
    tokenizer, ids = of(byte_level(["a<", "en", "d>"]), ["a<", "en", "d>"])
    assert stream_text(tokenizer, ids, stop=["<end>"], min_tokens=3) == (["a", "", "", ""], True)


def test_a_stop_string_ignored_before_min_tokens_is_not_found_again() -> None:
    # "ab" is held back as the possible start of "abc" when the next token comes.
    tokenizer, ids = of(byte_level(["ab"]), ["ab", "x"])
    assert stream_text(tokenizer, ids, stop=["ab", "abc"], min_tokens=2) == (["", "abx", ""], False)


def test_the_stop_string_that_is_complete_first_ends_the_text() -> None:
    tokenizer, whole = of(byte_level(["abc"]), ["abc"])
    letters = ids_of(byte_level([]), ["a", "b", "c"])
    for ids in (whole, letters):
        deltas, stopped = stream_text(tokenizer, ids, stop=["abc", "b"])
        assert ("".join(deltas), stopped) == ("a", True)


ALPHABET = "ab\n"
CHUNKS = byte_level([a + b for a in ALPHABET for b in ALPHABET] + ["aab", "ba\n", "\n\na"])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "\n", "aab", "ba", "ba\n", "\n\na", "ab"]), max_size=25),
    st.lists(st.text(ALPHABET, min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_the_text_does_not_depend_on_how_it_is_cut_into_tokens(
    pieces: list[str], stops: list[str]
) -> None:
    text = "".join(pieces)
    ends = [(start + len(stop), start) for stop in stops if (start := text.find(stop)) >= 0]
    expected = text[: min(ends)[1]] if ends else text
    for cut in (pieces, list(text)):
        tokenizer, ids = of(CHUNKS, cut)
        deltas, stopped = stream_text(tokenizer, ids, stop=stops)
        assert "".join(deltas) == expected
        assert stopped == bool(ends)
