"""Reading a stream at the pace of a screen."""

from __future__ import annotations

import asyncio
import time

from engine.core.plan import StepPlan
from engine.core.request import SamplingParams
from tests.stub_service import ScriptedRunner, started, wait_until
from ui.reading import UPDATE_SECONDS, Reading


def test_a_burst_of_tokens_is_looked_at_a_few_times_and_read_whole() -> None:
    service = started(ScriptedRunner())

    async def run() -> tuple[str, int, float]:
        began = time.monotonic()
        reading = Reading(service.submit_text("x", SamplingParams(max_tokens=600)))
        count = sum([1 async for _ in reading.looks()])
        return reading.text, count, time.monotonic() - began

    text, count, seconds = asyncio.run(run())
    assert text == "words " * 100
    assert count <= seconds / UPDATE_SECONDS + 2
    service.close()


def test_stop_does_not_wait_for_a_long_step() -> None:
    def slow(plan: StepPlan) -> None:
        if plan.chunks[0].request.num_output_tokens == 3:
            time.sleep(2.5)

    service = started(ScriptedRunner(before=slow))

    async def run() -> tuple[str, float]:
        reading = Reading(service.submit_text("x", SamplingParams(max_tokens=100)))
        stopped_at = 0.0
        async for _ in reading.looks():
            if reading.text == "wor" and not stopped_at:
                stopped_at = time.monotonic()
                reading.stop()
        reading.close()
        return reading.text, time.monotonic() - stopped_at

    text, seconds = asyncio.run(run())
    assert text == "wor"
    assert seconds < 1
    wait_until(lambda: service.store.find(1).complete, timeout=5)  # type: ignore[union-attr]
    service.close()


def test_a_failure_keeps_the_text_and_the_reason() -> None:
    def fail(plan: StepPlan) -> None:
        if plan.chunks[0].request.num_output_tokens == 5:
            raise RuntimeError("the fan stopped")

    service = started(ScriptedRunner(before=fail))

    async def run() -> Reading:
        reading = Reading(service.submit_text("x", SamplingParams(max_tokens=100)))
        async for _ in reading.looks():
            pass
        return reading

    reading = asyncio.run(run())
    assert reading.text == "words"
    assert "the fan stopped" in str(reading.error)
    service.close()
