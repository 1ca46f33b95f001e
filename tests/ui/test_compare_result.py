"""A result as the browser draws it, and as files: frames, bounds and routes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from engine.lab.experiment import Experiment, perform
from engine.lab.result_store import ResultStore
from engine.lab.results import Result
from engine.lab.workload import Part, WorkloadSpec, build
from engine.lab.workload_arrivals import Poisson
from engine.lab.workload_lengths import Uniform
from tests.ui.comparisons import compared, simulated
from ui import compare_view
from ui.compare_places import Place
from ui.compare_routes import result_routes


@pytest.fixture(scope="module")
def simulation() -> Place:
    return simulated()


@pytest.fixture(scope="module")
def result() -> Result:
    return compared(6)


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


def test_both_sides_are_one_perfetto_trace(client: TestClient, result: Result) -> None:
    answer = client.get(f"/live/result/{result.id}/trace.json")
    assert "attachment" in answer.headers["content-disposition"]
    trace = answer.json()
    assert trace["otherData"]["configurations"]["A"]["policy"] == "prefill-first"
    names = {
        e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"
    }
    assert sorted(names.values()) == [
        f"{side}: {kind}" for side in "AB" for kind in ("Engine", "Prefill chunks", "Requests")
    ]
    requests = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["name"] == "R1"]
    assert {names[event["pid"]] for event in requests} == {"A: Requests", "B: Requests"}
    assert {event["ts"] for event in requests} == {0.0}


@pytest.mark.parametrize("name", ["20200101-000000-abcdef", "..%2F..%2Fetc%2Fpasswd", "A_B"])
@pytest.mark.parametrize("kind", [".json", "/full.json", "/runs.csv", "/sends.csv", "/trace.json"])
def test_a_result_that_is_not_there_is_a_sentence(client: TestClient, name: str, kind: str) -> None:
    answer = client.get(f"/live/result/{name}{kind}")
    assert answer.status_code == 404


def test_a_missing_result_says_why(client: TestClient) -> None:
    message = client.get("/live/result/20200101-000000-abcdef.json").json()["error"]["message"]
    assert "deleted" in message
