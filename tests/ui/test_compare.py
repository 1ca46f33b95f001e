"""A result of the Compare tab in words and tables."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from engine.lab.presets import PRESETS
from engine.lab.result_store import ResultEntry
from engine.lab.results import Result
from tests.ui.comparisons import compared
from ui import compare_report
from ui.words_compare import COMPARE


@pytest.fixture(scope="module")
def result() -> Result:
    return compared(6)


@pytest.fixture(scope="module")
def one_pair() -> Result:
    return compared(1)


def test_the_workload_line_states_the_conditions(result: Result) -> None:
    line = re.sub("<[^>]+>", " ", compare_report.workload_line(result))
    for fact in (
        PRESETS["long-prompt"].title,
        "48 to 1,500",
        "16 to 64",
        "up to",
        "window",
        "6",
        "same seeds (0 to 5)",
        "simulated",
        "SmolLM2-135M",
    ):
        assert fact in line


def test_better_and_worse_are_told_apart_by_fill_and_word(result: Result) -> None:
    table = compare_report.difference_table(result)
    assert 'ps-better"><span class="ps-unseen">better: </span>' in table
    assert 'ps-worse"><span class="ps-unseen">worse: </span>' in table
    assert COMPARE["legend_claimed"] in table


def test_too_few_pairs_claim_nothing(one_pair: Result) -> None:
    table = compare_report.difference_table(one_pair)
    assert "ps-pill" not in table
    assert COMPARE["legend_few"] in table
    assert "lower" in table
    assert "Too few runs to tell from noise" in compare_report.report(one_pair)


def test_a_percentile_is_shown_only_where_the_samples_carry_it(one_pair: Result) -> None:
    row = compare_report.difference_table(one_pair).split("Longest pause")[1].split("</tr>")[0]
    assert "4 requests" in row
    cells = re.findall("<td>(.*?)</td>", row)
    assert cells[3].startswith("<small>max</small>")
    assert cells[6] == "\N{EN DASH}"


def test_the_table_names_every_metric_with_its_samples(result: Result) -> None:
    table = compare_report.difference_table(result)
    rows = re.findall(r'<button[^>]*class="ps-def"[^>]*>([^<]+)</button>.*?<small>([^<]+)', table)
    assert dict(rows) == {
        "TTFT": "24 requests",
        "input preparation": "24 requests",
        "queueing": "24 requests",
        "prefill": "24 requests",
        "delivery": "24 requests",
        "ITL": "1,224 gaps",
        "Longest pause": "24 requests",
        "TPOT": "24 requests",
        "E2E": "24 requests",
        "Throughput": "6 runs",
        "Goodput": "6 runs",
        "Prefix hits": "6 runs",
        "Failed or refused": "6 runs",
    }


def test_compared_durations_share_the_unit_of_the_larger(result: Result) -> None:
    row = compare_report.difference_table(result).split(">E2E<")[1]
    a, b = re.findall("<td>(.*?)</td>", row)[:2]
    assert re.fullmatch(r"\d\.\d\d", a)
    assert re.fullmatch(r"<b>\d\.\d\d s</b>", b)


def test_texts_of_a_result_are_escaped(result: Result) -> None:
    hostile = replace(result, title="<img src=x>", notes=("<script>",), id="<b>")
    entry = ResultEntry(
        id='"><s>', title="<i>", created=0.0, simulated=False, num_sides=2, summary="<u>"
    )
    pages = (
        compare_report.workload_line(hostile)
        + compare_report.report(hostile)
        + compare_report.exports(hostile)
        + compare_report.results_list([entry])
    )
    for tag in ("<img", "<script", '"><s>', "<i>", "<u>", 'data-result="<b>"'):
        assert tag not in pages


def test_the_gap_caption_names_where_the_sides_part(result: Result) -> None:
    a, b = result.sides
    assert compare_report.gap_caption(a, b).startswith(
        "Up to p90 the two agree. They part from p95"
    )
    assert compare_report.gap_caption(a, a) == "A and B agree from the typical gap to the worst."
    nothing = replace(a, gap_percentiles=dict.fromkeys(a.gap_percentiles))
    assert compare_report.gap_caption(nothing, b) == "No gaps between tokens were measured."
