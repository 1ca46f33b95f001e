"""Sixty-four streams over the API while four visitors have the page open."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, expect

from engine.contracts import Build
from engine.core.errors import PhaseScopeError
from engine.model.text import Tokenizer
from tests.browser.api_load import Answer, Figures, all_streams, halves, run_served
from tests.browser.chat_server import ChatServer, serve_chat
from tests.browser.conftest import free_port
from tests.model.tiny_tokenizers import byte_level
from tests.stub_service import wait_until

STREAMS = 64
TOKENS = 40


def with_tokenizer(build: Build) -> Build:
    """The same engine with a tokenizer that the API can use: a token for each byte."""
    return lambda report: replace(build(report), tokenizer=Tokenizer(byte_level()))


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    port = free_port()
    with serve_chat(port, pace=0.03, wrap=with_tokenizer, max_running=STREAMS) as running:
        wait_until(lambda: running.service.health()[0])
        yield running


def test_visitors_have_cores_of_their_own() -> None:
    def alone(processor: int) -> tuple[int, ...]:
        return (processor,)

    def in_twos(processor: int) -> tuple[int, ...]:
        return (processor % 2, processor % 2 + 2)

    assert halves((0, 1), alone) == ({0}, {1})
    assert halves((2, 3, 4), alone) == ({2}, {3, 4})
    assert halves((0, 1, 2, 3), in_twos) == ({0, 2}, {1, 3})
    assert halves((0, 1, 3), in_twos) == ({0}, {1, 3})
    for cores, siblings in (((5,), alone), ((0, 2), in_twos)):
        with pytest.raises(PhaseScopeError, match="two cores are needed"):
            halves(cores, siblings)
    assert Figures(alone=[100.0, 110.0, 90.0], served=[45.0, 50.0, 92.0]).ratio == 0.5


def test_pages_stay_live_and_no_stream_fails(browser: Browser, server: ChatServer) -> None:
    context = browser.new_context()
    watching = context.new_page()
    watching.goto(server.url)
    prompts = [f"say {number} " for number in range(STREAMS)]
    figures = Figures()
    with ThreadPoolExecutor(2) as clients:
        others = [context.new_page() for _ in range(3)]
        running = clients.submit(all_streams, server.url, prompts[:8], 4 * TOKENS)
        expect(watching.locator(".ps-header [data-role=state]")).to_have_text("Live")
        answers = run_served(server.url, others, clients, prompts[8:], TOKENS, figures)
        # What the page was told while all of them ran is what the engine did.
        watching.wait_for_function(f"window.phasescope.trace.requests.size >= {STREAMS}")
        assert running.result() == [Answer(4 * TOKENS, "")] * 8
    assert answers == [Answer(TOKENS, "")] * (STREAMS - 8)
    assert figures.errors == []
    assert max(figures.silences) < 10.0
    context.close()
