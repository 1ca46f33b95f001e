"""Requests and steps as a trace that ui.perfetto.dev and chrome://tracing open.

The format is the JSON of Chrome's Trace Event Format: complete events ("X") with start and length
in microseconds, counters ("C") and names ("M"). Slices on one track either nest or lie apart, since
viewers draw anything else wrongly: a request has one track for its phases and one for its chunks,
which may begin in one phase and end in the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from engine.core.records import RequestRecord, StepRecord

REQUESTS, CHUNKS, ENGINE = 1, 2, 3

Event = dict[str, Any]


def trace_pieces(
    records: Iterable[RequestRecord], steps: Sequence[StepRecord], about: dict[str, Any]
) -> Iterator[str]:
    """A trace as strict JSON, in pieces to be written one after another.

    about: what the trace is of (model, device, wall-clock start), kept under `otherData`.
    """
    yield '{"displayTimeUnit":"ms","otherData":' + _dump(about) + ',"traceEvents":['
    opening = ""
    for event in _events(records, steps):
        yield opening + _dump(event)
        opening = ",\n"
    yield "]}\n"


def _events(records: Iterable[RequestRecord], steps: Sequence[StepRecord]) -> Iterator[Event]:
    yield _name("process_name", REQUESTS, 0, "Requests")
    yield _name("process_name", CHUNKS, 0, "Prefill chunks")
    yield _name("process_name", ENGINE, 0, "Engine")
    yield _name("thread_name", ENGINE, 1, "Steps")
    for record in records:
        for process in (REQUESTS, CHUNKS):
            yield _name("thread_name", process, record.number, record.id)
        yield from _request_events(record)
    for step in steps:
        yield from _step_events(step)


def _request_events(record: RequestRecord) -> Iterator[Event]:
    """The request with its phases inside it, and its prefill chunks."""
    last = max(
        (time for time in (record.finished, record.last_token_delivered) if time is not None),
        default=None,
    )
    if last is None:
        return
    track = record.number
    details = {
        "prompt tokens": record.num_prompt_tokens,
        "reused tokens": record.num_cached_tokens,
        "output tokens": record.num_output_tokens,
        "finish reason": record.finish_reason,
        "preemptions": len(record.preemptions),
    }
    yield _slice(record.id, REQUESTS, track, record.submitted, last, details)
    for name, start, end in _phases(record, last):
        yield _slice(name, REQUESTS, track, start, end, {})
    for chunk in record.chunks:
        name = f"{chunk.phase} of {chunk.tokens} tokens"
        end = chunk.start + chunk.duration
        yield _slice(name, CHUNKS, track, chunk.start, end, {"tokens": chunk.tokens})


def _phases(record: RequestRecord, last: float) -> Iterator[tuple[str, float, float]]:
    """The parts of TTFT and what follows, one behind the other; those not reached are left out."""
    moments = [
        ("input preparation", record.submitted),
        ("queueing", record.queued),
        ("prefill", record.scheduled),
        ("delivery", record.first_token_sampled),
        ("decode", record.first_token_delivered),
    ]
    reached = [(name, time) for name, time in moments if time is not None]
    ends = [time for _, time in reached[1:]] + [last]
    for (name, start), end in zip(reached, ends, strict=True):
        yield name, start, end


def _step_events(step: StepRecord) -> Iterator[Event]:
    tokens = {
        "prefill tokens": step.prefill_tokens,
        "recomputed tokens": step.recompute_tokens,
        "decode tokens": step.decode_tokens,
    }
    yield _slice(f"step {step.number}", ENGINE, 1, step.start, step.end, tokens)
    yield _counter("requests", step.start, running=step.num_running, waiting=step.num_waiting)
    yield _counter(
        "tokens in the step",
        step.start,
        prefill=step.prefill_tokens + step.recompute_tokens,
        decode=step.decode_tokens,
    )
    yield _counter("KV blocks", step.end, used=step.used_blocks, evictable=step.evictable_blocks)


def _slice(
    name: str, process: int, track: int, start: float, end: float, details: dict[str, Any]
) -> Event:
    begin = _microseconds(start)
    # From rounded ends, so that neighbours meet and children end within their parents.
    length = round(_microseconds(end) - begin, 3)
    event = {"ph": "X", "name": name, "pid": process, "tid": track, "ts": begin, "dur": length}
    return event | ({"args": details} if details else {})


def _counter(name: str, time: float, **values: int) -> Event:
    return {"ph": "C", "name": name, "pid": ENGINE, "ts": _microseconds(time), "args": values}


def _name(kind: str, process: int, track: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _microseconds(seconds: float) -> float:
    """To the nanosecond, which is finer than the clock."""
    return round(seconds * 1e6, 3)


def _dump(value: object) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
