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
from engine.lab.__main__ import MET, NOT_MET, NOT_RUN, main
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
    paths = [str(tmp_path / name) for name in ("result.json", "runs.csv", "sends.csv")]
    files = ["--json", paths[0], "--csv", paths[1], "--sends", paths[2], "--price", "2"]
    sides = ["--b", "policy=static", "--b", "prefix_caching=off", "--runs", "2"]
    assert main([*SIMULATED, *sides, *files]) == MET
    output = capsys.readouterr().out
    assert "policy: A chunked, B static" in output
    assert "Too few runs to tell" in output
    assert "a million tokens" in output
    result = Result.from_json(Path(paths[0]).read_text())
    assert result.sides[1].config["prefix_caching"] is False
    assert len(pd.read_csv(paths[1])) == 4
    assert len(pd.read_csv(paths[2])) == 24


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
    assert "measured on model stub" in capsys.readouterr().out
    assert json.loads(path.read_text())["simulated"] is False


def test_a_tokenizer_that_does_not_say_its_size_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "_service", stub_service)
    assert main(["run"]) == NOT_RUN
    assert "how many tokens" in capsys.readouterr().err
