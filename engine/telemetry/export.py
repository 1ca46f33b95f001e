"""Requests as files: one request in full for the detail drawer, many as CSV or JSON.

Only numbers, times and labels are written, never a prompt or an output. The generators go through
records that the caller has copied, one at a time, and hold no lock.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from engine.core.records import RequestRecord
from engine.telemetry import metrics
from engine.telemetry.metrics import RequestMetrics, to_json_value
from engine.telemetry.summary import outcome

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_COUNTS = (
    "num_prompt_tokens",
    "num_cached_tokens",
    "num_computed_tokens",
    "num_output_tokens",
    "num_recomputed_tokens",
    "max_output_tokens",
)
CSV_COLUMNS = (
    "id",
    "label",
    "outcome",
    "finish_reason",
    "streamed",
    *_COUNTS,
    "num_preemptions",
    "submitted",
    *RequestMetrics._fields,
)


def request_detail(record: RequestRecord) -> dict[str, Any]:
    """One request as strict JSON values; times are seconds since its submission.

    `submitted_seconds` alone is on the service's clock, to set requests beside each other.

    `ttft_parts` add up to `ttft_seconds` exactly. `num_kv_tokens` is the number of positions whose
    keys and values it has, or had when it ended. `composition` gives the tokens of each part of
    the prompt, and is empty where nobody said what it was made of.
    """
    values = metrics.request_metrics(record)
    gaps = metrics.itl([record])
    value: dict[str, Any] = to_json_value(
        {
            "id": record.id,
            "label": record.label,
            "outcome": outcome(record),
            "status": record.status,
            "finish_reason": record.finish_reason,
            "complete": record.complete,
            "streamed": record.streamed,
            "submitted_seconds": record.submitted,
            "timestamps": _timestamps(record),
            "ttft_parts": {
                name: getattr(values, name)
                for name in ("input_preparation", "queueing", "prefill", "delivery")
            },
            "ttft_seconds": values.ttft,
            "tpot_seconds": values.tpot,
            "e2e_seconds": values.e2e,
            "engine_ttft_seconds": values.engine_ttft,
            "engine_tpot_seconds": values.engine_tpot,
            "engine_e2e_seconds": values.engine_e2e,
            "itl_seconds": {
                "count": gaps.size,
                "p50": metrics.percentile(gaps, 50),
                "p95": metrics.percentile(gaps, 95),
            },
            "longest_pause_seconds": values.longest_pause,
            "output_gaps_seconds": metrics.output_gaps([record]),
            **{name: getattr(record, name) for name in _COUNTS if name != "num_computed_tokens"},
            "num_kv_tokens": record.num_computed_tokens,
            "composition": dict(record.composition),
            "chunks": [
                {
                    "start": _offset(record, chunk.start),
                    "duration": chunk.duration,
                    "tokens": chunk.tokens,
                    "phase": chunk.phase,
                }
                for chunk in record.chunks
            ],
            "preemptions": [
                {
                    "time": _offset(record, preemption.time),
                    "num_computed_tokens": preemption.num_computed_tokens,
                }
                for preemption in record.preemptions
            ],
            "token_sampled": [_offset(record, time) for time in record.token_sampled],
            "token_delivered": [_offset(record, time) for time in record.token_delivered],
        }
    )
    return value


def csv_lines(records: Iterable[RequestRecord]) -> Iterator[str]:
    """The requests as CSV, a line at a time with its line end, the header first.

    Durations are seconds, a missing one is an empty cell. A text that a spreadsheet would take for
    a formula gets an apostrophe in front; numbers stay numbers.
    """
    yield _csv_line(CSV_COLUMNS)
    for record in records:
        values = metrics.request_metrics(record)
        yield _csv_line(
            (
                record.id,
                record.label,
                outcome(record),
                record.finish_reason,
                record.streamed,
                *(getattr(record, name) for name in _COUNTS),
                len(record.preemptions),
                record.submitted,
                *values,
            )
        )


def json_pieces(records: Iterable[RequestRecord]) -> Iterator[str]:
    """The requests' details as one strict JSON array, in pieces to be written one after another."""
    opening = "["
    for record in records:
        yield opening + json.dumps(request_detail(record), allow_nan=False)
        opening = ",\n"
    yield "[]\n" if opening == "[" else "]\n"


def _timestamps(record: RequestRecord) -> dict[str, float | None]:
    names = (
        "submitted",
        "queued",
        "scheduled",
        "first_token_sampled",
        "first_token_delivered",
        "last_token_delivered",
        "finished",
    )
    return {name: _offset(record, getattr(record, name)) for name in names}


def _offset(record: RequestRecord, time: float | None) -> float | None:
    return metrics.between(record.submitted, time)


def _csv_line(cells: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(_neutral(to_json_value(cell)) for cell in cells)
    return line.getvalue()


def _neutral(cell: object) -> object:
    if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS):
        return f"'{cell}"
    return cell
