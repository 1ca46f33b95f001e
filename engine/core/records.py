"""Frozen records of what happened: the only truth that the page, the API, the exports and the tests
read. They hold numbers and times, never a prompt, an output or an error's text of somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from engine.core.kv_blocks import BlockPool, PoolView
from engine.core.request import (
    ChunkTime,
    FinishReason,
    Phase,
    Preemption,
    Request,
    RequestStatus,
    SampledLogprob,
)


class StepRow(NamedTuple):
    """One request's share of a step: positions `[start, start + length)`."""

    request: int
    start: int
    length: int
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One engine step. Times are seconds of the engine's clock; token counts are positions
    computed.

    `duration` runs from planning to the committed result; `model_seconds` is the part spent in the
    runner, so the difference is bookkeeping. `num_sampled` counts the rows that went through the
    vocabulary head. `admitted`, `preempted`, `finished` and `displaced`
    hold request numbers; the displaced ones lost cached blocks to another request.
    """

    number: int
    start: float
    duration: float
    model_seconds: float
    prefill_tokens: int
    recompute_tokens: int
    decode_tokens: int
    num_running: int
    num_waiting: int
    used_blocks: int
    evictable_blocks: int
    free_blocks: int
    num_sampled: int
    rows: tuple[StepRow, ...]
    admitted: tuple[int, ...] = ()
    preempted: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    displaced: tuple[int, ...] = ()

    @property
    def end(self) -> float:
        """When the step's result was committed."""
        return self.start + self.duration


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request as it stood when the record was taken; final once `complete`.

    Times are seconds of the engine's clock, defined at `Timeline`. `num_cached_tokens` counts
    prompt tokens found in the prefix cache at the first admission; what a preempted request finds
    again of its own is not a hit.
    """

    number: int
    label: str | None
    streamed: bool
    status: RequestStatus
    finish_reason: FinishReason | None
    complete: bool
    num_prompt_tokens: int
    num_cached_tokens: int
    num_computed_tokens: int
    num_output_tokens: int
    num_recomputed_tokens: int
    max_output_tokens: int
    submitted: float
    queued: float | None
    scheduled: float | None
    finished: float | None
    token_sampled: tuple[float, ...]
    token_delivered: tuple[float, ...]
    chunks: tuple[ChunkTime, ...]
    preemptions: tuple[Preemption, ...]
    logprobs: tuple[SampledLogprob, ...] = ()
    composition: tuple[tuple[str, int], ...] = ()

    @property
    def id(self) -> str:
        """The name shown on the page, such as `R18`."""
        return f"R{self.number}"

    @property
    def first_token_sampled(self) -> float | None:
        """When the step that sampled the first token ended."""
        return self.token_sampled[0] if self.token_sampled else None

    @property
    def first_token_delivered(self) -> float | None:
        """When the reader took the first token."""
        return self.token_delivered[0] if self.token_delivered else None

    @property
    def last_token_delivered(self) -> float | None:
        """When the reader took the newest token so far."""
        return self.token_delivered[-1] if self.token_delivered else None


class HeldBlocks(NamedTuple):
    """One running request's blocks: its table, its computed positions, and how many were reused."""

    request: int
    block_table: tuple[int, ...]
    num_computed_tokens: int
    num_cached_blocks: int


class PoolRecord(NamedTuple):
    """The KV pool between two steps: every block's state and who holds which."""

    pool: PoolView
    held: tuple[HeldBlocks, ...]


def record_pool(pool: BlockPool, running: Iterable[Request]) -> PoolRecord:
    """Freeze the pool and the block tables; only between steps, on the engine's thread."""
    held = (
        HeldBlocks(
            request.number,
            tuple(request.block_table),
            request.num_computed_tokens,
            (request.num_cached_tokens or 0) // pool.block_size,
        )
        for request in running
    )
    return PoolRecord(pool.view(), tuple(held))


def record_request(request: Request, *, complete: bool = False) -> RequestRecord:
    """Freeze a request's counters and times as they stand.

    Safe to call from another thread than the engine's: each field is copied in one operation, and
    lists only ever grow, so a record taken meanwhile is one that held a moment ago.
    """
    timeline = request.timeline
    return RequestRecord(
        number=request.number,
        label=request.label,
        streamed=request.streamed,
        status=request.status,
        finish_reason=request.finish_reason,
        complete=complete,
        num_prompt_tokens=request.num_prompt_tokens,
        num_cached_tokens=request.num_cached_tokens or 0,
        num_computed_tokens=request.num_computed_tokens,
        num_output_tokens=request.num_output_tokens,
        num_recomputed_tokens=request.num_recomputed_tokens,
        max_output_tokens=request.max_output_tokens,
        submitted=timeline.submitted,
        queued=timeline.queued,
        scheduled=timeline.scheduled,
        finished=timeline.finished,
        token_sampled=tuple(timeline.token_sampled),
        token_delivered=tuple(timeline.token_delivered),
        chunks=tuple(timeline.chunks),
        preemptions=tuple(timeline.preemptions),
        logprobs=tuple(request.logprobs),
        composition=request.composition,
    )
