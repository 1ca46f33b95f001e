"""A result as the page's script draws it: both runs in the frames of the live feed, bounded.

The page then reads a result with the very code it reads the feed with. Pure functions; the wire
format is told in `ui.wire`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from engine.core.config import EngineConfig
from engine.core.policies import POLICIES
from engine.core.records import RequestRecord, StepRecord
from engine.lab.reporting import change_label
from engine.lab.results import Result, Side
from ui import wire
from ui.words_compare import COMPARE

MAX_REQUESTS: Final = 600
MAX_STEPS: Final = 4_000
MAX_TOKENS: Final = 90_000
"""Of all requests of one side: with the others, what keeps a result below 2 MB."""


def page_bytes(result: Result) -> bytes:
    """What `live/result/<id>.json` answers."""
    return orjson.dumps(page_data(result))


def page_data(result: Result) -> dict[str, Any]:
    """Title, what is left out, and a frame for each side; both sides draw the same requests."""
    shown = min(_num_drawn(side.timeline.requests) for side in result.sides)
    total = max(len(side.timeline.requests) for side in result.sides)
    titles = side_titles(result)
    return {
        "id": result.id,
        "title": result.title,
        "simulated": result.simulated,
        "caption": "; ".join(_caption(result, shown, total)),
        "sides": [
            {
                "name": side.name,
                "title": title,
                "note": POLICIES[side.config["policy"]].explanation,
                "frame": _frame(side, shown),
            }
            for side, title in zip(result.sides, titles, strict=True)
        ],
    }


def side_titles(result: Result) -> list[str]:
    """What each side is beside the other, in words such as `chunked prefill`."""
    configs = [EngineConfig(**side.config) for side in result.sides]
    if len(configs) < 2:
        return [result.title]
    titles = [change_label(configs[1], configs[0]), change_label(configs[0], configs[1])]
    return [f"{title[:1].upper()}{title[1:]}" for title in titles]


def _num_drawn(requests: Sequence[RequestRecord]) -> int:
    tokens = 0
    for index, record in enumerate(requests[:MAX_REQUESTS]):
        tokens += record.num_output_tokens
        if tokens > MAX_TOKENS:
            return max(1, index)
    return min(len(requests), MAX_REQUESTS)


def _caption(result: Result, shown: int, total: int) -> Iterator[str]:
    """Which run is drawn, and what of it is left out."""
    first = result.sides[0]
    words = COMPARE["drawn_simulated" if result.simulated else "drawn"]
    yield words.format(run=first.timeline.pair + 1, runs=len(first.runs))
    if shown < total:
        yield COMPARE["cut"].format(requests=f"{shown:,}", total=f"{total:,}")
    most = max(len(side.timeline.steps) for side in result.sides)
    if most > MAX_STEPS:
        yield COMPARE["cut_steps"].format(steps=f"{MAX_STEPS:,}", total=f"{most:,}")


def _frame(side: Side, shown: int) -> wire.Frame:
    steps = side.timeline.steps[:MAX_STEPS]
    requests = side.timeline.requests[:shown]
    ends = [record.finished or record.submitted for record in requests]
    ends += [step.end for step in steps[-1:]]
    return {
        "reset": True,
        "now": wire.ticks(max(ends, default=0.0)),
        "config": {
            "budget": side.config["max_batched_tokens"],
            "slots": side.config["max_running"],
            "policy": side.config["policy"],
        },
        "steps": [_step_row(number, step) for number, step in enumerate(steps, start=1)],
        "reqs": [_entry(number, record) for number, record in enumerate(requests, start=1)],
    }


def _entry(number: int, record: RequestRecord) -> wire.Frame:
    """A request whole, numbered from 1, so that a lane has one name on both sides."""
    if not record.streamed:
        # Nobody took its tokens one by one: the times they were sampled at are all there is.
        record = replace(record, token_delivered=record.token_sampled)
    record = replace(record, number=number)
    known = wire.Sent(wire.scalars(record, None), len(record.token_delivered), len(record.chunks))
    return known.scalars | wire.series(record, wire.NOTHING_SENT, known)


def _step_row(number: int, step: StepRecord) -> list[Any]:
    return [
        number,
        wire.ticks(step.start),
        wire.ticks(step.end) - wire.ticks(step.start),
        step.prefill_tokens + step.recompute_tokens,
        step.decode_tokens,
        step.num_running,
        step.num_waiting,
        step.used_blocks,
        step.evictable_blocks,
        *(None, None, 0),
    ]
