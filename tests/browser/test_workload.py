"""The Workload tab in a browser, over the real service with a scripted model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.compare_server import serve_compare
from tests.browser.conftest import free_port
from ui.words_workload import WORKLOAD


@pytest.fixture(scope="module")
def url(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    folder: Path = tmp_path_factory.mktemp("results")
    with serve_compare(port, folder, seconds=0.002):
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def form(page: Page, url: str) -> Page:
    page.goto(url)
    page.get_by_role("tab", name="Workload").click()
    expect(page.locator("#ps-workload-start")).to_be_visible()
    return page


def finished(page: Page) -> Page:
    expect(page.locator("#ps-workload [data-result]")).to_be_attached(timeout=60_000)
    expect(page.locator("#ps-workload-table tr[aria-current]")).to_have_count(1)
    expect(page.locator("#ps-workload [data-side=A] canvas[data-role=axis]")).to_be_visible()
    return page


def test_before_the_first_run_the_tab_says_what_to_do(form: Page) -> None:
    expect(form.locator("#ps-workload-run")).to_contain_text(WORKLOAD["empty"])
    expect(form.locator("#ps-workload-card svg")).to_have_count(2)
    expect(form.locator("#ps-workload-table")).to_contain_text("p95")


def test_a_run_on_the_engine_is_seen_live_and_ends_in_a_table(form: Page) -> None:
    form.locator("#ps-workload-requests input").fill("6")
    form.locator("#ps-workload-start").click()
    expect(form.locator(".ps-status")).to_contain_text("of 6 requests ended")
    lanes = form.locator(".ps-live canvas[data-role=lanes]")
    expect(lanes).not_to_have_attribute("aria-label", "Timeline of 0 requests, 0 of them yours.")
    form.locator(".ps-live [data-table=requests]").click()
    expect(form.locator(".ps-live .ps-table tbody tr").first).to_contain_text("R1")
    finished(form)
    expect(form.locator("#ps-workload .ps-workload-line")).to_contain_text("6 requests")
    expect(form.locator("#ps-workload-charts .main-svg").first).to_be_visible()
    form.goto(form.url)
    finished(form)
    selected = form.get_by_role("tab", name="Workload")
    expect(selected).to_have_attribute("aria-selected", "true")
    entry = form.locator("#ps-workload-list li").first
    expect(entry).to_contain_text("6 requests finished in")
    number = form.locator("#ps-workload-list li").count()
    expect(form.locator("#ps-workload-table [data-run]")).to_have_count(number)
    entry.locator("[data-delete]").click()
    expect(form.locator("#ps-workload-list li")).to_have_count(number - 1)
    expect(form.locator("#ps-workload-table [data-run]")).to_have_count(number - 1)


def test_runs_lie_beside_each_other_and_open_by_their_names(form: Page) -> None:
    for requests in ("3", "2"):
        form.locator("#ps-workload-requests input").fill(requests)
        form.locator("#ps-workload-start").click()
        line = form.locator("#ps-workload .ps-workload-line")
        expect(line).to_contain_text(f"{requests} requests", timeout=60_000)
    rows = form.locator("#ps-workload-table [data-run]")
    expect(rows.first).to_have_attribute("aria-current", "true")
    expect(rows.first).to_contain_text("2 requests")
    rows.nth(1).get_by_role("button", name=re.compile("^Open: Chat")).click()
    expect(rows.nth(1)).to_have_attribute("aria-current", "true")
    expect(line).to_contain_text("3 requests")
    form.locator("#ps-workload-numbers summary").click()
    expect(form.locator("#ps-workload-numbers")).to_contain_text("Sent late by at most")
    form.set_viewport_size({"width": 390, "height": 844})
    assert form.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_simulated_run_is_labelled(form: Page) -> None:
    form.locator("#ps-workload-place").get_by_test_id("Simulation-radio-label").click()
    form.locator("#ps-workload-start").click()
    finished(form)
    expect(form.locator("#ps-workload .ps-workload-line .ps-tag")).to_have_text("simulated")


def test_stop_ends_a_run_with_what_there_is(form: Page) -> None:
    form.locator("#ps-workload-requests input").fill("60")
    form.locator("#ps-workload-start").click()
    expect(form.locator(".ps-status")).to_contain_text("of 60 requests ended")
    form.locator("#ps-workload-stop").click()
    finished(form)
    expect(form.locator("#ps-workload-run")).to_contain_text("The run was stopped before its end.")


def test_a_shape_brings_its_own_numbers(form: Page) -> None:
    form.get_by_role("radio", name=re.compile("^Batch")).check()
    expect(form.locator("#ps-workload-requests input")).to_have_value("32")
    expect(form.locator("#ps-workload-card")).to_contain_text("all at once, not streamed")


def test_a_trace_file_is_read_and_its_bad_rows_are_named(form: Page, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 20, "output_length": 4}\n"nonsense"\n')
    form.get_by_role("radio", name=re.compile("^From a trace file")).check()
    form.locator("#ps-workload-file input[type=file]").set_input_files(path)
    expect(form.locator("#ps-workload-trace-card")).to_contain_text("mine.jsonl")
    expect(form.locator("#ps-workload-trace-card")).to_contain_text("1 loaded and 1 rejected")
    expect(form.locator("#ps-workload-card")).to_be_hidden()
    expect(form.locator(".ps-rejected")).to_contain_text("Line 2: ")
    form.locator("#ps-workload-start").click()
    finished(form)
    expect(form.locator("#ps-workload .ps-workload-line")).to_contain_text("A trace file")
    expect(form.locator("#ps-workload-run")).not_to_contain_text("mine.jsonl")
    form.get_by_role("radio", name=re.compile("^Chat")).check()
    expect(form.locator("#ps-workload-trace-card")).to_be_hidden()
    expect(form.locator("#ps-workload-card svg").first).to_be_visible()


def test_a_length_distribution_asks_only_for_what_it_needs(form: Page) -> None:
    form.get_by_role("button", name="Prompt lengths").click()
    expect(form.locator("#ps-workload-prompt-typical")).to_be_hidden()
    form.locator("#ps-workload-prompt-lengths input").click()
    form.get_by_role("option", name="empirical").click()
    expect(form.locator("#ps-workload-prompt-low")).to_be_hidden()
    form.locator("#ps-workload-prompt-seen textarea").fill("12, 12, 40")
    expect(form.locator("#ps-workload-card")).to_contain_text("as seen in 3 requests, 12 to 40")


def test_no_width_makes_the_page_scroll_sideways(form: Page) -> None:
    for width in (1440, 390, 320):
        form.set_viewport_size({"width": width, "height": 844})
        expect(form.locator("#ps-workload-start")).to_be_visible()
        assert form.evaluate("document.documentElement.scrollWidth") <= width


def test_the_tab_has_no_serious_finding_of_axe(form: Page) -> None:
    found = [
        f"{violation['id']}: {node['target']}: {node['failureSummary']}"
        for violation in Axe().run(form).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
    assert found == []
