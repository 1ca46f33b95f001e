"""Traffic from files: production traces, benchmark data sets and our own exports.

`read_trace` reads a file of bounded size, says which format and which unit of time it found, and
lists every row it could not use. What becomes of the rows is the business of `importing_replay`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from engine.core.errors import InvalidRequest
from engine.lab.importing_formats import (
    BadRow,
    ExportHeader,
    TraceRow,
    declared_unit,
    detect,
    normalise,
    read_header,
    read_rows,
)
from engine.lab.workload import EXPORT_FORMAT

MAX_BYTES = 32 * 1024 * 1024
MAX_ROWS = 50_000
"""Rows that are read; more would keep the page waiting, and no workload is that long."""

MAX_LISTED = 1_000
"""Rejected rows that are listed; all are counted."""

_SECONDS = {"seconds": 1.0, "milliseconds": 1e-3, "microseconds": 1e-6, "nanoseconds": 1e-9}
_DATES_SINCE = 1e9  # times from here on are counted from 1970
# Dates as seconds since 1970 have no more digits than these in floating point.
_DECIMALS = 6
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that was left out, by its line (or entry of a JSON array) and the reason."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Trace:
    """What was read from a file.

    rows: in order of time, times and delays in seconds and the first time 0. unit: what the file's
    times were taken as, with why; empty for a file without times. notes: sentences about what was
    changed. rejected: at most `MAX_LISTED` rows; num_rejected counts all.
    header: of our own export.
    """

    name: str
    format: str
    unit: str
    rows: tuple[TraceRow, ...]
    rejected: tuple[Rejected, ...]
    num_rejected: int
    notes: tuple[str, ...]
    header: ExportHeader | None

    def summary(self) -> str:
        """Format, unit and counts in a sentence, such as the page shows after an upload."""
        unit = f", times in {self.unit}" if self.unit else ", no times"
        return (
            f"{self.name}: {self.format}{unit}. {len(self.rows):,} loaded and "
            f"{self.num_rejected:,} rejected."
        )


def read_trace(path: Path, *, unit: str | None = None) -> Trace:
    """Read a trace file; see `parse_trace`. Raises InvalidRequest for one above `MAX_BYTES`."""
    try:
        size = path.stat().st_size
        check_size(path.name, size)
        data = path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path.name} cannot be read: {error.strerror}.") from None
    return parse_trace(path.name, data, unit=unit)


def check_size(name: str, size: int) -> None:
    """Raise InvalidRequest for a file that is too large to be read at once."""
    if size > MAX_BYTES:
        raise InvalidRequest(
            f"{name} has {size / _MEBIBYTE:,.0f} MiB; the limit is {MAX_BYTES // _MEBIBYTE} MiB. "
            f"Upload a part of it, such as its first lines."
        )


def parse_trace(name: str, data: bytes, *, unit: str | None = None) -> Trace:
    """Read a trace; `unit` overrides the detected unit of time (seconds, milliseconds, ...).

    Raises InvalidRequest when no row can be used; single bad rows are listed instead.
    """
    check_size(name, len(data))
    if unit is not None and unit not in _SECONDS:
        raise InvalidRequest(f"The unit must be one of {', '.join(_SECONDS)}; got {unit!r}.")
    text = data.decode("utf-8-sig", errors="replace")
    reader = _Reader()
    notes: list[str] = []
    for line, value in _entries(name, text, reader):
        if len(reader.rows) >= MAX_ROWS:
            notes.append(f"Only the first {MAX_ROWS:,} rows were read.")
            break
        reader.take(line, value)
    if not reader.rows:
        reasons = "".join(f" Line {item.line}: {item.reason}." for item in reader.rejected[:3])
        raise InvalidRequest(f"{name} has no row that can be used.{reasons}")
    unit_name, unit_why = _unit(reader, unit)
    rows = _in_order(reader, notes)
    if reader.header is None:
        rows = _in_seconds(rows, _SECONDS[unit_name])
    return Trace(
        name=name,
        format=reader.format,
        unit=unit_why,
        rows=tuple(rows),
        rejected=tuple(reader.rejected[:MAX_LISTED]),
        num_rejected=len(reader.rejected),
        notes=tuple(notes),
        header=reader.header,
    )


class _Reader:
    """Collects rows and rejections while a file is read."""

    def __init__(self) -> None:
        self.format = ""
        self.declared_unit: str | None = None
        self.has_dates = False
        self.header: ExportHeader | None = None
        self.rows: list[TraceRow] = []
        self.rejected: list[Rejected] = []

    def take(self, line: int, value: Any) -> None:
        """Use one row, or note why it cannot be used."""
        if isinstance(value, dict) and value.get("format") == EXPORT_FORMAT:
            self.header = read_header(line, value)
            return
        try:
            rows = read_rows(line, value)
        except BadRow as error:
            self.reject(line, str(error))
            return
        if not self.rows:
            fields = {normalise(str(name)): item for name, item in value.items()}
            self.format = "PhaseScope workload" if self.header is not None else detect(fields)
            self.declared_unit = declared_unit(self.format, fields)
        self.rows += rows

    def reject(self, line: int, reason: str) -> None:
        """Note a row that is left out."""
        self.rejected.append(Rejected(line, reason))


def _entries(name: str, text: str, reader: _Reader) -> Iterator[tuple[int, Any]]:
    """Lines or entries with their numbers; what cannot be read at all is rejected here."""
    opening = text.lstrip()[:1]
    if opening == "[":
        try:
            entries = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            entries = None
        if isinstance(entries, list):
            yield from enumerate(entries, start=1)
            return
    if opening in ("{", "["):
        yield from _json_lines(text, reader)
    else:
        yield from _csv_rows(name, text, reader)


def _json_lines(text: str, reader: _Reader) -> Iterator[tuple[int, Any]]:
    for line, content in enumerate(text.splitlines(), start=1):
        if not content.strip():
            continue
        try:
            yield line, json.loads(content, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            reader.reject(line, f"not valid JSON ({error})")


def _csv_rows(name: str, text: str, reader: _Reader) -> Iterator[tuple[int, Any]]:
    rows = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(rows, None)
    except csv.Error as error:
        raise InvalidRequest(f"{name} is neither JSON nor CSV ({error}).") from None
    if not header:
        raise InvalidRequest(f"{name} is empty.")
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            reader.reject(rows.line_num, f"not valid CSV ({error})")
            continue
        if row is None:
            return
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            reader.reject(rows.line_num, f"{len(row)} cells where the header has {len(header)}")
            continue
        yield rows.line_num, dict(zip(header, row, strict=True))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _unit(reader: _Reader, asked: str | None) -> tuple[str, str]:
    """The unit of the file's times, and the words that say how it was found."""
    times = [row.time for row in reader.rows if row.time is not None]
    if not times and not any(row.delay for row in reader.rows):
        return "seconds", ""
    if asked is not None:
        return asked, f"{asked} (as you said)"
    if reader.declared_unit is not None:
        return reader.declared_unit, f"{reader.declared_unit} (by the format)"
    latest = max(times, default=0.0)
    for limit, name in ((1e17, "nanoseconds"), (1e14, "microseconds"), (1e11, "milliseconds")):
        if latest >= limit:
            return name, f"{name} since 1970 (by their size)"
    if latest >= _DATES_SINCE:
        return "seconds", "dates or seconds since 1970"
    ordered = sorted(times)
    gaps = [b - a for a, b in pairwise(ordered) if b > a]
    if gaps and median(gaps) >= 50 and all(time == int(time) for time in times):
        return "milliseconds", "milliseconds (whole numbers, typically 50 or more apart)"
    return "seconds", "seconds (nothing says otherwise)"


def _in_order(reader: _Reader, notes: list[str]) -> list[TraceRow]:
    """Rows by time; our own export keeps its order, since its rows refer to each other."""
    rows = reader.rows
    if reader.header is not None:
        return _linked(reader)
    if any(row.time is not None for row in rows):
        timeless = [row for row in rows if row.time is None and row.delay is None]
        for row in timeless:
            reader.reject(row.line, "no time is given, though other rows have one")
        rows = [row for row in rows if row.time is not None or row.delay is not None]
    times = [row.time for row in rows if row.time is not None]
    moved = sum(b < a for a, b in pairwise(times))
    if moved:
        noun = "row was" if moved == 1 else "rows were"
        notes.append(f"{moved:,} {noun} earlier than the one before: rows were re-ordered by time.")
    # A row that waits for another has no time of its own: it stays behind the row before it.
    keys: list[float] = []
    for row in rows:
        keys.append(row.time if row.time is not None else (keys[-1] if keys else 0.0))
    order = sorted(range(len(rows)), key=keys.__getitem__)
    return [rows[index] for index in order]


def _linked(reader: _Reader) -> list[TraceRow]:
    """Rows of our own export, whose `after` counts the lines below the header."""
    first_line = min(row.line for row in reader.rows)
    first_line = min([first_line, *(item.line for item in reader.rejected)])
    places: dict[int, int] = {}
    rows: list[TraceRow] = []
    for row in reader.rows:
        if row.after is not None and row.after + first_line not in places:
            reader.reject(row.line, "the request that it waits for is missing or comes later")
            continue
        places[row.line] = len(rows)
        after = None if row.after is None else places[row.after + first_line]
        rows.append(replace(row, after=after))
    return rows


def _in_seconds(rows: list[TraceRow], scale: float) -> list[TraceRow]:
    first = min((row.time for row in rows if row.time is not None), default=0.0)
    return [
        replace(
            row,
            time=None if row.time is None else round((row.time - first) * scale, _DECIMALS),
            delay=None if row.delay is None else round(row.delay * scale, _DECIMALS),
        )
        for row in rows
    ]
