"""Exclusive turns: one holder has the engine, everybody else waits and is then served."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from engine.core.errors import InvalidRequest, QueueFull
from engine.core.plan import StepPlan
from engine.core.request import FinishReason, SamplingParams
from engine.mailbox import RequestFailed, TokenStream
from engine.service import EngineService
from engine.turns import TurnOver, TurnQueue, TurnsFull
from tests.stub_service import ScriptedRunner, started, wait_until


def params(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


def read(stream: TokenStream) -> int:
    return len(list(stream))


def submit(service: EngineService, tokens: int = 4, length: int = 5) -> TokenStream:
    return service.submit([65] * length, params(tokens))


def test_others_wait_while_a_turn_lasts_and_are_served_afterwards() -> None:
    service = started(ScriptedRunner())
    with service.exclusive_turn("experiment") as turn:
        waiting = submit(service)
        mine = turn.submit([66] * 5, params(3))
        assert read(mine) == 3
        assert service.turn is not None
        assert service.turn.label == "experiment"
        record = service.store.find(waiting.number)
        assert record is not None
        assert record.scheduled is None
    assert read(waiting) == 4
    assert service.turn is None
    service.close()


def test_a_turn_begins_when_running_requests_have_ended() -> None:
    service = started(ScriptedRunner(seconds=0.005))
    running = submit(service, tokens=20)
    wait_until(lambda: bool(service.store.steps_since(0)))
    with service.exclusive_turn("experiment"):
        record = service.store.find(running.number)
        assert record is not None
        assert record.num_output_tokens == 20
    assert read(running) == 20
    service.close()


def test_a_turn_that_cannot_begin_is_given_up_and_holds_nobody_back() -> None:
    service = started(ScriptedRunner(seconds=0.01))
    running = submit(service, tokens=60)
    wait_until(lambda: bool(service.store.steps_since(0)))
    with (
        pytest.raises(TurnOver, match="still busy"),
        service.exclusive_turn("experiment", patience=0.05),
    ):
        raise AssertionError("the turn has begun")
    late = submit(service)
    assert read(late) == 4
    assert read(running) == 60
    service.close()


def test_preparing_empties_the_cache_and_the_end_brings_the_old_settings_back() -> None:
    runner = ScriptedRunner()
    service = started(runner, max_running=3)
    before = service.config
    assert before is not None
    with service.exclusive_turn("experiment") as turn:
        hits = []
        for _ in range(2):
            turn.prepare(replace(before, policy="static", num_blocks=64))
            for _ in range(2):
                stream = turn.submit([70] * 40, params(2))
                read(stream)
                record = service.store.find(stream.number)
                assert record is not None
                hits.append(record.num_cached_tokens)
        assert service.config is not None
        assert service.config.policy == "static"
    assert hits == [0, 32, 0, 32]
    assert service.config == before
    assert runner.num_blocks == before.num_blocks
    service.close()


def test_waiting_requests_are_judged_by_the_settings_they_will_be_served_under() -> None:
    service = started(ScriptedRunner(), num_blocks=256)
    before = service.config
    assert before is not None
    with service.exclusive_turn("experiment") as turn:
        turn.prepare(replace(before, num_blocks=4))
        waiting = submit(service, length=200)
    assert read(waiting) == 4
    service.close()


def test_a_cancelled_request_that_waits_ends_at_once() -> None:
    service = started(ScriptedRunner())
    with service.exclusive_turn("experiment"):
        waiting = submit(service)
        waiting.cancel()
        assert read(waiting) == 0
        assert waiting.ending is not None
        assert waiting.ending.reason is FinishReason.CANCELLED
    service.close()


def test_the_queue_limit_counts_only_those_who_wait() -> None:
    service = started(ScriptedRunner(), max_running=1, max_waiting=1, max_batched_tokens=8)
    with service.exclusive_turn("experiment") as turn:
        mine = [turn.submit([66] * 5, params(2)) for _ in range(6)]
        waiting = [submit(service) for _ in range(2)]
        with pytest.raises(QueueFull):
            submit(service)
        assert [read(stream) for stream in mine] == [2] * 6
    assert [read(stream) for stream in waiting] == [4, 4]
    service.close()


def test_time_up_ends_the_holders_requests_and_serves_the_others() -> None:
    service = started(ScriptedRunner(seconds=0.01))
    with service.exclusive_turn("experiment", max_seconds=0.1) as turn:
        mine = turn.submit([66] * 5, params(2000))
        waiting = submit(service)
        with pytest.raises(RequestFailed, match="turn was over"):
            list(mine)
        assert read(waiting) == 4
        with pytest.raises(TurnOver):
            turn.submit([66] * 5, params(2))
    service.close()


def test_a_request_of_a_turn_that_ended_meanwhile_fails_alone() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def pause_once(plan: StepPlan) -> None:
        if not entered.is_set():
            entered.set()
            go_on.wait(5)

    service = started(ScriptedRunner(before=pause_once), num_blocks=8)
    before = service.config
    assert before is not None
    with service.exclusive_turn("experiment") as turn:
        turn.prepare(replace(before, num_blocks=64))
        first = turn.submit([66] * 5, params(4))
        assert entered.wait(5)
        worker, held = turn._worker, turn._turn
        end = threading.Thread(target=worker.end_turn, args=(held,))
        end.start()
        wait_until(lambda: len(worker._inbox) == 1)
        # Taken under 64 blocks, but behind the end of the turn: 8 blocks cannot hold it.
        late = turn.submit([66] * 500, params(4))
        go_on.set()
        end.join(5)
        with pytest.raises(RequestFailed, match="500 tokens"):
            list(late)
        with pytest.raises(RequestFailed, match="turn was over"):
            list(first)
    assert read(submit(service)) == 4
    service.close()


def test_settings_cannot_be_changed_by_others_during_a_turn() -> None:
    service = started(ScriptedRunner())
    with service.exclusive_turn("experiment"), pytest.raises(InvalidRequest, match="experiment"):
        service.reconfigure(max_running=2)
    service.reconfigure(max_running=2)
    assert service.config is not None
    assert service.config.max_running == 2
    service.close()


def test_a_failure_during_a_turn_leaves_nobody_waiting() -> None:
    armed = threading.Event()

    def fail_once(plan: StepPlan) -> None:
        if armed.is_set():
            armed.clear()
            raise RuntimeError("a cable was pulled")

    service = started(ScriptedRunner(before=fail_once), policy="chunked")
    before = service.config
    assert before is not None
    with service.exclusive_turn("experiment") as turn:
        turn.prepare(replace(before, policy="static"))
        waiting = submit(service)
        armed.set()
        mine = turn.submit([66] * 5, params(3))
        for stream in (mine, waiting):
            with pytest.raises(RequestFailed, match="cable"):
                list(stream)
    assert service.config == before
    wait_until(lambda: service.health()[0])
    assert read(submit(service)) == 4
    service.close()


def test_closing_can_wait_for_the_engines_thread_to_end() -> None:
    service = started(ScriptedRunner(seconds=0.05))
    threads = [t for t in threading.enumerate() if t.name in ("engine", "engine-watchdog")]
    stream = submit(service, tokens=100)
    wait_until(lambda: bool(service.store.steps_since(0)))
    service.close(wait=5.0)
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(RequestFailed, match="shut down"):
        list(stream)


def test_turns_come_in_order_and_a_place_can_be_given_up() -> None:
    queue = TurnQueue(max_tickets=3)
    first, second, third = (queue.join(name) for name in "abc")
    with pytest.raises(TurnsFull, match="3 experiments"):
        queue.join("d")
    assert [t.position for t in (first, second, third)] == [0, 1, 2]
    assert first.wait(0)
    assert not third.wait(0.01)
    second.leave()
    came = threading.Event()

    def wait_for_turn() -> None:
        if third.wait(5):
            came.set()

    threading.Thread(target=wait_for_turn, daemon=True).start()
    time.sleep(0.02)
    assert not came.is_set()
    first.leave()
    assert came.wait(5)
    assert second.position == -1
    assert not second.wait(0)
