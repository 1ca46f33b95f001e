"""Exports that every reader can take: strict JSON, and CSV that is data and never a formula."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from engine.core.records import RequestRecord, StepRow
from engine.core.request import ChunkTime, FinishReason, Phase, Preemption
from engine.telemetry import export
from tests.telemetry.records import failed, record, step

ANSWER = record(
    18,
    label="=HYPERLINK(1)",
    submitted=100.0,
    queued=100.25,
    scheduled=100.5,
    finished=104.0,
    token_sampled=(102.0, 103.0, 104.0),
    token_delivered=(102.5, 103.25, 104.25),
    num_output_tokens=3,
    num_cached_tokens=16,
    num_recomputed_tokens=8,
    composition=(("system", 20), ("message", 12)),
    chunks=(ChunkTime(100.5, 0.5, 16, Phase.PREFILL), ChunkTime(101.5, 0.5, 8, Phase.RECOMPUTE)),
    preemptions=(Preemption(101.25, 16),),
)


def strict(text: str) -> object:
    def refuse(constant: str) -> object:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_request_in_detail_counts_from_its_submission() -> None:
    detail = export.request_detail(ANSWER)
    assert detail["timestamps"] == {
        "submitted": 0.0,
        "queued": 0.25,
        "scheduled": 0.5,
        "first_token_sampled": 2.0,
        "first_token_delivered": 2.5,
        "last_token_delivered": 4.25,
        "finished": 4.0,
    }
    assert sum(detail["ttft_parts"].values()) == detail["ttft_seconds"] == 2.5
    assert detail["output_gaps_seconds"] == [0.75, 1.0]
    assert detail["itl_seconds"] == {"count": 2, "p50": 0.875, "p95": pytest.approx(0.9875)}
    assert detail["longest_pause_seconds"] == 1.0
    assert detail["composition"] == {"system": 20, "message": 12}
    assert detail["chunks"][1] == {
        "start": 1.5,
        "duration": 0.5,
        "tokens": 8,
        "phase": "recompute",
    }
    assert detail["preemptions"] == [{"time": 1.25, "num_computed_tokens": 16}]
    assert (detail["num_cached_tokens"], detail["num_recomputed_tokens"]) == (16, 8)
    assert detail["num_kv_tokens"] == ANSWER.num_computed_tokens
    assert strict(json.dumps(detail)) == detail


def test_a_request_that_came_to_nothing_has_null_and_no_made_up_zero() -> None:
    detail = export.request_detail(failed(2, finished=0.5))
    assert detail["ttft_seconds"] is None
    assert set(detail["ttft_parts"].values()) == {None}
    assert detail["itl_seconds"] == {"count": 0, "p50": None, "p95": None}
    assert detail["timestamps"]["finished"] == 0.5
    assert detail["outcome"] == "failed"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_texts_that_would_be_formulas_are_neutralised(start: str) -> None:
    text = "".join(export.csv_lines([record(1, label=f"{start}1+1", tokens=[1.0])]))
    row = next(csv.DictReader(io.StringIO(text, newline="")))
    assert row["label"] == f"'{start}1+1"
    tokens = "".join(export.token_csv_lines([record(1, label=f"{start}1+1", tokens=[1.0])]))
    row = next(csv.DictReader(io.StringIO(tokens, newline="")))
    assert row["label"] == f"'{start}1+1"


def test_csv_holds_numbers_as_numbers_and_gaps_as_empty_cells() -> None:
    early = record(1, label='a,b\n"c"', submitted=-1.5, tokens=[1.0, 2.0])
    text = "".join(export.csv_lines([early, failed(2)]))
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    assert tuple(first) == export.CSV_COLUMNS
    assert float(first["submitted"]) == -1.5
    assert float(first["ttft"]) == 2.5
    assert first["label"] == 'a,b\n"c"'
    assert (first["finish_reason"], second["finish_reason"]) == ("stop", "error")
    assert (second["ttft"], second["label"]) == ("", "")


def test_json_of_many_is_one_strict_array() -> None:
    records = [ANSWER, failed(2), record(3, finish_reason=FinishReason.CANCELLED)]
    value = strict("".join(export.json_pieces(records)))
    assert [one["id"] for one in value] == ["R18", "R2", "R3"]
    assert strict("".join(export.json_pieces([]))) == []


def test_tokens_are_rows_with_the_gap_before_each() -> None:
    # Two of them are taken at one moment and share the gap.
    together = record(1, token_sampled=(1.0, 2.0, 3.0), token_delivered=(1.0, 3.5, 3.5))
    whole = record(2, streamed=False, token_sampled=(1.0, 2.0), token_delivered=())
    text = "".join(export.token_csv_lines([together, whole, failed(3)]))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["id"], row["index"], row["sampled"]) for row in rows] == [
        ("R1", "0", "1.0"),
        ("R1", "1", "2.0"),
        ("R1", "2", "3.0"),
        ("R2", "0", "1.0"),
        ("R2", "1", "2.0"),
    ]
    assert [(row["delivered"], row["itl"]) for row in rows] == [
        ("1.0", ""),
        ("3.5", "1.25"),
        ("3.5", "1.25"),
        ("", ""),
        ("", ""),
    ]


def test_steps_as_rows_and_in_full() -> None:
    rows = (StepRow(7, 16, 4, Phase.PREFILL), StepRow(8, 40, 1, Phase.DECODE))
    steps = [step(3, prefill_tokens=4, decode_tokens=1, rows=rows, finished=(8,)), step(4)]
    text = "".join(export.step_csv_lines(steps))
    first, second = csv.DictReader(io.StringIO(text, newline=""))
    assert tuple(first) == export.STEP_COLUMNS
    assert (first["number"], first["prefill_tokens"], first["num_finished"]) == ("3", "4", "1")
    assert float(second["start"]) == 4.0
    full = strict("".join(export.step_json_pieces(steps)))
    assert full[0]["finished"] == ["R8"]
    assert full[0]["rows"] == [
        {"request": "R7", "start": 16, "length": 4, "phase": "prefill"},
        {"request": "R8", "start": 40, "length": 1, "phase": "decode"},
    ]
    assert full[1]["rows"] == []


def test_ten_thousand_requests_are_written_one_at_a_time() -> None:
    taken = 0

    def records() -> Iterator[RequestRecord]:
        nonlocal taken
        for number in range(10_000):
            taken += 1
            yield record(number, tokens=[1.0, 2.0])

    lines = export.csv_lines(records())
    assert next(lines).startswith("id,label,")
    next(lines)
    assert taken == 1
    assert sum(1 for _ in lines) == 9_999
