"""The Workload tab without a browser: its form, imported files, and what it says of a run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from engine.core.errors import InvalidRequest
from engine.lab.experiment import perform
from engine.lab.importing import Trace
from engine.lab.measures import Limits
from engine.lab.results import Result
from engine.lab.workload_arrivals import ClosedLoop, Constant, Gamma
from engine.lab.workload_lengths import Empirical, Fixed, LogNormal, Normal, Uniform
from engine.lab.workload_shapes import SHAPES
from engine.service import EngineService
from tests.stub_lab import lab_service
from ui import compare_view, workload_fields, workload_figures, workload_form
from ui.compare_places import Place, find_place
from ui.words_workload import ARRIVAL_KINDS
from ui.workload_cards import shape_cards, trace_card, traffic_card
from ui.workload_form import (
    TRACE,
    ArrivalFields,
    LengthFields,
    Traffic,
    load_trace,
    spec_of,
    workload_experiment,
)
from ui.workload_numbers import limits
from ui.workload_report import HEADERS, chart_captions, chart_tables, result_rows, run_report

CHAT = Traffic(shape="chat", requests=6)


@pytest.fixture(scope="module")
def service() -> Iterator[EngineService]:
    service = lab_service()
    yield service
    service.close()


@pytest.fixture(scope="module")
def place(service: EngineService) -> Place:
    return find_place(service, simulated=True)


def ran(traffic: Traffic, place: Place, limits: Limits | None = None, price: float = 0) -> Result:
    assert place.backend is not None
    return perform(workload_experiment(place, traffic, limits, price), place.backend)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_an_unedited_form_is_the_shape(shape: str) -> None:
    spec = SHAPES[shape].spec
    traffic = Traffic(shape=shape, requests=spec.num_requests, streamed=spec.streamed)
    assert spec_of(traffic) == spec
    assert traffic_card(traffic).count("<svg") == 2 * len(spec.parts)


@pytest.mark.parametrize(
    ("fields", "lengths"),
    [
        (LengthFields(kind="fixed", typical=40), Fixed(40)),
        (LengthFields(kind="uniform", low=4, high=9), Uniform(4, 9)),
        (LengthFields(kind="normal", typical=50, spread=9), Normal(50, 9, 16, 400)),
        (LengthFields(kind="log-normal", typical=50, spread=0.5), LogNormal(50, 0.5, 16, 400)),
        (LengthFields(kind="empirical", seen="40, 12\n12;7"), Empirical((7, 12, 12, 40))),
    ],
)
def test_lengths_can_be_edited(fields: LengthFields, lengths: Any) -> None:
    (part,) = spec_of(replace(CHAT, prompt=fields)).parts
    assert part.prompt == lengths
    assert part.output == SHAPES["chat"].spec.parts[0].output


@pytest.mark.parametrize(
    ("fields", "arrivals"),
    [
        (ArrivalFields(kind="gamma", rate=3, burstiness=0.5), Gamma(3, 0.5)),
        (ArrivalFields(kind="closed loop", users=3, think=2), ClosedLoop(3, 2)),
        (ArrivalFields(kind="all at once"), Constant(math.inf)),
    ],
)
def test_arrivals_can_be_edited(fields: ArrivalFields, arrivals: Any) -> None:
    assert spec_of(replace(CHAT, arrivals=fields)).arrivals == arrivals


def test_a_rate_that_is_not_asked_for_is_not_looked_at() -> None:
    for kind in (ARRIVAL_KINDS[0], "closed loop", "all at once"):
        spec_of(replace(CHAT, arrivals=ArrivalFields(kind=kind, rate=None)))
    for kind in ("Poisson", "gamma", "constant", "burst"):
        with pytest.raises(InvalidRequest, match="Requests a second"):
            spec_of(replace(CHAT, arrivals=ArrivalFields(kind=kind, rate=None)))


def test_bursts_keep_the_rate() -> None:
    burst = ArrivalFields(kind="burst", rate=4, burst=8).arrivals()
    assert burst is not None
    assert burst.describe() == "bursts of 8, one every 2 s"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"requests": 0}, "Requests must be from 1 to 2,000; got 0."),
        ({"shape": "square"}, "'square' is not a shape"),
        ({"prompt": LengthFields(kind="fixed", typical=None)}, "must be a whole number"),
        ({"prompt": LengthFields(kind="bent")}, "'bent' is not a distribution"),
        ({"prompt": LengthFields(kind="empirical")}, "write at least one length"),
        (
            {"prompt": LengthFields(kind="empirical", seen="12, many")},
            "Lengths seen, in tokens must be a whole number; got many.",
        ),
        ({"prompt": LengthFields(kind="empirical", seen="0")}, "must be from 1 to 1,000,000"),
        ({"prompt": LengthFields(kind="uniform", low=9, high=4)}, "9"),
        ({"arrivals": ArrivalFields(kind="Poisson", rate=0)}, "must be above 0"),
        ({"arrivals": ArrivalFields(kind="burst", rate=0)}, "must be above 0; got 0."),
        ({"arrivals": ArrivalFields(kind="late")}, "'late' is not a way to arrive"),
    ],
)
def test_a_wrong_field_is_told_on_the_card_too(wrong: dict[str, Any], says: str) -> None:
    traffic = replace(CHAT, **wrong)
    with pytest.raises(InvalidRequest, match=re.escape(says)):
        spec_of(traffic)
    assert 'data-kind="err"' in traffic_card(traffic)


def test_every_shape_has_a_card_with_its_ranges_and_two_histograms() -> None:
    cards = re.findall(r"<label.*?</label>", shape_cards("group", "rag"))
    assert len(cards) == len(SHAPES) + 1
    (rag,) = (card for card in cards if "checked" in card)
    assert 'value="rag"' in rag
    for fact in ("800 to 1,600", "16 to 64", "60 % shared"):
        assert fact in rag
    for card in cards[:-1]:
        assert card.count("<svg") == 2
        assert card.count('height="24"') >= 2
    mixed = next(card for card in cards if 'value="mixed"' in card)
    assert "24 to 2,000" in mixed
    assert "0 to 30 % shared" in mixed


@pytest.mark.parametrize("ttft", [-5, 2e7, "soon"])
def test_a_wrong_limit_is_named(ttft: Any) -> None:
    with pytest.raises(InvalidRequest, match="TTFT limit, ms must be from 0 to 10,000,000"):
        limits(ttft, 0)


def test_a_run_is_told_with_its_conditions(place: Place) -> None:
    result = ran(CHAT, place, limits(500, 100), price=2)
    rows = {row[0]: row for row in result_rows(result)}
    assert all(len(row) == len(HEADERS) for row in rows.values())
    assert rows["TTFT"][1] == "6"
    assert rows["TTFT"][3] == rows["TTFT"][4] == "\N{EN DASH}"
    assert rows["TTFT"][5].endswith("ms")
    assert rows["Goodput"][2].endswith("req/s")
    assert rows["Within the limits"][2].endswith(" %")
    assert float(rows["Cost of a million output tokens"][2].replace(",", "")) > 0
    assert "token budget 256" in run_report(result)
    assert "first-come queue" in run_report(result)
    assert [side["title"] for side in compare_view.page_data(result)["sides"]] == ["Chat"]


def test_charts_of_a_run_show_what_the_run_was(place: Place) -> None:
    result = ran(CHAT, place, limits(500, 1))
    side = result.sides[0]
    records = side.timeline.requests
    first = workload_figures.first_tokens(records, result.limits)
    assert len(first.data[0].x) == 6
    assert max(first.data[0].y) == pytest.approx(side.latency["ttft"].max, abs=1e-5)
    assert first.layout.annotations[0].text == "limit 500 ms"
    good, late = workload_figures.binned(records, result.limits, side.seconds)
    assert (sum(good), sum(late)) == (0, 6)  # nobody keeps 1 ms for each token
    assert sum(workload_figures.binned(records, limits(0, 0), side.seconds)[0]) == 6
    bars = workload_figures.finished(records, result.limits, side.seconds).data
    assert sum(bars[1].y) * side.seconds / workload_figures.NUM_BINS == pytest.approx(6)
    (line,) = workload_figures.gaps(side.gap_percentiles).data
    assert list(line.y) == list(side.gap_percentiles.values())
    captions, tables = chart_captions(result), chart_tables(result)
    assert "TTFT 500 ms and TPOT 1.0 ms" in captions[2]
    assert [table.count("<tr>") for table in tables] == [1 + 7, 1 + 6, 1 + 20]


def test_what_is_not_streamed_has_no_first_token(place: Place) -> None:
    result = ran(replace(CHAT, streamed=False), place)
    rows = {row[0]: row for row in result_rows(result)}
    assert rows["TTFT"][1:] == ["0", *["\N{EN DASH}"] * 4]
    assert rows["E2E"][1] == "6"
    assert "not streamed" in run_report(result)
    assert "no gap between tokens was seen" in chart_captions(result)[0]
    assert not workload_figures.gaps(result.sides[0].gap_percentiles).layout.annotations


def test_a_trace_that_is_read_late_overwrites_no_shapes_card() -> None:
    with gr.Blocks() as page:
        fields = workload_fields.TrafficFields("form")
        fields.connect()
    written: dict[int, set[str]] = {}
    for event in page.fns.values():
        for output in event.outputs:
            written.setdefault(output._id, set()).add(event.fn.__name__)
    describers = [names for names in written.values() if names & {"_describe", "_describe_trace"}]
    assert sorted(map(sorted, describers)) == [["_describe"], ["_describe_trace"]]


def test_bad_rows_of_a_file_are_listed_by_line(tmp_path: Path, place: Place) -> None:
    rows = [
        {"timestamp": 0, "input_length": 20, "output_length": 4},
        {"timestamp": 100, "input_length": -3, "output_length": 4},
        "not a row",
        {"timestamp": 300, "input_length": 30, "output_length": 5},
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    card = trace_card(load_trace(str(path)))
    assert "2 loaded and 2 rejected" in card
    assert re.search(r"<li>Line 2: .+</li><li>Line 3: .+</li>", card)
    traffic = Traffic(shape=TRACE, file=str(path), requests=100)
    result = ran(traffic, place)
    assert result.workload["prompt_tokens"] == [20, 30]
    assert any("2 rows of the file could not be used" in n for n in result.workload["notes"])


def test_texts_of_a_file_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "<img src=x>.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 20, "output_length": 4}\n"<script>"\n')
    card = trace_card(load_trace(str(path)))
    assert "<img" not in card
    assert "<script" not in card


def test_many_bad_rows_are_counted_and_not_all_listed(tmp_path: Path) -> None:
    good = '{"timestamp": 0, "input_length": 20, "output_length": 4}'
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join([good, *["[]"] * 50]))
    card = trace_card(load_trace(str(path)))
    assert card.count("<li>") == 21
    assert "and 30 more." in card


def test_an_upload_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_form, "MAX_UPLOAD_MEGABYTES", 0.001)
    path = tmp_path / "large.jsonl"
    path.write_bytes(b"x" * 300_000)
    with pytest.raises(InvalidRequest, match=r"The file has 0\.3 MB; at most"):
        load_trace(str(path))


def test_a_file_is_read_only_where_it_or_the_shape_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 20, "output_length": 4}\n')
    read: list[str | None] = []

    def noted(file: str | None) -> Trace:
        read.append(file)
        return load_trace(file)

    monkeypatch.setattr(workload_fields, "load_trace", noted)
    with gr.Blocks() as page:
        fields = workload_fields.TrafficFields("form")
        fields.connect()
    shape, file, *others = fields.inputs
    values = {field._id: getattr(field, "value", None) for field in others}
    values |= {shape._id: TRACE, file._id: str(path)}
    readers = []
    for event in page.fns.values():
        before = len(read)
        event.fn(*(values[field._id] for field in event.inputs))
        if len(read) > before:
            readers.append((event.targets, event.queue, event.concurrency_limit))
    # One at a time, whatever a visitor's clicks ask for.
    assert readers == [([(shape._id, "change"), (file._id, "change")], True, 1)]


def test_without_a_file_one_is_asked_for() -> None:
    with pytest.raises(InvalidRequest, match="Choose a trace file first"):
        load_trace(None)
