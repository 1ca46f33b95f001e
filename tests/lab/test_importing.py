"""Traffic from files: every format, its unit of time, and what becomes of rows that are wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import InvalidRequest
from engine.lab import importing
from engine.lab.importing import Trace, parse_trace, read_trace
from engine.lab.importing_replay import Replay, to_workload
from engine.lab.workload import MAX_PROMPT_TOKENS, Workload, build
from engine.lab.workload_arrivals import ClosedLoop, Constant
from engine.lab.workload_shapes import SHAPES
from engine.lab.workload_text import TokenSource

SOURCE = TokenSource(1_000)
TRACES = Path(__file__).parents[3] / "shared" / "traces"


class Letters:
    """One token for each character."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) % 1_000 for letter in text]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, token_ids))


def jsonl(*rows: object) -> bytes:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()


def times(trace: Trace) -> list[float | None]:
    return [row.time for row in trace.rows]


def test_mooncake_times_are_milliseconds_and_equal_hashes_are_equal_beginnings() -> None:
    trace = parse_trace(
        "mooncake.jsonl",
        jsonl(
            {"timestamp": 0, "input_length": 700, "output_length": 16, "hash_ids": [1, 2]},
            {"timestamp": 250, "input_length": 700, "output_length": 24, "hash_ids": [1, 3]},
            {"timestamp": 900, "input_length": 1030, "output_length": 8, "hash_ids": [1, 2]},
        ),
    )
    assert trace.format == "Mooncake"
    assert trace.unit == "milliseconds (by the format)"
    first, second, third = to_workload(trace, SOURCE, Replay()).items
    assert [item.start.time for item in (first, second, third)] == [0.0, 0.25, 0.9]
    assert [len(item.token_ids) for item in (first, second, third)] == [700, 700, 1030]
    assert first.token_ids[:512] == second.token_ids[:512]
    assert first.token_ids[512:] != second.token_ids[512:]
    assert third.token_ids[:700] == first.token_ids
    assert [item.num_output_tokens for item in (first, second, third)] == [16, 24, 8]


def test_a_stated_unit_overrides_the_detected_one() -> None:
    rows = jsonl(
        {"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": []},
        {"timestamp": 3, "input_length": 5, "output_length": 1, "hash_ids": []},
    )
    assert times(parse_trace("m.jsonl", rows, unit="seconds")) == [0.0, 2.0]
    assert times(parse_trace("m.jsonl", rows)) == [0.0, 0.002]
    with pytest.raises(InvalidRequest, match="The unit must be one of"):
        parse_trace("m.jsonl", rows, unit="fortnights")


def test_azure_dates_with_seven_digits_become_seconds() -> None:
    trace = parse_trace(
        "azure.csv",
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
        b"2023-11-16 18:15:46.6805900,374,44\n"
        b"2023-11-16 18:15:50.9951690,396,109\n",
    )
    assert trace.format == "Azure LLM inference trace"
    assert "dates" in trace.unit
    assert times(trace) == [0.0, pytest.approx(4.314579, abs=1e-6)]
    assert [(r.num_prompt_tokens, r.num_output_tokens) for r in trace.rows] == [
        (374, 44),
        (396, 109),
    ]


def test_burstgpt_times_are_seconds() -> None:
    trace = parse_trace(
        "burst.csv",
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"5,ChatGPT,472,18,490,Conversation log\n"
        b"45.5,ChatGPT,1087,230,1317,Conversation log\n",
    )
    assert trace.format == "BurstGPT"
    assert trace.unit == "seconds (by the format)"
    assert times(trace) == [0.0, 40.5]


def test_sharegpt_answers_give_the_output_lengths() -> None:
    turns = [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "good day"}]
    data = json.dumps(
        [
            {"id": "a", "conversations": turns},
            {"id": "b", "conversations": turns[:1]},
            {"id": "c", "conversations": [*turns, *turns]},
        ]
    ).encode()
    trace = parse_trace("sharegpt.json", data)
    assert trace.format == "ShareGPT"
    assert trace.unit == ""
    assert [(item.line, "one turn" in item.reason) for item in trace.rejected] == [(2, True)]
    workload = to_workload(trace, SOURCE, Replay(arrivals=Constant(2.0)), Letters())
    assert [len(item.token_ids) for item in workload.items] == [5, 5]
    assert [item.num_output_tokens for item in workload.items] == [8, 8]
    assert [item.start.time for item in workload.items] == [0.0, 0.5]
    with pytest.raises(InvalidRequest, match="load a model"):
        to_workload(trace, SOURCE, Replay())


def test_vllm_custom_rows_without_times_are_sent_by_the_chosen_process() -> None:
    trace = parse_trace(
        "custom.jsonl", jsonl({"prompt": "abc", "output_tokens": 7}, {"prompt": "abcd"})
    )
    assert trace.format == "vLLM custom"
    replay = Replay(arrivals=ClosedLoop(1, 2.0), default_output=33)
    workload = to_workload(trace, SOURCE, replay, Letters())
    assert [item.num_output_tokens for item in workload.items] == [7, 33]
    assert (workload.items[1].start.after, workload.items[1].start.delay) == (0, 2.0)
    assert "1 requests give no answer length and get 33 tokens." in workload.notes


def test_aiperf_turns_wait_for_each_other_and_carry_what_was_said() -> None:
    trace = parse_trace(
        "aiperf.jsonl",
        jsonl(
            {
                "session_id": "s",
                "turns": [
                    {"text": "abc", "output_length": 4},
                    {"text": "de", "output_length": 2, "delay": 500},
                ],
            },
            {"text": "xyz", "output_length": 3, "timestamp": 2000},
        ),
        unit=None,
    )
    assert trace.format == "AIPerf"
    # The conversation gives no time of its own, though the other row has one.
    assert [item.line for item in trace.rejected] == [1]

    untimed = parse_trace(
        "aiperf.jsonl",
        jsonl(
            {
                "session_id": "s",
                "turns": [
                    {"text": "abc", "output_length": 4},
                    {"text": "de", "output_length": 2, "delay": 500},
                ],
            },
            {"text": "xyz", "output_length": 3},
        ),
    )
    workload = to_workload(untimed, SOURCE, Replay(arrivals=Constant(1.0)), Letters())
    first, second, third = workload.items
    assert second.token_ids[:3] == first.token_ids
    assert len(second.token_ids) == 3 + 4 + 2
    assert (second.start.after, second.start.delay) == (0, 0.5)
    assert third.start.time == 1.0


def test_aiperf_rows_of_one_session_follow_each_other_after_their_delay() -> None:
    trace = parse_trace(
        "aiperf.jsonl",
        jsonl(
            {"session_id": "s", "text": "abc", "output_length": 4, "timestamp": 100},
            {"session_id": "s", "text": "de", "output_length": 2, "delay": 250},
        ),
    )
    starts = [i.start for i in to_workload(trace, SOURCE, Replay(speed=2), Letters()).items]
    assert starts[0].time == 0.0
    assert (starts[1].after, starts[1].delay) == (0, 0.125)


@pytest.mark.parametrize(
    ("header", "rows", "unit", "expected"),
    [
        ("time_ms", ["0", "1500"], "milliseconds", [0.0, 1.5]),
        ("time_s", ["0", "1500"], "seconds", [0.0, 1500.0]),
        ("arrival", ["0", "0.5"], "seconds", [0.0, 0.5]),
        ("arrival", ["0", "400", "900"], "milliseconds", [0.0, 0.4, 0.9]),
        ("timestamp", ["1700000000000", "1700000000250"], "milliseconds", [0.0, 0.25]),
        ("timestamp", ["1700000000", "1700000002"], "1970", [0.0, 2.0]),
    ],
)
def test_units_of_plain_tables_are_detected_and_stated(
    header: str, rows: list[str], unit: str, expected: list[float]
) -> None:
    lines = [f"{header},prompt tokens,output tokens", *(f"{row},10,5" for row in rows)]
    trace = parse_trace("plain.csv", "\n".join(lines).encode())
    assert trace.format == "plain table"
    assert unit in trace.unit
    assert times(trace) == pytest.approx(expected)
    assert unit in trace.summary()


def test_rows_out_of_order_are_sorted_and_a_note_says_so() -> None:
    lines = ["time,prompt_tokens,output_tokens", *(f"{t},{t + 1},1" for t in (5, 2, 9, 9))]
    trace = parse_trace("unsorted.csv", "\n".join(lines).encode())
    workload = to_workload(trace, SOURCE, Replay())
    assert [item.start.time for item in workload.items] == [0.0, 3.0, 7.0, 7.0]
    assert [len(item.token_ids) for item in workload.items] == [3, 6, 10, 10]
    assert any("re-ordered" in note for note in workload.notes)


def test_bad_rows_are_listed_by_line_and_good_ones_load() -> None:
    good = {"prompt_tokens": 5, "output_tokens": 2}
    trace = parse_trace("mixed.jsonl", jsonl(good, '{"prompt_tokens": ', "", [1, 2], good))
    assert len(trace.rows) == 2
    assert [item.line for item in trace.rejected] == [2, 4]
    assert "JSON" in trace.rejected[0].reason
    assert "a list" in trace.rejected[1].reason
    assert "2 loaded and 2 rejected" in trace.summary()
    assert "2 rows of the file could not be used." in to_workload(trace, SOURCE, Replay()).notes


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt_tokens": 0}, "prompt length must be from 1"),
        ({"prompt_tokens": 2.5}, "whole number"),
        ({"prompt_tokens": True}, "finite number"),
        ({"prompt_tokens": "many"}, "finite number"),
        ({"prompt_tokens": 5, "output_tokens": -1}, "output length must be from 1"),
        ({"prompt_tokens": 5, "time": -1}, "at least 0"),
        ({"prompt_tokens": 5, "time": "soon"}, "neither a number nor a date"),
        ({"prompt_tokens": 5, "time": "NaN"}, "at least 0"),
        ({"prompt": 7}, "must be text"),
        ({"token_ids": [1, -2]}, "at least 0"),
        ({"token_ids": "abc"}, "list of whole numbers"),
        ({"text": "a", "delay": -5}, "at least 0"),
        ({"conversations": "abc"}, "must be a list"),
        ({"turns": []}, "at least one turn"),
        ({"colour": "red"}, "neither a prompt nor its length"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(row: dict[str, object], reason: str) -> None:
    trace = parse_trace("x.jsonl", jsonl({"prompt_tokens": 3, "time": 1, "delay": 1}, row))
    assert [item.line for item in trace.rejected] == [2]
    assert reason in trace.rejected[0].reason


def test_csv_rows_of_another_width_are_listed() -> None:
    trace = parse_trace("x.csv", b"prompt_tokens,output_tokens\n5,2\n5\n\n5,2,9\n6,1\n")
    assert [item.line for item in trace.rejected] == [3, 5]
    assert [row.num_prompt_tokens for row in trace.rows] == [5, 6]


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b"[]", b"{}", b"a,b\n1,2\n", b"\r\0", b"[" * 90_000]
)
def test_a_file_without_a_usable_row_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"empty|no row that can be used|neither JSON"):
        parse_trace("nothing", data)


@given(data=st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_sentence(data: bytes) -> None:
    try:
        trace = parse_trace("noise", data)
    except InvalidRequest:
        return
    assert trace.rows


def test_a_large_upload_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        file.truncate(150 * 1024 * 1024)

    def read_bytes(self: Path) -> bytes:
        raise AssertionError("the file was read")

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    with pytest.raises(InvalidRequest, match=r"150 MiB; the limit is 32 MiB"):
        read_trace(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"gone\.csv cannot be read"):
        read_trace(tmp_path / "gone.csv")


def test_only_so_many_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "MAX_ROWS", 4)
    trace = parse_trace("x.jsonl", jsonl(*[{"prompt_tokens": 1}] * 9))
    assert len(trace.rows) == 4
    assert trace.notes == ("Only the first 4 rows were read.",)


def test_only_so_many_rejected_rows_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "MAX_LISTED", 3)
    trace = parse_trace("x.jsonl", jsonl({"prompt_tokens": 1}, *["broken"] * 10))
    assert len(trace.rejected) == 3
    assert trace.num_rejected == 10


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_our_own_export_is_read_back_to_the_byte(name: str) -> None:
    workload = build(SHAPES[name].spec, SOURCE)
    text = "".join(workload.lines())
    trace = parse_trace("export.jsonl", text.encode())
    assert trace.format == "PhaseScope workload"
    again = to_workload(trace, SOURCE, Replay())
    assert "".join(again.lines()) == text
    assert again.digest() == workload.digest()


@pytest.mark.parametrize("field", ["name", "arrivals", "streamed"])
@pytest.mark.parametrize("value", [5, ["x"], {"x": 1}])
def test_a_header_of_our_export_that_is_no_header_is_refused(field: str, value: object) -> None:
    header, *rows = build(SHAPES["chat"].spec, SOURCE).lines()
    edited = json.dumps({**json.loads(header), field: value}) + "\n"
    with pytest.raises(InvalidRequest, match=f"Line 1: {field} of a PhaseScope workload must be"):
        parse_trace("export.jsonl", "".join([edited, *rows]).encode())


def test_texts_of_a_header_are_kept_short_and_missing_ones_are_made_up_for() -> None:
    header, *rows = build(SHAPES["chat"].spec, SOURCE).lines()

    def read(**changes: object) -> Workload:
        edited = json.dumps({**json.loads(header), **changes}) + "\n"
        return to_workload(
            parse_trace("export.jsonl", "".join([edited, *rows]).encode()), SOURCE, Replay()
        )

    long = read(name="n" * 1_000_000, arrivals="a" * 1_000_000)
    assert (long.name, long.arrivals) == ("n" * 100, "a" * 100)
    bare = read(name=None, arrivals=None, streamed=None)
    assert (bare.name, bare.arrivals, bare.streamed) == (
        "export.jsonl",
        "as in PhaseScope workload",
        True,
    )


def test_a_replay_can_be_named() -> None:
    text = "".join(build(SHAPES["chat"].spec, SOURCE).lines())
    trace = parse_trace("export.jsonl", text.encode())
    assert to_workload(trace, SOURCE, Replay(name="A trace file")).name == "A trace file"


def test_rows_of_our_export_that_wait_for_a_bad_row_are_rejected() -> None:
    workload = build(SHAPES["agent"].spec, SOURCE)
    lines = list(workload.lines())
    lines[2] = "broken\n"
    trace = parse_trace("export.jsonl", "".join(lines).encode())
    assert [item.line for item in trace.rejected] == [3, 4, 5]
    again = to_workload(trace, SOURCE, Replay())
    assert again.items[1].start.after is None
    assert again.items[2].start.after == 1


def test_a_replay_is_bounded_and_says_what_it_left_out() -> None:
    rows = [{"prompt_tokens": 20, "output_tokens": 3, "time": i} for i in range(50)]
    trace = parse_trace("x.jsonl", jsonl(*rows))
    workload = to_workload(trace, SOURCE, Replay(limit=10, speed=4.0, max_model_len=16))
    assert len(workload.items) == 10
    assert workload.items[-1].start.time == pytest.approx(9 / 4)
    assert workload.prompt_tokens == (15, 15)
    assert workload.output_tokens == (1, 1)
    assert "The first 10 of 50 requests are used." in workload.notes
    assert any("cut to the model's context" in note for note in workload.notes)


def test_a_replay_that_would_not_fit_in_memory_is_refused() -> None:
    rows = [{"prompt_tokens": 500_000, "output_tokens": 3}] * 10
    with pytest.raises(InvalidRequest, match=f"{MAX_PROMPT_TOKENS:,}"):
        to_workload(parse_trace("x.jsonl", jsonl(*rows)), SOURCE, Replay())


@pytest.mark.parametrize(
    "change", [{"limit": 0}, {"speed": 0.0}, {"speed": float("nan")}, {"default_output": 0}]
)
def test_an_impossible_replay_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        Replay(**change)  # type: ignore[arg-type]


@pytest.mark.skipif(not TRACES.is_dir(), reason="the Azure traces are not beside this project")
@pytest.mark.parametrize(
    ("name", "rows"), [("azure_llm_2023_conv.csv", 19_366), ("azure_llm_2023_code.csv", 8_819)]
)
def test_an_hour_of_a_real_service_is_read(name: str, rows: int) -> None:
    trace = read_trace(TRACES / name)
    assert (len(trace.rows), trace.num_rejected) == (rows, 0)
    assert 3_000 < (trace.rows[-1].time or 0.0) < 3_700
    workload = to_workload(trace, SOURCE, Replay(limit=100, max_model_len=2_048, speed=10.0))
    assert workload.prompt_tokens[1] <= 2_047
