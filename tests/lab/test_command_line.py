"""The command line: what it prints, what it writes, and what its exit status says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from engine.lab import __main__ as command_line
from engine.lab.__main__ import INTERRUPTED, MET, NOT_MET, NOT_RUN, main
from engine.lab.results import Result
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, StubTokenizer, started

SIMULATED = ["run", "--simulated", "--requests", "6"]


def test_limits_that_are_met_give_0_and_others_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SIMULATED) == MET
    assert main([*SIMULATED, "--slo-ttft", "5000", "--slo-tpot", "1000"]) == MET
    assert main([*SIMULATED, "--slo-ttft", "0.001"]) == NOT_MET
    assert main([*SIMULATED, "--slo-ttft", "0.001", "--slo-share", "0"]) == MET
    output = capsys.readouterr()
    assert "simulated on" in output.out
    assert "within the limits" in output.out
    assert "run 1 of 1 is done" in output.err
    assert "Limits met: A 100.0 % of the requests kept them, and 99 % must." in output.err
    assert "Limits not met: A 0.0 % of the requests kept them, and 99 % must." in output.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--requests", "0"], "number of requests"),
        (["--rate", "0"], "rate must be above 0"),
        (["--rate", "nan"], "rate must be above 0"),
        (["--rate", "2", "--burstiness", "-1"], "burstiness"),
        (["--b", "policy"], "SETTING=VALUE"),
        (["--b", "colour=red"], "colour is not a setting"),
        (["--b", "max_running=many"], "whole number"),
        (["--b", "prefix-caching=maybe"], "on or off"),
        (["--b", "policy=guess"], "policy must be one of"),
        (["--runs", "99"], "1 to 12 runs"),
        (["--slots", "9999"], "max_running"),
        (["--slo-ttft", "-1"], "TTFT limit"),
        (["--trace", "gone.csv"], "cannot be read"),
        (["--price", "-1"], "price"),
        (["--rate", "0", "--burst", "3"], "rate in requests a second must be a number above 0"),
        (["--burst", "3"], "--burst says nothing without --rate; add it."),
        (["--think", "3"], "--think says nothing without --users; add it."),
        (["--users", "3", "--rate", "2"], "--users leaves no room for --rate"),
        (["--preset", "slots", "--trace", "x"], "leaves no room for --trace and --requests"),
        (["--slo-share", "7"], "--slo-share) must be a number at least 0 and at most 1; got 7."),
        (["--peak-tflops", "0"], "peak in TFLOP/s"),
        (["--bandwidth", "nan"], "bandwidth"),
    ],
)
def test_what_cannot_be_run_gives_2_and_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SIMULATED, *arguments]) == NOT_RUN
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("Not run: ")
    assert sentence in error


def test_two_sides_are_compared_and_written_to_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("result.json", "runs.csv", "sends.csv", "trace.json")
    paths = [str(tmp_path / name) for name in names]
    files = ["--json", paths[0], "--csv", paths[1], "--sends", paths[2], "--perfetto", paths[3]]
    sides = ["--b", "policy=static", "--b", "prefix_caching=off", "--runs", "2"]
    assert main([*SIMULATED, *sides, *files, "--price", "2"]) == MET
    output = capsys.readouterr().out
    assert "policy: A chunked, B static" in output
    assert "Too few runs to tell" in output
    assert "for each million output tokens" in output
    result = Result.from_json(Path(paths[0]).read_text())
    assert result.sides[1].config["prefix_caching"] is False
    assert len(pd.read_csv(paths[1])) == 4
    assert len(pd.read_csv(paths[2])) == 24
    assert json.loads(Path(paths[3]).read_text())["otherData"]["result"] == result.id


def test_a_file_that_cannot_be_written_gives_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SIMULATED, "--json", str(tmp_path / "missing" / "result.json")]) == NOT_RUN
    output = capsys.readouterr()
    assert "Not written: " in output.err
    assert "output tok/s" in output.out


@pytest.mark.parametrize(
    ("arguments", "arrivals"),
    [
        (["--rate", "3"], "gamma with burstiness 1, 3 requests a second"),
        (["--rate", "3", "--burstiness", "inf"], "evenly spaced"),
        (["--rate", "inf"], "all at once"),
        (["--rate", "4", "--burst", "2"], "bursts of 2, one every 0.5 s"),
        (["--users", "2", "--think", "0.5"], "closed loop of 2 users"),
    ],
)
def test_arrivals_can_be_chosen(
    arguments: list[str], arrivals: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SIMULATED, *arguments, "--input-tokens", "20", "--output-tokens", "4"]) == MET
    output = capsys.readouterr().out
    assert arrivals in output
    assert "prompts 20 to 20 and answers 4 to 4 tokens" in output


def test_a_trace_is_played_and_its_bad_rows_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("time,prompt_tokens,output_tokens\n0,50,4\n1,-3,4\n2,60,4\n")
    assert main(["run", "--simulated", "--trace", str(path), "--speed", "2"]) == MET
    output = capsys.readouterr()
    assert "2 loaded and 1 rejected" in output.err
    assert "line 3: the prompt length must be from 1" in output.err
    assert "2 times as fast" in output.out


def test_a_saved_workload_is_the_same_traffic_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.jsonl"
    results = [tmp_path / "first.json", tmp_path / "second.json"]
    first = [*SIMULATED, "--save-workload", str(path), "--json", str(results[0])]
    assert main(first) == MET
    again = ["run", "--simulated", "--trace", str(path), "--json", str(results[1])]
    assert main(again) == MET
    a, b = (Result.from_json(path.read_text()) for path in results)
    assert a.workload["digests"] == b.workload["digests"]
    assert a.sides[0].latency == b.sides[0].latency
    capsys.readouterr()
    assert main([*SIMULATED, "--save-workload", str(tmp_path / "missing" / "file")]) == NOT_RUN
    assert "cannot be written" in capsys.readouterr().err


def test_a_trace_without_times_arrives_as_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("prompt_tokens,output_tokens\n50,4\n60,4\n")
    arguments = ["--trace", str(path), "--users", "1", "--no-streamed"]
    assert main(["run", "--simulated", *arguments]) == MET
    output = capsys.readouterr().out
    assert "closed loop of 1 user" in output
    assert "not streamed" in output
    assert "engine ttft" in output


def test_what_is_streamed_is_told_by_its_readers_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SIMULATED) == MET
    output = capsys.readouterr().out
    assert "engine ttft" not in output
    assert "SmolLM2-135M, bfloat16, simulated, 1 TFLOP/s, 25 GB/s, 3 ms a step" in output


def test_ctrl_c_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> Result:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "perform", interrupted)
    assert main(SIMULATED) == INTERRUPTED
    assert capsys.readouterr().err == "Stopped; no result was written.\n"


def test_a_preset_brings_its_own_sides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--simulated", "--preset", "long-prompt", "--runs", "6"]) == MET
    output = capsys.readouterr()
    assert "Look at: The gap" in output.err
    assert "Chunked prefill (B) cuts the longest pause" in output.out


@contextmanager
def stub_service(options: Any) -> Iterator[EngineService]:
    """In the place of the service that would load a model."""
    service = started(ScriptedRunner())
    try:
        yield service
    finally:
        service.close()


class CountedTokenizer(StubTokenizer):
    """The stub tokenizer, which also says how many tokens there are."""

    vocab_size = 500
    special_token_ids = frozenset({2})


def test_a_real_engine_is_measured_in_a_turn_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "_service", stub_service)
    monkeypatch.setattr(EngineService, "tokenizer", CountedTokenizer())
    path = tmp_path / "result.json"
    arguments = ["--requests", "5", "--rate", "inf", "--output-tokens", "4", "--runs", "2"]
    assert main(["run", *arguments, "--slo-ttft", "10000", "--json", str(path)]) == MET
    assert "measured on stub" in capsys.readouterr().out
    assert json.loads(path.read_text())["simulated"] is False


def test_a_tokenizer_that_does_not_say_its_size_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "_service", stub_service)
    assert main(["run"]) == NOT_RUN
    assert "how many tokens" in capsys.readouterr().err
