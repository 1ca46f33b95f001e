"""The timeline in a real browser: it draws, reads out, scales, and obeys pointer and keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

Show = Callable[..., Page]
REDRAW = """async (n) => {
  const {app} = window.phasescope;
  const timeline = [...app.panels].find((panel) => panel.bands);
  const times = [];
  for (let i = 0; i < n; i += 1) {
    await new Promise(requestAnimationFrame);
    const start = performance.now();
    timeline.draw(new Set(['data']));
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b);
}"""
COLOURS = """([band, names]) => {
  const canvas = document.querySelector(`[data-band=${band}] canvas`);
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const style = getComputedStyle(document.body);
  return names.map((name) => {
    const hex = style.getPropertyValue('--' + name).trim().match(/[0-9A-F]{2}/gi);
    const wanted = hex.map((digits) => parseInt(digits, 16));
    let n = 0;
    for (let i = 0; i < data.length; i += 4) {
      if (data[i] === wanted[0] && data[i + 1] === wanted[1] && data[i + 2] === wanted[2]) n += 1;
    }
    return n;
  });
}"""


def label(page: Page) -> str:
    return page.inner_text(".ps-timeline [data-role=label]")


def box(page: Page, band: str) -> dict[str, float]:
    found = page.locator(f"[data-band={band}] canvas").bounding_box()
    assert found is not None
    return found


def texts(page: Page, band: str) -> list[str]:
    """Words the band writes on its canvas when drawn once more."""
    return page.evaluate(
        """(band) => {
          const {app} = window.phasescope;
          const timeline = [...app.panels].find((panel) => panel.bands);
          const surface = timeline.bands.find((entry) => entry.band.name === band).surface;
          const words = [];
          const original = surface.text;
          surface.text = (x, y, text, style) => {
            words.push(text);
            original.call(surface, x, y, text, style);
          };
          timeline.draw(new Set(['view']));
          delete surface.text;
          return words;
        }""",
        band,
    )


def test_all_bands_draw_both_phases(show: Show) -> None:
    page = show("chat")
    assert all(n > 200 for n in page.evaluate(COLOURS, ["requests", ["prefill", "decode"]]))
    assert all(n > 200 for n in page.evaluate(COLOURS, ["steps", ["prefill", "decode"]]))
    assert page.evaluate(COLOURS, ["gaps", ["ink"]])[0] > 50
    assert page.evaluate(COLOURS, ["growth", ["kv1"]])[0] > 10


def test_lanes_say_who_what_and_how_long(show: Show) -> None:
    page = show("chat")
    words = texts(page, "requests")
    assert {"R1", "R5", "you", "2,000"} <= set(words)
    assert any(re.fullmatch(r"first token in [\d.]+ m?s", word) for word in words)
    assert any(word.startswith("288 of 312 prompt tokens reused") for word in words)


def test_without_requests_it_says_so(show: Show) -> None:
    page = show("empty")
    assert "No requests yet. Send a message, or add 5 users." in texts(page, "requests")


def test_new_frames_move_the_picture(show: Show, fake: Any) -> None:
    page = show("chat")
    before = label(page)
    steps = page.evaluate("phasescope.trace.steps.length")
    fake.control(seconds=2)
    page.wait_for_function(f"phasescope.trace.steps.length > {steps}")
    page.wait_for_function(
        f"document.querySelector('.ps-timeline [data-role=label]').textContent !== {before!r}"
    )


def test_crosshair_goes_through_all_bands_and_reads_out(show: Show) -> None:
    page = show("chat")
    band = box(page, "requests")
    page.mouse.move(band["x"] + 330, band["y"] + 60)
    expect(page.locator(".ps-crosshair")).to_be_visible()
    page.wait_for_function("phasescope.app.view.cursor !== null")
    page.wait_for_timeout(100)
    assert re.match(r"0:\d\d\.\d\d · step \d+ · [\d.]+ m?s · \w+-bound", label(page))
    words = texts(page, "requests")
    assert "at cursor" in words
    assert any(re.fullmatch(r"y\d+", word) for word in words)
    assert "reading" in words
    assert any(word.endswith(" prefill") for word in texts(page, "steps"))
    line, growth = page.locator(".ps-crosshair").bounding_box(), box(page, "growth")
    assert line["y"] < band["y"] + 20
    assert line["y"] + line["height"] > growth["y"] + 40
    page.mouse.move(20, 20)
    page.wait_for_function("phasescope.app.view.cursor === null")
    assert "output" in texts(page, "requests")


def test_a_tap_sets_the_crosshair(show: Show) -> None:
    page = show("chat")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    page.evaluate(
        """() => {
          const canvas = document.querySelector('[data-band=gaps] canvas');
          const { left, top, width, height } = canvas.getBoundingClientRect();
          const at = { clientX: left + width / 2, clientY: top + height / 2 };
          for (const type of ['pointerdown', 'pointerup', 'pointerleave']) {
            const touch = { ...at, bubbles: true, pointerType: 'touch', pointerId: 7 };
            canvas.dispatchEvent(new PointerEvent(type, touch));
          }
        }"""
    )
    expect(page.locator(".ps-crosshair")).to_be_visible()
    assert re.match(r"0:\d\d\.\d\d · ", label(page))


def test_an_open_crosshair_keeps_its_time_while_data_scrolls(show: Show, fake: Any) -> None:
    page = show("chat")
    band = box(page, "gaps")
    page.mouse.move(band["x"] + 300, band["y"] + 30)
    page.wait_for_function("phasescope.app.view.cursor !== null")
    at = page.evaluate("phasescope.app.view.cursor")
    version = page.evaluate("phasescope.trace.version")
    fake.control(seconds=1)
    page.wait_for_function(f"phasescope.trace.version > {version}")
    assert page.evaluate("phasescope.app.view.cursor") == at


def test_pause_freezes_charts_and_says_how_far_behind(show: Show, fake: Any) -> None:
    page = show("chat")
    page.click("[data-role=pause]")
    frozen = page.evaluate("phasescope.app.view.domain()")
    before = page.evaluate("document.querySelector('[data-band=requests] canvas').toDataURL()")
    version = page.evaluate("phasescope.trace.version")
    fake.control(seconds=3)
    page.wait_for_function(f"phasescope.trace.version > {version}")
    page.wait_for_function(
        "/paused, [\\d.]+ s behind/.test("
        "document.querySelector('.ps-timeline [data-role=label]').textContent)"
    )
    assert page.evaluate("phasescope.app.view.domain()") == frozen
    assert (
        page.evaluate("document.querySelector('[data-band=requests] canvas').toDataURL()") == before
    )
    assert page.inner_text("[data-role=pause]").strip() == "Resume"
    page.click("[data-role=pause]")
    page.wait_for_function(f"phasescope.app.view.domain()[1] > {frozen[1]}")


def test_space_pauses_only_outside_fields(show: Show) -> None:
    page = show("chat")
    page.locator("#ps-chat textarea").focus()
    page.keyboard.press("Space")
    assert not page.evaluate("phasescope.app.view.paused")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    assert page.evaluate("phasescope.app.view.paused")


def test_arrows_move_between_lanes_and_steps(show: Show) -> None:
    page = show("chat")
    page.locator(".ps-stack").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.request") == "2"
    page.wait_for_function("phasescope.app.emphasis === 2")
    page.keyboard.press("ArrowLeft")
    first = page.evaluate("phasescope.trace.stepAt(phasescope.app.view.cursor)[0]")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("phasescope.trace.stepAt(phasescope.app.view.cursor)[0]") == first - 1
    page.keyboard.press("Escape")
    assert page.evaluate("phasescope.app.view.cursor") is None


def test_the_window_is_chosen_and_kept_in_the_address(show: Show) -> None:
    page = show("chat")
    page.select_option("[data-role=window]", "seconds-10")
    assert page.evaluate("(([a, b]) => b - a)(phasescope.app.view.domain())") == 100_000
    page.wait_for_url("**window=seconds-10**")
    page.reload()
    page.wait_for_function("window.phasescope?.trace.version > 0")
    assert page.evaluate("phasescope.app.view.window") == "seconds-10"


def test_a_link_reopens_the_same_zoom(show: Show) -> None:
    page = show("chat")
    page.evaluate("(phasescope.app.view.show(60000, 90000), phasescope.app.invalidate('view'))")
    page.wait_for_url("**from=6.000**")
    page.reload()
    page.wait_for_function("window.phasescope?.app.view.zoomed")
    assert page.evaluate("phasescope.app.view.zoomed") == [60_000, 90_000]
    page.click("[data-role=unzoom]")
    page.wait_for_function("!location.search.includes('from=')")


def test_dragging_measures_and_zooms(show: Show) -> None:
    page = show("chat")
    band = box(page, "gaps")
    page.mouse.move(band["x"] + 200, band["y"] + 40)
    page.mouse.down()
    page.mouse.move(band["x"] + 320, band["y"] + 45, steps=4)
    page.mouse.up()
    page.wait_for_function("phasescope.app.view.selection !== null")
    page.wait_for_timeout(100)
    found = re.match(
        r"([\d.]+) s · (\d+) steps · (\d+) gaps · mean (\d+) ms · min (\d+) ms · max (\d+) ms",
        label(page),
    )
    assert found
    mean, low, high = (int(found[i]) for i in (4, 5, 6))
    assert low <= mean <= high
    assert page.evaluate("phasescope.app.view.selection !== null")
    start, end = page.evaluate("phasescope.app.view.selection")
    page.click("[data-role=zoom-selection]")
    assert page.evaluate("phasescope.app.view.domain()") == pytest.approx([start, end], abs=2)
    page.click("[data-role=unzoom]")
    assert page.evaluate("phasescope.app.view.zoomed") is None


def test_wheel_zooms_with_ctrl_and_keeps_the_time_under_the_pointer(show: Show) -> None:
    page = show("chat")
    band = box(page, "steps")
    page.mouse.move(band["x"] + 300, band["y"] + 30)
    before = page.evaluate("phasescope.app.view.domain()")
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(100)
    assert page.evaluate("phasescope.app.view.zoomed") is None
    under = page.evaluate("phasescope.app.view.cursor")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function("phasescope.app.view.zoomed !== null")
    after = page.evaluate("phasescope.app.view.domain()")
    assert after[1] - after[0] < before[1] - before[0]
    share = (under - before[0]) / (before[1] - before[0])
    assert (under - after[0]) / (after[1] - after[0]) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("scenario", "mode", "buttons"),
    [("chat", "full", 7), ("thirty", "thin", 27), ("many", "raster", 64), ("flood", "counts", 1)],
)
def test_each_crowd_has_its_own_drawing(show: Show, scenario: str, mode: str, buttons: int) -> None:
    page = show(scenario, query="window=all")
    page.evaluate("phasescope.own.add(7)")
    page.wait_for_function("[...phasescope.app.panels].some((p) => p.scene?.own.has(7))")
    page.wait_for_timeout(150)
    timeline = "[...phasescope.app.panels].find((p) => p.bands)"
    assert page.evaluate(f"{timeline}.scene.lanes.mode") == mode
    assert page.locator(".ps-lane").count() == pytest.approx(
        buttons, abs=3 if mode == "thin" else 0
    )
    assert "R7" in texts(page, "requests")


@pytest.mark.parametrize(("scenario", "limit_ms"), [("many", 16), ("flood", 33)])
def test_redrawing_keeps_up_with_the_screen(show: Show, scenario: str, limit_ms: float) -> None:
    page = show(scenario, query="window=all")
    times = page.evaluate(REDRAW, 24)
    assert times[len(times) // 4] < limit_ms, times


def test_a_tick_draws_once_and_a_crosshair_move_does_not_redraw_all(show: Show) -> None:
    page = show("chat")
    page.evaluate(
        """() => {
          const timeline = [...phasescope.app.panels].find((p) => p.bands);
          window.drawn = 0;
          for (const entry of timeline.bands.slice(1)) {
            const draw = entry.band.draw;
            entry.band.draw = (...args) => { window.drawn += 1; draw(...args); };
          }
        }"""
    )
    band = box(page, "gaps")
    for i in range(10):
        page.mouse.move(band["x"] + 200 + 10 * i, band["y"] + 30)
    page.wait_for_timeout(150)
    assert page.evaluate("window.drawn") == 0
    page.evaluate("for (let i = 0; i < 20; i += 1) phasescope.app.invalidate('data')")
    page.wait_for_timeout(150)
    assert page.evaluate("window.drawn") == 3


def test_a_failed_and_a_stopped_request_are_told_apart(show: Show) -> None:
    page = show("flood", query="window=all")
    states = page.evaluate("[...new Set([...phasescope.trace.requests.values()].map((r) => r.st))]")
    assert {"failed", "cancelled", "done"} <= set(states)
    own = page.evaluate("[...phasescope.trace.requests.values()].find((r) => r.st === 'failed').n")
    page.evaluate(f"phasescope.own.add({own})")
    page.wait_for_timeout(200)
    assert "failed" in texts(page, "requests")
    assert page.evaluate(COLOURS, ["requests", ["err"]])[0] > 5


def test_a_preempted_request_shows_its_cut_and_second_prefill(show: Show) -> None:
    page = show("tight", query="window=all")
    preempted = page.evaluate(
        "[...phasescope.trace.requests.values()].filter((r) => r.pre.length).map((r) => r.n)"
    )
    assert preempted
    again = page.evaluate(
        f"phasescope.trace.requests.get({preempted[0]}).chunks.filter((c) => c[3] === 1).length"
    )
    assert again >= 1
    page.evaluate(f"phasescope.app.open({preempted[0]})")
    told = page.locator("[data-role=facts] tr", has_text="Preempted")
    expect(told).to_contain_text(re.compile(r"(once|\d+ times).*\d recomputed"))


def test_canvases_and_lanes_speak(show: Show) -> None:
    page = show("chat")
    for band in ("requests", "steps", "gaps", "growth"):
        canvas = page.locator(f"[data-band={band}] canvas")
        assert canvas.get_attribute("role") == "img"
        assert len(canvas.get_attribute("aria-label")) > 25
    name = page.locator(".ps-lane").first.get_attribute("aria-label")
    assert re.match(r"R1: \w+\. Prompt 158 tokens, first token in \d+ ms, output \d+ tokens", name)


def test_buttons_keep_focus_while_data_arrives(show: Show, fake: Any) -> None:
    page = show("chat")
    page.locator(".ps-lane").nth(3).focus()
    version = page.evaluate("phasescope.trace.version")
    fake.control(seconds=1)
    page.wait_for_function(f"phasescope.trace.version > {version}")
    page.wait_for_timeout(100)
    assert page.evaluate("document.activeElement.dataset.request") == "4"


def test_drawing_follows_the_theme(show: Show) -> None:
    page = show("chat")
    page.click("[data-role=theme]")
    page.wait_for_function("document.body.classList.contains('dark')")
    page.wait_for_timeout(200)
    assert (
        page.evaluate("getComputedStyle(document.body).getPropertyValue('--decode').trim()")
        == "#4A97E6"
    )
    assert page.evaluate(COLOURS, ["requests", ["decode"]])[0] > 200
