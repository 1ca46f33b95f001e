"""Hand-made records for the tests of telemetry: only what a test is about has to be named."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from engine.core.records import RequestRecord, StepRecord
from engine.core.request import FinishReason, Request, RequestStatus, SamplingParams, Timeline


def record(number: int = 1, *, tokens: Sequence[float] = (), **fields: object) -> RequestRecord:
    """A finished, streamed request whose tokens were sampled and taken at the given times."""
    times = tuple(tokens)
    base = RequestRecord(
        number=number,
        label=None,
        streamed=True,
        status=RequestStatus.FINISHED,
        finish_reason=FinishReason.STOP,
        complete=True,
        num_prompt_tokens=32,
        num_cached_tokens=0,
        num_computed_tokens=32 + max(0, len(times) - 1),
        num_output_tokens=len(times),
        num_recomputed_tokens=0,
        max_output_tokens=256,
        submitted=0.0,
        queued=0.0,
        scheduled=0.0,
        finished=times[-1] if times else None,
        token_sampled=times,
        token_delivered=times,
        chunks=(),
        preemptions=(),
    )
    return dataclasses.replace(base, **fields)  # type: ignore[arg-type]


def failed(number: int = 1, *, finished: float = 0.005, **fields: object) -> RequestRecord:
    """A request that ended with an error before its first token."""
    return record(
        number,
        **{
            "finish_reason": FinishReason.ERROR,
            "queued": None,
            "scheduled": None,
            "finished": finished,
            **fields,
        },
    )


def step(number: int, *, start: float | None = None, **fields: object) -> StepRecord:
    """An empty step of 10 ms; by default step n starts at n seconds."""
    base = StepRecord(
        number=number,
        start=float(number) if start is None else start,
        duration=0.01,
        model_seconds=0.009,
        prefill_tokens=0,
        recompute_tokens=0,
        decode_tokens=0,
        num_sampled=0,
        num_running=0,
        num_waiting=0,
        used_blocks=0,
        evictable_blocks=0,
        free_blocks=64,
        rows=(),
    )
    return dataclasses.replace(base, **fields)  # type: ignore[arg-type]


def request(number: int, *, num_output_tokens: int = 0) -> Request:
    """An open request with some output already, sampled and taken once a second."""
    made = Request(
        number=number,
        token_ids=[1, 2, 3],
        params=SamplingParams(),
        seed=0,
        timeline=Timeline(submitted=0.0),
    )
    times = [float(i + 1) for i in range(num_output_tokens)]
    made.token_ids.extend(range(num_output_tokens))
    made.timeline.token_sampled.extend(times)
    made.timeline.token_delivered.extend(times)
    return made


def finish(made: Request, time: float, reason: FinishReason = FinishReason.STOP) -> Request:
    """End a request as the scheduler does."""
    made.status = RequestStatus.FINISHED
    made.finish_reason = reason
    made.timeline.finished = time
    return made
