"""Fixtures for tests that drive Chromium with Playwright.

``page`` is an empty page that fails its test on a console error or a request that leaves this
machine. Without Chromium the tests are skipped with the reason, except where ``CI=true``: there
they fail.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from tests.browser.chat_page import opened
from tests.browser.chat_server import ChatServer, serve_chat
from tests.stub_service import wait_until

expect.set_options(timeout=15_000)  # a busy machine is slow, not wrong

SCREEN: ViewportSize = {"width": 1440, "height": 900}
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Pages of the browser's own, loaded for each window: a fifth of what opening a page costs.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
]


def find_chromium() -> str | None:
    """Path of Chromium: ``CHROMIUM`` in the environment, else the first on the path."""
    named = os.environ.get("CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


# Playwright keeps an event loop running in this thread, which tests elsewhere could not bear: it
# ends with this package.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        reason = "Chromium is not installed; set CHROMIUM to its path or install Debian's package"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def tolerated() -> list[str]:
    """Patterns of console errors a test causes on purpose; append to it."""
    return []


class Tab:
    """The tab that a file's tests share: opening one costs as much as loading the page in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.strays: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on(
            "console",
            lambda line: self.errors.append(line.text) if line.type == "error" else None,
        )
        page.on(
            "request",
            lambda request: self.strays.append(request.url) if _leaves(request.url) else None,
        )

    def leave(self) -> None:
        """Be as if it was opened anew: nothing loaded, stored, routed, emulated or pointed at."""
        self.page.unroute_all(behavior="ignoreErrors")
        if self.page.url.startswith("http"):
            self.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        self.page.goto("about:blank")
        self.page.context.clear_cookies()
        self.page.emulate_media(
            color_scheme="light", forced_colors="none", reduced_motion="no-preference"
        )
        self.page.set_viewport_size(SCREEN)
        self.page.mouse.move(0, 0)


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Tab]:
    context = browser.new_context(viewport=SCREEN)
    yield Tab(context.new_page())
    context.close()


@pytest.fixture
def page(tab: Tab, tolerated: list[str]) -> Iterator[Page]:
    tab.errors.clear()
    tab.strays.clear()
    yield tab.page
    errors, strays = [*tab.errors], [*tab.strays]
    tab.leave()  # what it aborts is reported too, and is nobody's fault
    unexpected = [e for e in errors if not any(re.search(known, e) for known in tolerated)]
    assert not unexpected, unexpected
    assert not strays, strays


def _leaves(url: str) -> bool:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme not in ("data", "blob") and parts.hostname not in ("127.0.0.1", "localhost")


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class FakeServer:
    """The page over the fake feed, and the switches that drive it."""

    url: str

    def control(self, **switches: str | float) -> str:
        query = urllib.parse.urlencode(switches)
        with urllib.request.urlopen(f"{self.url}live/test?{query}", timeout=10) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="package")
def fake_server(browser: Browser) -> Iterator[FakeServer]:
    from tests.browser.fake_app import FakeFeed, serve

    port = free_port()
    demo = serve(FakeFeed("empty"), port)
    yield FakeServer(f"http://127.0.0.1:{port}/")
    demo.close(verbose=False)


@pytest.fixture
def fake(fake_server: FakeServer) -> Iterator[FakeServer]:
    yield fake_server
    fake_server.control(scenario="empty")


@pytest.fixture(scope="package")
def served_chat(browser: Browser) -> Iterator[ChatServer]:
    with serve_chat(free_port()) as server:
        yield server


@pytest.fixture
def server(served_chat: ChatServer) -> Iterator[ChatServer]:
    """The page over a real service whose model repeats what it is told, at its usual pace."""
    served_chat.runner.pace = 0.01
    yield served_chat
    served_chat.runner.pace = 0.0
    wait_until(lambda: not served_chat.service.store.live(), timeout=20)


@pytest.fixture
def chat(page: Page, server: ChatServer) -> Page:
    """The chat card, ready for a message."""
    return opened(page, server)


@pytest.fixture
def show(page: Page, fake: FakeServer) -> Callable[..., Page]:
    """``show("chat", query="window=all")`` opens a scenario and waits for its first picture."""

    def open_scenario(scenario: str, *, query: str = "__theme=light") -> Page:
        fake.control(scenario=scenario)
        page.goto(f"{fake.url}?{query}")
        page.wait_for_function("window.phasescope?.trace.version > 0")
        page.wait_for_function("document.querySelector('[data-band=growth] canvas')?.width > 300")
        return page

    return open_scenario


@pytest.fixture(scope="package")
def module(browser: Browser, fake_server: FakeServer) -> Iterator[Callable[[str, str], Any]]:
    """``module("formats.js", "m.duration(1340)")``: a value computed with a module of the page.

    The modules are imported into an empty document, which shows that they need no page. The
    expression may use ``load("trace.js")`` for another one.
    """
    blank = browser.new_page()
    blank.goto(f"{fake_server.url}blank")

    def evaluate(name: str, expression: str) -> Any:
        return blank.evaluate(
            "(async () => { const load = (name) =>"
            " import(new URL(`live/assets/${name}`, document.baseURI));"
            f" const m = await load('{name}'); return ({expression}); }})()"
        )

    yield evaluate
    blank.close()
