"""States of the engine and of the connection, as far as the browser can know them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.chat_server import ChatServer

Show = Callable[..., Page]
LABEL = ".ps-timeline [data-role=label]"


TROUBLES = (
    ("loading", "Loading", None),
    ("measuring", "Measuring machine", None),
    ("recovering", "Recovering", None),
    ("failed", "Failed", "Retry"),
    ("stopped", "Stopped", "Restart engine"),
    ("stuck", "Stuck", "Restart engine"),
)


def test_each_trouble_has_a_word_a_sentence_and_its_action(show: Show, fake: Any) -> None:
    page = show("chat")
    for state, word, action in TROUBLES:
        fake.control(state=state, text=f"Sentence for {state}.")
        expect(page.get_by_role("status").filter(has_text=word).first).to_be_visible()
        expect(page.locator(".ps-header [data-role=state]")).to_contain_text(word)
        expect(page.locator(".ps-notice [data-role=text]")).to_have_text(f"Sentence for {state}.")
        button = page.locator(".ps-notice button")
        if action is None:
            expect(button).to_be_hidden()
        else:
            expect(button).to_have_text(action)
        if state == "stopped":  # what was measured stays, and says until when
            expect(page.locator(LABEL)).to_contain_text(re.compile(r"stopped at \d+:\d\d$"))
            assert page.evaluate("phasescope.trace.steps.length") > 0
    fake.control(state="live")
    expect(page.locator("#ps-notice .ps-notice")).to_be_hidden()


def test_ordinary_states_need_no_bar(show: Show, fake: Any) -> None:
    page = show("chat")
    for state, word in (("busy", "Busy"), ("queue_full", "Queue full"), ("kv_full", "KV full")):
        fake.control(state=state)
        expect(page.locator(".ps-header [data-role=state]")).to_have_text(word)
        expect(page.locator("#ps-notice .ps-notice")).to_be_hidden()


def test_restart_asks_the_server_once(show: Show, fake: Any) -> None:
    page = show("chat")
    before = json.loads(fake.control(state="stopped", text="Out of memory."))["restarts"]
    page.locator(".ps-notice button").click()
    expect(page.locator(".ps-notice [data-role=text]")).to_have_text(
        "Asked the server to start again…"
    )
    assert json.loads(fake.control())["restarts"] == before + 1


def test_loading_shows_how_far_it_is(show: Show) -> None:
    page = show("empty")
    page.evaluate(
        """() => {
          const text = 'Loading Model: 61 of 98 MB';
          phasescope.trace.state = {name: 'loading', progress: 0.62, text, since: 0};
          phasescope.app.invalidate('data');
        }"""
    )
    expect(page.locator(".ps-header [data-role=state]")).to_have_text("Loading 62 %")
    assert page.locator(".ps-notice progress").evaluate("(bar) => bar.value") == 0.62


def test_a_silent_server_is_reported_and_recovers(
    show: Show, fake: Any, tolerated: list[str]
) -> None:
    tolerated.append("503")
    page = show("chat")
    fake.control(failing=1)
    expect(page.locator(".ps-header [data-role=state]")).to_have_text("Reconnecting…")
    expect(page.locator(".ps-notice [data-role=text]")).to_contain_text("Charts are frozen")
    expect(page.locator(LABEL)).to_contain_text(re.compile(r"last data \d+ seconds? ago"))
    assert page.evaluate("phasescope.trace.steps.length") > 0
    fake.control()
    expect(page.locator(".ps-header [data-role=state]")).to_have_text("Live", timeout=15_000)
    expect(page.locator("#ps-notice .ps-notice")).to_be_hidden()


def test_after_half_a_minute_it_is_offline_with_a_retry(
    show: Show, fake: Any, tolerated: list[str]
) -> None:
    tolerated.append("503")
    page = show("chat")
    fake.control(failing=1)
    page.evaluate("phasescope.app.feed.lastAnswer -= 31_000")
    expect(page.locator(".ps-header [data-role=state]")).to_have_text("Offline", timeout=15_000)
    # Without its own next try the page can only come back through the button.
    page.wait_for_function(
        """() => {
          const {feed} = phasescope.app;
          if (feed.polling) return false;
          clearTimeout(feed.timer);
          return true;
        }"""
    )
    fake.control()
    page.locator(".ps-notice button", has_text="Retry").click()
    expect(page.locator(".ps-header [data-role=state]")).to_have_text("Live")


def test_another_server_behind_the_address_starts_anew(show: Show, fake: Any) -> None:
    page = show("chat")
    fake.control(scenario="thirty")
    page.wait_for_function("phasescope.trace.epoch.startsWith('thirty')")
    assert page.evaluate("phasescope.trace.requests.get(1).prompt") != 158


def test_idle_charts_stand_still(show: Show, fake: Any) -> None:
    page = show("empty")
    fake.control(scenario="chat", seconds=60)
    expect(page.locator(".ps-header [data-role=state]")).to_have_text("Idle")
    expect(page.locator(LABEL)).to_contain_text("idle for")
    ends = page.evaluate("phasescope.app.view.domain()[1]")
    assert ends == page.evaluate("phasescope.trace.lastEvent()")
    fake.control(seconds=5)
    page.wait_for_timeout(900)
    assert page.evaluate("phasescope.app.view.domain()[1]") == ends


def test_polling_never_overlaps_however_slow_the_server(show: Show) -> None:
    page = show("chat")
    most = page.evaluate(
        """async () => {
          const {feed} = phasescope.app;
          let open = 0, most = 0;
          feed.fetcher = async () => {
            most = Math.max(most, ++open);
            await new Promise((done) => setTimeout(done, 700));
            open -= 1;
            return {status: 204};
          };
          for (let i = 0; i < 5; i += 1) feed.retry();
          await new Promise((done) => setTimeout(done, 2500));
          return most;
        }"""
    )
    assert most == 1


COUNT_FRAMES = """
  window.framesAsked = 0;
  const frame = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => { window.framesAsked += 1; return frame(callback); };
"""


def test_an_idle_page_does_not_ask_for_frames(browser: Browser, server: ChatServer) -> None:
    """As Gradio's loading screen does for ever, at sixty a second, wherever it has been seen."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(COUNT_FRAMES)
    page.goto(server.url)
    page.wait_for_function("window.phasescope?.trace.version > 0")
    asked = [0]
    for _ in range(20):  # the loading screen's last movements take some seconds
        page.wait_for_timeout(1_000)
        asked.append(page.evaluate("framesAsked"))
        if 0 < asked[-1] - asked[-2] < 15:
            break
    else:
        raise AssertionError(f"frames asked for, after each second: {asked}")
    context.close()
