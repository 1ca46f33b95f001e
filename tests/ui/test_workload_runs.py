"""The table in which the runs of several shapes lie beside each other."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from engine.lab.experiment import perform
from engine.lab.result_store import ResultStore
from engine.lab.results import Result
from tests.ui.comparisons import compared, simulated
from ui import workload_runs
from ui.compare_places import Place
from ui.formats import duration
from ui.words import DASH
from ui.words_workload import WORKLOAD
from ui.workload_form import Traffic, workload_experiment
from ui.workload_numbers import limits
from ui.workload_runs import RunsTable, run_row, table


@pytest.fixture(scope="module")
def place() -> Place:
    return simulated()


def ran(place: Place, shape: str, requests: int, **changes: bool) -> Result:
    assert place.backend is not None
    traffic = Traffic(shape=shape, requests=requests, **changes)
    return perform(workload_experiment(place, traffic, limits(500, 50), 2), place.backend)


@pytest.fixture(scope="module")
def chat(place: Place) -> Result:
    return ran(place, "chat", 30)


def cells(row: str) -> list[str]:
    """What the cells of a row show, behind its name."""
    return [re.sub("<[^>]+>", " ", cell).strip() for cell in re.findall("<td.*?</td>", row)]


def test_a_run_is_named_by_its_shape_and_conditions(chat: Result) -> None:
    row = run_row(chat)
    for fact in (f'data-run="{chat.id}"', ">Chat</button>", "30 requests, Poisson", "budget 256"):
        assert fact in row
    assert "simulated" in row


def test_each_metric_has_its_percentiles_and_their_count(chat: Result) -> None:
    shown = cells(run_row(chat))
    ttft = chat.sides[0].latency["ttft"]
    assert shown[0].split() == [*duration(ttft.p50 or 0).split(), "n", "30"]
    assert shown[1] == duration(ttft.p95 or 0)
    # Thirty samples carry no p99: the worst of them stands there.
    assert shown[2].split() == ["max", *duration(ttft.max or 0).split()]
    assert shown[5] == duration(chat.sides[0].latency["itl"].p99 or 0)
    assert re.fullmatch(r"[\d.]+ +in [\d.]+ s", shown[15])
    assert re.fullmatch(r"[\d.]+ +\d+ % good", shown[16])
    assert shown[18] == "0"


def test_what_was_not_measured_is_a_dash_and_has_nothing_to_sort_by(place: Place) -> None:
    row = run_row(ran(place, "batch", 3, streamed=False))
    assert cells(row)[:6] == [DASH] * 6
    assert row.split("</th>")[1].startswith(f"<td><span>{DASH}</span></td>")


def test_shapes_lie_beside_each_other_newest_first(
    place: Place, chat: Result, tmp_path: Path
) -> None:
    store = ResultStore(tmp_path)
    later = replace(ran(place, "rag", 3), created=chat.created + 60)
    for result in (chat, later, compared(1)):
        store.save(result)
    runs = RunsTable(store)
    assert re.findall(r'data-run="([^"]+)"', runs.html()) == [later.id, chat.id]
    store.delete(later.id)
    assert re.findall(r'data-run="([^"]+)"', runs.html()) == [chat.id]


def test_each_result_is_read_once_and_the_newest_are_shown(
    chat: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_runs, "MAX_ROWS", 2)
    store = ResultStore(tmp_path)
    for number in range(3):
        store.save(replace(chat, id=f"{chat.id}-{number}", created=chat.created + number))
    read: list[str] = []
    load = store.load
    monkeypatch.setattr(store, "load", lambda name: read.append(name) or load(name))
    runs = RunsTable(store)
    assert runs.html().count("data-run=") == runs.html().count("data-run=") == 2
    assert read == [f"{chat.id}-2", f"{chat.id}-1"]


def test_a_damaged_result_is_left_out(chat: Result, tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.save(chat)
    path = store.save(replace(chat, id="damaged"))
    path.write_text(path.read_text().replace('"machine"', '"engine"'))
    assert re.findall(r'data-run="([^"]+)"', RunsTable(store).html()) == [chat.id]


def test_without_runs_the_headers_and_what_to_do_are_shown() -> None:
    empty = table([])
    for metric in ("TTFT", "ITL", "Longest pause", "TPOT", "E2E", "Throughput", "Cost"):
        assert f">{metric}</button>" in empty
    assert empty.count('class="ps-sort"') == 20
    assert WORKLOAD["empty"] in empty
    assert 'colspan="21"' in empty


def test_texts_of_a_result_are_escaped(chat: Result) -> None:
    workload = {**chat.workload, "arrivals": "<script>"}
    row = run_row(replace(chat, id='"><s>', title="<img src=x>", workload=workload))
    for tag in ("<img", "<script", '"><s>'):
        assert tag not in row
