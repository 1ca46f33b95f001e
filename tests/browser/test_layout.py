"""Screens from a phone to a wide desk, both themes, and a page that does not grow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from ui.page import ASSETS, STYLE_SHEETS

Show = Callable[..., Page]
GROUNDS = ("page", "surface", "surface-2", "own-band")


def themes() -> dict[str, dict[str, str]]:
    sheet = (ASSETS / "tokens.css").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = {}
    for name, selector in (("light", "body {"), ("dark", "body.dark {")):
        block = sheet[sheet.index(selector) :].split("}")[0]
        found[name] = dict(re.findall(r"--([\w-]+): (#[0-9A-F]{6})", block))
    return found


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "ink-2", "ink-3"])
def test_text_can_be_read_on_every_ground(theme: str, ink: str) -> None:
    colours = themes()[theme]
    assert min(contrast(colours[ink], colours[ground]) for ground in GROUNDS) >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_and_phase_words_can_be_told_from_the_ground(theme: str) -> None:
    colours = themes()[theme]
    assert (
        min(
            contrast(colours[c], colours["surface"]) for c in ("prefill", "decode", "queue", "prep")
        )
        >= 3
    )
    words = ("prefill-ink", "decode-ink", "ok", "warn", "err")
    assert min(contrast(colours[c], colours["surface"]) for c in words) >= 4.5


@pytest.mark.parametrize("sheet", [sheet for sheet in STYLE_SHEETS if sheet != "chat.css"])
def test_no_selector_list_would_be_cut_by_gradio(sheet: str) -> None:
    text = (ASSETS / sheet).read_text(encoding="utf-8")
    assert not re.findall(r":(?:is|where|has|not)\([^)]*,", text)


SCREENS = ((320, 700), (390, 844), (768, 1024), (1200, 900), (1366, 768), (1440, 900), (1920, 1080))


def test_no_screen_scrolls_sideways(show: Show) -> None:
    page = show("chat")
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(400)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for band in ("requests", "growth"):
            canvas = page.locator(f"[data-band={band}] canvas").bounding_box()
            assert canvas["x"] >= 0, (width, band)
            assert canvas["x"] + canvas["width"] <= width, (width, band)


def test_a_large_window_needs_no_page_scroll(show: Show) -> None:
    page = show("chat")
    for width, height in ((1440, 900), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(400)
        assert page.evaluate("document.documentElement.scrollHeight") <= height
        stack = page.evaluate(
            "((e) => e.scrollHeight - e.clientHeight)(document.querySelector('.ps-stack'))"
        )
        assert stack <= 2, width


def test_bars_above_the_columns_take_their_height_from_them(show: Show) -> None:
    page = show("chat")
    page.add_style_tag(content=":is(#ps-notice, #ps-turn) { display: block !important; }")
    page.evaluate("""() => {
      const show = (id) => {
        const bar = document.createElement("div");
        bar.className = "ps-notice";
        document.querySelector(`${id} .ps-notice`).before(bar);
        return bar.offsetHeight;
      };
      return show("#ps-notice") + show("#ps-turn");
    }""")
    assert page.evaluate("document.documentElement.scrollHeight") <= 900
    columns = page.locator("#ps-columns").bounding_box()
    assert columns is not None
    assert columns["y"] + columns["height"] == pytest.approx(900 - 16, abs=1)


def test_the_page_does_not_grow_with_its_frame(show: Show) -> None:
    page = show("chat")
    heights = []
    for height in (900, 1500, 2500, 4000):
        page.set_viewport_size({"width": 1440, "height": height})
        page.wait_for_timeout(250)
        heights.append(page.evaluate("document.querySelector('#ps-columns').offsetHeight"))
    assert heights[-1] == heights[-2] <= 1300


def test_columns_follow_the_breakpoints(show: Show) -> None:
    page = show("chat")
    style = "getComputedStyle(document.querySelector('#ps-columns'))"
    columns = f"{style}.gridTemplateColumns.split(' ').length"
    for width, expected in ((1440, 3), (1200, 2), (800, 1), (390, 1)):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(150)
        assert page.evaluate(columns) == expected, width


def test_one_h1_and_a_heading_for_every_card(show: Show) -> None:
    page = show("chat")
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en"
    titles = page.locator("#ps-columns h2:visible").all_inner_texts()
    assert titles == [
        "Chat",
        "Timeline",
        "KV cache now",
        "Time to first token",
        "What limits each step",
    ]


def test_touch_targets_are_large_on_a_phone(show: Show) -> None:
    page = show("chat")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    targets = ("[data-role=pause]", "[data-role=window]", "[data-role=theme]", ".ps-choice")
    for target in targets:
        size = page.locator(target).bounding_box()
        assert size["height"] >= 44, target
    for button in page.locator(".ps-table-button").all():
        # What is seen is small; what answers is not.
        assert button.evaluate(
            """(button) => {
              button.scrollIntoView({ block: "center" });
              const { left, top, width, height } = button.getBoundingClientRect();
              const [x, y] = [left + width / 2, top + height / 2];
              const hit = (dy) => document.elementFromPoint(x, y + dy);
              return [-21, 0, 21].every((dy) => button.contains(hit(dy)));
            }"""
        )


def test_the_drawer_is_a_bottom_sheet_on_a_phone(show: Show) -> None:
    page = show("chat")
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("phasescope.app.open(5)")
    sheet = page.locator(".ps-drawer").bounding_box()
    assert sheet["width"] == 390
    assert sheet["y"] + sheet["height"] == pytest.approx(844, abs=1)


def test_it_starts_dark_where_the_system_is_dark(show: Show) -> None:
    page = show("chat", query="__theme=dark")
    expect(page.locator("body")).to_have_class(re.compile("dark"))
    ground = page.evaluate(
        "getComputedStyle(document.querySelector('.ps-timeline')).backgroundColor"
    )
    assert ground == "rgb(21, 27, 35)"


def test_hundreds_of_updates_leave_no_nodes_behind(show: Show, fake: Any) -> None:
    page = show("chat")
    tick = """(n) => new Promise((done) => {
      const step = () => {
        if (n-- === 0) return done(document.querySelectorAll('*').length);
        phasescope.trace.version += 1;
        for (const panel of phasescope.app.panels) { panel.drawnAt = -Infinity; panel.drawn = ''; }
        phasescope.app.invalidate('data');
        requestAnimationFrame(step);
      };
      step();
    })"""
    page.evaluate(tick, 10)
    page.wait_for_timeout(500)
    early = page.evaluate("document.querySelectorAll('*').length")
    page.evaluate(tick, 120)
    page.wait_for_timeout(1500)
    assert page.evaluate("document.querySelectorAll('*').length") <= early + 5
