"""The settings panel on the page: opening, applying, the question, the key, and talk mode."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from engine.core.plan import StepPlan
from engine.core.request import SamplingParams
from engine.service import EngineService
from tests.browser.conftest import free_port
from tests.browser.settings_server import serve_settings
from tests.stub_service import ScriptedRunner
from ui.words_settings import SETTINGS

OPENER = "[data-role=settings]"
ANSWER = "#ps-settings-answer"
BUDGET = "#ps-setting-max-batched-tokens input"
BLOCKS = "#ps-setting-num-blocks input"
KEY = "a key of this test"

Show = Callable[..., Page]


def opened(page: Page, port: int) -> Page:
    page.goto(f"http://127.0.0.1:{port}/?__theme=light")
    page.click(OPENER)
    expect(page.locator(BUDGET)).to_have_value(re.compile(r"[1-9]\d*"))  # 0 until answered
    return page


@pytest.fixture(scope="module")
def open_server(browser: Browser) -> Iterator[tuple[int, EngineService]]:
    port = free_port()
    with serve_settings(port) as service:
        yield port, service


def test_the_panel_shows_and_changes_the_engines_limits(
    page: Page, open_server: tuple[int, EngineService]
) -> None:
    port, service = open_server
    service.reconfigure(max_batched_tokens=200)
    opened(page, port)
    expect(page.locator(BUDGET)).to_have_value("200")
    expect(page.locator("#ps-settings")).to_contain_text(SETTINGS["for_everybody"])
    page.fill(BUDGET, "99")
    page.click("#ps-settings-apply")
    expect(page.locator(ANSWER)).to_have_text(SETTINGS["applied"])
    assert service.config.max_batched_tokens == 99
    page.fill(BUDGET, "0")
    page.click("#ps-settings-apply")
    expect(page.locator(ANSWER)).to_have_text("Token budget must be from 1 to 65,536; got 0.")
    expect(page.locator(BUDGET)).to_have_value("0")
    assert service.config.max_batched_tokens == 99
    # Opened again, it shows what the engine has rather than what was typed.
    page.keyboard.press("Escape")
    expect(page.locator(OPENER)).to_be_focused()
    page.click(OPENER)
    expect(page.locator(BUDGET)).to_have_value("99")
    expect(page.locator(ANSWER)).to_be_hidden()


def test_a_restart_waits_for_a_second_click(
    page: Page, open_server: tuple[int, EngineService]
) -> None:
    port, service = open_server
    before = service.engine
    stream = service.submit([65] * 50, SamplingParams(max_tokens=1500, ignore_eos=True))
    opened(page, port)
    page.fill(BLOCKS, "300")
    page.click("#ps-settings-apply")
    expect(page.locator(ANSWER)).to_contain_text("1 running request will end and is told so.")
    page.click("#ps-settings-keep")
    expect(page.locator(BLOCKS)).to_have_value("512")
    assert service.engine is before
    page.fill(BLOCKS, "300")
    page.click("#ps-settings-apply")
    page.click("#ps-settings-confirm")
    expect(page.locator(ANSWER)).to_have_text(SETTINGS["restarted"])
    assert service.config.num_blocks == 300
    expect(page.locator("#ps-settings-apply")).to_be_focused()
    stream.close()


def test_a_locked_panel_asks_for_its_key_and_never_shows_it(page: Page) -> None:
    port = free_port()
    with serve_settings(port, admin_key=KEY) as service:
        opened(page, port)
        page.fill(BUDGET, "99")
        page.click("#ps-settings-apply")
        expect(page.locator(ANSWER)).to_have_text(SETTINGS["wrong_key"])
        assert service.config.max_batched_tokens == 256
        page.fill("#ps-admin-key input", KEY)
        page.click("#ps-settings-apply")
        expect(page.locator(ANSWER)).to_have_text(SETTINGS["applied"])
        assert service.config.max_batched_tokens == 99
        assert page.get_attribute("#ps-admin-key input", "type") == "password"
        assert KEY not in page.content()
        assert KEY not in page.request.get(f"http://127.0.0.1:{port}/config").text()
        page.goto("about:blank")  # the server ends before the page does


def test_a_locked_restart_asks_for_its_key(page: Page, tolerated: list[str]) -> None:
    tolerated.append("401")
    broken = threading.Event()

    def fail_if_broken(_plan: StepPlan) -> None:
        if broken.is_set():
            raise RuntimeError("a broken step")

    port = free_port()
    with serve_settings(
        port, admin_key=KEY, runner=ScriptedRunner(before=fail_if_broken)
    ) as service:
        page.goto(f"http://127.0.0.1:{port}/")
        broken.set()
        stream = service.submit([65], SamplingParams(max_tokens=5))
        restart = page.get_by_role("button", name="Restart engine")
        restart.click()
        field = page.locator("#ps-notice input")
        expect(field).to_be_focused()
        assert service.health()[0] is False
        broken.clear()
        field.fill(KEY)
        restart.click()
        expect(page.locator("#ps-notice .ps-notice")).to_be_hidden()
        assert service.health()[0] is True
        stream.close()
        page.goto("about:blank")


def test_the_closed_panel_takes_no_focus(
    page: Page, open_server: tuple[int, EngineService]
) -> None:
    page.goto(f"http://127.0.0.1:{open_server[0]}/")
    page.wait_for_function("window.phasescope")
    expect(page.locator(OPENER)).to_be_visible()
    assert page.locator("#ps-settings input:visible").count() == 0


def test_display_switches_stay_in_this_browser(
    page: Page, open_server: tuple[int, EngineService]
) -> None:
    opened(page, open_server[0])
    page.check("[data-role=dark]")
    expect(page.locator("body")).to_have_class(re.compile("dark"))
    page.check("[data-role=talk]")
    expect(page.locator("body")).to_have_class(re.compile("ps-talk"))
    page.goto(f"http://127.0.0.1:{open_server[0]}/")
    expect(page.locator("body")).to_have_class(re.compile("ps-talk"))


def test_talk_mode_is_larger_and_its_crosshair_follows_the_pointer(show: Show) -> None:
    page = show("chat", query="__theme=light&talk=1")
    title = page.locator("#ps-timeline-title")
    page.wait_for_function("document.body.classList.contains('ps-talk')")
    large = title.bounding_box()["height"]
    canvas = page.locator("[data-band=steps] canvas").bounding_box()
    x = canvas["x"] + canvas["width"] / 2
    page.mouse.move(x, canvas["y"] + 20)
    line = page.locator(".ps-crosshair")
    expect(line).to_be_visible()
    assert line.bounding_box()["x"] == pytest.approx(x, abs=2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    page.evaluate("document.body.classList.remove('ps-talk')")
    assert large == pytest.approx(1.25 * title.bounding_box()["height"], rel=0.05)


def test_a_new_chat_starts_with_the_defaults_and_keeps_a_visitors_own(
    page: Page, open_server: tuple[int, EngineService]
) -> None:
    port, _ = open_server
    limit = page.locator("#ps-counts [data-role=limit]")
    opened(page, port)
    expect(limit).to_have_text("max 400 out")
    page.fill("#ps-default-max-tokens input", "5000")
    page.click("#ps-sampling-apply")
    answer = page.locator("#ps-sampling-answer")
    expect(answer).to_contain_text("max_tokens must be below 2,048")
    page.fill("#ps-default-max-tokens input", "7")
    page.fill("#ps-default-temperature input", "0.3")
    page.click("#ps-sampling-apply")
    expect(answer).to_have_text(SETTINGS["sampling_applied"])
    page.reload()
    expect(limit).to_have_text("max 7 out")
    page.click("#ps-chat-settings > .label-wrap")
    expect(page.locator("#ps-temperature input")).to_have_value("0.3")
    page.fill("#ps-max-tokens input", "3")
    expect(limit).to_have_text("max 3 out")
    page.fill("#ps-message textarea", "one")
    page.click("#ps-send")
    expect(page.locator("#ps-log .ps-foot")).to_contain_text("reached the 3-token limit")
