"""Simulated visitors: bounded, staggered, and gone when told to."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator

import pytest

from engine.core.errors import EngineStopped
from engine.core.request import FinishReason
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started, stub_build, wait_until
from ui import visitors as module
from ui.visitors import LABEL, MAX_VISITORS, TooManyVisitors, Visitors


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
