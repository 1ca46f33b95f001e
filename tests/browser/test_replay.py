"""Recordings in a browser: a first look while the model loads, one that a visitor opens, one that a
server shows instead of an engine.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, FilePayload, Page, Request, expect

from tests.browser.conftest import free_port
from tests.ui.bad_recordings import BROKEN_FILES, DAMAGES, sound
from ui import page as ui_page
from ui.chat import build_chat
from ui.recording_routes import RECORDINGS_FOLDER, recording_routes
from ui.replay import ReplayFeed, ReplayService, load_recording
from ui.routes import routes
from ui.serving import serve_page
from ui.words_replay import REPLAY

Show = Callable[..., Page]
FILE = RECORDINGS_FOLDER / "first-look.json.gz"
STATE = ".ps-header [data-role=state]"


def open_file(page: Page, content: bytes, name: str = "mine.json") -> None:
    payload = FilePayload(name=name, mimeType="application/json", buffer=content)
    page.locator("#ps-replay [data-role=file]").set_input_files(payload)


def lanes(page: Page) -> str:
    return page.locator("[data-band=requests] canvas").get_attribute("aria-label") or ""


def test_a_recording_is_opened_in_the_browser_alone(show: Show, fake: Any) -> None:
    page = show("chat")
    live = lanes(page)
    sent: list[str] = []

    def noted(request: Request) -> None:
        if request.method != "GET":
            sent.append(request.url)

    page.on("request", noted)
    open_file(page, FILE.read_bytes(), "mine.json.gz")
    document = load_recording(FILE)
    bar = page.locator(".ps-replay")
    expect(bar).to_contain_text(document["machine"])
    expect(bar).to_contain_text("2026")
    expect(page.locator(STATE)).to_have_text("Replay")
    expect(page.locator(".ps-timeline [data-role=label]")).to_contain_text(REPLAY["label"])
    expect(page.locator("[data-metric=ttft] [data-role=n]")).to_have_text("8 requests")
    page.wait_for_function(
        "before => document.querySelector('[data-band=requests] canvas').ariaLabel !== before",
        arg=live,
    )
    assert lanes(page) == "Timeline of 8 requests, 0 of them yours."
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()
    page.locator(".ps-lane").first.click()
    expect(page.locator(".ps-drawer [data-role=title]")).to_have_text("R1")
    expect(page.locator(".ps-drawer [data-role=save]")).to_be_hidden()
    page.keyboard.press("Escape")
    page.locator("#ps-chat [data-request]").click()  # of the live engine, not of the recording
    expect(page.locator(".ps-drawer")).to_be_hidden()
    fake.control(seconds=1)  # the engine goes on meanwhile, and does not show
    page.wait_for_timeout(900)
    assert lanes(page) == "Timeline of 8 requests, 0 of them yours."
    clock, live_now = page.evaluate("[phasescope.app.serverNow(), phasescope.app.live.now]")
    assert live_now <= clock < live_now + 600_000  # in tenths of a millisecond
    page.locator(".ps-lane").first.click()
    expect(page.locator(".ps-drawer")).to_be_visible()
    back = bar.get_by_role("button", name=REPLAY["back"])
    back.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".ps-drawer")).to_be_hidden()  # the live R1 is another request
    expect(page.locator(".ps-lane:focus")).to_have_count(0)
    expect(bar).to_be_hidden()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator(STATE)).not_to_have_text("Replay")
    page.remove_listener("request", noted)
    assert sent == []


def test_play_moves_the_picture_to_the_end_of_the_recording(show: Show) -> None:
    page = show("empty")
    open_file(page, FILE.read_bytes())
    bar = page.locator(".ps-replay")
    position = bar.locator("[data-role=position]")
    expect(position).to_have_value("1000")
    position.fill("200")
    edge = "() => phasescope.app.view.edge()"
    at_seek = page.evaluate(edge)
    assert at_seek < page.evaluate("() => phasescope.app.trace.lastEvent()")
    bar.locator("[data-role=speed]").select_option("4")
    bar.get_by_role("button", name=REPLAY["play"]).click()
    page.wait_for_function(f"before => ({edge})() > before + 5000", arg=at_seek)
    bar.get_by_role("button", name=REPLAY["pause"]).click()
    stopped_at = page.evaluate(edge)
    page.wait_for_timeout(300)
    assert page.evaluate(edge) == stopped_at
    position.fill("995")
    bar.get_by_role("button", name=REPLAY["play"]).click()
    expect(bar.get_by_role("button", name=REPLAY["play"])).to_be_visible()
    expect(position).to_have_value("1000")


def test_both_readers_refuse_the_same_files(module: Callable[[str, str], Any]) -> None:
    bad = {**DAMAGES, **BROKEN_FILES}
    files = {name: make(sound()) for name, make in bad.items()}
    files["sound"] = json.dumps(sound()).encode()
    encoded = json.dumps({name: base64.b64encode(file).decode() for name, file in files.items()})
    refused = module(
        "recording.js",
        f"""await Promise.all(Object.entries({encoded}).map(async ([name, file]) => {{
            const blob = await (await fetch(`data:;base64,${{file}}`)).blob();
            const read = m.readRecording(blob, name, {json.dumps(REPLAY)});
            return read.then(() => [name, null], (error) => [name, error.message]);
        }}))""",
    )
    sentences = dict(refused)
    assert sentences.pop("sound") is None
    assert [name for name, sentence in sentences.items() if sentence is None] == []
    for name in DAMAGES:
        part = name.split(" ")[0]
        assert f"is damaged: {part}" in sentences[name], sentences[name]


def damaged() -> bytes:
    document = json.loads(gzip.decompress(FILE.read_bytes()))
    document["steps"][3] = ["<img src=x>"]
    return json.dumps(document).encode()


def test_a_file_that_is_no_recording_is_named(show: Show) -> None:
    page = show("empty")
    error = page.locator(".ps-recording-error")
    for content, sentence in (
        (b"%PDF-1.7", "notes.txt is not JSON"),
        (b'{"traceEvents": []}', "notes.txt is no PhaseScope recording"),
        (b'{"format": "phasescope-recording", "version": 9}', "of version 9"),
        (FILE.read_bytes()[:200], "notes.txt is a damaged gzip file"),
        (gzip.compress(b" " * 16_000_001), "more than the 16 MB"),
        (damaged(), "steps[3] is not as it must be"),
    ):
        open_file(page, content, "notes.txt")
        expect(error).to_contain_text(sentence)
        expect(page.locator(".ps-replay")).to_be_hidden()
    open_file(page, FILE.read_bytes())
    expect(error).to_be_hidden()
    expect(page.locator(".ps-replay")).to_be_visible()


def test_while_the_model_loads_a_recording_stands_in_and_is_labelled(show: Show, fake: Any) -> None:
    page = show("empty")
    fake.control(state="loading", text="Loading a model.")
    bar = page.locator(".ps-replay")
    expect(bar).to_contain_text("Until the model is loaded, the charts show a recording of")
    expect(bar.get_by_role("button", name=REPLAY["back"])).to_be_hidden()
    expect(page.locator(STATE)).to_have_text("Loading")
    expect(page.locator(".ps-notice [data-role=text]")).to_have_text("Loading a model.")
    expect(page.locator("[data-metric=ttft] [data-role=n]")).to_have_text("0 requests")
    expect(page.locator("[data-role=output]")).to_have_text("0")
    assert lanes(page) == "Timeline of 8 requests, 0 of them yours."
    fake.control(state="idle")
    expect(bar).to_be_hidden()
    expect(page.locator(STATE)).to_have_text("Idle")
    page.wait_for_function("!phasescope.app.trace.recording")
    expect(page.locator("[data-band=requests] canvas")).to_have_attribute(
        "aria-label", "Timeline of 0 requests, 0 of them yours."
    )


def test_an_engine_that_restarts_keeps_its_own_history_in_view(show: Show, fake: Any) -> None:
    page = show("chat")
    fake.control(state="loading", text="Loading a model.")
    expect(page.locator(STATE)).to_have_text("Loading")
    page.wait_for_timeout(600)
    expect(page.locator(".ps-replay")).to_be_hidden()


@pytest.fixture(scope="module")
def replay_url(browser: Browser) -> Iterator[str]:
    document = load_recording(FILE)
    service, feed, port = ReplayService(), ReplayFeed(document), free_port()
    demo = ui_page.build_page(lambda: build_chat(service, epoch=feed.epoch))
    beside = [*recording_routes(lambda: document), *routes(service, feed)]
    serve_page(demo, "127.0.0.1", port, beside)
    yield f"http://127.0.0.1:{port}/"
    demo.close(verbose=False)


def test_a_server_shows_a_recording_without_a_model(page: Page, replay_url: str) -> None:
    page.goto(replay_url)
    expect(page.locator(STATE)).to_have_text("Replay")
    expect(page.locator(".ps-hint")).to_have_text(REPLAY["no_engine"])
    expect(page.locator("#ps-message textarea")).to_be_disabled()
    expect(page.locator("#ps-send")).to_be_disabled()
    expect(page.locator(".ps-replay [data-role=back]")).to_be_hidden()
    page.get_by_text(REPLAY["menu"], exact=True).click()
    expect(page.get_by_text(REPLAY["open"])).to_be_visible()
    expect(page.get_by_role("link", name=REPLAY["save"])).to_be_hidden()


def test_the_bar_fits_every_width(page: Page, replay_url: str) -> None:
    page.goto(replay_url)
    expect(page.locator(".ps-replay")).to_be_visible()
    for width in (320, 390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_bar_and_the_menu_have_no_serious_finding_of_axe(page: Page, replay_url: str) -> None:
    page.goto(replay_url)
    page.get_by_text(REPLAY["menu"], exact=True).click()
    expect(page.locator(".ps-replay")).to_be_visible()
    found = [
        f"{violation['id']}: {node['target']}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
    assert found == []
