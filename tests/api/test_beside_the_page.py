"""The API on the page's own server: one port, nothing held back on the way, nobody's text shown."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.api.app import api_routes, create_api
from engine.api.metrics import EngineMetrics
from engine.contracts import ServiceStatus
from engine.core.plan import StepPlan
from tests.api.server import ApiRunner, Server, served
from tests.stub_service import wait_until
from ui.feed import Feed

SECRET = "the password is hunter2"


@pytest.fixture(scope="module")
def page() -> Iterator[Server]:
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    import gradio as gr

    with served(ApiRunner(seconds=0.05)) as alone:
        metrics = EngineMetrics(alone.service)
        with gr.Blocks() as demo:
            gr.Markdown("the page")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        demo.launch(
            server_name="127.0.0.1",
            server_port=port,
            prevent_thread_lock=True,
            quiet=True,
            ssr_mode=False,
            app_kwargs={"routes": api_routes(create_api(alone.service, metrics))},
        )
        server = Server(f"http://127.0.0.1:{port}", alone.service, metrics)
        yield server
        server.http.close()
        demo.close()


def test_everything_answers_on_one_port(page: Server) -> None:
    for path in ("/", "/v1/models", "/metrics", "/v1/openapi.json"):
        assert page.http.get(path).status_code == 200
    assert page.http.post("/tokenize", json={"prompt": "a"}).json()["tokens"] == [97]
    # The page's own way of answering is not ours, nor ours the page's.
    assert "error" in page.http.get("/v1/nothing").json()


@pytest.mark.parametrize("encoding", ["identity", "br", "gzip, br"])
def test_tokens_are_not_held_back_by_the_page(page: Server, encoding: str) -> None:
    times = []
    body = {"prompt": "hi", "max_tokens": 5, "stream": True}
    headers = {"Accept-Encoding": encoding}
    with page.http.stream("POST", "/v1/completions", json=body, headers=headers) as reply:
        assert "content-encoding" not in reply.headers
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                times.append(time.monotonic())
    assert len(times) == 5
    assert times[-1] - times[0] > 0.15


def test_scripts_of_other_pages_are_refused_behind_the_page_too(page: Server) -> None:
    body = {"prompt": "a", "max_tokens": 1}
    for host in ("127.0.0.1", "public.example"):
        headers = {"Origin": "https://elsewhere.example", "Host": host}
        reply = page.http.post("/v1/completions", json=body, headers=headers)
        assert reply.status_code == 403


def test_a_client_that_goes_is_noticed_behind_the_page_too(page: Server) -> None:
    body = {"prompt": "hi", "max_tokens": 1000, "stream": True}
    with page.http.stream("POST", "/v1/completions", json=body) as reply:
        next(reply.iter_lines())
    page.idle()
    with pytest.raises(httpx.ReadTimeout):
        page.http.post("/v1/completions", json={**body, "stream": False}, timeout=0.3)
    page.idle()


def test_requests_are_lanes_of_the_feed_and_their_text_is_not(server: Server) -> None:
    feed = Feed(server.service)
    reply = server.complete(prompt=SECRET, max_tokens=5, return_timings=True)
    (entry,) = reply.json()["timings"]
    server.chat(messages=[{"role": "user", "content": SECRET}], max_tokens=5, stream=True)
    server.complete(prompt=SECRET * 1000)
    server.idle()
    body = feed.answer(-1, "", compress=False)
    assert body is not None
    lanes = [lane for frame in json.loads(body)["frames"] for lane in frame["reqs"]]
    assert entry["request"] in [lane["id"] for lane in lanes]
    assert [lane["fin"] for lane in lanes][-3:] == ["length", "length", "error"]
    assert b"hunter2" not in body
    assert b"words" not in body
    assert "hunter2" not in server.http.get("/metrics").text


def test_an_engine_that_is_stuck_answers_everybody() -> None:
    stuck: dict[str, Any] = {"seconds": 3.0}

    def hang(plan: StepPlan) -> None:
        time.sleep(stuck["seconds"])

    with served(ApiRunner(before=hang), stuck_after=0.5) as server:
        started = time.monotonic()
        reply = server.complete(max_tokens=1)
        assert reply.status_code == 500
        assert "has run for more than 0.5 s" in reply.json()["error"]["message"]
        assert time.monotonic() - started < 2.5
        assert server.service.state.status is ServiceStatus.STUCK
        assert server.complete().status_code == 503
        stuck["seconds"] = 0.0
        server.service.start()
        wait_until(lambda: server.service.state.status is ServiceStatus.READY)
        assert server.complete(max_tokens=1).status_code == 200
