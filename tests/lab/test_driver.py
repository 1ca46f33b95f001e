"""Sending on schedule: nothing drifts, everything is read, and stopping stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from engine.core.clock import VirtualClock
from engine.core.errors import QueueFull
from engine.core.records import RequestRecord, StepRecord, record_request
from engine.core.request import FinishReason, Request, SamplingParams, Timeline
from engine.lab.driver import ClockPace, Driver
from engine.lab.runs import Run
from engine.lab.simulation import SMOLLM2_135M, simulated_tokens
from engine.lab.workload import Part, WorkItem, Workload, WorkloadSpec, build
from engine.lab.workload_arrivals import Constant, Poisson, Start
from engine.lab.workload_lengths import Fixed
from engine.mailbox import Ending, Mailbox, TokenStream
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started

SOURCE = simulated_tokens(SMOLLM2_135M)


def spec(count: int, arrivals: Constant | Poisson) -> WorkloadSpec:
    part = Part(prompt=Fixed(4), output=Fixed(3))
    return WorkloadSpec(name="test", parts=(part,), num_requests=count, arrivals=arrivals)


class VirtualPace:
    """Time that passes only when the driver waits or the target takes its time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def now(self) -> float:
        return self.clock.now()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        for _ in range(5):  # let readers run first
            await asyncio.sleep(0)
        if not event.is_set():
            self.clock.advance(seconds)


class SlowTarget:
    """Takes `seconds` for each submission and answers at once; may refuse some."""

    def __init__(
        self, pace: VirtualPace, seconds: float, refuse: Callable[[int], bool] = lambda n: False
    ) -> None:
        self._pace = pace
        self._seconds = seconds
        self._refuse = refuse
        self.records: dict[int, RequestRecord] = {}

    def submit(self, item: WorkItem, *, streamed: bool) -> TokenStream:
        number = len(self.records) + 1
        self._pace.clock.advance(self._seconds)
        now = self._pace.now()
        request = Request(
            number=number,
            token_ids=list(item.token_ids),
            params=SamplingParams(),
            seed=0,
            timeline=Timeline(submitted=now),
        )
        request.finish_reason = FinishReason.LENGTH
        request.timeline.finished = now
        self.records[number] = record_request(request, complete=True)
        if self._refuse(number):
            raise QueueFull("The queue is full.")
        mailbox = Mailbox()
        mailbox.close(Ending(FinishReason.LENGTH))
        return TokenStream(
            request,
            mailbox,
            self._pace.clock,
            cancel=lambda: None,
            report=lambda times, done: None,
        )

    def record(self, number: int) -> RequestRecord | None:
        return self.records.get(number)

    def steps_since(self, number: int) -> Sequence[StepRecord]:
        return []


def drive_virtually(workload: Workload, seconds: float) -> Run:
    pace = VirtualPace()
    return asyncio.run(Driver(workload, SlowTarget(pace, seconds), pace).run())


def test_a_schedule_does_not_drift_however_long_each_submission_takes() -> None:
    workload = build(spec(400, Poisson(40.0)).with_seed(3), SOURCE)
    run = drive_virtually(workload, 0.005)
    assert len(run.sends) == len(run.records) == 400
    last = run.sends[-1]
    assert last.planned == workload.items[-1].start.time
    assert last.actual == pytest.approx(last.planned, rel=0.02)
    # Where requests are due faster than they can be sent they are late, and catch up again.
    assert 0.005 < (run.lateness().max or 0.0) < 0.05
    assert all(sent.actual >= sent.planned for sent in run.sends)


def test_an_overloaded_sender_says_how_late_it_was() -> None:
    run = drive_virtually(build(spec(50, Constant(100.0)), SOURCE), 0.02)
    assert run.lateness().max == pytest.approx(49 * 0.01, rel=0.05)


def test_a_refused_request_is_noted_and_its_followers_go_on() -> None:
    pace = VirtualPace()
    workload = build(replace(spec(3, Constant(1.0)), turns=3, think_seconds=0.5), SOURCE)
    target = SlowTarget(pace, 0.0, refuse=lambda number: number == 2)
    run = asyncio.run(Driver(workload, target, pace).run())
    assert [sent.error for sent in run.sends] == [None, "The queue is full.", None]
    assert len(run.records) == 2
    assert run.sends[2].planned == pytest.approx(run.sends[1].actual + 0.5, abs=0.01)


class ServiceTarget:
    """The stub service, as an experiment's backend has it."""

    def __init__(self, service: EngineService) -> None:
        self._service = service

    def submit(self, item: WorkItem, *, streamed: bool) -> TokenStream:
        params = SamplingParams(max_tokens=item.num_output_tokens, ignore_eos=True)
        return self._service.submit(item.token_ids, params, streamed=streamed)

    def record(self, number: int) -> RequestRecord | None:
        return self._service.store.find(number)

    def steps_since(self, number: int) -> Sequence[StepRecord]:
        return self._service.store.steps_since(number)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_real_engine_is_driven_on_time_and_read_to_the_end(streamed: bool) -> None:
    service = started(ScriptedRunner(seconds=0.001))
    workload = replace(build(spec(40, Constant(100.0)), SOURCE), streamed=streamed)
    driver = Driver(workload, ServiceTarget(service), ClockPace(service.clock))
    run = asyncio.run(driver.run())
    service.close()
    assert len(run.records) == 40
    assert all(record.complete for record in run.records)
    assert {record.num_output_tokens for record in run.records} == {3}
    assert {len(record.token_delivered) for record in run.records} == {3 if streamed else 0}
    assert sum(step.num_sampled for step in run.steps) == 120
    assert run.sends[-1].actual - run.sends[-1].planned < 0.2
    assert not run.stopped


def test_a_stopped_run_cancels_what_runs_and_sends_no_more() -> None:
    service = started(ScriptedRunner(seconds=0.005))
    ids = tuple(SOURCE.draw("x", 4))
    items = [WorkItem(ids, 1_000, Start(0.0)), WorkItem(ids, 1_000, Start(60.0))]
    workload = Workload("long", tuple(items), "by hand")
    stops = iter(range(100))
    driver = Driver(
        workload,
        ServiceTarget(service),
        ClockPace(service.clock),
        should_stop=lambda: next(stops) >= 1,
    )
    run = asyncio.run(driver.run())
    service.close()
    assert run.stopped
    assert [sent.index for sent in run.sends] == [0]
    assert [record.finish_reason for record in run.records] == [FinishReason.CANCELLED]
