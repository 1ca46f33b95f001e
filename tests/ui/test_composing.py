"""Prompts and their parts: what fits, what is left out, and sums that come out right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import InvalidRequest
from ui.composing import compose, messages_of
from ui.conversation import Turn

MARK = 1


def _render(messages: list[dict[str, Any]], *, known_ids: Sequence[int] = ()) -> list[int]:
    """A marker before each message, the opening of the answer, and a token for each character."""
    ids = []
    for message in messages:
        ids += [MARK, *map(ord, message["content"])]
    return [*ids, MARK]


def _compose(system: str, past: list[Turn], text: str, room: int = 10_000, render: Any = _render):  # type: ignore[no-untyped-def]
    return compose(render, system, past, text, room=room)


def test_messages_leave_unanswered_questions_out() -> None:
    past = [Turn("one", "1"), Turn("never answered", "")]
    assert messages_of("", past, "two") == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
    ]
    assert messages_of("Be brief.", [], "hi") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert messages_of("  \n", [], "hi") == [{"role": "user", "content": "hi"}]


def test_the_parts_of_a_prompt() -> None:
    prompt = _compose("sys", [Turn("ab", "cdef")], "hello")
    assert prompt.composition == (("system", 3), ("history", 6), ("message", 5), ("template", 5))
    assert _compose("", [], "hello").composition == (("message", 5), ("template", 2))


@settings(deadline=None)
@given(
    st.text(), st.lists(st.tuples(st.text(), st.text()).map(lambda pair: Turn(*pair))), st.text()
)
def test_parts_add_up_to_the_prompt(system: str, past: list[Turn], text: str) -> None:
    prompt = _compose(system, past, text)
    assert sum(tokens for _, tokens in prompt.composition) == len(prompt.token_ids)
    assert all(tokens > 0 for _, tokens in prompt.composition)


def test_a_template_that_refuses_empty_messages_leaves_the_parts_unknown() -> None:
    def render(messages: list[dict[str, Any]], *, known_ids: Sequence[int] = ()) -> list[int]:
        if not all(message["content"] for message in messages):
            raise InvalidRequest("content is empty", field="messages")
        return _render(messages)

    prompt = _compose("", [], "hello", render=render)
    assert prompt.composition == ()
    assert len(prompt.token_ids) == 7


def test_known_ids_are_offered_for_the_prompt_and_for_its_history() -> None:
    """An answer may have other tokens than its text gives: the history's share must be theirs."""
    known = [MARK, *map(ord, "ab"), MARK, 900]  # "cdef" in one token

    def render(messages: list[dict[str, Any]], *, known_ids: Sequence[int] = ()) -> list[int]:
        fresh = _render(messages)
        if known_ids and len(messages) == 3:
            return [*known_ids, *_render(messages[2:])]
        return fresh

    prompt = compose(render, "", [Turn("ab", "cdef")], "hello", room=1000, known_ids=known)
    assert prompt.token_ids[: len(known)] == known
    assert dict(prompt.composition) == {"history": 3, "message": 5, "template": 4}


def test_the_oldest_turns_are_dropped_until_the_prompt_fits() -> None:
    past = [Turn("a" * 10, "b" * 10), Turn("c" * 10, "d" * 10), Turn("e" * 10, "f" * 10)]
    # 3 + 7 characters, 60 of the turns, 9 markers; each turn takes 22 with it.
    for room, dropped in ((100, 0), (79, 0), (78, 1), (57, 1), (56, 2), (34, 3), (1, 3)):
        prompt = _compose("sys", past, "g" * 7, room=room)
        assert prompt.num_dropped == dropped, room
        assert prompt.token_ids == _render(messages_of("sys", past[dropped:], "g" * 7))


@pytest.mark.parametrize("num_turns", [0, 1, 20])
def test_a_prompt_that_fits_is_rendered_few_times(num_turns: int) -> None:
    calls = []

    def render(messages: list[dict[str, Any]], *, known_ids: Sequence[int] = ()) -> list[int]:
        calls.append(messages)
        return _render(messages)

    _compose("sys", [Turn("q", "a")] * num_turns, "hi", render=render)
    assert len(calls) <= 4
