"""Headline, side cards, drawer, tables and definitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import FakeServer
from ui.words import CAPTIONS, DASH

Show = Callable[..., Page]
PARTS = ".ps-plot[data-view=parts]"


# Alpha of the faintest pixel amid the cells of the map, of 255.
FAINTEST = """() => {
  const canvas = document.querySelector('#ps-kv canvas');
  const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const pitch = width / 36;
  const middle = (n) => Math.round((n + 0.45) * pitch);
  const owned = [...Array(36 * 5).keys()];
  return Math.min(...owned.map((i) => {
    const [x, y] = [middle(i % 36), middle(Math.floor(i / 36))];
    return data[4 * (y * width + x) + 3];
  }));
}"""


def test_headline_numbers_are_those_of_the_feed(show: Show) -> None:
    page = show("chat")
    page.wait_for_function("document.querySelector('[data-role=running]').textContent !== '\u2013'")
    total = page.evaluate("phasescope.trace.sum")
    assert page.inner_text("[data-role=running]") == str(total["run"])
    assert page.inner_text("[data-role=waiting]") == str(total["wait"])
    assert page.inner_text("[data-role=kv]") == str(round(100 * total["used"] / 576))
    ttft = page.inner_text("[data-metric=ttft]")
    assert "7 requests" in ttft
    assert "p50" in ttft
    assert "max" in ttft
    assert "p95" not in ttft
    assert "p95" in page.inner_text("[data-metric=itl]")


def test_without_samples_the_headline_shows_a_dash(show: Show) -> None:
    page = show("empty")
    page.wait_for_function("document.querySelector('[data-role=running]').textContent === '0'")
    assert page.inner_text("[data-metric=ttft] dd").strip() == DASH
    assert page.inner_text("[data-role=output]") == "0"


def test_headline_changes_at_most_twice_a_second(show: Show, fake: Any) -> None:
    page = show("chat")
    page.evaluate(
        """() => {
          window.changes = [];
          const everything = {subtree: true, characterData: true, childList: true};
          new MutationObserver(() => window.changes.push(performance.now()))
            .observe(document.querySelector('.ps-headline'), everything);
          let i = 0;
          window.pump = setInterval(() => {
            phasescope.trace.sum = {...phasescope.trace.sum, run: i++};
            phasescope.app.invalidate('data');
          }, 40);
        }"""
    )
    page.wait_for_function("window.changes.length >= 4")
    changes = page.evaluate("(clearInterval(window.pump), window.changes)")
    assert all(b - a > 450 for a, b in pairwise(changes))


def test_ttft_parts_add_up_to_the_value_shown(show: Show) -> None:
    page = show("chat")
    page.wait_for_function(f"document.querySelector('{PARTS}').data?.[0]?.y?.length === 7")
    data = page.evaluate(
        f"document.querySelector('{PARTS}').data.map((t) => ({{name: t.name, x: t.x}}))"
    )
    assert [trace["name"] for trace in data] == ["preparation", "queue", "prefill", "delivery"]
    for row in range(7):
        first = page.evaluate(f"phasescope.trace.requests.get({row + 1}).ttft")
        assert sum(trace["x"][row] for trace in data[:3]) <= first
    shown = page.evaluate(
        f"document.querySelector('{PARTS}').layout.annotations.map((a) => a.text)"
    )
    assert any("p50" in text for text in shown)
    assert not any("p95" in text for text in shown)


def test_ttft_over_time_has_a_dot_a_request(show: Show) -> None:
    page = show("many", query="window=all")
    caption = page.locator("#ps-ttft [data-role=caption]")
    expect(caption).to_have_text(CAPTIONS["ttft"][1])
    page.click("[data-choose=time]")
    expect(caption).to_contain_text("bigger for yours")
    time = ".ps-plot[data-view=time]"
    page.wait_for_function(f"document.querySelector('{time}').data?.[0]?.x?.length > 20")
    read = page.evaluate(
        "[...phasescope.trace.requests.values()]"
        ".filter((r) => r.ttft !== null && r.ftd <= phasescope.trace.now).length"
    )
    dots = page.evaluate(
        f"document.querySelector('{time}').data.slice(0, 2).map((t) => t.x.length)"
    )
    assert sum(dots) == read


def test_hovering_a_block_a_lane_and_a_legend_entry_points_at_one_request(show: Show) -> None:
    page = show("chat")
    page.locator(".ps-lane").nth(4).hover()
    page.wait_for_function("phasescope.app.emphasis === 5")
    page.locator(".ps-kv-legend [data-request='6']").hover()
    page.wait_for_function("phasescope.app.emphasis === 6")
    page.wait_for_function(f"({FAINTEST})() === 46")  # 18 % of 255
    canvas = page.locator("#ps-kv canvas").bounding_box()
    page.mouse.move(canvas["x"] + 4, canvas["y"] + 4)
    owner = page.evaluate("phasescope.trace.kv.owners[0]")
    page.wait_for_function(f"phasescope.app.emphasis === {owner}")
    page.mouse.click(canvas["x"] + 4, canvas["y"] + 4)
    expect(page.locator(".ps-drawer h2")).to_have_text(f"R{owner}")
    page.mouse.move(5, 5)
    page.wait_for_function("phasescope.app.emphasis === null")
    page.wait_for_function(f"({FAINTEST})() > 200")
    page.keyboard.press("Escape")
    expect(page.locator(".ps-drawer")).to_be_hidden()  # it lies over the rows
    row = page.locator(".ps-plot[data-view=parts] .barlayer .trace").nth(2).locator("path").nth(4)
    bar = row.bounding_box()
    middle = (bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2)
    page.mouse.move(*middle)
    page.wait_for_function("phasescope.app.emphasis === 5")
    page.mouse.click(*middle)
    expect(page.locator(".ps-drawer h2")).to_have_text("R5")


def test_the_block_legend_counts_add_up_to_the_pool(show: Show) -> None:
    page = show("chat")
    page.wait_for_function("document.querySelectorAll('.ps-kv-legend .ps-legend-item').length > 3")
    entries = page.locator(".ps-kv-legend .ps-legend-item").all_inner_texts()
    counts = [
        int(m[1].replace(",", "")) for m in (re.search(r" ([\d,]+)$", e) for e in entries) if m
    ]
    assert sum(counts) == 576
    assert any(entry.startswith("R7 you") for entry in entries)


def test_the_block_legend_keeps_nothing_of_requests_that_are_gone(
    show: Show, fake: FakeServer
) -> None:
    page = show("chat")
    entries = page.locator(".ps-kv-legend .ps-legend-item")
    expect(page.locator(".ps-kv-legend [data-request]").first).to_be_visible()
    first = set(entries.evaluate_all("items => items.map((item) => item.dataset.request)"))
    fake.control(seconds=60)
    gone = """(first) => !first.every((n) =>
      document.querySelector(`.ps-kv-legend [data-request="${n}"]`))"""
    page.wait_for_function(gone, arg=[number for number in first if number])
    kept = """[...phasescope.app.panels].find(({ constructor }) => constructor.name === "KvMap")
      .items.size"""
    assert page.evaluate(kept) == entries.count()


def test_an_empty_pool_says_so(show: Show) -> None:
    page = show("empty")
    expect(page.locator("#ps-kv [data-role=caption]")).to_have_text(
        "Empty cache: 0 of 576 blocks in use."
    )


def test_one_token_offset_is_one_token(show: Show) -> None:
    page = show("chat")
    expect(page.locator("[data-role=offset-title]")).to_have_text("One-token offset, R7")
    rows = [row.inner_text().split("\n") for row in page.locator(".ps-offset-row").all()]
    newest = page.evaluate("phasescope.trace.requests.get(7).out")
    assert rows[0][-1] == f"y{newest}"
    assert rows[1][-1] == "next"
    assert rows[1][-2] == f"y{newest - 1}"


def test_the_drawer_tells_one_request_and_gives_focus_back(show: Show) -> None:
    page = show("chat")
    page.locator(".ps-lane").nth(5).focus()
    page.keyboard.press("Enter")
    drawer = page.locator(".ps-drawer")
    expect(drawer).to_be_visible()
    text = drawer.inner_text()
    request = page.evaluate(
        "(({ttft, prompt, out}) => ({ttft, prompt, out}))(phasescope.trace.requests.get(6))"
    )
    assert "R6" in text
    assert re.search(r"add up to TTFT, [\d.]+ s", text)
    assert re.search(rf"Prompt tokens\s+{request['prompt']}", text)
    for role, file in {"save": "R6.json", "trace": "R6.trace"}.items():
        link = drawer.locator(f"[data-role={role}]")
        assert link.get_attribute("href").endswith(f"live/request/{file}")
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    assert page.evaluate("document.activeElement.dataset.request") == "6"


def test_a_chat_footer_marks_and_opens_its_request(show: Show) -> None:
    page = show("chat")
    page.wait_for_function("phasescope.own.has(7)")
    page.click("#ps-chat [data-request='7']")
    expect(page.locator(".ps-drawer h2")).to_have_text("R7 (you)")


def test_own_requests_are_still_own_after_a_reload(show: Show) -> None:
    page = show("chat")
    page.evaluate("phasescope.own.add(2)")
    page.reload()
    page.wait_for_function("window.phasescope?.trace.version > 0")
    page.wait_for_function("phasescope.own.has(2)")


def test_every_chart_has_its_numbers_as_a_table(show: Show) -> None:
    page = show("chat")
    for name in ("requests", "steps", "gaps", "growth", "kv", "ttft", "roofline"):
        page.click(f"[data-table={name}]")
        table = page.locator(f"[data-table-of={name}] table")
        expect(table).to_be_visible()
        columns = table.locator("tbody tr").first.locator("td").count()
        assert table.locator("thead th").count() == columns, name
        assert table.locator("tbody tr").count() >= (1 if name == "roofline" else 7), name
        page.click(f"[data-table={name}]")
        expect(page.locator(f"[data-table-of={name}]")).to_be_hidden()


def test_definitions_open_on_focus_and_close_with_escape(show: Show) -> None:
    page = show("chat")
    term = page.locator(".ps-kpi .ps-def", has_text="TTFT")
    tip = page.locator(f"#{term.get_attribute('aria-describedby')}")
    expect(tip).to_be_hidden()
    term.focus()
    expect(tip).to_be_visible()
    expect(tip).to_contain_text("first_token_delivered")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_steps_lie_under_the_measured_roof(show: Show) -> None:
    page = show("chat")
    roof = "#ps-roofline .ps-plot"
    page.wait_for_function(f"document.querySelector('{roof}').data?.[2]?.x?.length > 3")
    names = page.evaluate(f"document.querySelector('{roof}').data.map((t) => t.name)")
    assert names == ["roof", "ridge", "decode", "prefill", "overhead"]
    above = page.evaluate(
        f"""document.querySelector('{roof}').data.slice(2).flatMap((t) => t.x.map((x, i) =>
          t.y[i] > 1.05 * Math.min(720, 38 * x))).filter(Boolean).length"""
    )
    assert above == 0


def test_the_drawer_says_what_the_prompt_is_made_of(show: Show) -> None:
    page = show("chat")
    page.evaluate("phasescope.app.open(7)")
    made_of = page.locator(".ps-composition")
    expect(made_of.locator("li")).to_have_text(
        ["system prompt 30", "earlier turns 210", "new message 1,041", "chat template 12"]
    )
    widths = made_of.locator(".ps-composition-bar i").evaluate_all(
        "(marks) => marks.map((mark) => mark.getBoundingClientRect().width)"
    )
    assert widths[2] / widths[1] == pytest.approx(1041 / 210, rel=0.05)


def test_a_prompt_of_unknown_parts_shows_no_bar(show: Show) -> None:
    page = show("chat")
    page.route("**/live/request/*", lambda route: route.fulfill(json={"composition": {}}))
    with page.expect_response("**/live/request/*"):
        page.evaluate("phasescope.app.open(6)")
    page.wait_for_timeout(100)
    expect(page.locator(".ps-composition")).to_be_hidden()
