"""What the engine measured of a call's choices, for clients that ask for it.

The numbers are those of the records, by the definitions of `engine.telemetry.metrics`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from engine.api.batch import Batch
from engine.core.records import RequestRecord
from engine.core.request import ChunkTime
from engine.service import EngineService
from engine.telemetry.export import request_detail

SETTLE_SECONDS = 2.0
_POLL_SECONDS = 0.002
# A step's end is worked out from its start and duration, and may differ in the last digit.
_ROUNDING = 1e-6

_TAKEN = (
    "ttft_seconds",
    "ttft_parts",
    "tpot_seconds",
    "longest_pause_seconds",
    "e2e_seconds",
    "engine_ttft_seconds",
    "engine_tpot_seconds",
    "engine_e2e_seconds",
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_output_tokens",
    "num_recomputed_tokens",
)


async def timings(service: EngineService, batch: Batch) -> list[dict[str, Any]]:
    """One entry a choice, once the engine has noted that the last token was taken.

    That note goes through the engine's inbox and may wait for a step to end; after
    `SETTLE_SECONDS` the numbers are given as they stand.
    """
    entries = []
    for choice in batch.choices:
        record = await _settled(service, choice.stream.number)
        if record is not None:
            entries.append({"index": choice.index, "request": record.id, **_numbers(record)})
    return entries


def num_steps(record: RequestRecord) -> int:
    """Engine steps that computed something of the request."""
    decoded = sum(not _within(record.chunks, time) for time in record.token_sampled)
    return len(record.chunks) + decoded


def _numbers(record: RequestRecord) -> dict[str, Any]:
    detail = request_detail(record)
    return {
        **{name: detail[name] for name in _TAKEN},
        "num_steps": num_steps(record),
        "num_preemptions": len(record.preemptions),
    }


def _within(chunks: tuple[ChunkTime, ...], sampled: float) -> bool:
    """Whether a token came from a step that is there already, as a prompt's last chunk."""
    return any(abs(chunk.start + chunk.duration - sampled) < _ROUNDING for chunk in chunks)


async def _settled(service: EngineService, number: int) -> RequestRecord | None:
    deadline = service.clock.now() + SETTLE_SECONDS
    while True:
        record = service.store.find(number)
        if record is None or record.complete or service.clock.now() > deadline:
            return record
        await asyncio.sleep(_POLL_SECONDS)
