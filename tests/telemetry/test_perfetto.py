"""Traces for Perfetto: strict JSON, a track a request, slices that nest or lie apart."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from engine.core.records import RequestRecord, StepRecord, record_request
from engine.core.request import FinishReason
from engine.telemetry.perfetto import CHUNKS, ENGINE, REQUESTS, trace_pieces
from tests.core.stubs import Harness
from tests.core.test_engine import prompt


def served(num_blocks: int = 64) -> tuple[list[RequestRecord], list[StepRecord]]:
    """Records of a few requests that share steps, delivered a moment after each step."""
    harness = Harness(num_blocks=num_blocks, max_batched_tokens=16, max_running=3)
    requests = [harness.submit(prompt(20 + 9 * i, 3 + i), max_tokens=6 + 4 * i) for i in range(5)]
    cancelled = harness.submit(prompt(40, 20), max_tokens=50)
    harness.engine.cancel(cancelled)
    steps = [output.record for output in harness.run() if output.record]
    for request in requests:
        sampled = request.timeline.token_sampled
        request.timeline.token_delivered.extend(time + 0.0004 for time in sampled)
    records = [record_request(request, complete=True) for request in (*requests, cancelled)]
    return records, steps


def events(records: list[RequestRecord], steps: list[StepRecord]) -> list[dict[str, Any]]:
    text = "".join(trace_pieces(records, steps, {"model": "stub"}))
    trace = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert trace["otherData"] == {"model": "stub"}
    found: list[dict[str, Any]] = trace["traceEvents"]
    return found


@pytest.mark.parametrize("num_blocks", [64, 6])
def test_slices_on_a_track_nest_or_lie_apart(num_blocks: int) -> None:
    records, steps = served(num_blocks)
    assert (num_blocks == 64) or any(record.preemptions for record in records)
    tracks = defaultdict(list)
    for event in events(records, steps):
        if event["ph"] == "X":
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len([track for track in tracks if track[0] == REQUESTS]) == len(records)
    assert (CHUNKS, records[0].number) in tracks
    for slices in tracks.values():
        for i, (a_start, a_end) in enumerate(slices):
            for b_start, b_end in slices[i + 1 :]:
                apart = a_end <= b_start + 1e-3 or b_end <= a_start + 1e-3
                nested = (a_start <= b_start + 1e-3 and b_end <= a_end + 1e-3) or (
                    b_start <= a_start + 1e-3 and a_end <= b_end + 1e-3
                )
                assert apart or nested, ((a_start, a_end), (b_start, b_end))


def test_every_slice_keeps_its_start_and_length() -> None:
    records, steps = served()
    found = events(records, steps)
    by_name = {(event["pid"], event["name"]): event for event in found if event["ph"] == "X"}
    for record in records:
        if record.finish_reason is FinishReason.CANCELLED:
            continue
        event = by_name[REQUESTS, record.id]
        assert event["ts"] == pytest.approx(record.submitted * 1e6, abs=1e-3)
        assert record.last_token_delivered is not None
        assert event["ts"] + event["dur"] == pytest.approx(record.last_token_delivered * 1e6, abs=1)
    for step in steps:
        event = by_name[ENGINE, f"step {step.number}"]
        assert event["ts"] == pytest.approx(step.start * 1e6, abs=1e-3)
        assert event["dur"] == pytest.approx(step.duration * 1e6, abs=1e-2)


def test_the_parts_of_ttft_are_phases_in_order() -> None:
    record = served()[0][0]
    names = [
        event["name"]
        for event in events([record], [])
        if event["ph"] == "X" and event["pid"] == REQUESTS
    ]
    assert names == [
        record.id,
        "input preparation",
        "queueing",
        "prefill",
        "delivery",
        "decode",
    ]


def test_counters_say_what_the_steps_say() -> None:
    records, steps = served()
    counters = [event for event in events(records, steps) if event["ph"] == "C"]
    blocks = [event["args"]["used"] for event in counters if event["name"] == "KV blocks"]
    assert blocks == [step.used_blocks for step in steps]


def test_a_request_that_has_not_ended_is_left_out_but_named() -> None:
    harness = Harness()
    request = harness.submit(prompt(20))
    found = events([record_request(request)], [])
    assert [event["ph"] for event in found if event["pid"] == REQUESTS] == ["M", "M"]
