"""The history: what it keeps, what it drops, and that readers and the writer do not meet."""

from __future__ import annotations

import threading
import tracemalloc

import pytest

from engine.core.records import StepRow
from engine.core.request import FinishReason, Phase
from engine.telemetry.store import TraceStore
from tests.telemetry.records import finish, request, step


def closed(store: TraceStore, number: int, *, tokens: int = 1, time: float = 1.0) -> None:
    made = request(number, num_output_tokens=tokens)
    store.open(made)
    store.close(finish(made, time))


def test_an_open_request_is_seen_as_it_stands_and_a_closed_one_is_final() -> None:
    store = TraceStore()
    made = request(7)
    store.open(made)
    assert [(r.number, r.num_output_tokens, r.complete) for r in store.live()] == [(7, 0, False)]
    made.token_ids.append(5)
    assert store.find(7).num_output_tokens == 1
    assert store.records() == []
    frozen = store.close(finish(made, 2.0))
    made.timeline.token_delivered.append(9.0)
    assert store.live() == []
    assert store.records() == [frozen]
    assert store.find(7) is frozen
    assert (frozen.complete, frozen.finished, frozen.token_delivered) == (True, 2.0, ())


def test_a_second_close_changes_nothing() -> None:
    store = TraceStore()
    made = request(1)
    store.open(made)
    store.close(finish(made, 1.0))
    assert store.close(made) is None
    assert store.totals().requests[FinishReason.STOP] == 1
    assert store.find(2) is None


def test_misuse_is_refused_with_a_sentence() -> None:
    store = TraceStore()
    made = request(1)
    store.open(made)
    with pytest.raises(ValueError, match="R1 has been opened before"):
        store.open(request(1))
    with pytest.raises(ValueError, match="R1 has not ended"):
        store.close(made)
    store.add_step(step(3))
    with pytest.raises(ValueError, match="Step 3 came after step 3"):
        store.add_step(step(3))
    with pytest.raises(ValueError, match="at least 1"):
        TraceStore(max_steps=0)


def test_steps_since_a_number_are_in_order_and_bounded() -> None:
    store = TraceStore(max_steps=5)
    for number in range(1, 9):
        store.add_step(step(number))
    assert [s.number for s in store.steps_since(0)] == [4, 5, 6, 7, 8]
    assert [s.number for s in store.steps_since(6)] == [7, 8]
    assert store.steps_since(8) == []
    assert store.totals().steps == 8


def test_a_cursor_gives_each_closed_request_once() -> None:
    store = TraceStore(max_records=3)
    closed(store, 1)
    first, cursor = store.closed_since(0)
    assert [r.number for r in first] == [1]
    assert store.closed_since(cursor) == ([], cursor)
    for number in range(2, 7):
        closed(store, number)
    news, cursor = store.closed_since(cursor)
    assert [r.number for r in news] == [4, 5, 6]
    assert store.closed_since(cursor)[0] == []
    assert store.closed_since(cursor + 100) == ([], cursor)


def test_totals_outlive_the_history() -> None:
    store = TraceStore(max_records=2)
    for number in range(1, 6):
        closed(store, number, tokens=3)
    gone = request(6, num_output_tokens=2)
    store.open(gone)
    store.close(finish(gone, 1.0, FinishReason.CANCELLED))
    store.open(request(7, num_output_tokens=4))
    totals = store.totals()
    assert [r.number for r in store.records()] == [5, 6]
    assert totals.requests == {
        FinishReason.STOP: 5,
        FinishReason.LENGTH: 0,
        FinishReason.CANCELLED: 1,
        FinishReason.ERROR: 0,
    }
    assert totals.output_tokens == 5 * 3 + 2 + 4


def test_long_answers_push_older_ones_out_but_the_newest_stays() -> None:
    store = TraceStore(max_values=100)
    closed(store, 1, tokens=20)
    closed(store, 2, tokens=20)
    assert [r.number for r in store.records()] == [1, 2]
    closed(store, 3, tokens=20)
    assert [r.number for r in store.records()] == [2, 3]
    closed(store, 4, tokens=500)
    assert [r.number for r in store.records()] == [4]


def test_blocks_are_lost_when_a_later_step_displaces_a_finished_request() -> None:
    store = TraceStore()
    made = request(1)
    store.open(made)
    store.add_step(step(1, displaced=(1,)))  # preempted, say: it will compute them again
    assert store.displaced_at(1) is None
    finish(made, 2.01)
    store.add_step(step(2, start=2.0))
    store.add_step(step(3, displaced=(1, 99)))
    assert store.displaced_at(1) == 3.0
    store.close(made)
    store.add_step(step(4, displaced=(1,)))
    assert store.displaced_at(1) == 3.0
    assert store.displaced_at(99) is None


def test_a_request_displaced_after_it_was_closed_is_known_until_it_is_dropped() -> None:
    store = TraceStore(max_records=1)
    closed(store, 1, time=1.0)
    store.add_step(step(5, displaced=(1,)))
    assert store.displaced_at(1) == 5.0
    closed(store, 2)
    assert store.displaced_at(1) is None


def test_readers_never_trip_over_the_writer() -> None:
    store = TraceStore(max_steps=50, max_records=20)
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        cursor = seen = 0
        try:
            while not stop.is_set():
                steps = store.steps_since(seen)
                assert [s.number for s in steps] == sorted({s.number for s in steps})
                seen = steps[-1].number if steps else seen
                news, cursor = store.closed_since(cursor)
                assert all(r.complete for r in news)
                assert len(store.live()) <= 1
                assert len(store.records()) <= 20
                store.totals()
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(1, 1_500):
        made = request(number, num_output_tokens=3)
        store.open(made)
        store.add_step(step(number))
        store.close(finish(made, float(number)))
    stop.set()
    for reader in readers:
        reader.join(10)
    assert failures == []
    assert store.totals().output_tokens == 3 * 1_499


def test_memory_is_flat_over_ten_thousand_steps() -> None:
    store = TraceStore(max_steps=500, max_records=50)

    def serve(first: int, count: int) -> int:
        for number in range(first, first + count):
            rows = tuple(StepRow(number + i, number, 1, Phase.DECODE) for i in range(3))
            store.add_step(step(number, rows=rows, displaced=(number - 40,)))
            if number % 5 == 0:
                closed(store, number, tokens=20, time=float(number))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        # Python's own free lists fill up first.
        settled = serve(1, 6_000)
        assert serve(6_001, 10_000) < 1.05 * settled
    finally:
        tracemalloc.stop()
    assert len(store.steps_since(0)) == 500
    assert len(store.records()) == 50
