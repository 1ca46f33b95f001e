"""Recordings: what is saved is what is shown again, and what is no recording is refused by name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.core.request import SamplingParams
from engine.machine import describe_machine
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started, stub_build, wait_until
from tests.ui.bad_recordings import BROKEN_FILES, DAMAGES, sound
from ui.frames import FrameBuilder
from ui.recording import (
    MAX_BYTES,
    NotARecording,
    NothingToRecord,
    make_recording,
    read_recording,
    replay_frame,
)
from ui.recording_routes import RECORDINGS_FOLDER
from ui.replay import ReplayFeed, ReplayService, load_recording

SECRET = "a secret prompt nobody else may read"
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def service() -> Iterator[EngineService]:
    service = started(ScriptedRunner("private words ", seconds=0.001))
    streams = [
        service.submit_text(SECRET, SamplingParams(max_tokens=12), label="a private label")
        for _ in range(3)
    ]
    for stream in streams:
        list(stream)
    wait_until(lambda: len(service.store.records()) == 3)
    yield service
    service.close(wait=2)


@pytest.fixture
def document(service: EngineService) -> dict[str, Any]:
    return make_recording(service, now=NOON)


def saved(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document)


def test_a_recording_shows_the_numbers_that_the_live_page_showed(service: EngineService) -> None:
    builder = FrameBuilder(service)
    builder.delta()
    live = builder.history()
    shown = replay_frame(read_recording(saved(make_recording(service)), "mine.json"))
    for name in ("steps", "reqs", "sum", "config"):
        assert shown[name] == json.loads(orjson.dumps(live[name])), name
    assert len(shown["reqs"]) == 3
    assert shown["steps"]
    assert shown["reset"] is True


def test_it_says_when_where_and_under_what_it_was_made(document: dict[str, Any]) -> None:
    assert document["recorded"] == "2026-11-29T12:00:00+00:00"
    assert document["machine"] == describe_machine()
    assert document["engine"]["model"] == "stub"
    assert document["engine"]["budget"] > 0
    frame = replay_frame(document)
    assert frame["state"]["name"] == "replay"
    assert frame["recording"] == {
        "recorded": document["recorded"],
        "machine": document["machine"],
    }


def test_no_text_of_anybody_is_in_it(document: dict[str, Any]) -> None:
    text = saved(document).decode()
    for secret in (SECRET, "private words", "private label"):
        assert secret not in text


def test_the_block_map_is_that_of_the_moment(document: dict[str, Any]) -> None:
    runs = document["kv"]["runs"]
    cached = sum(count for count, state, _ in runs if state == 1)
    assert cached == document["sum"]["evictable"] > 0


def test_gzip_is_read_as_plain_json_is(document: dict[str, Any]) -> None:
    packed = gzip.compress(saved(document))
    assert read_recording(packed, "a.json.gz") == read_recording(saved(document), "a.json")


def test_before_a_model_is_loaded_there_is_nothing_to_save() -> None:
    with pytest.raises(NothingToRecord, match="nothing to save"):
        make_recording(EngineService(stub_build(ScriptedRunner())))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "not JSON"),
        (b'{"format": "phasescope-rec', "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no PhaseScope recording"),
        (b'{"traceEvents": []}', "no PhaseScope recording"),
        (b'{"format": "phasescope-recording", "version": 7}', "version 7"),
        (gzip.compress(b"x" * 1_000)[:20], "damaged gzip"),
        (b"\x1f\x8bnonsense", "damaged gzip"),
        (b" " * (MAX_BYTES + 1), "16 MB"),
        (gzip.compress(b" " * (MAX_BYTES + 1)), "16 MB"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_is_no_recording_is_refused_with_a_sentence(data: bytes, problem: str) -> None:
    with pytest.raises(NotARecording, match=problem) as refused:
        read_recording(data, "holiday.json")
    assert str(refused.value).startswith("holiday.json ")


@pytest.mark.parametrize("part", DAMAGES)
def test_a_damaged_part_is_named(part: str) -> None:
    with pytest.raises(NotARecording) as refused:
        read_recording(DAMAGES[part](sound()), "mine.json")
    assert f"damaged: {part.split(' ')[0]}" in str(refused.value)


@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_a_broken_file_is_refused_with_a_sentence(kind: str) -> None:
    with pytest.raises(NotARecording, match=r"not JSON|gzip|version|damaged: its text"):
        read_recording(BROKEN_FILES[kind](sound()), "mine.json")


def test_a_whole_number_that_no_browser_holds_is_read_as_a_browser_reads_it() -> None:
    document = sound()
    document["engine"]["roof"]["flops"] = 10**30 + 1
    read = read_recording(json.dumps(document).encode(), "mine.json")
    assert read["engine"]["roof"]["flops"] == 1e30
    assert ReplayFeed(read).answer(-1, "", compress=False)


def test_numbers_that_are_not_json_are_refused(document: dict[str, Any]) -> None:
    text = saved(document).decode().replace('"now":', '"now":NaN,"then":', 1)
    with pytest.raises(NotARecording, match="not JSON"):
        read_recording(text.encode(), "mine.json")


def test_the_bundled_recording_is_small_sound_and_of_the_real_engine() -> None:
    path = RECORDINGS_FOLDER / "first-look.json.gz"
    assert path.stat().st_size < 100_000
    document = load_recording(path)
    assert "SmolLM2" in document["engine"]["model"]
    assert document["engine"]["roof"] is not None
    assert len(document["reqs"]) >= 8
    assert all(entry["st"] == "done" for entry in document["reqs"])
    assert any(entry["cached"] for entry in document["reqs"])


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotARecording, match=r"cannot be read \(No such file"):
        load_recording(tmp_path / "none.json")


def test_a_replay_feed_gives_the_recording_once(document: dict[str, Any]) -> None:
    feed = ReplayFeed(document)
    body = feed.answer(-1, "", compress=False)
    assert body is not None
    answer = json.loads(body)
    assert answer["frames"] == [json.loads(orjson.dumps(replay_frame(document)))]
    assert feed.answer(answer["cursor"], answer["epoch"], compress=True) is None
    assert feed.answer(answer["cursor"], "another", compress=False) == body


def test_a_replay_serves_nobody_and_says_why() -> None:
    healthy, reason = ReplayService().health()
    assert not healthy
    assert "recording" in reason
