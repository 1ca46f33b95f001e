"""Conversations on the server: the ids of what was said, bounded, and forgotten in time."""

from __future__ import annotations

from engine.conversations import ConversationStore
from engine.core.request import Request, RequestStatus, SamplingParams, Timeline


def request(*token_ids: int, done: bool = True) -> Request:
    made = Request(
        number=1,
        token_ids=list(token_ids),
        params=SamplingParams(),
        seed=0,
        timeline=Timeline(submitted=0.0),
    )
    made.status = RequestStatus.FINISHED if done else RequestStatus.RUNNING
    return made


def test_the_newest_request_of_a_conversation_is_kept() -> None:
    store = ConversationStore(lambda: 0.0)
    store.put("a", request(1, 2))
    store.put("b", request(3))
    store.put("a", request(1, 2, 4))
    assert store.token_ids("a") == [1, 2, 4]
    assert store.token_ids("b") == [3]
    assert store.token_ids("c") == []


def test_an_answer_that_is_still_written_is_not_taken() -> None:
    store = ConversationStore(lambda: 0.0)
    store.put("a", request(1, 2, done=False))
    assert store.token_ids("a") == []


def test_the_store_is_bounded_and_forgets() -> None:
    now = [0.0]
    store = ConversationStore(lambda: now[0], max_conversations=3, keep_seconds=60)
    for number in range(5):
        store.put(str(number), request(number))
    assert len(store) == 3
    assert store.token_ids("1") == []
    now[0] = 30.0
    store.put("2", request(7))
    now[0] = 70.0
    assert store.token_ids("3") == store.token_ids("4") == []
    assert store.token_ids("2") == [7]
    now[0] = 200.0
    assert len(store) == 0
