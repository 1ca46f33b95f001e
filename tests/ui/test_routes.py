"""The routes beside Gradio's: right answers, right status codes, and nobody's text."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from engine.contracts import ServiceStatus
from engine.core.plan import StepPlan
from engine.core.request import SamplingParams
from engine.mailbox import RequestFailed
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started, wait_until
from ui.feed import Feed
from ui.routes import routes


def client_of(service: EngineService) -> TestClient:
    return TestClient(Starlette(routes=routes(service, Feed(service))))


@pytest.fixture
def service() -> Iterator[EngineService]:
    service = started(ScriptedRunner())
    yield service
    service.close()


@pytest.fixture
def client(service: EngineService) -> TestClient:
    return client_of(service)


def finish(service: EngineService, text: str = "my password is hunter2") -> int:
    stream = service.submit_text(text, SamplingParams(temperature=0.0, max_tokens=5))
    for _ in stream:
        pass
    wait_until(lambda: service.store.find(stream.number).complete)  # type: ignore[union-attr]
    return stream.number


def test_the_feed_gives_history_then_news_then_nothing(
    service: EngineService, client: TestClient
) -> None:
    finish(service)
    first = client.get("/live/feed", headers={"Accept-Encoding": "identity"})
    assert first.status_code == 200
    assert first.headers["cache-control"] == "no-store"
    body = first.json()
    assert body["frames"][0]["reset"] is True
    again = client.get("/live/feed", params={"since": body["cursor"], "epoch": body["epoch"]})
    assert again.status_code == 204
    assert again.content == b""


def test_the_history_is_compressed_for_those_who_accept_it(
    service: EngineService, client: TestClient
) -> None:
    finish(service)
    packed = client.get("/live/feed", headers={"Accept-Encoding": "gzip, br;q=0.9"})
    assert packed.headers["content-encoding"] == "br"
    assert packed.json()["frames"][0]["reqs"][0]["out"] == 5


def test_a_cursor_that_is_no_number_is_refused(client: TestClient) -> None:
    answer = client.get("/live/feed?since=new")
    assert answer.status_code == 400
    assert "whole number" in answer.json()["error"]["message"]


def test_one_request_is_told_without_its_text(service: EngineService, client: TestClient) -> None:
    number = finish(service)
    answer = client.get(f"/live/request/R{number}.json")
    assert answer.status_code == 200
    detail = json.loads(answer.content, parse_constant=lambda name: pytest.fail(name))
    assert detail["id"] == f"R{number}"
    assert detail["num_output_tokens"] == 5
    assert sum(detail["ttft_parts"].values()) == pytest.approx(detail["ttft_seconds"])
    assert "hunter2" not in answer.text


def test_all_kept_requests_are_exported_without_their_text(
    service: EngineService, client: TestClient
) -> None:
    numbers = [finish(service) for _ in range(3)]
    answer = client.get("/live/requests.json")
    assert "attachment" in answer.headers["content-disposition"]
    assert [request["id"] for request in answer.json()] == [f"R{number}" for number in numbers]
    table = client.get("/live/requests.csv")
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert [row["num_output_tokens"] for row in rows] == ["5"] * 3
    assert all(float(row["ttft"]) > 0 for row in rows)
    assert "hunter2" not in answer.text + table.text


def test_traces_of_one_request_and_of_all(service: EngineService, client: TestClient) -> None:
    numbers = [finish(service) for _ in range(2)]
    everything = client.get("/live/trace.json").json()
    tracks = {event["tid"] for event in everything["traceEvents"] if event["pid"] == 1}
    assert tracks == {0, *numbers}
    assert everything["otherData"]["model"] == "stub"
    one = client.get(f"/live/request/R{numbers[0]}.trace")
    assert "attachment" in one.headers["content-disposition"]
    steps = [e for e in one.json()["traceEvents"] if e["name"].startswith("step ")]
    assert len(steps) == 5
    assert client.get("/live/request/R99.trace").status_code == 404


@pytest.mark.parametrize("name", ["R999", "Rx", "R1e3", "R99999999999999999999", "R-1"])
def test_an_unknown_request_is_not_found(client: TestClient, name: str) -> None:
    assert client.get(f"/live/request/{name}.json").status_code == 404


def test_health_says_whether_requests_are_served() -> None:
    def fail(plan: StepPlan) -> None:
        raise RuntimeError("the device is on fire")

    service = started(ScriptedRunner(before=fail))
    client = client_of(service)
    assert client.get("/health").status_code == 200
    stream = service.submit([65], SamplingParams(max_tokens=3))
    with pytest.raises(RequestFailed):
        list(stream)
    unwell = client.get("/health")
    assert unwell.status_code == 503
    assert "on fire" in unwell.json()["reason"]
    service.close()


def test_a_stuck_step_is_seen_by_health() -> None:
    release = threading.Event()
    service = started(ScriptedRunner(before=lambda plan: bool(release.wait(30))), stuck_after=0.3)
    client = client_of(service)
    stream = service.submit([65], SamplingParams(max_tokens=3))
    with pytest.raises(RequestFailed):
        list(stream)
    assert client.get("/health").status_code == 503
    assert client.get("/health").json()["status"] == "stuck"
    release.set()
    service.close()


def test_restart_only_where_there_is_something_to_restart(client: TestClient) -> None:
    assert client.post("/live/restart").status_code == 409
    assert client.get("/live/restart").status_code == 405


def test_restart_brings_a_stopped_engine_back() -> None:
    failing = threading.Event()
    failing.set()

    def fail(plan: StepPlan) -> None:
        if failing.is_set():
            raise RuntimeError("no")

    service = started(ScriptedRunner(before=fail))
    client = client_of(service)
    stream = service.submit([65], SamplingParams(max_tokens=3))
    with pytest.raises(RequestFailed):
        list(stream)
    wait_until(lambda: service.state.status is ServiceStatus.STOPPED)
    failing.clear()
    assert client.post("/live/restart").status_code == 202
    wait_until(lambda: client.get("/health").status_code == 200)
    assert finish(service)
    service.close()


def test_plotly_comes_from_here_compressed_and_once(client: TestClient) -> None:
    packed = client.get("/live/plotly.js", headers={"Accept-Encoding": "br"})
    assert packed.headers["content-encoding"] == "br"
    assert "plotly" in packed.text[:2000].lower()
    tag = packed.headers["etag"]
    assert client.get("/live/plotly.js", headers={"If-None-Match": tag}).status_code == 304


def test_scripts_are_served_and_nothing_outside_their_folder(client: TestClient) -> None:
    script = client.get("/live/assets/main.js")
    assert script.status_code == 200
    assert "javascript" in script.headers["content-type"]
    assert script.headers["cache-control"] == "no-cache"
    for path in ("../tokens.css", "%2e%2e/tokens.css", "..%2f..%2fapp.py"):
        assert client.get(f"/live/assets/{path}").status_code == 404
