"""The service with threads, readers and failures: nobody waits for ever, nobody gets another's."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from engine.contracts import EngineParts, Report, ServiceStatus
from engine.core.errors import EngineStopped, InvalidRequest, PromptTooLong, QueueFull
from engine.core.plan import StepPlan
from engine.core.request import FinishReason, Phase, SamplingParams
from engine.mailbox import RequestFailed, TokenStream
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started, stub_build, wait_until

HELLO = [ord(c) for c in "hello"]


def params(max_tokens: int = 12, **more: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, **more)  # type: ignore[arg-type]


@pytest.fixture
def service() -> Iterator[EngineService]:
    service = started(ScriptedRunner(seconds=0.001))
    yield service
    service.close()


def read(stream: TokenStream) -> str:
    return "".join(token.text for token in stream)


def blocks_in_use(service: EngineService) -> int:
    assert service.engine is not None
    return service.engine.scheduler.pool.num_used


def test_a_thread_reads_its_tokens_and_one_end(service: EngineService) -> None:
    stream = service.submit(HELLO, params(12))
    tokens = list(stream)
    assert [token.index for token in tokens] == list(range(12))
    assert "".join(token.text for token in tokens) == "words words "
    assert stream.ending is not None
    assert stream.ending.reason is FinishReason.LENGTH
    assert list(stream) == []


def test_each_reader_gets_its_own_tokens_however_slowly_it_reads(service: EngineService) -> None:
    async def reader(pause: float) -> list[int]:
        stream = await asyncio.to_thread(service.submit, HELLO, params(30))
        seen = []
        async for token in stream:
            seen.append(token.index)
            await asyncio.sleep(pause)
        return seen

    async def everybody() -> list[list[int]]:
        return await asyncio.gather(*(reader(0.05 * i / 7) for i in range(8)))

    assert asyncio.run(everybody()) == [list(range(30))] * 8


def test_delivery_is_stamped_when_the_loop_takes_a_token(service: EngineService) -> None:
    async def slow_display() -> TokenStream:
        stream = service.submit(HELLO, params(10))
        async for token in stream:
            if token.index == 0:
                await asyncio.sleep(0.3)
        return stream

    stream = asyncio.run(slow_display())
    wait_until(lambda: bool(service.store.records()))
    record = service.store.records()[-1]
    assert record.number == stream.number
    assert len(record.token_delivered) == len(record.token_sampled) == 10
    delays = [
        taken - sampled
        for taken, sampled in zip(record.token_delivered, record.token_sampled, strict=True)
    ]
    assert min(delays) >= 0
    assert max(delays) < 0.25, "a display that pauses must not delay what counts as delivered"


def test_times_are_in_order_and_parts_are_complete(service: EngineService) -> None:
    read(service.submit_chat([{"role": "user", "content": "hello"}], params(5)))
    wait_until(lambda: bool(service.store.records()))
    record = service.store.records()[-1]
    times = [
        record.submitted,
        record.queued,
        record.scheduled,
        record.first_token_sampled,
        record.first_token_delivered,
        record.last_token_delivered,
    ]
    assert None not in times
    assert times == sorted(times)  # type: ignore[type-var]
    assert record.complete


def test_a_request_that_is_not_streamed_has_no_delivery_times(service: EngineService) -> None:
    stream = service.submit(HELLO, params(6), streamed=False)
    assert asyncio.run(stream.text()) == "words "
    wait_until(lambda: bool(service.store.records()))
    record = service.store.records()[-1]
    assert record.token_delivered == ()
    assert len(record.token_sampled) == 6


def test_cancel_ends_the_stream_and_frees_its_blocks(service: EngineService) -> None:
    stream = service.submit(HELLO, params(1000))
    iterator = iter(stream)
    next(iterator)
    stream.cancel()
    stream.cancel()
    for _ in iterator:
        pass
    assert stream.ending is not None
    assert stream.ending.reason is FinishReason.CANCELLED
    assert blocks_in_use(service) == 0
    assert read(service.submit(HELLO, params(6))) == "words "


def test_a_dropped_stream_stops_its_request(service: EngineService) -> None:
    async def leave_early() -> None:
        stream = service.submit(HELLO, params(2000))
        async for _ in stream:
            break

    asyncio.run(leave_early())
    gc.collect()
    wait_until(lambda: blocks_in_use(service) == 0, timeout=2)
    wait_until(lambda: bool(service.store.records()), timeout=2)
    assert service.store.records()[-1].finish_reason is FinishReason.CANCELLED


def test_a_queued_request_can_be_cancelled() -> None:
    service = started(ScriptedRunner(seconds=0.01), max_running=1)
    first = service.submit(HELLO, params(50))
    second = service.submit(HELLO, params(50))
    second.cancel()
    assert read(second) == ""
    assert second.ending is not None
    assert second.ending.reason is FinishReason.CANCELLED
    assert len(read(first)) == 50
    service.close()


def test_the_queue_is_bounded_and_says_so() -> None:
    service = started(ScriptedRunner(seconds=0.01), max_running=1, max_waiting=2)
    streams = [service.submit(HELLO, params(20)) for _ in range(3)]
    with pytest.raises(QueueFull, match="2 waiting"):
        service.submit(HELLO, params(20))
    assert service.num_refused == 1
    assert [len(read(stream)) for stream in streams] == [20, 20, 20]
    assert len(read(service.submit(HELLO, params(4)))) == 4
    service.close()


def test_what_cannot_be_served_is_refused_and_recorded(service: EngineService) -> None:
    with pytest.raises(PromptTooLong, match="2,047"):
        service.submit([65] * 3000, params())
    with pytest.raises(InvalidRequest, match="empty"):
        service.submit([], params())
    with pytest.raises(InvalidRequest, match="messages"):
        service.submit_chat([], params())
    record = service.store.records()[-1]
    assert record.finish_reason is FinishReason.ERROR
    assert record.num_prompt_tokens == 3000
    assert len(read(service.submit(HELLO, params(3)))) == 3


def engine_threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("engine")


class FailingOnce:
    """Raises in the given step, then works."""

    def __init__(self, step: int, times: int = 1) -> None:
        self._step = step
        self._left = times
        self._seen = 0

    def __call__(self, plan: StepPlan) -> None:
        self._seen += 1
        if self._seen >= self._step and self._left:
            self._left -= 1
            raise RuntimeError("the device is on fire")


def test_a_failed_step_reaches_everybody_and_the_service_goes_on() -> None:
    runner = ScriptedRunner(seconds=0.005, before=FailingOnce(5))
    service = started(runner, max_running=2)
    streams = [service.submit(HELLO, params(500)) for _ in range(3)]
    began = time.monotonic()
    for stream in streams:
        with pytest.raises(RequestFailed, match="on fire"):
            read(stream)
    healthy, reason = service.health()
    assert not healthy
    assert "on fire" in reason
    with pytest.raises(EngineStopped, match="on fire"):
        service.submit(HELLO, params())
    assert time.monotonic() - began < 2
    wait_until(lambda: service.health()[0], timeout=5)
    assert read(service.submit(HELLO, params(6))) == "words "
    assert runner.num_resets == 1
    wait_until(lambda: len(service.store.records()) == 4)
    assert [r.finish_reason for r in service.store.records()[:3]] == [FinishReason.ERROR] * 3
    service.close()


def test_three_failures_in_a_minute_stop_the_engine_until_it_is_restarted() -> None:
    runner = ScriptedRunner(before=FailingOnce(1, times=3))
    service = started(runner)
    with pytest.raises(RequestFailed):
        read(service.submit(HELLO, params()))
    wait_until(lambda: service.state.status is ServiceStatus.STOPPED, timeout=5)
    assert "3 times" in service.state.reason
    with pytest.raises(EngineStopped):
        service.submit(HELLO, params())
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    assert read(service.submit(HELLO, params(6))) == "words "
    steps = [step.number for step in service.store.steps_since(0)]
    assert steps == sorted(set(steps))
    service.close()


def test_a_step_that_never_returns_is_noticed_and_told() -> None:
    release = threading.Event()

    def block(plan: StepPlan) -> None:
        if any(chunk.phase is Phase.DECODE for chunk in plan.chunks):
            release.wait(30)

    service = started(ScriptedRunner(before=block), stuck_after=0.3)
    stream = service.submit(HELLO, params())
    with pytest.raises(RequestFailed, match=r"0\.3 s"):
        read(stream)
    assert service.state.status is ServiceStatus.STUCK
    assert not service.health()[0]
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    release.set()
    assert read(service.submit(HELLO, params(6))) == "words "
    service.close()


def test_a_model_that_cannot_be_loaded_is_said_and_can_be_retried() -> None:
    attempts = []

    def build(report: Report) -> EngineParts:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError("the disk is gone")
        return stub_build(ScriptedRunner())(report)

    service = EngineService(build)
    with pytest.raises(EngineStopped):
        service.submit(HELLO, params())
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.FAILED)
    assert "the disk is gone" in service.state.reason
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    assert len(read(service.submit(HELLO, params(3)))) == 3
    service.close()


def test_progress_of_loading_is_shown() -> None:
    gate = threading.Event()

    def build(report: Report) -> EngineParts:
        report(ServiceStatus.LOADING, "Loading stub: 1 of 2 MB", 0.5)
        gate.wait(10)
        return stub_build(ScriptedRunner())(report)

    service = EngineService(build)
    service.start()
    wait_until(lambda: service.state.progress == 0.5)
    assert service.state.reason == "Loading stub: 1 of 2 MB"
    assert not service.health()[0]
    gate.set()
    wait_until(lambda: service.health()[0])
    service.close()


def test_closing_ends_everybody() -> None:
    service = started(ScriptedRunner(seconds=0.01))
    stream = service.submit(HELLO, params(1000))
    next(iter(stream))
    service.close()
    with suppress(RequestFailed):
        read(stream)
    assert stream.ending is not None
    with pytest.raises(EngineStopped):
        service.submit(HELLO, params())


def test_one_engine_thread_after_restarts() -> None:
    runner = ScriptedRunner(before=FailingOnce(1, times=3))
    service = started(runner)
    with pytest.raises(RequestFailed):
        read(service.submit(HELLO, params()))
    wait_until(lambda: service.state.status is ServiceStatus.STOPPED, timeout=5)
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    wait_until(lambda: engine_threads() == 1)
    service.close()
    wait_until(lambda: engine_threads() == 0)


def test_limits_change_between_two_steps_and_nobody_is_lost() -> None:
    service = started(ScriptedRunner(seconds=0.005), max_running=4)
    streams = [service.submit(HELLO, params(60)) for _ in range(4)]
    wait_until(lambda: bool(service.store.steps_since(3)))
    service.reconfigure(max_running=1, max_batched_tokens=8, max_waiting=9)
    assert service.config is not None
    assert (service.config.max_running, service.config.max_batched_tokens) == (1, 8)
    after = service.store.steps_since(0)[-1].number
    assert [len(read(stream)) for stream in streams] == [60] * 4
    later = service.store.steps_since(after + 1)
    assert later
    assert all(step.num_running == 1 for step in later)
    service.close()


def test_another_pool_starts_the_engine_anew_and_says_so() -> None:
    runner = ScriptedRunner(seconds=0.005)
    service = started(runner)
    stream = service.submit(HELLO, params(1000))
    next(iter(stream))
    service.reconfigure(num_blocks=64, prefix_caching=False)
    with pytest.raises(RequestFailed, match="other settings"):
        read(stream)
    assert runner.num_blocks == 64
    assert service.engine is not None
    assert service.engine.scheduler.pool.num_blocks == 64
    assert read(service.submit(HELLO, params(6))) == "words "
    steps = [step.number for step in service.store.steps_since(0)]
    assert steps == sorted(set(steps))
    service.close()


def test_settings_out_of_range_change_nothing(service: EngineService) -> None:
    before = service.config
    with pytest.raises(InvalidRequest) as caught:
        service.reconfigure(max_running=1000)
    assert caught.value.field == "max_running"
    assert service.config == before
    service.close()
    with pytest.raises(EngineStopped):
        service.reconfigure(max_running=2)


def test_memory_stays_flat_over_ten_thousand_steps() -> None:
    service = started(ScriptedRunner())

    def serve(requests: int) -> None:
        for _ in range(requests):
            for _token in service.submit(HELLO, params(1000)):
                pass

    serve(2)
    tracemalloc.start()
    serve(5)
    gc.collect()
    first, _ = tracemalloc.get_traced_memory()
    serve(5)
    gc.collect()
    second, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # What remains of a finished request is its record: about 100 bytes a token time.
    assert second - first < 5 * 1000 * 250
    service.close()


def test_a_request_counts_from_when_it_came_where_that_is_told() -> None:
    service = started(ScriptedRunner())
    came = service.clock.now() - 5.0
    stream, request = service.submit_request(HELLO, params(1), submitted=came)
    list(stream)
    assert request.output_token_ids == [ord("w")]
    record = service.store.find(stream.number)
    assert record is not None
    assert record.submitted == came
    assert record.queued is not None
    assert record.queued - came >= 5.0
    service.close()
