"""Who computes what in the next step, and what a finished step changes.

There are no prefill requests and decode requests here: a running request has known tokens that are
not computed yet, and a step computes some of them. The scheduler knows no model, no text, no thread
and no clock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

from engine.core.config import EngineConfig
from engine.core.errors import PromptTooLong
from engine.core.kv_blocks import BlockPool, block_hash, root_hash
from engine.core.plan import Chunk, StepPlan
from engine.core.policies import POLICIES, Reading
from engine.core.queue_order import QUEUE_ORDERS, next_index
from engine.core.request import (
    ChunkTime,
    FinishReason,
    Phase,
    Preemption,
    Request,
    RequestStatus,
    SampledLogprob,
)


class TokenOutcome(NamedTuple):
    """What a sampled row came to: a token or an `error`, and the end it brings, if any."""

    token_id: int
    finish_reason: FinishReason | None = None
    error: str | None = None
    logprob: SampledLogprob | None = None


def _arrival(request: Request) -> int:
    return request.arrival


class Scheduler:
    """Holds the queue, the running requests and the block pool of one engine."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.pool = self._new_pool()
        self._policy = POLICIES[config.policy]()
        self._num_arrived = 0

    @property
    def has_work(self) -> bool:
        """Whether any request is waiting or running."""
        return bool(self.waiting or self.running)

    def limit_output(self, request: Request, config: EngineConfig | None = None) -> None:
        """Clip the output to what context and pool leave; refuse a prompt that can never fit.

        `config` is what the request will be served under, if that is not this scheduler's.
        Raises PromptTooLong naming the limit: a prompt needs room for at least one output token.
        """
        config = config or self.config
        context, pool = config.max_model_len, config.pool_tokens
        prompt = request.num_prompt_tokens
        if prompt >= context:
            raise PromptTooLong(
                f"The prompt has {prompt:,} tokens; with at least one output token the context "
                f"holds {context - 1:,}. Shorten the prompt.",
                field="prompt",
            )
        if prompt > pool:
            raise PromptTooLong(
                f"The prompt has {prompt:,} tokens; the whole KV cache holds {pool:,} "
                f"({config.num_blocks:,} blocks of {config.block_size}). Shorten the "
                f"prompt or give the KV cache more blocks.",
                field="prompt",
            )
        # The last output token is never fed in, so its keys and values need no place.
        room = min(context - prompt, pool - prompt + 1)
        request.max_output_tokens = min(request.params.max_tokens, room)

    def add(self, request: Request) -> None:
        """Put a request at the end of the queue; raises PromptTooLong as `limit_output` does."""
        self.limit_output(request)
        request.arrival = self._num_arrived
        self._num_arrived += 1
        request.block_hashes.append(root_hash(self.config.fingerprint, request.cache_salt))
        self.extend_hashes(request)
        self.waiting.append(request)

    def plan(self, now: float) -> StepPlan:
        """Fill the next step (empty when there is nothing to do), which starts at `now`."""
        filling = _Filling(self, now)
        self._policy.fill(filling)
        plan = filling.plan()
        for chunk in plan.chunks:
            if chunk.request.timeline.scheduled is None:
                chunk.request.timeline.scheduled = now
        return plan

    def commit(
        self, plan: StepPlan, outcomes: Sequence[TokenOutcome], start: float, end: float
    ) -> list[Request]:
        """Apply a computed step and return who finished.

        `outcomes` match the plan's chunks that sample; `start` and `end` are the step's times.
        """
        remaining = iter(outcomes)
        finished: list[Request] = []
        for chunk in plan.chunks:
            request = chunk.request
            request.num_computed_tokens += chunk.length
            if chunk.phase is not Phase.DECODE:
                request.timeline.chunks.append(
                    ChunkTime(start, end - start, chunk.length, chunk.phase)
                )
                if chunk.phase is Phase.RECOMPUTE:
                    request.num_recomputed_tokens += chunk.length
            outcome = next(remaining) if chunk.samples else None
            # A failed row's keys may hold the NaN it failed of: they must not be shared.
            if outcome is None or outcome.error is None:
                self._register_full_blocks(request, chunk.start)
            if outcome is not None and self._append(request, outcome, end):
                finished.append(request)
        if finished:
            self.running = [request for request in self.running if not request.finished]
        return finished

    def end(self, request: Request, reason: FinishReason, now: float, error: str = "") -> None:
        """End a waiting or running request between steps."""
        queue = self.running if request.status is RequestStatus.RUNNING else self.waiting
        queue.remove(request)
        self._finish(request, reason, now, error or None)

    def preempt(self, request: Request, now: float) -> None:
        """Take a running request's slot and blocks; it waits in its old place and is recomputed."""
        self.running.remove(request)
        self.pool.release(request.block_table, request.number)
        request.block_table.clear()
        request.timeline.preemptions.append(Preemption(now, request.num_computed_tokens))
        request.num_computed_at_preemption = max(
            request.num_computed_at_preemption, request.num_computed_tokens
        )
        request.num_computed_tokens = 0
        request.status = RequestStatus.WAITING
        insort(self.waiting, request, key=_arrival)

    def reconfigure(self, config: EngineConfig, now: float) -> None:
        """Take over another budget, slots or queue limit, between two steps.

        Running requests beyond the new slots are preempted. Raises ValueError for a config that
        needs another pool.
        """
        if not config.same_pool(self.config):
            raise ValueError("another pool, caching rule or policy needs another scheduler")
        self.config = config
        while len(self.running) > config.max_running:
            self.preempt(self.running[-1], now)

    def extend_hashes(self, request: Request) -> None:
        """Hash every full block of known tokens that has no hash yet; entry 0 is the root."""
        size = self.config.block_size
        hashes = request.block_hashes
        while len(hashes) * size <= request.num_tokens:
            start = (len(hashes) - 1) * size
            hashes.append(block_hash(hashes[-1], request.token_ids[start : start + size]))

    def rebuild_pool(self) -> None:
        """Start again with an empty pool, when nothing in the old one can be trusted.

        Raises ValueError while a running request still refers to the old one.
        """
        if self.running:
            raise ValueError("the pool cannot be rebuilt while requests hold blocks")
        self.pool = self._new_pool()

    def check(self) -> None:
        """Raise AssertionError unless requests, queue and pool agree with each other."""
        config = self.config
        assert len(self.running) <= config.max_running, "more requests run than there are slots"
        for queue in (self.running, self.waiting):
            arrivals = [request.arrival for request in queue]
            assert arrivals == sorted(arrivals), "a queue is out of order of arrival"
        for request in self.waiting:
            assert request.status is RequestStatus.WAITING
            assert not request.block_table, "a waiting request holds blocks"
            assert request.num_computed_tokens == 0
        for request in self.running:
            assert request.status is RequestStatus.RUNNING
            computed = request.num_computed_tokens
            held = len(request.block_table) * config.block_size
            assert computed < request.num_tokens, "nothing is left to compute"
            at_once = config.max_batched_tokens
            if self._policy.reads_whole_prompts:
                at_once = max(at_once, request.num_uncomputed_tokens)
            assert computed <= held < computed + at_once + config.block_size
            assert request.num_tokens <= config.max_model_len
            if request.num_output_tokens and computed >= request.num_computed_at_preemption:
                assert computed == request.num_tokens - 1, "the one-token offset is broken"
        self.pool.check(request.block_table for request in self.running)

    def _new_pool(self) -> BlockPool:
        config = self.config
        return BlockPool(config.num_blocks, config.block_size, caching=config.prefix_caching)

    def _append(self, request: Request, outcome: TokenOutcome, now: float) -> bool:
        if outcome.error is not None:
            self._finish(request, FinishReason.ERROR, now, outcome.error)
            return True
        request.token_ids.append(outcome.token_id)
        request.timeline.token_sampled.append(now)
        if outcome.logprob is not None:
            request.logprobs.append(outcome.logprob)
        if outcome.finish_reason is None:
            return False
        self._finish(request, outcome.finish_reason, now, None)
        return True

    def _finish(
        self, request: Request, reason: FinishReason, now: float, error: str | None
    ) -> None:
        self.pool.release(request.block_table, request.number)
        request.block_table.clear()
        request.status = RequestStatus.FINISHED
        request.finish_reason = reason
        request.error = error
        request.timeline.finished = now

    def _register_full_blocks(self, request: Request, start: int) -> None:
        size = self.config.block_size
        first, last = start // size, request.num_computed_tokens // size
        if first == last:
            return
        self.extend_hashes(request)
        for index in range(first, last):
            self.pool.register(request.block_table[index], request.block_hashes[index + 1])


class _Filling:
    """One step while it is being planned: keeps budget, slots and blocks for the policy."""

    def __init__(self, scheduler: Scheduler, now: float) -> None:
        self._scheduler = scheduler
        self._pool = scheduler.pool
        self._block_size = scheduler.config.block_size
        self._now = now
        self._budget = scheduler.config.max_batched_tokens
        self._chunks: dict[int, Chunk] = {}
        self._admitted: list[Request] = []
        self._preempted: list[Request] = []
        self._short_of_blocks = False

    @property
    def decoding(self) -> list[Request]:
        return [r for r in self._scheduler.running if r.num_uncomputed_tokens == 1]

    @property
    def reading(self) -> list[Request]:
        return [r for r in self._scheduler.running if r.num_uncomputed_tokens > 1]

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    def compute(self, request: Request, reading: Reading = Reading.CHUNK) -> None:
        if request.status is not RequestStatus.RUNNING:
            return  # preempted for an older request while this step was being filled
        length = self._length(request.num_uncomputed_tokens, reading)
        if length < 1:
            return
        end = request.num_computed_tokens + length
        fits = end <= len(request.block_table) * self._block_size
        if not (fits or self._make_room(request, length)):
            held = len(request.block_table) + self._pool.num_available
            length = min(length, held * self._block_size - request.num_computed_tokens)
            if length < 1:
                return
        self._schedule(request, length)

    def admit_next(self, reading: Reading = Reading.CHUNK) -> bool:
        scheduler = self._scheduler
        if (
            not scheduler.waiting
            or len(scheduler.running) >= scheduler.config.max_running
            or self._preempted
            or self._short_of_blocks
        ):
            return False
        order = QUEUE_ORDERS[scheduler.config.queue_order]
        index = next_index(order, scheduler.waiting, self._now)
        request = scheduler.waiting[index]
        cached = self._cached_blocks(request)
        length = self._length(request.num_tokens - len(cached) * self._block_size, reading)
        if length < 1:
            return False
        needed = self._blocks_for(request.num_tokens) - len(cached)
        taken = self._pool.count_evictable(cached)
        if needed > self._pool.num_available - taken - self._promised():
            return False
        scheduler.waiting.pop(index)
        self._start(request, cached)
        self._schedule(request, length)
        return True

    def plan(self) -> StepPlan:
        """What has been scheduled, as the runner gets it."""
        return StepPlan(tuple(self._chunks.values()), tuple(self._admitted), tuple(self._preempted))

    def _length(self, uncomputed: int, reading: Reading) -> int:
        """How many of a request's `uncomputed` positions this step takes."""
        if reading is Reading.CHUNK:
            threshold = self._scheduler.config.long_prompt_threshold or uncomputed
            return min(uncomputed, threshold, self._budget)
        if reading is Reading.WHOLE and uncomputed > self._budget and not self.is_empty:
            return 0
        return uncomputed

    def _cached_blocks(self, request: Request) -> list[int]:
        # At least one position is always computed, since its logits are needed.
        limit = (request.num_tokens - 1) // self._block_size
        self._scheduler.extend_hashes(request)
        return self._pool.match(request.block_hashes[1 : limit + 1])

    def _start(self, request: Request, cached: Sequence[int]) -> None:
        self._pool.acquire(cached, request.number)
        request.block_table.extend(cached)
        request.num_computed_tokens = len(cached) * self._block_size
        if request.num_cached_tokens is None:
            request.num_cached_tokens = request.num_computed_tokens
        request.status = RequestStatus.RUNNING
        insort(self._scheduler.running, request, key=_arrival)
        self._admitted.append(request)

    def _schedule(self, request: Request, length: int) -> None:
        start = request.num_computed_tokens
        end = start + length
        missing = self._blocks_for(end) - len(request.block_table)
        if missing > 0:
            request.block_table.extend(
                self._pool.allocate(
                    missing,
                    request.number,
                    after=request.block_table[-1] if request.block_table else None,
                    room=self._blocks_for(request.num_prompt_tokens + request.max_output_tokens),
                )
            )
        self._budget -= length
        self._chunks[request.arrival] = Chunk(
            request=request,
            start=start,
            length=length,
            phase=request.phase_at(start),
            samples=end == request.num_tokens,
        )

    def _make_room(self, request: Request, length: int) -> bool:
        """Preempt newer requests, newest first, until `request` finds the blocks it needs."""
        needed = self._blocks_for(request.num_computed_tokens + length) - len(request.block_table)
        while needed > self._pool.num_available:
            newest = self._scheduler.running[-1]
            if newest is request:
                # It keeps what it has: those before it go on, end, and leave it room.
                self._short_of_blocks = True
                return False
            chunk = self._chunks.pop(newest.arrival, None)
            if chunk is not None:
                self._budget += chunk.length
            self._scheduler.preempt(newest, self._now)
            self._preempted.append(newest)
        return True

    def _promised(self) -> int:
        """Blocks that running requests still need for the tokens they already know."""
        return sum(
            self._blocks_for(request.num_tokens) - len(request.block_table)
            for request in self._scheduler.running
        )

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)
