"""Requests, tokens and steps as files: one request in full for the detail drawer, many as CSV or
JSON.

Only numbers, times and labels are written, never a prompt or an output. The generators go through
records that the caller has copied, one at a time, and hold no lock.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from engine.core.records import RequestRecord, StepRecord
from engine.telemetry import metrics
from engine.telemetry.metrics import RequestMetrics, to_json_value
from engine.telemetry.summary import outcome

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
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
TOKEN_COLUMNS = ("id", "label", "index", "sampled", "delivered", "itl")
_STEP_COUNTS = (
    "prefill_tokens",
    "recompute_tokens",
    "decode_tokens",
    "num_sampled",
    "num_running",
    "num_waiting",
    "used_blocks",
    "evictable_blocks",
    "free_blocks",
)
_STEP_LISTS = ("admitted", "preempted", "finished", "displaced")
STEP_COLUMNS = (
    "number",
    "start",
    "duration",
    "model_seconds",
    *_STEP_COUNTS,
    *(f"num_{name}" for name in _STEP_LISTS),
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


def token_csv_lines(records: Iterable[RequestRecord]) -> Iterator[str]:
    """Every output token of the requests as CSV, as `csv_lines`.

    `sampled` and `delivered` are seconds of the service's clock; `itl` is empty for a request's
    first token, and what nobody took one by one has neither of the last two.
    """
    yield _csv_line(TOKEN_COLUMNS)
    for record in records:
        delivered = record.token_delivered if record.streamed else ()
        (gaps,) = metrics.itl_by_request([record])
        for index, sampled in enumerate(record.token_sampled):
            taken = delivered[index] if index < len(delivered) else None
            gap = gaps[index - 1] if 0 < index <= gaps.size else None
            yield _csv_line((record.id, record.label, index, sampled, taken, gap))


def step_csv_lines(steps: Iterable[StepRecord]) -> Iterator[str]:
    """Engine steps as CSV, as `csv_lines`; `start` is seconds of the service's clock."""
    yield _csv_line(STEP_COLUMNS)
    for step in steps:
        yield _csv_line(
            (
                step.number,
                step.start,
                step.duration,
                step.model_seconds,
                *(getattr(step, name) for name in _STEP_COUNTS),
                *(len(getattr(step, name)) for name in _STEP_LISTS),
            )
        )


def json_pieces(records: Iterable[RequestRecord]) -> Iterator[str]:
    """The requests' details as one strict JSON array, in pieces to be written one after another."""
    return _json_array(request_detail(record) for record in records)


def step_json_pieces(steps: Iterable[StepRecord]) -> Iterator[str]:
    """As `json_pieces` for engine steps, with the rows that each computed."""
    return _json_array(step_detail(step) for step in steps)


def step_detail(step: StepRecord) -> dict[str, Any]:
    """One engine step as strict JSON values; requests go by their names on the page.

    A row is what one request had of the step: positions `start` to `start + length`.
    """
    value: dict[str, Any] = to_json_value(
        {
            "number": step.number,
            "start_seconds": step.start,
            "duration_seconds": step.duration,
            "model_seconds": step.model_seconds,
            **{name: getattr(step, name) for name in _STEP_COUNTS},
            **{name: [f"R{number}" for number in getattr(step, name)] for name in _STEP_LISTS},
            "rows": [
                {
                    "request": f"R{row.request}",
                    "start": row.start,
                    "length": row.length,
                    "phase": row.phase,
                }
                for row in step.rows
            ],
        }
    )
    return value


def _json_array(values: Iterator[dict[str, Any]]) -> Iterator[str]:
    opening = "["
    for value in values:
        yield opening + json.dumps(value, allow_nan=False)
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
