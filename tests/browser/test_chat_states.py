"""What the chat card says while an engine loads, is busy, full or stopped."""

from __future__ import annotations

import threading

from playwright.sync_api import Page, expect

from engine.contracts import Build, EngineParts, Report, ServiceStatus
from engine.core.request import SamplingParams
from tests.browser.chat_page import BOX, opened, send, wait_for_end
from tests.browser.chat_server import ChatServer, serve_chat
from tests.browser.conftest import free_port
from tests.stub_service import wait_until
from ui.recording_routes import RECORDINGS_FOLDER
from ui.words_replay import REPLAY

RECORDING = RECORDINGS_FOLDER / "first-look.json.gz"
MANY = SamplingParams(max_tokens=4_000)


def test_the_composer_is_in_view_on_every_screen(page: Page, server: ChatServer) -> None:
    opened(page, server)
    send(page, "once Short.")
    wait_for_end(page)
    parts = ("#ps-composer", "#ps-send", "#ps-clear", "#ps-add-visitors", "#ps-log .ps-foot")
    for width, height in ((1440, 900), (1366, 768), (1200, 900), (390, 844), (320, 640)):
        page.set_viewport_size({"width": width, "height": height})
        page.locator("#ps-composer").scroll_into_view_if_needed()
        for row in ("#ps-tries", "#ps-visitors"):
            heights = page.evaluate(
                f"[...document.querySelectorAll('{row}, {row} button')].map((e) => e.offsetHeight)"
            )
            assert len(set(heights)) == 1, f"{row} is broken over lines at {width}"
        for part in parts:
            assert _room(page, part) >= 8, (width, part)
    server.runner.pace = 0.1
    page.click("#ps-add-visitors")
    for width in (1440, 1366, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert _room(page, "#ps-stop-visitors") >= 8, width
    page.click("#ps-stop-visitors")


def _room(page: Page, part: str) -> float:
    """Pixels between a part and the nearest side, or the foot, of the chat card."""
    return float(
        page.locator(part).evaluate(
            """(part) => {
              const card = document.querySelector("#ps-chat").getBoundingClientRect();
              const { left, right, bottom } = part.getBoundingClientRect();
              return Math.min(left - card.left, card.right - right, card.bottom - bottom);
            }"""
        )
    )


def test_while_the_model_loads_the_composer_waits_and_keeps_its_text(page: Page) -> None:
    ready = threading.Event()

    def slowly(build: Build) -> Build:
        def build_later(report: Report) -> EngineParts:
            report(ServiceStatus.LOADING, "Loading stub: 61 of 98 MB", 0.62)
            assert ready.wait(30)
            return build(report)

        return build_later

    with serve_chat(free_port(), wrap=slowly) as server:
        page.goto(server.url)
        page.wait_for_selector(BOX)
        hint = page.locator(".ps-hint")
        expect(hint).to_have_text("Loading stub: 61 of 98 MB. Charts start with the first request.")
        expect(page.locator(BOX)).to_be_disabled()
        expect(page.locator("#ps-send")).to_be_disabled()
        ready.set()
        expect(page.locator("#ps-send")).to_be_enabled(timeout=5000)
        expect(hint).to_be_hidden()
        send(page, "once Ready.")
        wait_for_end(page)
        wait_until(lambda: server.answers.num_running == 0)
        page.wait_for_timeout(500)
        page.goto("about:blank")  # it must not ask a server that has gone


def test_in_a_recording_nothing_is_asked_of_the_live_engine(chat: Page) -> None:
    send(chat, "once Mine.")
    wait_for_end(chat)
    chat.locator("#ps-replay [data-role=file]").set_input_files(RECORDING)
    expect(chat.locator(".ps-hint")).to_have_text(REPLAY["composer"])
    for button in ("#ps-send", "#ps-add-visitors", "#ps-long-prompt"):
        expect(chat.locator(button)).to_be_disabled()
        expect(chat.locator(button)).to_have_attribute("title", REPLAY["composer"])
    expect(chat.get_by_role("button", name="Retry")).to_be_hidden()
    chat.get_by_role("button", name=REPLAY["back"]).click()
    for button in ("#ps-send", "#ps-add-visitors", "#ps-long-prompt"):
        expect(chat.locator(button)).to_be_enabled()
    expect(chat.get_by_role("button", name="Retry")).to_be_visible()


def test_a_busy_engine_is_said_before_sending(page: Page) -> None:
    with serve_chat(free_port(), pace=0.05, max_running=1) as server:
        others = [server.service.submit_text("say words ", MANY) for _ in range(2)]
        opened(page, server)
        hint = page.locator(".ps-hint")
        expect(hint).to_have_text("1 request is running; yours will queue.", timeout=12_000)
        expect(page.locator("#ps-send")).to_be_enabled()
        others[1].close()
        expect(hint).to_be_hidden()
        others[0].close()
        wait_until(lambda: not server.service.store.live())
        page.goto("about:blank")


def test_a_full_queue_and_a_stopped_engine_keep_the_text(page: Page) -> None:
    with serve_chat(free_port(), pace=0.05, max_running=1, max_waiting=1) as server:
        opened(page, server)
        others = [server.service.submit_text("say words ", MANY) for _ in range(2)]
        send(page, "mine")
        notice = page.locator("#ps-log .ps-chat-notice")
        expect(notice).to_have_text(
            "The queue is full (1 waiting). Your text is kept; try again in a moment."
        )
        expect(page.locator(BOX)).to_have_value("mine")
        server.service.close()
        page.click("#ps-send")
        expect(notice).to_have_text("The engine was shut down. Your text is kept.")
        expect(page.locator(BOX)).to_have_value("mine")
        for other in others:
            other.close()
        page.goto("about:blank")
