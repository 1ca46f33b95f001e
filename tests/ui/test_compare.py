"""The Compare tab without a browser: its form, its desk, and what it says of a result."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from engine.core.errors import EngineStopped, InvalidRequest, PhaseScopeError
from engine.core.request import SamplingParams
from engine.lab.experiment import Experiment, perform
from engine.lab.presets import PRESETS
from engine.lab.results import Result, ResultEntry, ResultStore
from engine.lab.workload import Part, WorkloadSpec, build
from engine.lab.workload_arrivals import Poisson
from engine.lab.workload_lengths import Uniform
from engine.service import EngineService
from tests.stub_lab import lab_service
from tests.stub_service import ScriptedRunner, started, wait_until
from ui import compare_report, compare_view
from ui.compare_desk import Desk, Job
from ui.compare_form import SIDE_FIELDS, Wanted, make_experiment, side_values
from ui.compare_places import SIMULATED_CONFIG, Place, find_place
from ui.compare_routes import result_routes
from ui.words_compare import COMPARE

WANTED = Wanted(preset="long-prompt", num_pairs=1, seed=0)


@pytest.fixture(scope="module")
def idle() -> Iterator[EngineService]:
    """An engine that no test gives anything to do."""
    service = lab_service()
    yield service
    service.close()


@pytest.fixture
def service() -> Iterator[EngineService]:
    service = lab_service(0.002)
    yield service
    service.close()


@pytest.fixture
def desk(service: EngineService, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(service, ResultStore(tmp_path / "results"))
    yield desk
    desk.close()


def filled(place: Place, wanted: Wanted = WANTED, **of_b: Any) -> Experiment:
    a = side_values(wanted.preset, "a", place.config)
    b = side_values(wanted.preset, "b", place.config)
    for name, value in of_b.items():
        b[SIDE_FIELDS.index(name)] = value
    return make_experiment(place, wanted, a, b)


def ended(job: Job) -> Job:
    wait_until(lambda: job.state.ended, timeout=60)
    return job


@pytest.fixture(scope="module")
def simulation(idle: EngineService) -> Place:
    return find_place(idle, simulated=True)


@pytest.fixture(scope="module")
def result(simulation: Place) -> Result:
    """The long prompt, six pairs, simulated, with limits."""
    wanted = replace(WANTED, num_pairs=6, ttft_limit=300, tpot_limit=50)
    assert simulation.backend is not None
    return perform(filled(simulation, wanted), simulation.backend)


@pytest.fixture(scope="module")
def one_pair(simulation: Place) -> Result:
    assert simulation.backend is not None
    return perform(filled(simulation), simulation.backend)


# -- form -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_fills_a_form_that_can_be_run(simulation: Place, preset: str) -> None:
    experiment = filled(simulation, replace(WANTED, preset=preset))
    a, b = experiment.configs
    changed = {name for name in SIDE_FIELDS if getattr(a, name) != getattr(b, name)}
    assert changed == set(PRESETS[preset].a) | set(PRESETS[preset].b)
    assert experiment.workload(0).items


def test_limits_are_milliseconds_and_none_without_a_number(simulation: Place) -> None:
    limits = filled(simulation, replace(WANTED, ttft_limit=250, tpot_limit=0)).limits
    assert (limits.ttft_seconds, limits.tpot_seconds) == (0.25, None)


@pytest.mark.parametrize(
    ("of_b", "says"),
    [
        ({"max_running": None}, "Slots of B must be a whole number; got nothing."),
        ({"max_running": 2.5}, "Slots of B must be a whole number; got 2.5."),
        ({"max_running": float("nan")}, "Slots of B must be a whole number; got nan."),
        ({"max_batched_tokens": 0}, "Token budget of B must be from 1 to 8,192; got 0."),
        ({"max_batched_tokens": 4}, "max_running (8) must not exceed max_batched_tokens (4)."),
        ({"num_blocks": 10**9}, "KV blocks of B must be from 1 to 256; got 1,000,000,000."),
        ({"policy": "lucky"}, "policy must be one of"),
        ({"policy": "prefill-first"}, COMPARE["same_sides"]),
    ],
)
def test_a_wrong_field_is_named_with_its_limit(
    idle: EngineService, of_b: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(says)):
        filled(find_place(idle, simulated=False), **of_b)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"num_pairs": 13}, "Runs of each side must be from 1 to 12; got 13."),
        ({"num_pairs": "many"}, "Runs of each side must be a whole number; got many."),
        ({"seed": -1}, "Seed must be from 0"),
        ({"ttft_limit": -5}, "TTFT limit, ms must be from 0 to 10,000,000; got -5."),
        ({"preset": "magic"}, "'magic' is not an effect"),
    ],
)
def test_a_wrong_number_of_the_experiment_is_named(
    simulation: Place, wrong: dict[str, Any], says: str
) -> None:
    a, b = (side_values("long-prompt", side, simulation.config) for side in "ab")
    with pytest.raises(InvalidRequest, match=re.escape(says)):
        make_experiment(simulation, replace(WANTED, **wrong), a, b)


def test_without_an_engine_there_is_the_simulation() -> None:
    service = EngineService(lambda report: pytest.fail("it is not started"))
    with pytest.raises(EngineStopped):
        find_place(service, simulated=False)
    assert find_place(service, simulated=True).config == SIMULATED_CONFIG


def test_a_tokenizer_that_does_not_tell_its_tokens_is_named() -> None:
    service = started(ScriptedRunner())
    with pytest.raises(InvalidRequest, match="use the simulation"):
        find_place(service, simulated=False)
    service.close()


# -- desk -----------------------------------------------------------------------------------------


def test_an_experiment_on_the_engine_leaves_a_result_that_is_not_simulated(desk: Desk) -> None:
    place = find_place(desk.service, simulated=False)
    before = desk.service.config
    job = ended(desk.start("me", filled(place), place))
    assert job.state.error is None
    result = desk.store.load(job.state.result_id or "")
    assert not result.simulated
    assert [side.config["policy"] for side in result.sides] == ["prefill-first", "chunked"]
    assert all(side.requests["finished"] == 4 for side in result.sides)
    assert desk.service.config == before
    assert desk.service.turn is None


def test_a_simulated_experiment_is_labelled_and_holds_up_no_chat(desk: Desk) -> None:
    place = find_place(desk.service, simulated=True)
    job = desk.start("me", filled(place), place)
    answer = list(desk.service.submit([65] * 8, SamplingParams(max_tokens=3, ignore_eos=True)))
    assert answer
    result = desk.store.load(ended(job).state.result_id or "")
    assert result.simulated
    assert desk.store.list()[0].simulated


def test_experiments_of_several_visitors_run_one_after_another(desk: Desk) -> None:
    place = find_place(desk.service, simulated=False)
    jobs = [desk.start(f"visitor {i}", filled(place), place) for i in range(3)]
    wait_until(lambda: sorted(job.state.position for job in jobs) == [0, 1, 2])
    for job in jobs:
        ended(job)
    assert [job.state.error for job in jobs] == [None] * 3
    assert len(desk.store.list()) == 3


def test_a_visitor_has_one_experiment_at_a_time(desk: Desk) -> None:
    place = find_place(desk.service, simulated=False)
    first = desk.start("me", filled(place), place)
    with pytest.raises(PhaseScopeError, match="still running"):
        desk.start("me", filled(place), place)
    desk.stop("me")
    ended(first)
    assert desk.start("me", filled(place), place) is not first


def test_stop_gives_the_engine_back_and_says_that_nothing_came_of_it(desk: Desk) -> None:
    place = find_place(desk.service, simulated=False)
    job = desk.start("me", filled(place, replace(WANTED, num_pairs=12)), place)
    wait_until(lambda: desk.service.turn is not None and job.state.progress is not None)
    desk.stop("somebody else")
    assert not job.stopping
    desk.stop("me")
    ended(job)
    wait_until(lambda: desk.service.turn is None)
    assert "stopped" in (job.state.error or "")
    assert len(desk.service.turns) == 0
    assert desk.store.list() == []


def test_one_that_waits_can_be_given_up(desk: Desk) -> None:
    real, simulated = (find_place(desk.service, simulated=value) for value in (False, True))
    first = desk.start("first", filled(real), real)
    wait_until(lambda: len(desk.service.turns) == 1)
    waiting = desk.start("second", filled(simulated), simulated)
    wait_until(lambda: waiting.state.position == 1)
    desk.stop("second")
    assert "given up" in (ended(waiting).state.error or "")
    assert ended(first).state.result_id


def test_a_result_that_cannot_be_written_is_said_so(service: EngineService, tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    desk = Desk(service, ResultStore(blocked))
    place = find_place(service, simulated=True)
    error = ended(desk.start("me", filled(place), place)).state.error or ""
    assert "could not be written" in error
    assert "a file" in error


def test_an_unexpected_failure_reaches_the_one_who_waits(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(pair: int) -> Any:
        raise RuntimeError("no traffic today")

    place = find_place(desk.service, simulated=True)
    job = desk.start("me", replace(filled(place), workload=broken), place)
    assert ended(job).state.error == "The experiment failed: no traffic today"
    assert "an experiment failed" in caplog.text
    assert len(desk.service.turns) == 0


# -- what the browser draws -----------------------------------------------------------------------


def test_both_sides_have_the_same_lanes_numbered_from_one(result: Result) -> None:
    a, b = compare_view.page_data(result)["sides"]
    lanes = [[(r["n"], r["id"], r["prompt"]) for r in s["frame"]["reqs"]] for s in (a, b)]
    assert lanes[0] == lanes[1]
    assert [n for n, _, _ in lanes[0]] == [1, 2, 3, 4]
    assert (a["title"], b["title"]) == ("Prefill first", "Chunked prefill")
    assert b["frame"]["config"]["budget"] == 256


def test_times_of_a_side_end_with_its_frame(result: Result) -> None:
    for side in compare_view.page_data(result)["sides"]:
        frame = side["frame"]
        assert max(r["end"] for r in frame["reqs"]) <= frame["now"]
        assert max(step[1] + step[2] for step in frame["steps"]) <= frame["now"]
        assert sum(step[4] for step in frame["steps"]) == 64 * 3 + 16 - 4


def crowd(simulation: Place, requests: int, *, streamed: bool = True) -> Result:
    part = Part(prompt=Uniform(4, 40), output=Uniform(20, 120))
    spec = WorkloadSpec(
        name="crowd",
        parts=(part,),
        num_requests=requests,
        arrivals=Poisson(40.0),
        streamed=streamed,
    )
    config = replace(simulation.config, max_running=64, max_waiting=2_000, num_blocks=2_000)
    experiment = Experiment(
        title="crowd",
        configs=(config, replace(config, max_running=32)),
        workload=lambda pair: build(spec, simulation.source),
    )
    assert simulation.backend is not None
    return perform(experiment, simulation.backend)


def test_five_hundred_requests_are_drawn_in_less_than_two_megabytes(simulation: Place) -> None:
    result = crowd(simulation, 500)
    body = compare_view.page_bytes(result)
    data = json.loads(body)
    assert len(body) < 2_000_000
    assert len(data["sides"][0]["frame"]["reqs"]) == 500
    assert data["caption"] == "run 1 of 1, simulated"


def test_what_is_left_out_is_said(
    simulation: Place, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_view, "MAX_REQUESTS", 3)
    monkeypatch.setattr(compare_view, "MAX_STEPS", 50)
    data = compare_view.page_data(result)
    assert [len(side["frame"]["reqs"]) for side in data["sides"]] == [3, 3]
    assert [len(side["frame"]["steps"]) for side in data["sides"]] == [50, 50]
    assert "the first 3 of 4 requests are drawn" in data["caption"]
    assert "the first 50 of" in data["caption"]


def test_many_tokens_leave_out_whole_requests(
    result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_view, "MAX_TOKENS", 130)
    frames = [side["frame"] for side in compare_view.page_data(result)["sides"]]
    assert [[r["out"] for r in frame["reqs"]] for frame in frames] == [[64, 64]] * 2


def test_answers_that_were_not_streamed_show_when_their_tokens_were_sampled(
    simulation: Place,
) -> None:
    result = crowd(simulation, 3, streamed=False)
    for entry in compare_view.page_data(result)["sides"][0]["frame"]["reqs"]:
        assert 1 + len(entry["tok"][2]) == entry["out"]


# -- words and tables -----------------------------------------------------------------------------


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
    entry = ResultEntry(id='"><s>', title="<i>", created=0.0, simulated=False, verdict="<u>")
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


# -- routes ---------------------------------------------------------------------------------------


@pytest.fixture
def client(result: Result, tmp_path: Path) -> TestClient:
    store = ResultStore(tmp_path)
    store.save(result)
    return TestClient(Starlette(routes=result_routes(store)))


def test_a_result_is_given_to_the_page_compressed(client: TestClient, result: Result) -> None:
    for encoding in ("br", "identity"):
        answer = client.get(f"/live/result/{result.id}.json", headers={"accept-encoding": encoding})
        assert answer.headers.get("content-encoding", "identity") == encoding
    assert answer.json() == compare_view.page_data(result)


def test_exports_are_files_with_the_settings(client: TestClient, result: Result) -> None:
    runs = client.get(f"/live/result/{result.id}/runs.csv")
    assert "attachment" in runs.headers["content-disposition"]
    assert "policy" in runs.text.splitlines()[0]
    assert len(runs.text.splitlines()) == 1 + 12
    full = client.get(f"/live/result/{result.id}/full.json")
    assert Result.from_json(full.text) == result
    sends = client.get(f"/live/result/{result.id}/sends.csv")
    assert len(sends.text.splitlines()) == 1 + 12 * 4


@pytest.mark.parametrize("name", ["20200101-000000-abcdef", "..%2F..%2Fetc%2Fpasswd", "A_B"])
@pytest.mark.parametrize("kind", [".json", "/full.json", "/runs.csv", "/sends.csv"])
def test_a_result_that_is_not_there_is_a_sentence(client: TestClient, name: str, kind: str) -> None:
    answer = client.get(f"/live/result/{name}{kind}")
    assert answer.status_code == 404


def test_a_missing_result_says_why(client: TestClient) -> None:
    message = client.get("/live/result/20200101-000000-abcdef.json").json()["error"]["message"]
    assert "deleted" in message


def test_no_thread_is_left_behind(desk: Desk) -> None:
    place = find_place(desk.service, simulated=True)
    ended(desk.start("me", filled(place), place))
    wait_until(lambda: not any(t.name == "experiment" for t in threading.enumerate()))
