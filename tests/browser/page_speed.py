"""How fast the page is: token sampled to painted, main thread, and growth, in a real browser.

One visitor's answer is watched while others stream beside it, over the real service and feed with
a model that says a letter a token. Both clocks are this machine's. Not a test: a busy machine is
slow. Run it as ``python -m tests.browser.page_speed --minutes 10``; with ``--requests 64`` or
``500`` it counts frames a second instead, over the fake feed with that many requests in the window
and the crosshair on the move.
"""

from __future__ import annotations

import argparse
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from playwright.sync_api import CDPSession, Page, sync_playwright

from engine.core.request import SamplingParams
from engine.service import EngineService
from tests.browser.chat_server import ChatServer, serve_chat
from tests.browser.conftest import FLAGS, find_chromium, free_port
from tests.browser.fake_app import FakeFeed, serve

LETTERS = "abcdefghij"
SCENARIOS = {"64": "many", "500": "flood"}
"""The fake feed's scenario for a number of requests in the window."""

CLEARED_AFTER = 4
"""Answers after which the conversation begins anew, so that its length is not what is measured."""

# After the frame in which the text changed has been handed to the compositor.
WATCH = """() => {
  window.painted = [];
  let due = false;
  const note = () => {
    due = false;
    const texts = [...document.querySelectorAll('#ps-log .bot-row .md:not(:has(.ps-foot))')];
    const length = texts.pop()?.textContent.trim().length ?? 0;
    window.painted.push([performance.timeOrigin + performance.now(), length]);
  };
  new MutationObserver(() => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => setTimeout(note));
  }).observe(document.querySelector("#ps-log"), {
    subtree: true, childList: true, characterData: true,
  });
}"""


# A pointer that moves in every frame has everything drawn that can be drawn in one.
FRAMES = """async (seconds) => {
  const stack = document.querySelector(".ps-bands");
  const { left, right, top } = stack.getBoundingClientRect();
  const begin = performance.now();
  const times = [];
  while (performance.now() - begin < 1000 * seconds) {
    times.push(await new Promise(requestAnimationFrame));
    const share = (times.length % 200) / 200;
    stack.dispatchEvent(new PointerEvent("pointermove", {
      bubbles: true, clientX: left + 110 + share * (right - left - 220), clientY: top + 100,
    }));
  }
  return times;
}"""


@dataclass
class Figures:
    """What was measured: seconds from sampled to painted, and (minutes, busy, nodes, MB) rows."""

    lags: list[float] = field(default_factory=list)
    rows: list[tuple[float, float, int, float]] = field(default_factory=list)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--streams", type=int, default=4, help="the watched one among them")
    parser.add_argument("--pace", type=float, default=0.03, help="seconds of an engine step")
    parser.add_argument(
        "--requests", choices=sorted(SCENARIOS), help="count frames with so many in the window"
    )
    options = parser.parse_args()
    if options.requests:
        _count_frames(options.requests, options.minutes)
    else:
        _watch_answers(options)


def _watch_answers(options: argparse.Namespace) -> None:
    with serve_chat(free_port(), pace=options.pace) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        stop = threading.Event()
        for number in range(options.streams - 1):
            others = threading.Thread(target=_stream, args=(server.service, number, stop))
            others.start()
        try:
            figures = _measure(page, server, options.minutes)
        finally:
            stop.set()
            browser.close()
    _print(figures, options.streams)


def _count_frames(requests: str, minutes: float) -> None:
    """Print frames a second while data comes in and the crosshair moves, and the thread's share."""
    port = free_port()
    demo = serve(FakeFeed(SCENARIOS[requests], speed=1.0), port)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://127.0.0.1:{port}/?window=all")
        page.wait_for_function("document.querySelector('[data-band=growth] canvas')?.width > 300")
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        before = _metrics(devtools)
        times = np.array(page.evaluate(FRAMES, 60 * minutes))
        busy = _busy(before, _metrics(devtools))
        browser.close()
    demo.close(verbose=False)
    gaps = np.diff(times)
    print(f"{requests} requests in the window, crosshair moving:")
    print(f"  {1000 / gaps.mean():.0f} frames/s   main thread {busy:.0%} busy")
    print(f"  frame p50 {np.median(gaps):.0f} ms   p95 {np.percentile(gaps, 95):.0f} ms")


def _busy(before: dict[str, float], now: dict[str, float]) -> float:
    """Share of the time between two looks in which the main thread worked."""
    spent = now["TaskDuration"] - before["TaskDuration"]
    return spent / (now["Timestamp"] - before["Timestamp"])


def _stream(service: EngineService, number: int, stop: threading.Event) -> None:
    """One other visitor: an answer after another."""
    prompt = [ord(letter) for letter in f"say {LETTERS} {number}"]
    while not stop.is_set():
        stream = service.submit(prompt, SamplingParams(max_tokens=400, ignore_eos=True))
        for _ in stream:
            if stop.is_set():
                break
        stream.close()


def _measure(page: Page, server: ChatServer, minutes: float) -> Figures:
    page.goto(server.url)
    page.wait_for_selector("#ps-message textarea:not([disabled])")
    page.evaluate(WATCH)
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    figures, begin = Figures(), time.monotonic()
    before = _metrics(devtools)
    answers = 0
    while time.monotonic() - begin < 60 * minutes:
        figures.lags += _answer(page, server.service)
        answers += 1
        if answers % CLEARED_AFTER == 0:
            page.click("#ps-clear")
            page.locator("#ps-log .bot-row").first.wait_for(state="detached")
            now = _metrics(devtools)
            busy = _busy(before, now)
            minute = (time.monotonic() - begin) / 60
            figures.rows.append((minute, busy, int(now["Nodes"]), now["JSHeapUsedSize"] / 1e6))
            before = now
    return figures


def _metrics(devtools: CDPSession) -> dict[str, float]:
    devtools.send("HeapProfiler.collectGarbage")
    metrics: list[dict[str, Any]] = devtools.send("Performance.getMetrics")["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}


def _answer(page: Page, service: EngineService) -> list[float]:
    """Send a message, wait for the whole answer; seconds from sampled to painted of its tokens."""
    page.evaluate("window.painted.length = 0")
    page.fill("#ps-message textarea", f"say {LETTERS}")
    page.keyboard.press("Enter")
    # A handle on an element would keep it, and be counted among the nodes that the page keeps.
    running = page.locator("#ps-log .ps-running").first
    running.wait_for()
    number = int(running.get_attribute("data-own", timeout=5000) or 0)
    running.wait_for(state="detached", timeout=120_000)
    record = service.store.find(number)
    assert record is not None
    painted = page.evaluate("window.painted")
    lags = []
    seen = iter(painted)
    at, length = next(seen)
    for index, sampled in enumerate(record.token_sampled):
        shown = service.clock.wall_start + sampled
        while length <= index or at / 1000 < shown:
            following = next(seen, None)
            if following is None:
                return lags
            at, length = following
        lags.append(at / 1000 - shown)
    return lags


def _print(figures: Figures, streams: int) -> None:
    lags = 1000 * np.array(figures.lags)
    p50, p95, most = np.percentile(lags, (50, 95, 100))
    print(f"token sampled to painted, {streams} streams, {lags.size:,} tokens:")
    print(f"  p50 {p50:.0f} ms   p95 {p95:.0f} ms   max {most:.0f} ms")
    print("minute   main thread busy   nodes   heap, MB")
    for minute, busy, nodes, heap in figures.rows:
        print(f"{minute:6.1f}   {busy:15.0%}   {nodes:6,}   {heap:8.1f}")


if __name__ == "__main__":
    main()
