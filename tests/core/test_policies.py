"""Policies and queue orders: what makes each what it is, and that random traffic breaks none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.config import EngineConfig
from engine.core.errors import InvalidRequest, OutOfMemory
from engine.core.plan import StepPlan, StepResult
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS
from engine.core.request import FinishReason, Phase, Request
from tests.core.stubs import Harness, continuation

ALL_POLICIES = sorted(POLICIES)
ALL_ORDERS = sorted(QUEUE_ORDERS)


def prompt(length: int, first: int = 3) -> list[int]:
    """A prompt of `length` tokens that no other `first` shares."""
    return [first, *(3 + (7 * i + first) % 47 for i in range(length - 1))]


def first_chunk_order(harness: Harness, requests: list[Request]) -> list[Request]:
    """The requests in the order in which a step first computed something of theirs."""
    seen: list[Request] = []
    for plan in harness.runner.plans:
        seen += [chunk.request for chunk in plan.chunks if chunk.request not in seen]
    return [request for request in seen if request in requests]


def longest_wait(harness: Harness, request: Request) -> int:
    """The most steps in a row, after its first token, that computed nothing of the request."""
    waits, wait = [0], 0
    started = False
    for plan in harness.runner.plans:
        if any(chunk.request is request for chunk in plan.chunks):
            started, wait = True, 0
        elif started:
            wait += 1
            waits.append(wait)
    return max(waits)


def test_static_batch_runs_to_its_end_before_the_next_is_admitted() -> None:
    harness = Harness(policy="static", max_running=4)
    short = harness.submit(prompt(20), max_tokens=2)
    long = harness.submit(prompt(30, 4), max_tokens=12)
    harness.step()
    late = harness.submit(prompt(10, 5), max_tokens=2)
    while not long.finished:
        harness.step()
        assert late.num_computed_tokens == 0
    assert short.finished
    harness.run()
    assert late.output_token_ids == continuation(prompt(10, 5), 2)
    assert late.timeline.scheduled == long.timeline.finished


def test_static_batch_reads_its_prompts_in_one_step_whatever_the_budget() -> None:
    harness = Harness(policy="static", max_batched_tokens=32, max_running=3)
    for first in range(3, 7):
        harness.submit(prompt(100, first))
    harness.step()
    assert [chunk.length for chunk in harness.runner.plans[0].chunks] == [100, 100, 100]


def test_prefill_first_reads_whole_prompts_and_stops_the_streams_meanwhile() -> None:
    harness = Harness(policy="prefill-first", max_batched_tokens=32, max_running=4)
    stream = harness.submit(prompt(20), max_tokens=40)
    harness.step()
    harness.step()
    harness.submit(prompt(200, 4))
    harness.step()
    assert [(c.length, c.phase) for c in harness.runner.plans[-1].chunks] == [(200, Phase.PREFILL)]
    harness.step()
    assert len(harness.runner.plans[-1].chunks) == 2
    assert longest_wait(harness, stream) == 1


def test_prefill_first_joins_prompts_into_a_step_while_the_budget_holds_them() -> None:
    harness = Harness(policy="prefill-first", max_batched_tokens=64, max_running=4)
    for length in (30, 30, 30, 90):
        harness.submit(prompt(length, length))
    lengths = []
    for _ in range(3):
        harness.step()
        lengths.append([chunk.length for chunk in harness.runner.plans[-1].chunks])
    # The third prompt finds blocks of its twin cached; the last is longer than the whole budget.
    assert sum(lengths[0]) <= 64
    assert lengths[-1] == [90]


def test_chunked_gives_every_stream_a_token_in_every_step() -> None:
    harness = Harness(policy="chunked", max_batched_tokens=32, max_running=4)
    stream = harness.submit(prompt(20), max_tokens=40)
    harness.step()
    harness.submit(prompt(200, 4))
    harness.run()
    assert longest_wait(harness, stream) == 0


def test_long_prompt_threshold_leaves_budget_to_the_others() -> None:
    harness = Harness(max_batched_tokens=64, max_running=4, long_prompt_threshold=40)
    harness.submit(prompt(200))
    harness.submit(prompt(20, 4))
    harness.step()
    assert [chunk.length for chunk in harness.runner.plans[0].chunks] == [40, 20]
    harness.run()
    lengths = [chunk.length for plan in harness.runner.plans for chunk in plan.chunks]
    assert max(lengths) == 40


def test_shortest_prompt_goes_first_until_the_long_one_has_waited_enough() -> None:
    harness = Harness(queue_order="shortest-prompt", max_running=1, max_batched_tokens=512)
    running = harness.submit(prompt(5), max_tokens=2)
    harness.step()
    long = harness.submit(prompt(300, 4), max_tokens=1)
    short = harness.submit(prompt(30, 5), max_tokens=1)
    harness.run()
    assert first_chunk_order(harness, [long, short, running]) == [running, short, long]

    aged = harness.submit(prompt(300, 6), max_tokens=1)
    harness.clock.advance(2.0)  # worth 512 tokens
    newcomer = harness.submit(prompt(30, 7), max_tokens=1)
    harness.run()
    assert first_chunk_order(harness, [aged, newcomer]) == [aged, newcomer]


def test_priority_goes_first_until_a_lower_one_has_waited_enough() -> None:
    def submit(harness: Harness, first: int, priority: int) -> Request:
        request = harness.request(prompt(20, first), max_tokens=1)
        request.priority = priority
        request.timeline.queued = harness.clock.now()
        harness.engine.add(request)
        return request

    harness = Harness(queue_order="priority", max_running=1)
    low, high = submit(harness, 4, 5), submit(harness, 5, 0)
    harness.run()
    assert first_chunk_order(harness, [low, high]) == [high, low]

    aged = submit(harness, 6, 1)
    harness.clock.advance(11.0)
    newcomer = submit(harness, 7, 0)
    harness.run()
    assert first_chunk_order(harness, [aged, newcomer]) == [aged, newcomer]


@pytest.mark.parametrize("order", ALL_ORDERS)
def test_preempted_request_goes_before_the_queue(order: str) -> None:
    harness = Harness(queue_order=order, max_running=1)
    preempted = harness.submit(prompt(60), max_tokens=20)
    for _ in range(4):
        harness.step()
    waiting = harness.submit(prompt(4, 5), max_tokens=2)
    harness.engine.scheduler.preempt(preempted, harness.clock.now())
    harness.step()
    assert preempted.num_computed_tokens > 0
    assert waiting.num_computed_tokens == 0
    harness.run()
    assert preempted.output_token_ids == continuation(prompt(60), 20)


@pytest.mark.parametrize("policy", ["prefill-first", "static"])
def test_prompts_left_over_by_a_step_without_memory_are_read_later(policy: str) -> None:
    harness = Harness(policy=policy, max_running=4, max_batched_tokens=64)
    run = harness.runner.run

    def fail_once(plan: StepPlan) -> StepResult:
        harness.runner.run = run  # type: ignore[method-assign]
        raise OutOfMemory("no memory for this step")

    harness.runner.run = fail_once  # type: ignore[method-assign]
    requests = [harness.submit(prompt(length, length)) for length in (20, 25, 15)]
    harness.run()
    assert [r.finish_reason for r in requests].count(FinishReason.ERROR) == 1
    for request in requests:
        if request.finish_reason is not FinishReason.ERROR:
            assert request.output_token_ids == continuation(request.prompt_token_ids, 8)


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("order", ALL_ORDERS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_random_traffic_breaks_no_limit_and_starves_nobody(
    policy: str, order: str, data: st.DataObject
) -> None:
    harness = Harness(
        policy=policy,
        queue_order=order,
        num_blocks=data.draw(st.integers(8, 24), "num_blocks"),
        block_size=data.draw(st.sampled_from([1, 4, 16]), "block_size"),
        max_batched_tokens=data.draw(st.integers(4, 40), "budget"),
        max_running=data.draw(st.integers(1, 4), "slots"),
        long_prompt_threshold=data.draw(st.integers(0, 12), "threshold"),
        max_model_len=120,
    )
    room = min(100, harness.config.pool_tokens)
    lengths = data.draw(st.lists(st.integers(1, room), min_size=1, max_size=12), "prompts")
    requests = []
    for index, length in enumerate(lengths):
        shared = data.draw(st.booleans())
        request = harness.request(
            prompt(length, 3 if shared else 3 + index),
            max_tokens=data.draw(st.integers(1, 24)),
        )
        request.priority = data.draw(st.integers(-3, 3))
        request.timeline.queued = harness.clock.now()
        harness.engine.add(request)
        requests.append(request)
        for _ in range(data.draw(st.integers(0, 3))):
            harness.step()
    harness.run()
    for request in requests:
        assert request.finish_reason is FinishReason.LENGTH
        expected = continuation(request.prompt_token_ids, request.max_output_tokens)
        assert request.output_token_ids == expected
    pool = harness.engine.scheduler.pool
    assert pool.num_used == 0
    if not POLICIES[policy].reads_whole_prompts:
        budget = harness.config.max_batched_tokens
        assert all(plan.num_tokens <= budget for plan in harness.runner.plans)


@pytest.mark.parametrize("order", ["shortest-prompt", "priority"])
def test_endless_better_traffic_does_not_starve_a_waiting_request(order: str) -> None:
    harness = Harness(queue_order=order, max_running=1)
    harness.submit(prompt(4, 9), max_tokens=1)
    victim = harness.request(prompt(200, 4), max_tokens=1)
    victim.priority = 1
    victim.timeline.queued = harness.clock.now()
    harness.engine.add(victim)
    for step in range(2000):
        harness.submit(prompt(2, 5 + step % 40), max_tokens=1)
        harness.step()
        if victim.finished:
            break
    assert victim.finished


@pytest.mark.parametrize("name", [*ALL_POLICIES, *ALL_ORDERS])
def test_each_explanation_is_one_sentence(name: str) -> None:
    text = (POLICIES | QUEUE_ORDERS)[name].explanation  # type: ignore[operator]
    assert text.endswith(".")
    assert ". " not in text


@pytest.mark.parametrize(
    "change", [{"policy": "guess"}, {"queue_order": "guess"}, {"long_prompt_threshold": -1}]
)
def test_unknown_names_and_negative_thresholds_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match=next(iter(change))):
        EngineConfig(num_blocks=8, **change)  # type: ignore[arg-type]


def test_order_and_threshold_change_between_two_steps_and_a_policy_does_not() -> None:
    config = EngineConfig(num_blocks=8)
    assert config.same_pool(EngineConfig(num_blocks=8, queue_order="priority"))
    assert config.same_pool(EngineConfig(num_blocks=8, long_prompt_threshold=64))
    assert not config.same_pool(EngineConfig(num_blocks=8, policy="static"))
