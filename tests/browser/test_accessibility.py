"""axe-core on the page with data, forced colours, reduced motion and 200 % zoom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.browser.chat_server import ChatServer, serve_chat
from tests.browser.conftest import free_port
from tests.browser.settings_server import serve_settings

Show = Callable[..., Page]
SCREENS = [(1440, 900), (390, 844)]
TABLES = ("requests", "steps", "gaps", "growth", "kv", "ttft", "roofline")


def findings(page: Page) -> list[str]:
    """Serious and critical violations of axe-core, a line each."""
    return [
        f"{violation['id']}: {node['target']}: {node['failureSummary']}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.fixture(scope="module")
def chat(browser: Browser) -> Iterator[ChatServer]:
    with serve_chat(free_port(), pace=0.003) as server:
        yield server


def themed(page: Page, theme: str) -> None:
    """Choose a theme as a person does, unless it is there already."""
    if page.evaluate("document.body.classList.contains('dark')") != (theme == "dark"):
        page.locator("[data-role=theme]").click()


def test_the_chat_page_has_no_serious_finding(page: Page, chat: ChatServer) -> None:
    page.goto(f"{chat.url}?__theme=light")
    page.fill("#ps-message textarea", "once **bold** and `code`, then rest.")
    page.keyboard.press("Enter")
    expect(page.locator("#ps-log .ps-foot:not(.ps-running)")).to_be_visible()
    page.locator("#ps-chat-settings > button").click()
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        for theme in ("light", "dark"):
            themed(page, theme)
            assert findings(page) == [], (width, theme)


def test_charts_tables_and_drawer_have_no_serious_finding(show: Show) -> None:
    page = show("chat")
    for table in TABLES:
        page.evaluate("(t) => document.querySelector(`[data-table=${t}]`).click()", table)
    page.evaluate("phasescope.app.open(5)")
    expect(page.locator("[data-table-of=steps] td").first).to_be_attached()
    for (width, height), theme in zip(SCREENS, ("light", "dark"), strict=True):
        page.set_viewport_size({"width": width, "height": height})
        themed(page, theme)
        assert findings(page) == [], (width, theme)


def test_the_settings_panel_has_no_serious_finding(page: Page) -> None:
    port = free_port()
    with serve_settings(port, admin_key="key"):
        page.goto(f"http://127.0.0.1:{port}/?__theme=light")
        page.click("[data-role=settings]")
        page.click("#ps-settings-apply")
        expect(page.locator("#ps-settings-answer p")).to_be_visible()
        assert findings(page) == []
        page.check("[data-role=dark]")
        assert findings(page) == []
        page.goto("about:blank")  # the server ends before the page does


def test_axe_would_find_what_is_wrong(show: Show) -> None:
    page = show("chat")
    page.evaluate(
        "document.querySelector('#ps-chat').insertAdjacentHTML('beforeend', '<button></button>')"
    )
    assert any(line.startswith("button-name") for line in findings(page))


def outlined(page: Page) -> bool:
    """Whether the lanes' longest decode run has an edge of another colour than its middle."""
    return page.evaluate(
        """() => {
          const canvas = document.querySelector('[data-band=requests] canvas');
          const pen = canvas.getContext('2d');
          const { data, width, height } = pen.getImageData(0, 0, canvas.width, canvas.height);
          const white = (i) => Math.min(data[i], data[i + 1], data[i + 2]) > 240;
          const blue = (i) => data[i + 2] > data[i] + 80 && data[i + 3] > 200;
          let edges = 0;
          for (let x = 0; x < width; x += 1) {
            for (let y = 1; y < height; y += 1) {
              if (white(4 * ((y - 1) * width + x)) && blue(4 * (y * width + x))) edges += 1;
            }
          }
          return edges > 100;
        }"""
    )


def test_forced_colours_give_marks_an_outline_and_words_the_systems_colour(show: Show) -> None:
    page = show("chat", query="__theme=dark")
    assert not outlined(page)
    page.emulate_media(forced_colors="active", color_scheme="dark")
    page.wait_for_timeout(500)
    assert outlined(page)
    ink = page.evaluate(
        "import(new URL('live/assets/palette.js', document.baseURI)).then((m) => m.palette().ink)"
    )
    assert ink == "rgb(255, 255, 255)"
    # Plotly has no system colours: a name would have been dropped for its own default.
    label = page.locator(".ps-plot[data-view=parts] .ytick text").first
    assert label.evaluate("(e) => getComputedStyle(e).fill") == "rgb(255, 255, 255)"
    border = "(e) => getComputedStyle(e).borderTopWidth"
    assert page.locator(".ps-key-decode").first.evaluate(border) == "1px"


def test_reduced_motion_stops_what_moves(browser: Browser, fake: Any) -> None:
    fake.control(scenario="chat")
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(fake.url)
    page.wait_for_function("window.phasescope?.trace.version > 0")
    moving = page.evaluate(
        """[...document.querySelectorAll('.ps-panel, .ps-panel *')].filter((element) => {
          const style = getComputedStyle(element);
          return style.animationName !== 'none' || parseFloat(style.transitionDuration) > 0;
        }).length"""
    )
    context.close()
    assert moving == 0


def test_zoom_to_200_per_cent_needs_no_sideways_scroll(browser: Browser, fake: Any) -> None:
    fake.control(scenario="chat")
    context = browser.new_context(device_scale_factor=2)
    page = context.new_page()
    page.goto(fake.url)
    page.wait_for_function("window.phasescope?.trace.version > 0")
    for width, height in ((1440, 900), (1366, 768), (640, 900)):
        page.set_viewport_size({"width": width // 2, "height": height // 2})
        page.wait_for_timeout(400)
        assert page.evaluate("document.documentElement.scrollWidth") <= width // 2
        sharp = page.evaluate(
            "(c => c.width / c.offsetWidth)(document.querySelector('[data-band=steps] canvas'))"
        )
        assert sharp == pytest.approx(2, abs=0.02), width
    context.close()


def test_the_tab_key_goes_from_header_to_side(show: Show) -> None:
    page = show("chat")
    page.evaluate("document.body.tabIndex = -1; document.body.focus()")
    regions = ("ps-header", "ps-tabs", "ps-headline", "ps-chat", "ps-timeline", "ps-side")
    seen: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        inside, ring = page.evaluate(
            """(regions) => {
              const { activeElement } = document;
              const inside = regions.filter((id) => activeElement.closest(`#${id}`)).pop();
              const { outlineStyle, outlineWidth } = getComputedStyle(activeElement);
              return [inside ?? null, outlineStyle === 'none' ? 0 : parseFloat(outlineWidth)];
            }""",
            regions,
        )
        if inside in ("ps-header", "ps-headline", "ps-timeline", "ps-side"):
            assert ring == 2, inside
        if inside and (not seen or seen[-1] != inside):
            seen.append(inside)
    assert seen == list(regions)


def test_every_card_of_the_chat_page_has_its_heading(page: Page, chat: ChatServer) -> None:
    page.goto(chat.url)
    page.wait_for_function("window.phasescope")
    assert page.locator("h1").count() == 1
    assert page.evaluate("document.documentElement.lang") == "en"
    cards = page.evaluate(
        "[...document.querySelectorAll('#ps-columns .ps-card')]"
        ".filter((c) => c.offsetHeight).map((c) => c.querySelectorAll('h2').length)"
    )
    assert cards == [1] * 5
