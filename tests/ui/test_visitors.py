"""Simulated visitors: bounded, staggered, and gone when told to."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from engine.core.errors import EngineStopped
from engine.core.plan import StepPlan
from engine.core.records import RequestRecord
from engine.core.request import FinishReason
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started, stub_build, wait_until
from ui import visitors as module
from ui.visitors import LABEL, MAX_VISITORS, Kind, TooManyVisitors, Visitors


@pytest.fixture
def service() -> Iterator[EngineService]:
    service = started(ScriptedRunner(seconds=0.002))
    yield service
    service.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STAGGER_SECONDS", 0.02)


def test_each_visitor_asks_once_and_reads_to_the_end(service: EngineService) -> None:
    visitors = Visitors(service)

    async def run() -> None:
        added = visitors.add(5)
        assert visitors.num_running == 5
        await asyncio.gather(*added)

    asyncio.run(run())
    assert visitors.num_running == 0
    wait_until(lambda: len(service.store.records()) == 5)
    records = service.store.records()
    assert {record.label for record in records} == {LABEL}
    assert {record.finish_reason for record in records} == {FinishReason.LENGTH}
    assert all(len(record.token_delivered) == record.num_output_tokens for record in records)
    submitted = sorted(record.submitted for record in records)
    assert all(b - a >= 0.01 for a, b in itertools.pairwise(submitted))
    assert len({record.num_prompt_tokens for record in records}) > 1, "all asked the same"


def _came(service: EngineService, kind: Kind, count: int) -> list[RequestRecord]:
    async def run() -> None:
        await asyncio.gather(*Visitors(service).add(count, kind))

    asyncio.run(run())
    wait_until(lambda: len(service.store.records()) == count)
    return sorted(service.store.records(), key=lambda record: record.submitted)


def test_visitors_with_long_prompts_read_much_and_share_little(service: EngineService) -> None:
    records = _came(service, Kind.LONG_PROMPT, 3)
    for record in records:
        # The stub's context of 2,048 leaves less than a long prompt would have.
        assert 1_400 < record.num_prompt_tokens <= 1_500
        assert record.num_cached_tokens < 64
        assert record.num_output_tokens <= 64


def test_visitors_who_want_long_answers_ask_briefly(service: EngineService) -> None:
    for record in _came(service, Kind.LONG_ANSWER, 2):
        assert record.num_prompt_tokens < 120
        assert record.num_output_tokens == 800


def test_a_shared_document_is_read_once() -> None:
    service = started(ScriptedRunner(seconds=0.02))
    first, *others = _came(service, Kind.SHARED_DOCUMENT, 4)
    assert first.num_prompt_tokens > 900
    assert first.num_cached_tokens == 0
    assert len(others) == 3
    for record in others:
        assert record.submitted > (first.first_token_sampled or 0), "it came before it was read"
        assert record.num_cached_tokens > 900
        assert record.num_prompt_tokens - record.num_cached_tokens < 64
    service.close()


def test_a_document_nobody_could_read_keeps_nobody_waiting() -> None:
    def fail(plan: StepPlan) -> None:
        raise RuntimeError("the reader fell asleep")

    service = started(ScriptedRunner(before=fail))

    async def run() -> None:
        added = Visitors(service).add(3, Kind.SHARED_DOCUMENT)
        await asyncio.wait_for(asyncio.gather(*added), timeout=10)

    asyncio.run(run())
    service.close()


def test_they_are_bounded_over_all_who_add_them(service: EngineService) -> None:
    visitors = Visitors(service)

    async def run() -> None:
        for _ in range(4):
            visitors.add(5)
        with pytest.raises(TooManyVisitors, match=f"20 added users .* {MAX_VISITORS} is the limit"):
            visitors.add(1)
        assert visitors.num_running == 20
        visitors.stop()
        await asyncio.sleep(0.1)
        visitors.add(5)
        visitors.stop()

    asyncio.run(run())


@pytest.mark.parametrize("count", [0, -1, 21])
def test_a_count_out_of_range_is_refused(service: EngineService, count: int) -> None:
    async def run() -> None:
        with pytest.raises(TooManyVisitors, match="1 to 20"):
            Visitors(service).add(count)

    asyncio.run(run())


def test_stop_ends_them_and_their_requests_within_a_second() -> None:
    service = started(ScriptedRunner(seconds=0.02))
    visitors = Visitors(service)

    async def run() -> None:
        added = visitors.add(3)
        await asyncio.sleep(0.4)
        began = time.monotonic()
        visitors.stop()
        await asyncio.wait(added)
        assert time.monotonic() - began < 1
        assert visitors.num_running == 0

    asyncio.run(run())
    wait_until(lambda: len(service.store.records()) == 3, timeout=1)
    assert {r.finish_reason for r in service.store.records()} == {FinishReason.CANCELLED}
    service.close()


def test_without_an_engine_nobody_comes() -> None:
    visitors = Visitors(EngineService(stub_build(ScriptedRunner())))

    async def run() -> None:
        with pytest.raises(EngineStopped):
            visitors.add(1)

    asyncio.run(run())
    assert visitors.num_running == 0


def test_those_who_are_turned_away_leave_quietly() -> None:
    service = started(ScriptedRunner(seconds=0.01), max_running=1, max_waiting=1)

    async def run() -> None:
        await asyncio.gather(*Visitors(service).add(6))

    asyncio.run(run())
    assert service.num_refused > 0
    service.close()
