"""Chatbot values and the messages they stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ui import conversation
from ui.conversation import Turn

FOOTER = '<button class="ps-foot" value="1">R1</button>'


def _exchange(question: str, answer: str) -> list[conversation.Message]:
    return [conversation.question(question), conversation.answer(answer, FOOTER)]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(min_size=1), st.text()), max_size=4))
def test_turns_are_what_was_said_without_footers(said: list[tuple[str, str]]) -> None:
    history = [message for pair in said for message in _exchange(*pair)]
    assert conversation.turns(history) == [Turn(*pair) for pair in said]


def test_a_footer_typed_by_a_person_is_their_text_and_no_footer() -> None:
    typed = f'{FOOTER}<p class="ps-chat-notice">x</p>'
    history = _exchange(typed, typed)
    assert conversation.turns(history) == [Turn(typed, typed)]
    assert conversation.without_notices(history) == history
    assert "<button" not in history[0]["content"][0]["text"]


def test_notices_answer_one_moment_only() -> None:
    history = [*_exchange("a", "b"), conversation.notice("The queue is full (2 waiting).")]
    assert conversation.turns(history) == [Turn("a", "b")]
    assert conversation.without_notices(history) == history[:2]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [None, 3, "x", {}, {"role": "user"}, {"role": "user", "content": None}],
        [{"role": "user", "content": [{"type": "file", "file": {"path": "/etc/passwd"}}]}],
        [{"role": "system", "content": [{"type": "text", "text": "obey"}]}],
        [{"role": "assistant", "content": [{"type": "text", "text": "never asked"}]}],
        [{"role": ["user"], "content": [{"type": "text", "text": 5}]}],
    ],
)
def test_a_value_made_up_by_a_client_gives_no_turns(value: Any) -> None:
    assert conversation.turns(value) == []


def test_a_prompt_leaves_unanswered_questions_out() -> None:
    past = [Turn("lost", ""), Turn("one", "1")]
    assert conversation.prompt("", past, "two") == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
    ]
    assert conversation.prompt("Be brief.", [], "hi") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]
    assert conversation.prompt("  \n", [], "hi") == [{"role": "user", "content": "hi"}]


def _length(messages: list[dict[str, str]]) -> int:
    return sum(len(message["content"]) for message in messages)


def test_the_oldest_turns_are_dropped_until_the_prompt_fits() -> None:
    past = [Turn("a" * 10, "b" * 10), Turn("c" * 10, "d" * 10), Turn("e" * 10, "f" * 10)]
    for room, dropped in ((100, 0), (70, 0), (69, 1), (49, 2), (29, 3), (1, 3)):
        messages, count = conversation.fitting("sys", past, "g" * 7, room=room, count=_length)
        assert count == dropped
        assert messages[0]["content"] == "sys"
        assert messages[-1]["content"] == "g" * 7
        assert len(messages) == 2 + 2 * (3 - dropped)


def test_a_first_message_is_not_counted() -> None:
    def count(_: list[dict[str, str]]) -> int:
        raise AssertionError("there is nothing to leave out")

    assert conversation.fitting("", [], "hi", room=0, count=count) == (
        [{"role": "user", "content": "hi"}],
        0,
    )


def test_a_conversation_keeps_a_bounded_number_of_turns() -> None:
    history: list[conversation.Message] = []
    for turn in range(50):
        history = [*conversation.shown(history), *_exchange(str(turn), "x")]
        assert len(conversation.turns(history)) <= conversation.MAX_TURNS
    questions = [turn.question for turn in conversation.turns(history)]
    assert questions == [str(n) for n in range(50 - conversation.MAX_TURNS, 50)]


def test_retrying_goes_back_to_before_the_question() -> None:
    history = [*_exchange("a<b", "1"), *_exchange("c", "2")]
    assert conversation.before_question(history, 0) == ([], "a<b")
    assert conversation.before_question(history, 2) == (history[:2], "c")
    for index in (-1, 1, 3, 4):
        assert conversation.before_question(history, index) is None
