"""The Learn tab in a browser, over the real service with a scripted model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from engine.service import EngineService
from tests.browser.conftest import free_port
from tests.browser.learn_server import serve_learn
from ui.words_learn import LEARN, LESSON_WORDS

Server = tuple[str, EngineService]


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    folder: Path = tmp_path_factory.mktemp("results")
    with serve_learn(port, folder) as service:
        yield f"http://127.0.0.1:{port}/", service


@pytest.fixture
def tab(page: Page, server: Server) -> Page:
    page.goto(server[0])
    page.get_by_role("tab", name=LEARN["tab"]).click()
    expect(page.locator("#ps-lesson-run")).to_be_visible()
    return page


def choose(tab: Page, name: str) -> None:
    words = LESSON_WORDS[name]
    tab.locator("#ps-lessons").get_by_text(words.title).click()
    expect(tab.locator(".ps-lesson-card").first).to_contain_text(words.question)


def guess(tab: Page, text: str) -> None:
    tab.locator("#ps-lesson-guess").get_by_text(text, exact=True).click()


def test_a_guess_comes_before_the_run(tab: Page, server: Server) -> None:
    steps = server[1].store.totals().steps
    tab.locator("#ps-lesson-run").click()
    expect(tab.locator("#ps-lesson-asked")).to_have_text(LEARN["guess_first"])
    assert server[1].store.totals().steps == steps


def test_a_lesson_goes_from_a_guess_to_the_reason(tab: Page) -> None:
    choose(tab, "growth")
    guess(tab, "300")
    tab.locator("#ps-lesson-run").click()
    numbers = tab.locator(".ps-lesson-numbers")
    expect(numbers).to_contain_text("299 tokens", timeout=30_000)
    band = tab.locator("#ps-walk canvas[data-role=band]").first
    expect(band).to_have_attribute(
        "aria-label", "A: KV cache growth, with one interval marked: 99 tokens more, one a step."
    )
    assert band.evaluate("canvas => canvas.width") > 300
    tab.locator("#ps-lesson-why").click()
    expect(tab.locator("#ps-lesson-verdict")).to_contain_text("You guessed 300; it was 299.")
    link = tab.locator("#ps-lesson-verdict a").get_attribute("href") or ""
    assert "from __future__" in tab.request.get(f"{tab.url}{link}").text()
    again = tab.locator("#ps-lesson-finding a").get_attribute("href") or ""
    tab.goto(f"{tab.url}{again}")  # who follows it need not guess again
    expect(tab.locator("#ps-lessons input:checked")).to_have_value("growth")
    expect(numbers).to_contain_text("299 tokens")
    tab.locator("#ps-lesson-why").click()
    expect(tab.locator("#ps-lesson-verdict")).to_contain_text("It was 299.")
    tab.locator("#ps-lesson-next").click()
    expect(tab.locator(".ps-lesson-card").first).to_contain_text(LESSON_WORDS["batch"].question)
    expect(tab.locator("#ps-lessons input:checked")).to_have_value("batch")


def test_both_sides_of_a_comparison_are_drawn_on_one_scale(tab: Page) -> None:
    choose(tab, "batch")
    guess(tab, "1.3 to 4 times")
    tab.locator("#ps-lesson-run").click()
    expect(tab.locator(".ps-lesson-numbers")).to_contain_text("tok/s", timeout=60_000)
    bands = tab.locator("#ps-walk canvas[data-role=band]")
    expect(bands.nth(0)).to_be_visible()
    expect(bands.nth(1)).to_have_attribute("aria-label", re.compile(r"all 8 answers in \d"))
    scales = "[...document.querySelectorAll('.ps-lesson-side canvas[data-role=axis]')]"
    assert tab.evaluate(f"{scales}.map((canvas) => canvas.toDataURL())[0]") == tab.evaluate(
        f"{scales}.map((canvas) => canvas.toDataURL())[1]"
    )


def test_stop_gives_the_engine_back_and_says_what_to_do(tab: Page) -> None:
    choose(tab, "stall")
    guess(tab, "more than 1 s")
    tab.locator("#ps-lesson-run").click()
    tab.locator("#ps-lesson-stop").click()
    expect(tab.locator("#ps-lesson-status")).to_contain_text("stopped")
    expect(tab.locator("#ps-lesson-stop")).to_be_hidden()


def test_a_lesson_that_was_left_changes_nothing_of_the_one_that_was_opened(
    tab: Page, server: Server
) -> None:
    ticket = server[1].turns.join("somebody's experiment")
    try:
        choose(tab, "growth")
        guess(tab, "300")
        tab.locator("#ps-lesson-run").click()
        expect(tab.locator("#ps-lesson-status")).to_contain_text("1 experiment")
        choose(tab, "prefix")
        # The button comes back with the end of what was left.
        expect(tab.locator("#ps-lesson-run")).to_be_visible()
    finally:
        ticket.leave()
    expect(tab.locator("#ps-lessons input:checked")).to_have_value("prefix")
    expect(tab.locator("#ps-lesson-status")).to_be_empty()
    expect(tab.get_by_role("tab", name=LEARN["predict"])).to_have_attribute("aria-selected", "true")


def test_an_experiment_that_runs_is_waited_for(tab: Page, server: Server) -> None:
    ticket = server[1].turns.join("somebody's experiment")
    try:
        guess(tab, "2 to 8 times")
        tab.locator("#ps-lesson-run").click()
        expect(tab.locator("#ps-lesson-status")).to_contain_text("1 experiment")
    finally:
        ticket.leave()
    expect(tab.locator(".ps-lesson-numbers")).to_contain_text("tok/s", timeout=30_000)


def test_no_width_makes_the_page_scroll_sideways(tab: Page) -> None:
    for width in (320, 390):
        tab.set_viewport_size({"width": width, "height": 844})
        expect(tab.locator("#ps-lesson-run")).to_be_visible()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_the_tab_has_no_serious_finding_of_axe(tab: Page) -> None:
    found = [
        f"{violation['id']}: {node['target']}: {node['failureSummary']}"
        for violation in Axe().run(tab).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
    assert found == []


def test_a_stopped_engine_is_said_and_nothing_runs(tab: Page, server: Server) -> None:
    """Last: the module's engine is gone afterwards."""
    server[1].close(wait=5)
    guess(tab, "2 to 8 times")
    tab.locator("#ps-lesson-run").click()
    expect(tab.locator("#ps-lesson-status [data-kind=err]")).to_contain_text("shut down")
