"""A result as one trace for ui.perfetto.dev: the drawn run of each side, one above the other on the
same time axis. What a request's and a step's events are is the business of `telemetry.perfetto`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from engine.lab.results import Result, Side
from engine.telemetry.metrics import to_json_value
from engine.telemetry.perfetto import ENGINE, trace_pieces

# The processes of one side are numbered from 1 to ENGINE; those of the next come behind them.
_PROCESSES = ENGINE


def perfetto_trace(result: Result) -> str:
    """The trace as strict JSON; `otherData` says under which conditions it was recorded."""
    about = {
        "result": result.id,
        "title": result.title,
        "simulated": result.simulated,
        "machine": result.machine,
        "workload": result.workload,
        "configurations": {side.name: side.config for side in result.sides},
    }
    events = [event for place, side in enumerate(result.sides) for event in _events(place, side)]
    trace = {"displayTimeUnit": "ms", "otherData": to_json_value(about), "traceEvents": events}
    return json.dumps(trace, allow_nan=False, separators=(",", ":"))


def _events(place: int, side: Side) -> Iterator[dict[str, Any]]:
    """One side's events under process numbers of its own; requests are numbered as on the page."""
    requests = [
        replace(record, number=number)
        for number, record in enumerate(side.timeline.requests, start=1)
    ]
    trace = json.loads("".join(trace_pieces(requests, side.timeline.steps, {})))
    for event in trace["traceEvents"]:
        event["pid"] += place * _PROCESSES
        if event["name"] == "process_name":
            event["args"]["name"] = f"{side.name}: {event['args']['name']}"
        yield event
