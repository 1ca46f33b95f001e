"""The Compare tab in a browser, over the real service with a scripted model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from engine.service import EngineService
from tests.browser.compare_server import serve_compare
from tests.browser.conftest import free_port
from tests.stub_service import wait_until
from ui.compare_desk import Desk
from ui.compare_form import Wanted, make_experiment, side_values
from ui.compare_places import find_place
from ui.words_compare import COMPARE

RUNNING = re.compile(r"Run \d+ of 24, [AB]: ")

Server = tuple[str, EngineService, Desk]


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = free_port()
    folder: Path = tmp_path_factory.mktemp("results")
    with serve_compare(port, folder) as (service, desk):
        yield f"http://127.0.0.1:{port}/", service, desk


@pytest.fixture(scope="module")
def kept(server: Server) -> str:
    """The id of a simulated result of six pairs."""
    _, service, desk = server
    place = find_place(service, simulated=True)
    a, b = (side_values("long-prompt", side, place.config) for side in "ab")
    wanted = Wanted(preset="long-prompt", num_pairs=6, seed=0)
    job = desk.start("nobody", make_experiment(place, wanted, a, b), place)
    wait_until(lambda: job.state.ended, timeout=60)
    assert job.state.result_id
    return job.state.result_id


@pytest.fixture
def form(page: Page, server: Server) -> Page:
    page.goto(server[0])
    page.get_by_role("tab", name="Compare").click()
    # Filled by the server once the page is loaded, over what was typed before.
    expect(page.locator("#ps-compare-list").locator("p, li").first).to_be_visible()
    return page


@pytest.fixture(scope="module")
def result_page(browser: Browser, server: Server, kept: str) -> Iterator[Page]:
    """One page with the result for all tests that only look at it: opening it takes longest."""
    context = browser.new_context()
    errors: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield opened(page, server, kept)
    context.close()
    assert errors == []


@pytest.fixture
def result(result_page: Page) -> Page:
    """The page as it was when the result was opened: everything shown, folded and light."""
    result_page.set_viewport_size({"width": 1440, "height": 900})
    result_page.mouse.move(5, 5)
    if result_page.evaluate("document.body.classList.contains('dark')"):
        result_page.locator("[data-role=theme]").click()
    result_page.evaluate(
        """() => {
          const tab = document.getElementById("ps-compare");
          tab.classList.remove("ps-form-open");
          for (const open of tab.querySelectorAll("details[open]")) open.open = false;
          scrollTo(0, 0);
        }"""
    )
    result_page.locator("[data-side=A]").focus()
    result_page.keyboard.press("0")
    expect(result_page.locator(".ps-compare-timelines [data-role=unzoom]")).to_be_hidden()
    return result_page


def opened(page: Page, server: Server, kept: str) -> Page:
    page.goto(f"{server[0]}?result={kept}&__theme=light")
    expect(page.locator("[data-result]")).to_have_attribute("data-result", kept)
    expect(page.locator("[data-side=B] canvas[data-role=axis]")).to_be_visible()
    expect(page.locator("#ps-compare-gaps-plot .js-line")).to_have_count(2)
    return page


def set_repeats(page: Page, pairs: int) -> None:
    page.locator("#ps-compare-repeats input").fill(str(pairs))


def ink(page: Page, side: str, role: str) -> list[int]:
    """Columns of a canvas, in device pixels, in which anything was drawn."""
    return list(
        page.evaluate(
            """([side, role]) => {
              const canvas = document.querySelector(`[data-side=${side}] [data-role=${role}]`);
              const { width, height } = canvas;
              const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
              const columns = [];
              for (let x = 0; x < width; x += 1) {
                for (let y = 0; y < height; y += 1) {
                  if (data[4 * (y * width + x) + 3] > 0) { columns.push(x); break; }
                }
              }
              return columns;
            }""",
            [side, role],
        )
    )


def picture(page: Page, side: str) -> str:
    return str(
        page.evaluate(
            "(side) => document.querySelector(`[data-side=${side}] [data-role=lanes]`).toDataURL()",
            side,
        )
    )


def lines_across(page: Page, side: str) -> list[int]:
    """Where the crosshair of a side stands, from the side's left edge."""
    box: dict[str, Any] = page.evaluate(
        """(side) => {
          const element = document.querySelector(`[data-side=${side}]`);
          const line = element.querySelector(".ps-crosshair");
          const from = element.querySelector("canvas").getBoundingClientRect().left;
          return { hidden: line.hidden, x: Math.round(line.getBoundingClientRect().left - from) };
        }""",
        side,
    )
    return [] if box["hidden"] else [box["x"]]


def test_running_the_simulation_ends_in_a_verdict_and_two_timelines(form: Page) -> None:
    form.get_by_test_id("Simulation-radio-label").click()
    form.locator("#ps-compare-run").click()
    verdict = form.locator(".ps-verdict-sentence")
    expect(verdict).to_contain_text("Chunked prefill (B) cuts the longest pause", timeout=60_000)
    expect(form.locator(".ps-workload-line .ps-tag")).to_have_text("simulated")
    expect(form.locator("[data-side=A] b")).to_have_text("Prefill first")
    expect(form.locator("[data-side=B] b")).to_have_text("Chunked prefill")
    expect(form.locator("#ps-compare-form")).to_be_hidden()
    expect(form.locator("#ps-compare-run")).to_have_text(COMPARE["again"])
    expect(form.locator(".ps-pill.ps-better").first).to_contain_text("better:")
    assert re.search(r"[?&]result=\d{8}-\d{6}-[0-9a-f]{6}", form.url)


def test_running_on_the_engine_shows_progress_and_tells_those_who_chat(
    form: Page, browser: Browser, server: Server
) -> None:
    other = browser.new_page()
    other.goto(server[0])
    expect(other.locator(".ps-state")).to_contain_text("Idle")
    expect(other.locator(".ps-turn")).to_be_hidden()
    set_repeats(form, 3)
    form.locator("#ps-compare-run").click()
    expect(form.locator(".ps-status")).to_contain_text(re.compile(r"Run \d of 6, [AB]: "))
    expect(other.locator(".ps-turn")).to_contain_text("An experiment has the engine alone")
    expect(form.locator("[data-result]")).to_be_attached(timeout=60_000)
    expect(form.locator(".ps-verdict-sentence")).to_contain_text("Too few runs to tell from noise")
    expect(form.locator(".ps-workload-line .ps-tag")).to_have_count(0)
    expect(form.locator(".ps-pill")).to_have_count(0)
    expect(other.locator(".ps-turn")).to_be_hidden()
    other.close()


def test_stop_gives_the_engine_back(form: Page, server: Server) -> None:
    set_repeats(form, 12)
    form.locator("#ps-compare-run").click()
    expect(form.locator(".ps-status")).to_contain_text(RUNNING)
    form.locator("#ps-compare-stop").click()
    expect(form.locator("#ps-compare-run")).to_be_visible()
    expect(form.locator("#ps-compare-stop")).to_be_hidden()
    wait_until(lambda: server[1].turn is None and not len(server[1].turns), timeout=20)


def test_a_closed_page_gives_the_engine_back(browser: Browser, server: Server) -> None:
    visitor = browser.new_page()
    visitor.goto(server[0])
    visitor.get_by_role("tab", name="Compare").click()
    set_repeats(visitor, 12)
    visitor.locator("#ps-compare-run").click()
    expect(visitor.locator(".ps-status")).to_contain_text(RUNNING)
    visitor.close()
    wait_until(lambda: server[1].turn is None and not len(server[1].turns), timeout=30)


def test_a_wrong_field_is_told_and_nothing_runs(form: Page) -> None:
    form.locator("#ps-b-max-running input").fill("0")
    form.locator("#ps-compare-run").click()
    expect(form.locator(".ps-status")).to_have_text("Slots of B must be from 1 to 256; got 0.")
    expect(form.locator("#ps-compare-stop")).to_be_hidden()


def test_choosing_an_effect_fills_both_sides_and_says_what_to_look_at(form: Page) -> None:
    form.locator("#ps-compare-preset input").click()
    form.get_by_role("option", name="2 slots against 16").click()
    expect(form.locator("#ps-a-max-running input")).to_have_value("2")
    expect(form.locator("#ps-b-max-running input")).to_have_value("16")
    expect(form.locator("#ps-a-policy input")).to_have_value("chunked")
    expect(form.locator(".ps-look-at")).to_contain_text("Look at: Queueing")


def test_a_link_reopens_a_result(page: Page, server: Server, kept: str) -> None:
    result = opened(page, server, kept)
    expect(result.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(result.locator(".ps-difference")).to_be_visible()
    expect(result.locator("#ps-compare-form")).to_be_hidden()
    result.locator("#ps-compare-change").click()
    expect(result.locator("#ps-compare-form")).to_be_visible()


def test_a_link_to_a_deleted_result_says_so(page: Page, server: Server) -> None:
    page.goto(f"{server[0]}?result=20200101-000000-abcdef")
    expect(page.locator(".ps-status")).to_contain_text("There is no result 20200101-000000-abcdef")


def test_results_are_listed_reopened_and_deleted(form: Page, server: Server, kept: str) -> None:
    store = server[2].store
    text = json.loads(store.load(kept).to_json()) | {"id": "copy-to-delete", "title": "A copy"}
    store.save(type(store.load(kept)).from_json(json.dumps(text)))
    form.reload()
    form.get_by_role("tab", name="Compare").click()
    form.locator("[data-open=copy-to-delete]").click()
    expect(form.locator("[data-result]")).to_have_attribute("data-result", "copy-to-delete")
    expect(form.locator(".ps-workload-line")).to_contain_text("A copy")
    form.locator("[data-delete=copy-to-delete]").click()
    expect(form.locator("[data-delete=copy-to-delete]")).to_have_count(0)
    expect(form.locator(f"[data-open='{kept}']")).to_be_visible()


def test_exports_are_linked(result: Page, kept: str) -> None:
    result.locator("#ps-compare .ps-menu summary").click()
    link = result.get_by_role("link", name=COMPARE["export_csv"])
    with result.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == f"phasescope-{kept}-runs.csv"


def test_both_timelines_share_one_axis_to_the_pixel(result: Page) -> None:
    edges = result.evaluate(
        """["A", "B"].map((side) => {
          const box = document.querySelector(`[data-side=${side}] canvas`).getBoundingClientRect();
          return [box.left, box.right];
        })"""
    )
    assert edges[0] == edges[1]
    # The first requests arrive at one moment on both sides, so their lanes begin in one column.
    assert min(c for c in ink(result, "A", "steps") if c > 100) == min(
        c for c in ink(result, "B", "steps") if c > 100
    )
    expect(result.locator("[data-side=A] canvas[data-role=axis]")).to_be_hidden()


def test_zoom_and_crosshair_are_one_for_both(result: Page) -> None:
    whole = [picture(result, side) for side in "AB"]
    lanes = result.locator("[data-side=A] canvas[data-role=lanes]")
    lanes.hover(position={"x": 600, "y": 40})
    result.keyboard.down("Control")
    result.mouse.wheel(0, -400)
    result.keyboard.up("Control")
    expect(result.locator(".ps-compare-timelines [data-role=unzoom]")).to_be_visible()
    assert all(picture(result, side) != before for side, before in zip("AB", whole, strict=True))
    result.locator("[data-side=B] canvas[data-role=lanes]").hover(position={"x": 700, "y": 40})
    expect(result.locator(".ps-compare-timelines [data-role=label]")).to_contain_text(" · B: ")
    assert lines_across(result, "A") == lines_across(result, "B") == [700]
    result.locator(".ps-compare-timelines [data-role=unzoom]").click()
    result.mouse.move(5, 5)
    expect(result.locator("[data-side=A] .ps-crosshair")).to_be_hidden()
    assert [picture(result, side) for side in "AB"] == whole


def test_a_selected_stretch_is_told_for_a_and_b(result: Page) -> None:
    box = result.locator("[data-side=B] canvas[data-role=lanes]").bounding_box()
    assert box is not None
    result.mouse.move(box["x"] + 300, box["y"] + 40)
    result.mouse.down()
    result.mouse.move(box["x"] + 800, box["y"] + 40, steps=5)
    result.mouse.up()
    label = result.locator(".ps-compare-timelines [data-role=label]")
    expect(label).to_contain_text(re.compile(r"A: \d+ gaps, mean .* max .* · B: \d+ gaps, mean"))
    result.locator(".ps-compare-timelines [data-role=zoom-selection]").click()
    expect(result.locator(".ps-compare-timelines [data-role=unzoom]")).to_be_visible()


def test_keys_move_the_crosshair(result: Page) -> None:
    result.locator("[data-side=B]").focus()
    result.keyboard.press("ArrowLeft")
    expect(result.locator("[data-side=A] .ps-crosshair")).to_be_visible()
    result.keyboard.press("Escape")
    expect(result.locator("[data-side=A] .ps-crosshair")).to_be_hidden()


def test_a_wide_window_puts_them_side_by_side_and_one_click_stacks_them(result: Page) -> None:
    result.set_viewport_size({"width": 1600, "height": 1000})

    def tops() -> list[float]:
        return [
            result.locator(f"[data-side={side}] canvas[data-role=lanes]").bounding_box()["y"]  # type: ignore[index]
            for side in "AB"
        ]

    expect(result.locator("[data-side=A] canvas[data-role=axis]")).to_be_visible()
    assert tops()[0] == tops()[1]
    result.locator("[data-role=arrange]").click()
    expect(result.locator("[data-side=A] canvas[data-role=axis]")).to_be_hidden()
    assert tops()[0] < tops()[1]


def test_the_timelines_are_named_for_who_does_not_see_them(result: Page) -> None:
    name = result.locator("[data-side=B] canvas[data-role=lanes]").get_attribute("aria-label")
    assert re.match(
        r"B: Chunked prefill\. 4 requests, \d+ steps, .* longest gap \d+ ms", name or ""
    )


def test_the_gap_chart_takes_the_theme(result: Page) -> None:
    strokes = []
    for _ in range(2):
        stroke, wanted = result.evaluate(
            """() => {
              const probe = document.createElement("i");
              probe.style.color = "var(--ink)";
              document.body.append(probe);
              const line = document.querySelector("#ps-compare-gaps-plot .js-line");
              return [getComputedStyle(line).stroke, getComputedStyle(probe).color];
            }"""
        )
        assert stroke == wanted
        strokes.append(stroke)
        result.locator("[data-role=theme]").click()
    assert strokes[0] != strokes[1]


def test_the_requests_of_both_sides_are_also_a_table(result: Page) -> None:
    result.locator(".ps-compare-timelines .ps-as-table summary").click()
    rows = result.locator(".ps-compare-timelines .ps-table tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.last).to_contain_text("1,500")
    head = result.locator(".ps-compare-timelines .ps-table thead")
    expect(head).to_contain_text("A longest pause")
    expect(head).to_contain_text("B TTFT")
    result.locator("#ps-compare-gaps .ps-as-table summary").click()
    expect(result.locator("#ps-compare-gaps tbody tr")).to_have_count(7)


def test_no_width_makes_the_page_scroll_sideways(result: Page) -> None:
    result.locator("#ps-compare-change").click()
    expect(result.locator("#ps-compare-form")).to_be_visible()
    for width in (1440, 1000, 390, 320):
        result.set_viewport_size({"width": width, "height": 844})
        expect(result.locator("#ps-compare-form")).to_be_visible()
        assert result.evaluate("document.documentElement.scrollWidth") <= width


def test_the_tab_has_no_serious_finding_of_axe(result: Page) -> None:
    result.locator("#ps-compare-change").click()
    result.locator("#ps-compare .ps-menu summary").click()
    assert serious_findings(result) == []
    result.locator("[data-role=theme]").click()
    assert serious_findings(result) == []
    result.set_viewport_size({"width": 390, "height": 900})
    assert serious_findings(result) == []


def serious_findings(page: Page) -> list[str]:
    return [
        f"{violation['id']}: {node['target']}: {node['failureSummary']}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def test_any_traffic_can_be_sent_to_both_sides(form: Page) -> None:
    form.locator("#ps-compare-preset input").click()
    form.get_by_role("option", name=COMPARE["own"]).click()
    form.get_by_role("radio", name=re.compile("^Long output")).check()
    requests = form.locator("#ps-compare-traffic-requests input")
    expect(requests).to_have_value("12")  # the shape's own, before it is changed
    requests.fill("8")
    expect(form.locator("#ps-compare-traffic-card")).to_contain_text("8 requests")
    expect(form.locator("#ps-a-words")).to_contain_text("New prompts are read whole at once")
    form.get_by_test_id("Simulation-radio-label").click()
    set_repeats(form, 1)
    form.locator("#ps-compare-run").click()
    expect(form.locator(".ps-workload-line")).to_contain_text("Long output")
    expect(form.locator(".ps-workload-line")).to_contain_text("8 requests")
    expect(form.locator("[data-side=B] canvas[data-role=axis]")).to_be_visible()


def test_the_chat_stays_as_it_was_behind_the_tab(form: Page) -> None:
    form.get_by_role("tab", name="Chat").click()
    form.get_by_label("Your message").fill("half a sentence")
    form.get_by_role("tab", name="Compare").click()
    expect(form.locator("#ps-compare-run")).to_be_visible()
    form.get_by_role("tab", name="Chat").click()
    expect(form.get_by_label("Your message")).to_have_value("half a sentence")


def test_a_locked_server_asks_for_its_key(browser: Browser, page: Page, tmp_path: Path) -> None:
    port = free_port()
    with serve_compare(port, tmp_path, admin_key="open sesame") as (service, _):
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_role("tab", name="Compare").click()
        page.get_by_test_id("Simulation-radio-label").click()
        set_repeats(page, 1)
        page.locator("#ps-compare-run").click()
        expect(page.locator(".ps-status")).to_have_text(COMPARE["wrong_key"])
        page.locator("#ps-compare-key input").fill("open sesame")
        page.locator("#ps-compare-run").click()
        expect(page.locator("[data-result]")).to_be_attached()
        assert service.turn is None
        page.goto("about:blank")  # before its server goes
