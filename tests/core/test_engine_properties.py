"""Random traffic on tiny pools: the invariants hold after every step and every answer is right."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.errors import PromptTooLong
from engine.core.request import FinishReason, Request
from tests.core.stubs import Harness, continuation

# Few different openings, so that prompts share prefixes of several blocks.
OPENINGS = [[7] * 40, [9] * 40, [7] * 20 + [9] * 20]


class Traffic(RuleBasedStateMachine):
    """Submit, step and cancel in any order."""

    @initialize(
        num_blocks=st.integers(4, 24),
        block_size=st.sampled_from([1, 2, 4, 16]),
        budget=st.integers(4, 40),
        slots=st.integers(1, 4),
        caching=st.booleans(),
    )
    def start(
        self, num_blocks: int, block_size: int, budget: int, slots: int, caching: bool
    ) -> None:
        self.harness = Harness(
            num_blocks=num_blocks,
            block_size=block_size,
            max_batched_tokens=budget,
            max_running=slots,
            max_model_len=120,
            prefix_caching=caching,
        )
        self.requests: list[Request] = []
        self.oldest: Request | None = None

    @rule(
        opening=st.sampled_from(OPENINGS),
        shared=st.integers(0, 40),
        own=st.lists(st.integers(3, 49), min_size=1, max_size=30),
        max_tokens=st.integers(1, 30),
        salt=st.sampled_from([None, "a", "b"]),
    )
    def submit(
        self, opening: list[int], shared: int, own: list[int], max_tokens: int, salt: str | None
    ) -> None:
        prompt = opening[:shared] + own
        try:
            request = self.harness.submit(prompt, max_tokens=max_tokens, salt=salt)
        except PromptTooLong:
            assert len(prompt) > self.harness.config.pool_tokens
        else:
            self.requests.append(request)

    @rule()
    def step(self) -> None:
        running = self.harness.engine.scheduler.running
        oldest = running[0] if running else None
        self.harness.step()
        if oldest is not None and oldest in self.harness.engine.scheduler.waiting:
            newest_arrival = max(
                (r.arrival for r in self.harness.engine.scheduler.running), default=-1
            )
            assert newest_arrival < oldest.arrival, "the oldest was preempted for a newer one"
        plan = self.harness.runner.plans[-1] if self.harness.runner.plans else None
        if plan and plan.preempted:
            assert not plan.admitted, "a step that preempted admitted somebody"

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.harness.engine.cancel(data.draw(st.sampled_from(self.requests)))

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "harness"):
            return
        engine = self.harness.engine
        engine.scheduler.check()
        for request in self.requests:
            output = request.output_token_ids
            assert output == continuation(request.prompt_token_ids, len(output))
            assert request.num_computed_tokens <= request.num_tokens
            if request.finish_reason is FinishReason.LENGTH:
                assert len(output) == request.max_output_tokens

    def teardown(self) -> None:
        if not hasattr(self, "harness"):
            return
        self.harness.run()
        assert all(request.finished for request in self.requests)
        pool = self.harness.engine.scheduler.pool
        assert pool.num_used == 0
        assert pool.num_free + pool.num_evictable == pool.num_blocks


Traffic.TestCase.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
TestTraffic = Traffic.TestCase
