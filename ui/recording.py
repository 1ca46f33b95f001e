"""A recording: what the page knew of an engine at one moment, as a file that opens anywhere.

It is the live feed's own history under a heading that says when and on which machine it was made,
so that the page draws it with the code that draws live data. It holds numbers, times and names of
states, never a prompt, an answer or an error's text. This module runs no engine and knows no route.

A recording is JSON, plain or gzip-compressed:

    format, version    "phasescope-recording", 1
    recorded           UTC date and time it was saved at: "2026-11-29T12:00:00+00:00", or with Z
    machine            the computer in words
    engine             model, dtype, device and settings: `config` of `ui.frames`
    now, sum, steps, reqs, kv    as in a frame of `ui.frames`; times count from the service's start

Counts and times of requests are whole numbers that a browser holds exactly, up to 2**53.
assets/scripts/recording.js reads the same format in the browser, under the same rules.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from engine.core.errors import PhaseScopeError
from engine.machine import describe_machine
from engine.service import EngineService
from ui.frames import FrameBuilder
from ui.wire import Frame

FORMAT: Final = "phasescope-recording"
VERSION: Final = 1
MAX_BYTES: Final = 16_000_000
"""Of a file, compressed and not: ten times the largest that the page's bounded history makes."""

MAX_STEPS: Final = 4_000
MAX_REQUESTS: Final = 600
MAX_BLOCKS: Final = 1_000_000
MAX_COUNT: Final = 2**53
"""The largest whole number up to which a browser holds every one."""

MAX_DEPTH: Final = 16
"""Of lists and objects in each other; a recording has seven."""

# An engine that is stuck in a step gives no new block map; the one before it will do.
_POOL_SECONDS: Final = 0.5
_GZIP_START: Final = b"\x1f\x8b"
_DATE: Final = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|\+00:00)", re.ASCII)
_SURROGATE: Final = re.compile("[\\ud800-\\udfff]")
_HISTORY: Final = ("now", "sum", "steps", "reqs", "kv")
_STEP_COLUMNS: Final = 12
_STATES: Final = frozenset(
    {"preparing", "queued", "reading", "writing", "done", "cancelled", "failed"}
)
_COUNTS: Final = ("n", "prompt", "cached", "max", "out", "sub", "recomputed")
_TIMES: Final = ("que", "sch", "fts", "ftd", "ltd", "end", "kv_end")
_SUM_COUNTS: Final = ("run", "wait", "used", "evictable", "free", "tps", "tps_window")
_ENGINE_COUNTS: Final = ("budget", "slots", "blocks", "block_size", "kv_bytes")
_ENGINE_NAMES: Final = ("model", "dtype", "device")

Document = dict[str, Any]
Problems = Iterator[tuple[str, str]]
"""Parts that the page could not draw, and what each must be."""


class NotARecording(PhaseScopeError):
    """A file cannot be shown as a recording; the sentence says what is wrong with it."""


class NothingToRecord(PhaseScopeError):
    """There is no engine yet whose history could be saved."""


def make_recording(service: EngineService, *, now: datetime | None = None) -> Document:
    """What the service's bounded history holds at this moment; raises NothingToRecord.

    now: the date that it states, else the present.
    """
    _refresh_pool(service)
    builder = FrameBuilder(service)
    builder.delta()
    frame = builder.history()
    if "config" not in frame:
        raise NothingToRecord("No model is loaded yet, so there is nothing to save. Wait for it.")
    recorded = (now or datetime.now(UTC)).astimezone(UTC)
    return {
        "format": FORMAT,
        "version": VERSION,
        "recorded": recorded.isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "engine": frame["config"],
        **{name: frame[name] for name in _HISTORY if name in frame},
    }


def _refresh_pool(service: EngineService) -> None:
    """Have the block map of this moment: the service gives the one that was last asked for."""
    before, patience = service.pool(), time.monotonic() + _POOL_SECONDS
    while service.pool() is before and time.monotonic() < patience:
        time.sleep(_POOL_SECONDS / 50)


def read_recording(data: bytes, name: str) -> Document:
    """A recording from the bytes of a file; raises NotARecording naming what is wrong.

    name: what the sentence calls the file.
    """
    document = _parse(_unpacked(data, name), name)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise NotARecording(
            f"{name} is no PhaseScope recording: its format should be {FORMAT}. Make one with "
            f"Save a recording, beside the timeline."
        )
    if type(document.get("version")) is bool or document.get("version") != VERSION:
        raise NotARecording(
            f"{name} is a recording of version {document.get('version')}; this PhaseScope reads "
            f"version {VERSION}. Open it with the release that saved it."
        )
    _check(document, name)
    return document


def replay_frame(document: Document) -> Frame:
    """The recording as a frame of the live feed that carries everything; see `ui.frames`."""
    return {
        "reset": True,
        "config": document["engine"],
        "state": {"name": "replay", "progress": None, "text": "", "since": 0, "turn": None},
        "recording": {"recorded": document["recorded"], "machine": document["machine"]},
        **{name: document[name] for name in _HISTORY if name in document},
    }


def _unpacked(data: bytes, name: str) -> bytes:
    if data.startswith(_GZIP_START) and len(data) <= MAX_BYTES:
        try:
            # One byte more than may be: a small file can unpack to more than the memory holds.
            stream = zlib.decompressobj(wbits=31)
            data = stream.decompress(data, MAX_BYTES + 1)
            whole = stream.eof and not stream.unused_data
        except zlib.error:
            whole = False
        if not whole and len(data) <= MAX_BYTES:
            raise NotARecording(f"{name} is a damaged gzip file. Save or copy it again.")
    if len(data) > MAX_BYTES:
        raise NotARecording(
            f"{name} holds more than the {MAX_BYTES // 1_000_000} MB that a recording may have."
        )
    return data


def _parse(data: bytes, name: str) -> Any:
    try:
        text = data.decode("utf-8-sig")
        return json.loads(text, parse_int=_as_in_a_browser, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise NotARecording(f"{name} is not JSON, or ends too early. Save it again.") from None


def _as_in_a_browser(digits: str) -> int | float:
    """A whole number, as the float nearest to it where a browser cannot hold it exactly."""
    nearest = float(digits)
    return int(nearest) if abs(nearest) <= MAX_COUNT else nearest


def _refuse_constant(name: str) -> None:
    """Raise ValueError: Python reads NaN and Infinity, which are not JSON."""
    raise ValueError(name)


def _check(document: Document, name: str) -> None:
    """Raise NotARecording for the first part that the page could not draw."""
    for part, problem in _problems(document):
        raise NotARecording(f"{name} is damaged: {part} {problem}. Save the recording again.")


def _problems(document: Document) -> Problems:
    if not _is_plain(document):
        yield "its text", f"must be UTF-8, at most {MAX_DEPTH} levels deep"
    yield from _heading_problems(document)
    steps, requests = document.get("steps", []), document.get("reqs", [])
    for label, rows, most in (("steps", steps, MAX_STEPS), ("reqs", requests, MAX_REQUESTS)):
        if not isinstance(rows, list) or len(rows) > most:
            yield label, f"must be a list of at most {most:,}"
            return
    for index, row in enumerate(steps):
        if not (isinstance(row, list) and len(row) == _STEP_COLUMNS and _numbers_or_null(row)):
            yield f"steps[{index}]", f"must be {_STEP_COLUMNS} numbers"
    for index, entry in enumerate(requests):
        yield from ((f"reqs[{index}]{part}", problem) for part, problem in _request_problems(entry))
    if "kv" in document:
        yield from _block_problems(document["kv"])


def _heading_problems(document: Document) -> Problems:
    if not _is_date(document.get("recorded")):
        yield "recorded", "must be a UTC date and time such as 2026-11-29T12:00:00+00:00"
    if not isinstance(document.get("machine"), str):
        yield "machine", "must be text"
    if not _is_number(document.get("now")):
        yield "now", "must be a number"
    for part, names in (("engine", _ENGINE_COUNTS), ("sum", _SUM_COUNTS)):
        if not _has_numbers(document.get(part), names):
            yield part, f"must give numbers for {', '.join(names)}"
    engine = document.get("engine")
    if not isinstance(engine, dict):
        return
    if not all(isinstance(engine.get(name), str) for name in _ENGINE_NAMES):
        yield "engine", f"must name {', '.join(_ENGINE_NAMES)}"
    if engine.get("roof") is not None and not _has_numbers(
        engine["roof"], ("flops", "bytes", "overhead")
    ):
        yield "engine.roof", "must give flops, bytes and overhead, or be null"
    for metric in ("ttft", "itl"):
        total = document.get("sum")
        sample = total.get(metric) if isinstance(total, dict) else None
        if not (isinstance(sample, dict) and _is_number(sample.get("n"))):
            yield f"sum.{metric}", "must give n and percentiles"
        elif not _numbers_or_null(list(sample.values())):
            yield f"sum.{metric}", "must hold numbers"


def _request_problems(entry: Any) -> Problems:
    if not isinstance(entry, dict) or not all(_is_count(entry.get(name)) for name in _COUNTS):
        yield "", f"must give whole numbers up to 2**53 for {', '.join(_COUNTS)}"
        return
    state = entry.get("st")
    known = isinstance(state, str) and state in _STATES
    if not known or entry.get("id") != f"R{int(entry['n'])}":
        yield ".st", "must be a known state, and id the number's name"
    if not isinstance(entry.get("fin", 0), str | None):
        yield ".fin", "must be a word or null"
    times = [entry.get(name, "none") for name in _TIMES]
    if not all(value is None or _is_count(value) for value in times):
        yield "", f"must give a time or null for {', '.join(_TIMES)}"
    if not _is_table(entry.get("pre"), 2):
        yield ".pre", "must be pairs of numbers"
    chunks = entry.get("chunks", [0, []])
    if not (
        isinstance(chunks, list)
        and len(chunks) == 2
        and _is_number(chunks[0])
        and _is_table(chunks[1], 4)
    ):
        yield ".chunks", "must be rows of 4 numbers"
    tokens = entry.get("tok", [0, 0, []])
    if not (
        isinstance(tokens, list)
        and len(tokens) == 3
        and isinstance(tokens[2], list)
        and all(_is_number(value) for value in (*tokens[:2], *tokens[2]))
    ):
        yield ".tok", "must be a first time and the gaps behind it"


def _block_problems(blocks: Any) -> Problems:
    if not (
        isinstance(blocks, dict) and _is_count(blocks.get("n")) and 0 <= blocks["n"] <= MAX_BLOCKS
    ):
        yield "kv.n", f"must be a number of blocks up to {MAX_BLOCKS:,}"
    elif not _is_table(blocks.get("last"), 3):
        yield "kv.last", "must be rows of 3 numbers"
    elif not _is_table(blocks.get("runs"), 3):
        yield "kv.runs", "must be rows of a count, a state and an owner"


def _is_table(rows: Any, columns: int) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == columns and all(map(_is_number, row)) for row in rows
    )


def _has_numbers(value: Any, names: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and all(_is_number(value.get(name)) for name in names)


def _numbers_or_null(values: list[Any]) -> bool:
    return all(value is None or _is_number(value) for value in values)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def _is_count(value: Any) -> bool:
    return _is_number(value) and value == int(value) and abs(value) <= MAX_COUNT


def _is_date(value: Any) -> bool:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_plain(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether it can be written as UTF-8: JSON can name half a character (a lone surrogate)."""
    if isinstance(value, str):
        return not _SURROGATE.search(value)
    if isinstance(value, dict):
        return depth > 0 and all(
            _is_plain(part, depth - 1) for entry in value.items() for part in entry
        )
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(part, depth - 1) for part in value)
    return True
