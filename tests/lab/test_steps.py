"""What the step bench times and reckons, with a runner that takes a known time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from engine.contracts import EngineParts, ServiceStatus
from engine.core.capacity import ModelShape
from engine.core.plan import SampledToken, StepPlan, StepResult, sampled_chunks
from engine.core.request import SamplingParams
from engine.lab.records_cost import ForgetfulStore, compare_stores
from engine.lab.steps import BLOCK_SIZE, Served, cases, measure, num_blocks, table
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, StubTokenizer, stub_build, wait_until

SHAPE = ModelShape(
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=128,
    vocab_size=1000,
    tied=True,
    weight_bytes=1 << 20,
    matrix_parameters=100_000,
    kv_bytes_per_token=256,
    activation_bytes=4,
)


class Timed:
    """A runner whose step takes a time for each request and one for each hundred positions."""

    def __init__(self, a_request: float, a_hundred: float) -> None:
        self.a_request, self.a_hundred = a_request, a_hundred
        self.plans: list[StepPlan] = []

    def run(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        seen = max(chunk.start + chunk.length for chunk in plan.chunks)
        time.sleep(self.a_request * len(plan.chunks) + self.a_hundred * seen / 100)
        return StepResult(tuple(SampledToken(1) for _ in sampled_chunks(plan)))

    def resize(self, num_blocks: int) -> None:
        raise AssertionError("the bench has one pool")

    reset = resize


def served(name: str, runner: Timed, rate: float = 1e9) -> Served:
    return Served(name=name, runner=runner, shape=SHAPE, matrix_rate=lambda: rate)


def test_every_request_reads_blocks_of_its_own_that_lie_in_the_pool() -> None:
    owner: dict[int, int] = {}
    size = num_blocks()
    for case in cases(SHAPE):
        for chunk in case.plan.chunks:
            needed = -(-(chunk.start + chunk.length) // BLOCK_SIZE)
            assert needed <= len(chunk.request.block_table)
            for block in chunk.request.block_table:
                assert 0 <= block < size
                assert owner.setdefault(block, chunk.request.number) == chunk.request.number
    assert len(owner) == size


def test_operations_are_those_that_the_roofline_counts() -> None:
    chunk = next(case for case in cases(SHAPE) if case.plan.num_tokens == 512)
    attention = 4 * 2 * 4 * 16 * (512 * 513 // 2)
    assert chunk.flops == 2 * 100_000 * 512 + attention


def test_contexts_are_filled_before_they_are_read_and_runners_take_turns() -> None:
    runners = [Timed(0.0, 0.0), Timed(0.0, 0.0)]
    measure([served("a", runners[0]), served("b", runners[1])], rounds=1)
    computed = {
        (chunk.request.number, position)
        for plan in runners[0].plans
        for chunk in plan.chunks
        if chunk.length > 1
        for position in range(chunk.start, chunk.start + chunk.length)
    }
    decoded = [c for plan in runners[0].plans for c in plan.chunks if c.length == 1]
    assert decoded
    for chunk in decoded:
        read = {(chunk.request.number, position) for position in range(chunk.start)}
        assert read <= computed
    assert len(runners[0].plans) == len(runners[1].plans)


def test_medians_ratio_and_share_follow_from_the_times() -> None:
    columns = measure(
        [served("fast", Timed(0.0005, 0.0001)), served("slow", Timed(0.002, 0.001), 2e9)], rounds=2
    )
    fast, slow = columns
    short, long = "decode, batch 8, context 256", "decode, batch 8, context 1,024"
    assert fast.milliseconds[short] >= 8 * 0.5 + 2.56 * 0.1
    assert slow.milliseconds[short] >= 8 * 2 + 2.56
    assert fast.milliseconds[short] < slow.milliseconds[short]
    assert slow.long_context_ratio == slow.milliseconds[long] / slow.milliseconds[short]
    assert slow.long_context_ratio > 1
    chunk = next(case for case in cases(SHAPE) if case.plan.num_tokens == 512)
    taken = slow.milliseconds["prefill, 512-token chunk"] / 1e3
    assert slow.matrix_rate == fast.matrix_rate == 2e9
    assert slow.prefill_share == pytest.approx(chunk.flops / taken / 2e9, rel=0.1)
    printed = table(columns, None)
    assert "fast" in printed.splitlines()[0]
    assert "slow" in printed.splitlines()[0]
    assert f"{slow.long_context_ratio:.2f}" in printed


class Counting(StubTokenizer):
    vocab_size = 100


def build(report: Any) -> EngineParts:
    parts = stub_build(ScriptedRunner(seconds=0.001), max_running=8)(report)
    return replace(parts, tokenizer=Counting())


def test_both_services_answer_in_full_and_their_ratio_is_told() -> None:
    cost = compare_stores(build, rounds=2, input_tokens=4, output_tokens=20)
    assert cost.rounds == 2
    assert cost.kept > 0
    assert cost.dropped > 0
    assert 0.2 < cost.ratio < 5
    columns = measure([served("one", Timed(0.0, 0.0))], rounds=1)
    assert f"with records over without: {cost.ratio:.3f}" in table(columns, cost)


def test_a_forgetful_store_keeps_nothing_of_what_was_served() -> None:
    service = EngineService(build)
    service.store = ForgetfulStore()
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    stream = service.submit([1, 2, 3], SamplingParams(max_tokens=5))
    assert "".join(token.text for token in stream)
    service.close(wait=5)
    assert service.store.records() == service.store.live() == service.store.steps_since(0) == []
