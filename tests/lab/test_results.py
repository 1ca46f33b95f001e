"""What an experiment leaves: its file, tables, exports, goodput and cost."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from engine.core.errors import InvalidRequest
from engine.core.request import FinishReason
from engine.lab.experiment import (
    Experiment,
    config_with,
    perform,
)
from engine.lab.measures import Limits, cost
from engine.lab.presets import PRESETS
from engine.lab.reporting import change_label
from engine.lab.results import Result
from tests.lab.experiments import BASE, LIMITS, SOURCE, Recorded, chat, compared
from tests.telemetry.records import record


def test_a_result_survives_its_file_exactly() -> None:
    result = compared()
    text = result.to_json()
    assert Result.from_json(text) == result
    parsed = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert parsed["simulated"] is True
    assert "secret" not in text
    assert parsed["sides"][0]["config"]["policy"] == "chunked"
    assert len(parsed["workload"]["seeds"]) == 2


def test_a_run_in_which_nothing_finished_is_strict_json_too() -> None:
    experiment = Experiment(
        title="nothing fits",
        configs=(replace(BASE, max_model_len=8), replace(BASE, max_model_len=8, max_running=2)),
        workload=chat,
    )
    result = perform(experiment, Recorded())
    side = result.sides[0]
    assert side.requests["refused"] == 8
    assert side.requests["finished"] == 0
    assert side.latency["ttft"].count == 0
    text = result.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert Result.from_json(text) == result


def test_the_table_has_counts_and_claims_nothing_of_few_runs() -> None:
    table = {row.metric: row for row in compared().difference_table()}
    assert list(table)[:5] == ["ttft", "itl", "longest_pause", "tpot", "e2e"]
    assert table["ttft"].counts == (16, 16)
    assert set(table["ttft"].cells) == {"p50", "p95", "p99"}
    cells = [cell for row in table.values() for cell in row.cells.values()]
    assert all(cell.better is None for cell in cells)
    assert any("lower" in cell.change or "higher" in cell.change for cell in cells)
    one_side = Experiment(title="t", configs=(BASE,), workload=chat)
    assert perform(one_side, Recorded()).difference_table() == []


def test_the_table_marks_what_six_pairs_show() -> None:
    result = perform(PRESETS["slots"].experiment(BASE, SOURCE, num_pairs=6), Recorded())
    table = {row.metric: row for row in result.difference_table()}
    assert table["throughput"].cells["all"].better is True
    assert table["queueing"].cells["p95"].better is True
    assert table["itl"].cells["p50"].better is False


def test_exports_open_in_pandas_and_carry_the_settings() -> None:
    result = compared()
    frame = pd.read_csv(io.StringIO("".join(result.csv_lines())))
    assert len(frame) == 4
    assert list(frame["side"]) == ["A", "A", "B", "B"]
    assert set(frame["config.policy"]) == {"chunked", "static"}
    assert frame["simulated"].all()
    assert frame["ttft.p50"].dtype == "float64"
    assert (frame["title"] == "'=chat").all()
    sends = pd.read_csv(io.StringIO("".join(result.send_lines())))
    assert len(sends) == 32
    assert (sends["actual"] >= sends["planned"]).all()


def test_text_that_a_spreadsheet_would_run_is_neutralised_and_numbers_are_not() -> None:
    for title in ("=1+1", "+A1", "-2+3", "@x"):
        result = replace(compared(1), title=title, machine={"offset": -4.5})
        rows = list(csv.DictReader(io.StringIO("".join(result.csv_lines()))))
        assert {row["title"] for row in rows} == {"'" + title}
        assert float(rows[0]["machine.offset"]) == -4.5


def test_good_requests_are_those_that_finished_within_both_limits() -> None:
    good = record(tokens=(0.1, 0.11, 0.12))
    late = record(tokens=(0.3, 0.31, 0.32))
    slow = record(tokens=(0.1, 0.2, 0.3))
    failed = replace(good, finish_reason=FinishReason.ERROR)
    one_token = record(tokens=(0.1,))
    assert [LIMITS.met_by(r) for r in (good, late, slow, failed, one_token)] == [
        True,
        False,
        False,
        False,
        True,
    ]
    silent = replace(good, streamed=False, token_delivered=())
    assert LIMITS.met_by(silent)
    assert not LIMITS.met_by(replace(silent, token_sampled=(0.5, 0.51, 0.52)))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_that_limit_nothing_are_refused(value: float) -> None:
    with pytest.raises(InvalidRequest, match="TTFT limit"):
        Limits(ttft_seconds=value)


def test_goodput_and_cost_follow_from_counts_and_seconds() -> None:
    result = compared()
    for side in result.sides:
        assert side.goodput is not None
        assert side.good_share is not None
        assert side.goodput * side.seconds == pytest.approx(side.good_share * 16)
    priced = cost(3.6, seconds=1_000.0, output_tokens=500_000, good=10)
    assert priced.per_million_output_tokens == pytest.approx(2.0)
    assert priced.per_good_request == pytest.approx(0.1)
    nothing = cost(3.6, seconds=10.0, output_tokens=0, good=0)
    assert (nothing.per_million_output_tokens, nothing.per_good_request) == (None, None)
    with pytest.raises(InvalidRequest, match="price"):
        cost(-1.0, seconds=1.0, output_tokens=1, good=None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": "static"}, "static batching"),
        ({"prefix_caching": False}, "no prefix caching"),
        ({"max_batched_tokens": 64, "max_running": 2}, "a token budget of 64 and 2 slots"),
        ({"max_running": 1}, "1 slot"),
        ({"max_waiting": 9}, "max_waiting 9"),
        ({}, "the same configuration"),
    ],
)
def test_what_differs_is_named_in_words(changes: dict[str, Any], words: str) -> None:
    assert change_label(BASE, config_with(BASE, changes)) == words
