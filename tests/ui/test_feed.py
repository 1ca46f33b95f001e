"""The live feed: all viewers get the same bytes, late ones catch up, nobody's text is in it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import brotli
import pytest

from engine.core.errors import PromptTooLong
from engine.core.request import SamplingParams
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started, wait_until
from ui.feed import Feed
from ui.frames import HISTORY_REQUESTS, FrameBuilder
from ui.wire import TICKS

SECRET = "the password is hunter2"


def params(max_tokens: int = 10) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens)


@pytest.fixture
def service() -> Iterator[EngineService]:
    service = started(ScriptedRunner(script="my secret answer ", seconds=0.002))
    yield service
    service.close()


@pytest.fixture
def feed(service: EngineService) -> Iterator[Feed]:
    feed = Feed(service, period=0.02)
    feed.start()
    yield feed
    feed.close()


class Viewer:
    """A browser's side of the feed: merges frames as the page does."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.cursor, self.epoch = -1, ""
        self.steps: list[list[Any]] = []
        self.requests: dict[int, dict[str, Any]] = {}
        self.lasting: dict[str, Any] = {}
        self.resets = 0

    def poll(self) -> bool:
        body = self._feed.answer(self.cursor, self.epoch, compress=False)
        if body is None:
            return False
        answer = json.loads(body)
        self.cursor, self.epoch = answer["cursor"], answer["epoch"]
        for frame in answer["frames"]:
            self._apply(frame)
        return True

    def times(self, number: int) -> list[int]:
        return self.requests[number]["times"]

    def _apply(self, frame: dict[str, Any]) -> None:
        if frame.get("reset"):
            self.resets += 1
            self.steps, self.requests = [], {}
        self.steps += frame.get("steps", [])
        for entry in frame.get("reqs", []):
            known = self.requests.setdefault(entry["n"], {"times": [], "parts": []})
            if "tok" in entry:
                first, at, gaps = entry.pop("tok")
                assert first == len(known["times"]), "tokens are missing or sent twice"
                known["times"].append(at)
                for gap in gaps:
                    known["times"].append(known["times"][-1] + gap)
            if "chunks" in entry:
                first, chunks = entry.pop("chunks")
                assert first == len(known["parts"]), "chunks are missing or sent twice"
                known["parts"] += chunks
            known.update(entry)
        self.lasting.update({k: v for k, v in frame.items() if k in ("config", "state", "kv")})
        self.lasting.update(frame.get("sum", {}))


def finish(service: EngineService, prompt: str = SECRET, max_tokens: int = 10) -> int:
    stream = service.submit_text(prompt, params(max_tokens))
    for _ in stream:
        pass
    wait_until(lambda: bool(service.store.find(stream.number).complete))  # type: ignore[union-attr]
    return stream.number


def test_a_viewer_sees_every_token_at_the_time_of_its_record(
    service: EngineService, feed: Feed
) -> None:
    viewer = Viewer(feed)
    done = threading.Event()

    def chat() -> None:
        for _ in range(3):
            finish(service, max_tokens=40)
        done.set()

    threading.Thread(target=chat).start()
    while not done.is_set():
        viewer.poll()
        time.sleep(0.01)

    def up_to_date() -> bool:
        viewer.poll()
        states = [(e["st"], len(e["times"])) for e in viewer.requests.values()]
        return states == [("done", 40)] * 3

    wait_until(up_to_date)
    for record in service.store.records():
        assert viewer.times(record.number) == [round(t * TICKS) for t in record.token_delivered]
        entry = viewer.requests[record.number]
        assert entry["st"] == "done"
        assert entry["out"] == 40
        computed = sum(chunk[2] for chunk in entry["parts"])
        assert computed == record.num_prompt_tokens - record.num_cached_tokens
    assert [step[0] for step in viewer.steps] == [s.number for s in service.store.steps_since(0)]
    assert viewer.resets == 1


def test_a_late_viewer_knows_as_much_as_an_early_one(service: EngineService, feed: Feed) -> None:
    early = Viewer(feed)
    early.poll()
    finish(service)
    stream = service.submit_text(SECRET, params(300))
    reader = threading.Thread(target=list, args=(stream,))
    reader.start()

    def writing() -> bool:
        early.poll()
        return len(early.requests.get(2, {}).get("times", [])) > 5

    wait_until(writing)
    late = Viewer(feed)
    late.poll()
    reader.join()
    for viewer in (early, late):
        wait_until(lambda v=viewer: not v.poll() and v.requests[2].get("end") is not None)
        wait_until(lambda v=viewer: not v.poll() and len(v.requests[2]["times"]) == 300)
        wait_until(lambda v=viewer: not v.poll() and v.lasting["state"]["name"] == "idle")
    early.poll()
    assert late.requests == early.requests
    assert late.steps == early.steps
    assert late.lasting["config"] == early.lasting["config"]
    assert late.lasting["state"] == early.lasting["state"]


def test_readers_with_one_cursor_share_the_bytes(service: EngineService) -> None:
    feed = Feed(service)  # not started: the first answer makes its one frame
    feed.answer(-1, "", compress=False)
    first = feed.answer(0, feed.epoch, compress=False)
    assert first is not None
    assert feed.answer(0, feed.epoch, compress=False) is first
    packed = feed.answer(0, feed.epoch, compress=True)
    assert packed is not None
    assert brotli.decompress(packed) == first
    assert feed.answer(1, feed.epoch, compress=True) is None


@pytest.mark.parametrize("cursor", [-1, -7, 10**9])
def test_an_unknown_cursor_gets_the_history(feed: Feed, cursor: int) -> None:
    body = feed.answer(cursor, feed.epoch, compress=False)
    assert body is not None
    assert json.loads(body)["frames"][0]["reset"] is True


def test_a_cursor_of_another_server_gets_the_history(service: EngineService, feed: Feed) -> None:
    viewer = Viewer(feed)
    viewer.poll()
    other = Feed(service, period=0.02)
    body = other.answer(viewer.cursor, viewer.epoch, compress=False)
    assert body is not None
    assert json.loads(body)["frames"][0]["reset"] is True


def test_idle_ends_the_news_and_reads_zero(service: EngineService, feed: Feed) -> None:
    viewer = Viewer(feed)
    finish(service)
    time.sleep(5.2)  # the throughput's window
    wait_until(lambda: not viewer.poll() and viewer.lasting.get("tps") == 0.0)
    assert viewer.lasting["run"] == viewer.lasting["wait"] == viewer.lasting["used"] == 0
    assert viewer.lasting["state"]["name"] == "idle"
    time.sleep(0.1)
    assert not viewer.poll()


def test_no_text_of_anybody_is_in_the_feed(service: EngineService, feed: Feed) -> None:
    finish(service)
    with pytest.raises(PromptTooLong):
        service.submit_text(SECRET * 200, params())
    body = feed.answer(-1, "", compress=False)
    assert body is not None
    text = body.decode()
    assert "hunter2" not in text
    assert "secret" not in text
    assert '"failed"' in text


def test_history_is_bounded_whatever_has_happened() -> None:
    service = started(ScriptedRunner(), max_running=16, max_waiting=500)
    builder = FrameBuilder(service)

    async def crowd() -> None:
        for _ in range(4):
            streams = [service.submit([65] * 5, params(30)) for _ in range(250)]
            await asyncio.gather(*(stream.text() for stream in streams))
            builder.delta()

    asyncio.run(crowd())
    wait_until(lambda: not service.store.live())
    builder.delta()
    frame = builder.history()
    assert len(frame["reqs"]) <= HISTORY_REQUESTS
    assert max(entry["n"] for entry in frame["reqs"]) == 1000
    assert len(json.dumps(frame)) < 2_000_000
    service.close()


def test_the_block_map_adds_up_to_the_pool(service: EngineService) -> None:
    builder = FrameBuilder(service)
    finish(service, "shared opening " * 8)
    streams = [service.submit_text("shared opening " * 8 + c, params(800)) for c in "ab"]
    readers = [threading.Thread(target=list, args=(stream,)) for stream in streams]
    for reader in readers:
        reader.start()

    def shared() -> bool:
        builder.delta()
        time.sleep(0.01)
        states = {state for _, state, _ in builder.history().get("kv", {}).get("runs", [])}
        return 4 in states

    wait_until(shared)
    kv = builder.history()["kv"]
    assert sum(count for count, _, _ in kv["runs"]) == kv["n"] == 256
    assert {request for request, _, _ in kv["last"]} == {2, 3}
    assert all(0 <= filled <= 16 for _, _, filled in kv["last"])
    for stream in streams:
        stream.cancel()
    for reader in readers:
        reader.join()
