"""The engine's behaviour on the stub runner: chunks, caching, preemption, cancelling, failures."""

from __future__ import annotations

import pytest

from engine.core.errors import InvalidRequest, OutOfMemory, PromptTooLong
from engine.core.plan import Chunk, SampledToken, StepPlan, StepResult
from engine.core.request import FinishReason, Phase, RequestStatus
from tests.core.stubs import Harness, continuation


def prompt(length: int, first: int = 3) -> list[int]:
    """A prompt of `length` tokens that no other `first` shares."""
    return [first, *(3 + (7 * i + first) % 47 for i in range(length - 1))]


def test_output_is_the_models_whatever_the_chunk_size() -> None:
    expected = continuation(prompt(200), 24)
    for budget in (7, 16, 33, 512):
        harness = Harness(max_batched_tokens=budget, max_running=4)
        request = harness.submit(prompt(200), max_tokens=24)
        harness.run()
        assert request.output_token_ids == expected
        assert request.finish_reason is FinishReason.LENGTH


def test_step_fills_decodes_first_and_keeps_the_budget() -> None:
    harness = Harness(max_batched_tokens=32, max_running=4)
    first = harness.submit(prompt(20), max_tokens=40)
    harness.step()
    harness.submit(prompt(90, 4))
    harness.step()
    chunks = harness.runner.plans[-1].chunks
    assert chunks[0].request is first
    assert chunks[0].phase is Phase.DECODE
    assert [chunk.length for chunk in chunks] == [1, 31]
    harness.run()
    assert all(plan.num_tokens <= 32 for plan in harness.runner.plans)


def test_one_token_offset_holds_after_every_step() -> None:
    harness = Harness()
    request = harness.submit(prompt(40), max_tokens=12)
    while harness.step():
        if request.num_output_tokens and not request.finished:
            assert request.num_computed_tokens == request.num_tokens - 1


def test_repeated_prompt_on_a_block_edge_computes_at_least_one_position() -> None:
    harness = Harness()
    first = harness.submit(prompt(32), max_tokens=4)
    harness.run()
    second = harness.submit(prompt(32), max_tokens=4)
    harness.run()
    assert second.output_token_ids == first.output_token_ids
    assert second.num_cached_tokens == 16
    assert first.num_cached_tokens == 0


def test_generated_tokens_are_reused_by_a_follow_up() -> None:
    harness = Harness()
    first = harness.submit(prompt(30), max_tokens=40)
    harness.run()
    follow_up = harness.submit([*first.token_ids, 5, 6, 7])
    harness.run()
    # 30 + 40 tokens are known, but the last one was never fed in: 69 computed, 4 full blocks.
    assert follow_up.num_cached_tokens == 64


def test_sharers_preempted_in_a_small_pool_give_the_same_tokens() -> None:
    def outputs(num_blocks: int) -> tuple[list[list[int]], int]:
        harness = Harness(num_blocks=num_blocks, max_running=6)
        requests = [harness.submit(prompt(32) + prompt(8, 10 + i), max_tokens=40) for i in range(6)]
        harness.run()
        return [r.output_token_ids for r in requests], sum(
            len(r.timeline.preemptions) for r in requests
        )

    small, preemptions = outputs(14)
    large, none = outputs(200)
    assert small == large
    assert all(len(tokens) == 40 for tokens in small)
    assert preemptions > 0
    assert none == 0


def test_forced_preemption_resumes_without_counting_as_a_cache_hit() -> None:
    harness = Harness()
    request = harness.submit(prompt(50), max_tokens=20)
    for _ in range(6):
        harness.step()
    harness.engine.scheduler.preempt(request, harness.clock.now())
    assert request.status is RequestStatus.WAITING
    harness.run()
    assert request.output_token_ids == continuation(prompt(50), 20)
    assert request.num_cached_tokens == 0
    assert [chunk.phase for chunk in request.timeline.chunks] == [Phase.PREFILL, Phase.RECOMPUTE]
    assert request.num_recomputed_tokens > 0


def test_hits_of_random_prompts_are_zero_under_preemption() -> None:
    harness = Harness(num_blocks=12, max_running=6)
    requests = [harness.submit(prompt(30, 3 + i), max_tokens=30) for i in range(20)]
    harness.run()
    assert any(request.timeline.preemptions for request in requests)
    assert [request.num_cached_tokens for request in requests] == [0] * 20


def test_prompt_that_can_never_fit_the_pool_is_refused_and_blocks_nobody() -> None:
    harness = Harness(num_blocks=32, max_model_len=4096)
    with pytest.raises(PromptTooLong, match="512"):
        harness.submit(prompt(600))
    request = harness.submit(prompt(10))
    harness.run()
    assert request.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(("length", "tokens"), [(126, 2), (127, 1)])
def test_output_is_clipped_to_the_context(length: int, tokens: int) -> None:
    harness = Harness(max_model_len=128)
    request = harness.submit(prompt(length), max_tokens=10)
    harness.run()
    assert request.num_output_tokens == tokens
    assert request.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("length", [128, 129])
def test_prompt_without_room_for_an_output_token_is_refused(length: int) -> None:
    with pytest.raises(PromptTooLong, match="127"):
        Harness(max_model_len=128).submit(prompt(length))


def test_prompt_that_fills_the_pool_yields_one_token() -> None:
    harness = Harness(num_blocks=4)
    request = harness.submit(prompt(64), max_tokens=10)
    harness.run()
    assert request.output_token_ids == continuation(prompt(64), 1)


def test_two_long_prompts_in_a_pool_for_one_both_complete() -> None:
    harness = Harness(num_blocks=60, max_batched_tokens=128)
    requests = [harness.submit(prompt(640, 3 + i)) for i in range(2)]
    harness.run()
    assert [r.output_token_ids for r in requests] == [
        continuation(prompt(640, 3 + i), 8) for i in range(2)
    ]


def test_a_salt_never_equals_a_model_name() -> None:
    prompts = prompt(48)
    harness = Harness(fingerprint="plain")
    harness.submit(prompts, salt="alpha")
    harness.run()
    other_salt = harness.submit(prompts, salt=None)
    harness.run()
    same_salt = harness.submit(prompts, salt="alpha")
    harness.run()
    assert other_salt.num_cached_tokens == 0
    assert same_salt.num_cached_tokens == 32

    variant = Harness(fingerprint="alpha")
    unsalted = variant.submit(prompts)
    variant.run()
    assert unsalted.block_hashes[1:] != same_salt.block_hashes[1:]
    assert unsalted.block_hashes[1:] != other_salt.block_hashes[1:]


def test_many_prompts_in_turn_evict_and_leave_the_pool_whole() -> None:
    harness = Harness(num_blocks=40)
    for i in range(40):
        request = harness.submit(prompt(64, 3 + i))
        harness.run()
        assert request.output_token_ids == continuation(prompt(64, 3 + i), 8)
    pool = harness.engine.scheduler.pool
    assert pool.num_evictions > 0
    assert pool.num_free + pool.num_evictable == 40


def test_sharers_that_finish_together_release_each_block_once() -> None:
    harness = Harness(num_blocks=20)
    harness.submit([*prompt(32), 5])
    harness.run()
    pair = [harness.submit([*prompt(32), 5 + i], max_tokens=6) for i in range(2)]
    harness.run()
    assert pair[0].timeline.finished == pair[1].timeline.finished
    big = harness.submit(prompt(320, 9), max_tokens=1)
    harness.step()
    harness.run()
    assert big.finish_reason is FinishReason.LENGTH
    pool = harness.engine.scheduler.pool
    assert pool.num_free + pool.num_evictable == 20


def test_cancel_in_any_state_is_harmless() -> None:
    harness = Harness(max_running=1)
    running = harness.submit(prompt(20), max_tokens=3)
    queued = harness.submit(prompt(20, 5))
    never_added = harness.request(prompt(20, 6))
    for _ in range(3):
        harness.step()
    assert running.finished  # in the step just taken
    assert harness.engine.cancel(running) is None
    assert running.finish_reason is FinishReason.LENGTH
    cancelled = harness.engine.cancel(queued)
    assert cancelled is not None
    assert cancelled.finish_reason is FinishReason.CANCELLED
    assert harness.engine.cancel(queued) is None
    assert harness.engine.cancel(never_added) is None
    after = harness.submit(prompt(20, 7))
    harness.run()
    assert after.num_output_tokens == 8


def test_cancel_while_decoding_frees_its_blocks_at_once() -> None:
    harness = Harness(prefix_caching=False)
    request = harness.submit(prompt(50), max_tokens=2048)
    for _ in range(5):
        harness.step()
    harness.engine.cancel(request)
    assert harness.engine.scheduler.pool.num_free == harness.config.num_blocks
    assert not harness.engine.has_work


def test_every_end_id_stops_and_counts() -> None:
    def choose(chunk: Chunk, token: int) -> SampledToken:
        return SampledToken([11, 12, 13, 7][chunk.request.num_output_tokens])

    harness = Harness(choose=choose)
    request = harness.submit(prompt(10), end_ids=[2, 7], max_tokens=20)
    harness.run()
    assert request.finish_reason is FinishReason.STOP
    assert request.output_token_ids == [11, 12, 13, 7]


def test_ignore_eos_ignores_every_end_id() -> None:
    def choose(chunk: Chunk, token: int) -> SampledToken:
        return SampledToken({3: 7, 6: 2}.get(chunk.request.num_output_tokens, 20))

    harness = Harness(choose=choose)
    request = harness.submit(prompt(10), end_ids=[2, 7], max_tokens=10, ignore_eos=True)
    harness.run()
    assert request.num_output_tokens == 10
    assert request.finish_reason is FinishReason.LENGTH


def test_a_failed_row_fails_only_its_own_request() -> None:
    def choose(chunk: Chunk, token: int) -> SampledToken:
        if chunk.request.number == 2 and chunk.request.num_output_tokens == 3:
            return SampledToken(error="the model returned NaN")
        return SampledToken(token)

    harness = Harness(choose=choose)
    requests = [harness.submit(prompt(20, 3 + i), max_tokens=10) for i in range(3)]
    harness.run()
    assert requests[1].finish_reason is FinishReason.ERROR
    assert requests[1].error == "the model returned NaN"
    assert requests[1].num_output_tokens == 3
    for i in (0, 2):
        assert requests[i].output_token_ids == continuation(prompt(20, 3 + i), 10)


def test_out_of_memory_fails_the_largest_prompt_and_retries_the_rest() -> None:
    harness = Harness(num_blocks=64, max_batched_tokens=512)
    requests = [harness.submit(prompt(n, 3 + n % 40)) for n in (20, 400, 30)]
    inner = harness.runner.run

    def run(plan: StepPlan) -> StepResult:
        if any(chunk.length > 300 for chunk in plan.chunks):
            raise OutOfMemory("the step needs more memory than there is")
        return inner(plan)

    harness.runner.run = run  # type: ignore[method-assign]
    harness.run()
    assert requests[1].finish_reason is FinishReason.ERROR
    assert "memory" in (requests[1].error or "")
    assert [r.num_output_tokens for r in requests] == [8, 0, 8]
    later = harness.submit(prompt(20, 30))
    harness.run()
    assert later.num_output_tokens == 8


def test_fail_all_ends_everybody_and_rebuilds_the_pool() -> None:
    harness = Harness(max_running=1)
    requests = [harness.submit(prompt(20, 3 + i)) for i in range(3)]
    harness.step()
    outputs = harness.engine.fail_all("the device went away")
    assert {output.request.number for output in outputs} == {1, 2, 3}
    assert {output.error for output in outputs} == {"the device went away"}
    assert all(request.finish_reason is FinishReason.ERROR for request in requests)
    assert harness.engine.scheduler.pool.num_free == harness.config.num_blocks
    again = harness.submit(prompt(20))
    harness.run()
    assert again.num_cached_tokens == 0
    assert again.output_token_ids == continuation(prompt(20), 8)


def test_records_say_what_each_step_did() -> None:
    harness = Harness(max_batched_tokens=16)
    request = harness.submit(prompt(40), max_tokens=3)
    records = [output.record for output in harness.run()]
    assert [r.prefill_tokens for r in records if r] == [16, 16, 8, 0, 0]
    assert [r.decode_tokens for r in records if r] == [0, 0, 0, 1, 1]
    assert records[0] is not None
    assert records[0].admitted == (request.number,)
    assert records[-1] is not None
    assert records[-1].finished == (request.number,)
    assert all(
        r.used_blocks + r.evictable_blocks + r.free_blocks == 64 for r in records if r is not None
    )
    assert request.timeline.scheduled == records[0].start
    assert request.timeline.token_sampled[0] == records[2].end  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_blocks": 0},
        {"max_batched_tokens": 0},
        {"max_running": 300, "max_batched_tokens": 256},
        {"max_model_len": 1},
        {"policy": "guess"},
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Harness(**settings)
    assert caught.value.field in settings


def test_idle_pool_has_nothing_in_use_however_much_is_cached() -> None:
    harness = Harness(num_blocks=128)
    for i in range(50):
        harness.submit(prompt(33, 3 + i % 47), max_tokens=2)
    harness.run()
    pool = harness.engine.scheduler.pool
    assert pool.num_used == 0
    assert pool.num_evictable > 0
    assert pool.num_evictable + pool.num_free == 128


def test_the_last_owner_of_an_evicted_block_is_named() -> None:
    harness = Harness(num_blocks=6)
    first = harness.submit(prompt(64), max_tokens=2)
    harness.run()
    harness.submit(prompt(80, 9), max_tokens=2)
    displaced = {n for output in harness.run() if output.record for n in output.record.displaced}
    assert displaced == {first.number}


def test_a_sequence_gets_neighbouring_blocks_in_an_empty_pool() -> None:
    harness = Harness(num_blocks=32, max_batched_tokens=64)
    pair = [harness.submit(prompt(40, 3 + i), max_tokens=60) for i in range(2)]
    for _ in range(40):
        harness.step()
    for request in pair:
        table = request.block_table
        assert table == list(range(table[0], table[0] + len(table)))
