"""Files of what was measured: of everything, a window, a request; and the engine goes on."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from engine.core.records import RequestRecord
from engine.core.request import SamplingParams
from engine.service import EngineService
from engine.telemetry import export
from tests.api.server import listening
from tests.stub_service import ScriptedRunner, started, wait_until
from tests.telemetry.records import record
from ui import export_routes
from ui.export_routes import export_routes as routes_of

MANY = 10_000
FILES = (
    *("requests.csv", "requests.json", "tokens.csv"),
    *("steps.csv", "steps.json", "trace.json"),
)


@pytest.fixture(scope="module")
def service() -> Iterator[EngineService]:
    service = started(ScriptedRunner())
    yield service
    service.close()


@pytest.fixture(scope="module")
def client(service: EngineService) -> TestClient:
    return TestClient(Starlette(routes=routes_of(service)))


def finish(service: EngineService, label: str | None = None) -> int:
    params = SamplingParams(temperature=0.0, max_tokens=5)
    stream = service.submit_text("my password is hunter2", params, label=label)
    for _ in stream:
        pass
    wait_until(lambda: service.store.find(stream.number).complete)  # type: ignore[union-attr]
    return stream.number


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def strict(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_tokens_and_steps_are_exported_and_nobodys_text(
    service: EngineService, client: TestClient
) -> None:
    number = finish(service, label="=1+1")
    record = service.store.find(number)
    assert record is not None
    tokens = [row for row in rows(client.get("/live/tokens.csv").text) if row["id"] == record.id]
    assert [int(row["index"]) for row in tokens] == list(range(5))
    assert [float(row["delivered"]) for row in tokens] == list(record.token_delivered)
    assert {row["label"] for row in tokens} == {"'=1+1"}
    assert tokens[0]["itl"] == ""
    steps = rows(client.get("/live/steps.csv").text)
    assert [int(row["number"]) for row in steps] == [s.number for s in service.store.steps_since(0)]
    detailed = strict(client.get("/live/steps.json").text)
    assert sum(row["request"] == record.id for step in detailed for row in step["rows"]) == 5
    for name in FILES:
        answer = client.get(f"/live/{name}")
        assert answer.headers["content-disposition"] == f'attachment; filename="phasescope-{name}"'
        assert "hunter2" not in answer.text


def test_the_tokens_of_one_request(service: EngineService, client: TestClient) -> None:
    number = finish(service)
    finish(service)
    table = rows(client.get(f"/live/request/R{number}.csv").text)
    assert [row["id"] for row in table] == [f"R{number}"] * 5
    assert client.get("/live/request/R99999.csv").status_code == 404


def test_a_window_holds_what_was_there_in_it(service: EngineService, client: TestClient) -> None:
    first, second, third = (finish(service) for _ in range(3))
    middle = service.store.find(second)
    assert middle is not None
    assert middle.last_token_delivered is not None
    window = {"from": middle.submitted, "to": middle.last_token_delivered}

    def found(name: str) -> str:
        return client.get(f"/live/{name}", params=window).text

    assert [request["id"] for request in strict(found("requests.json"))] == [f"R{second}"]
    assert {row["id"] for row in rows(found("requests.csv"))} == {f"R{second}"}
    assert {row["id"] for row in rows(found("tokens.csv"))} == {f"R{second}"}
    assert [len(rows(found("steps.csv"))), len(strict(found("steps.json")))] == [5, 5]
    events = strict(found("trace.json"))["traceEvents"]
    assert {event["tid"] for event in events if event["pid"] == 1} == {0, second}
    assert sum(event["name"].startswith("step ") for event in events) == 5
    ids = [r["id"] for r in client.get("/live/requests.json", params={"last": 60}).json()]
    assert ids[-3:] == [f"R{number}" for number in (first, second, third)]
    nothing = client.get("/live/requests.json", params={"from": service.clock.now() + 1})
    assert nothing.json() == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("last=soon", "last must be a number of seconds"),
        ("from=nan", "from must be a number of seconds"),
        ("to=inf", "to must be a number of seconds"),
        ("last=-1", "last must be seconds from 0 on"),
        ("last=5&from=1", "goes without from and to"),
        ("from=2&to=1", "from must not be later than to"),
    ],
)
def test_what_is_no_window_is_refused(client: TestClient, query: str, words: str) -> None:
    for name in FILES:
        answer = client.get(f"/live/{name}?{query}")
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineService]:
    """A service that has kept ten thousand requests, and is at work on another."""
    service = started(ScriptedRunner(seconds=0.002))
    one = record(1, tokens=[1.0 + 0.01 * i for i in range(50)])
    kept = [dataclasses.replace(one, number=1000 + number) for number in range(MANY)]
    monkeypatch.setattr(service.store, "records", lambda: list(kept))
    stream = service.submit([65], SamplingParams(max_tokens=2000, ignore_eos=True))
    yield service
    stream.close()
    service.close()


def test_ten_thousand_requests_leave_while_the_engine_goes_on(crowded: EngineService) -> None:
    with listening(Starlette(routes=routes_of(crowded))) as url:
        before = crowded.engine.num_steps  # type: ignore[union-attr]
        begin = crowded.clock.now()
        with httpx.stream("GET", f"{url}/live/requests.csv", timeout=60) as answer:
            lines = sum(1 for _ in answer.iter_lines())
        seconds = crowded.clock.now() - begin
    assert lines == 1 + MANY
    steps = crowded.store.steps_since(before)
    assert crowded.store.live()
    # A step takes 2 ms alone.
    assert len(steps) > seconds / 0.05
    assert max(after.start - step.start for step, after in pairwise(steps)) < 0.5


def test_a_reader_that_stops_reading_has_no_more_written_for_it(
    crowded: EngineService, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0

    def counted(records: list[RequestRecord]) -> Iterator[str]:
        nonlocal written
        for piece in export.json_pieces(records):
            written += 1
            yield piece

    monkeypatch.setattr(export_routes, "json_pieces", counted)
    with listening(Starlette(routes=routes_of(crowded))) as url:
        address = httpx.URL(url)
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            raw.connect((address.host, address.port))
            raw.sendall(b"GET /live/requests.json HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: written > 0)
            earlier = -1
            while written > earlier:
                earlier = written
                time.sleep(0.5)
        assert 0 < written < MANY / 2
