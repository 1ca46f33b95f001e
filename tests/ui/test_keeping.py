"""Answers that the server keeps: only for their session, bounded, and forgotten in time."""

from __future__ import annotations

from engine.mailbox import Token
from ui.keeping import KeptAnswer, KeptAnswers


def _answer(*prompt: int, output: str = "ab") -> KeptAnswer:
    return KeptAnswer.of(prompt, [Token(i, ord(c), c) for i, c in enumerate(output)])


def test_an_answer_is_found_by_its_own_session_alone() -> None:
    kept = KeptAnswers(lambda: 0.0)
    kept.put("mine", 3, _answer(1, 2))
    found = kept.get("mine", 3)
    assert found is not None
    assert found.token_ids == [1, 2, ord("a"), ord("b")]
    assert found.texts == ("a", "b")
    assert kept.get("mine", 4) is None
    assert kept.get("mine", None) is None
    assert kept.get("yours", 3) is None


def test_a_cleared_conversation_is_forgotten() -> None:
    kept = KeptAnswers(lambda: 0.0)
    for session in ("mine", "yours"):
        kept.put(session, 1, _answer(1))
    kept.drop("mine")
    assert kept.get("mine", 1) is None
    assert kept.get("yours", 1) is not None


def test_answers_are_bounded_by_their_tokens_and_by_time() -> None:
    now = [0.0]
    kept = KeptAnswers(lambda: now[0], max_tokens=10, keep_seconds=60)
    for number in range(5):
        kept.put("s", number, _answer(1, output="abc"))
    assert len(kept) == 2
    assert kept.get("s", 2) is None
    kept.put("s", 4, _answer(1, output="a"))
    assert len(kept) == 2, "an answer counts once"
    now[0] = 61.0
    assert kept.get("s", 4) is None
    assert len(kept) == 0
