"""How records look on the wire of the live feed: short keys, whole numbers, nothing sent twice.

Pure functions from the records of the core to plain data; the contract is told in `ui.frames`.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any, NamedTuple

from engine.core.records import PoolRecord, RequestRecord
from engine.core.request import FinishReason, Phase
from engine.telemetry.metrics import Distribution

TICKS = 10_000

# What a block is, in the order of the contract with the page.
_FREE, _CACHED, _LIVE, _REUSED, _SHARED = range(5)

Frame = dict[str, Any]


class Sent(NamedTuple):
    """What the viewers know of one request."""

    scalars: Frame
    num_tokens: int
    num_chunks: int


NOTHING_SENT = Sent({}, 0, 0)


def ticks(seconds: float) -> int:
    """Seconds as whole tenths of a millisecond."""
    return round(seconds * TICKS)


def optional_ticks(seconds: float | None) -> int | None:
    return None if seconds is None else ticks(seconds)


def scalars(record: RequestRecord, displaced_at: float | None) -> Frame:
    """What a request's entry always holds: status, counts and times."""
    return {
        "n": record.number,
        "id": record.id,
        "st": _status(record),
        "prompt": record.num_prompt_tokens,
        "cached": record.num_cached_tokens,
        "max": record.max_output_tokens,
        "out": record.num_output_tokens,
        "fin": record.finish_reason,
        "sub": ticks(record.submitted),
        "que": optional_ticks(record.queued),
        "sch": optional_ticks(record.scheduled),
        "fts": optional_ticks(record.first_token_sampled),
        "ftd": optional_ticks(record.first_token_delivered),
        "ltd": optional_ticks(record.last_token_delivered),
        "end": optional_ticks(record.finished),
        "pre": [[ticks(event.time), event.num_computed_tokens] for event in record.preemptions],
        "recomputed": record.num_recomputed_tokens,
        "kv_end": optional_ticks(displaced_at),
    }


def _status(record: RequestRecord) -> str:
    if record.finish_reason is FinishReason.ERROR:
        return "failed"
    if record.finish_reason is FinishReason.CANCELLED:
        return "cancelled"
    if record.finished is not None:
        return "done"
    if record.num_output_tokens:
        return "writing"
    if record.scheduled is not None:
        return "reading"
    return "preparing" if record.queued is None else "queued"


def series(record: RequestRecord, sent: Sent, now: Sent) -> Frame:
    """New prefill chunks, and delivery times as one time and the gaps behind it."""
    news: Frame = {}
    chunks = record.chunks[sent.num_chunks : now.num_chunks]
    if chunks:
        news["chunks"] = [
            sent.num_chunks,
            [
                [
                    ticks(chunk.start),
                    ticks(chunk.start + chunk.duration) - ticks(chunk.start),
                    chunk.tokens,
                    int(chunk.phase is Phase.RECOMPUTE),
                ]
                for chunk in chunks
            ],
        ]
    times = [ticks(time) for time in record.token_delivered[sent.num_tokens : now.num_tokens]]
    if times:
        gaps = [later - earlier for earlier, later in pairwise(times)]
        news["tok"] = [sent.num_tokens, times[0], gaps]
    return news


def percentiles(samples: Distribution) -> Frame:
    """Count and percentiles in tenths of a millisecond; null without samples."""
    values = {"p50": samples.p50, "p95": samples.p95, "p99": samples.p99, "max": samples.max}
    return {"n": samples.count} | {name: optional_ticks(value) for name, value in values.items()}


def block_map(record: PoolRecord | None, block_size: int) -> Frame | None:
    """The pool by block id, as runs of equal blocks, and the last block of each sequence.

    runs: [count, state, owner]; state 0 free, 1 cached, 2 live, 3 live and reused from the cache,
    4 shared by several running requests; last: [request, block, filled positions].
    """
    if record is None:
        return None
    pool, held = record
    states = [_FREE] * len(pool.references)
    owners = list(pool.owners)
    for block in pool.evictable:
        states[block] = _CACHED
    last: list[list[int]] = []
    for request, table, num_computed, num_cached in held:
        for index, block in enumerate(table):
            shared = pool.references[block] > 1
            states[block] = _SHARED if shared else _REUSED if index < num_cached else _LIVE
            owners[block] = request
        if table:
            full = block_size * (len(table) - 1)
            last.append([request, table[-1], max(0, num_computed - full)])
    runs = [
        [len(list(group)), state, owner]
        for (state, owner), group in groupby(zip(states, owners, strict=True))
    ]
    return {"n": len(states), "runs": runs, "last": last}
