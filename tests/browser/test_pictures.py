"""The page beside approved pictures, so that a panel that went missing or moved is noticed.

Words move with the widths of a font, so all pictures are taken with Liberation Sans whatever else
is installed (Debian: fonts-liberation); a machine without it skips the comparison and says so,
except where ``CI=true``. Even the same letters are drawn differently from machine to machine, so
both pictures are made small before they are compared, which leaves shapes and colours, and the tile
that differs most decides: one that lost its panel differs much more than one with other letters.
After a wanted change look at the new pictures and approve them with

    python -m tests.browser.test_pictures
"""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page

Show = Callable[..., Page]

APPROVED = Path(__file__).parent / "approved"
SCALE = 8
"""Pixels of the page, each way, that become one that is compared."""
LEVELS = 32
"""Difference of a colour channel, of 255, from which a small pixel counts as another one."""
TILE = 15
"""Small pixels each way that are judged together."""
MOST_DIFFERENT = 0.07
"""Share of a tile that may differ: letters drawn otherwise make 0.04, a missing panel 0.1 on."""

FONT = "Liberation Sans"
ONE_FONT = f'body {{ --font: "{FONT}" !important; }} * {{ font-family: "{FONT}" !important; }} '
HAS_FONT = """(font) => {
  const pen = document.createElement("canvas").getContext("2d");
  const widths = ["monospace", "serif"].map((fallback) => {
    pen.font = `40px "${font}", ${fallback}`;
    return pen.measureText("Time to first token").width;
  });
  return widths[0] === widths[1];
}"""

# name: scenario, width, height, theme, and whether a request is opened
PICTURES = {
    "chat-light-1440": ("chat", 1440, 900, "light", False),
    "drawer-dark-1920": ("chat", 1920, 1080, "dark", True),
    "flood-light-1440": ("flood", 1440, 900, "light", False),
    "chat-dark-390": ("chat", 390, 2400, "dark", False),
}


def prepared(show: Show, name: str) -> Page:
    """The page over the fake feed, whose numbers are the same each time, with everything drawn."""
    scenario, width, height, theme, opened = PICTURES[name]
    page = show(scenario, query=f"__theme={theme}")
    page.set_viewport_size({"width": width, "height": height})
    if opened:
        page.evaluate("phasescope.app.open(5)")
    page.wait_for_function(
        "document.querySelector('.ps-plot[data-view=parts]')?.data?.[0].y.length"
    )
    page.wait_for_function("document.querySelector('.ps-roofline')?.data?.length")
    _require_font(page)
    return page


def take(page: Page, css: str = "") -> Image.Image:
    """A picture of the page, with a style of a test's own."""
    style = page.add_style_tag(content=ONE_FONT + css)
    page.evaluate("document.body.classList.toggle('ps-one-font')")  # the canvases take it up
    page.evaluate("phasescope.app.invalidate('size')")
    page.wait_for_timeout(800)
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    style.evaluate("(element) => element.remove()")
    return picture


def _require_font(page: Page) -> None:
    """Skip without the font of the approved pictures: a missing one is drawn as the fallback."""
    if page.evaluate(HAS_FONT, FONT):
        return
    reason = f"{FONT} is not installed, and other letters would move the words of the pictures"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def small(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.reduce(SCALE), dtype=np.int16)


def difference(a: Image.Image, b: Image.Image) -> float:
    """Share of small pixels that differ in the worst tile of two pictures; 1 if their sizes do."""
    if a.size != b.size:
        return 1.0
    differs = np.abs(small(a) - small(b)).max(axis=2) >= LEVELS
    rows, columns = (range(0, side, TILE) for side in differs.shape)
    return max(float(differs[y : y + TILE, x : x + TILE].mean()) for y in rows for x in columns)


@pytest.mark.parametrize("name", PICTURES)
def test_the_page_looks_as_approved(
    show: Show, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    picture = take(prepared(show, name))
    with Image.open(APPROVED / f"{name}.webp") as approved:
        share = difference(picture, approved.convert("RGB"))
    if share > MOST_DIFFERENT:
        seen = tmp_path_factory.mktemp("pictures") / f"{name}.png"
        picture.save(seen)
        pytest.fail(
            f"A part of {name} differs by {share:.0%}, more than {MOST_DIFFERENT:.0%}. Look at "
            f"{seen}; if it is as wanted: python -m tests.browser.test_pictures"
        )


PANELS = ("#ps-headline", "#ps-ttft", "#ps-roofline", "[data-band=growth]")
OTHER_LETTERS = "body * { text-rendering: geometricPrecision; letter-spacing: .06px; }"


def test_a_missing_panel_would_be_noticed_and_other_letters_not(show: Show) -> None:
    page = prepared(show, "chat-light-1440")
    whole = take(page)
    for panel in PANELS:
        without = take(page, f"{panel} {{ opacity: 0; }}")
        assert difference(whole, without) > MOST_DIFFERENT, panel
    assert 0 < difference(whole, take(page, OTHER_LETTERS)) < MOST_DIFFERENT


def approve() -> None:
    """Take all pictures anew and write them over the approved ones."""
    from playwright.sync_api import sync_playwright

    from tests.browser import conftest, fake_app

    port = conftest.free_port()
    feed = fake_app.FakeFeed("empty")
    demo = fake_app.serve(feed, port)
    APPROVED.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=conftest.find_chromium(), args=conftest.FLAGS
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})

        def show(scenario: str, *, query: str) -> Page:
            feed.load(scenario)
            page.set_viewport_size({"width": 1440, "height": 900})
            page.goto(f"http://127.0.0.1:{port}/?{query}")
            page.wait_for_function("window.phasescope?.trace.version > 0")
            return page

        for name in PICTURES:
            take(prepared(show, name)).save(APPROVED / f"{name}.webp", quality=80, method=6)
            print(APPROVED / f"{name}.webp")
        browser.close()
    demo.close(verbose=False)


if __name__ == "__main__":
    approve()
