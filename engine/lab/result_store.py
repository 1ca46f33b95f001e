"""A bounded folder of results as files: listed, opened, deleted. Those of lessons are kept apart.

It knows no experiment and no page.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.errors import InvalidRequest, PhaseScopeError
from engine.lab.results import Result

MAX_RESULTS = 50
MAX_LESSONS = 10
MAX_FOLDER_BYTES = 200_000_000
_ID = re.compile(r"[0-9a-z-]{1,64}")


class ResultNotFound(PhaseScopeError):
    """No result of that name is in the folder, or its file cannot be read."""


@dataclass(frozen=True, slots=True)
class ResultEntry:
    """One line of the list of results; `summary` is the verdict, or what one side came to."""

    id: str
    title: str
    created: float
    simulated: bool
    num_sides: int
    summary: str


class ResultStore:
    """Results as files of a folder: the newest `max_results` that together fit `max_bytes`.

    The newest one is always kept. Results of lessons lie in a folder below, bounded in the same
    way by `max_lessons`: they are opened by their names, and never listed. Not locked: one
    experiment is run at a time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_results: int = MAX_RESULTS,
        max_lessons: int = MAX_LESSONS,
        max_bytes: int = MAX_FOLDER_BYTES,
    ) -> None:
        self._folder = folder
        self._lessons = folder / "lessons"
        self._most = {folder: max_results, self._lessons: max_lessons}
        self._max_bytes = max_bytes
        # Reading a folder of large results takes seconds: an entry is made once for each file.
        self._entries: dict[Path, tuple[tuple[int, int], ResultEntry | None]] = {}

    def save(self, result: Result, *, lesson: bool = False) -> Path:
        """Write a result and drop the oldest of its kind beyond the bounds; raises OSError."""
        path = (self._lessons if lesson else self._folder) / _file_name(result.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A reader never sees half a file.
        draft = path.with_suffix(".part")
        draft.write_text(result.to_json(), encoding="utf-8")
        draft.replace(path)
        self._drop_oldest(path)
        return path

    def list(self) -> list[ResultEntry]:
        """All results that can be read, newest first; without those of lessons."""
        known = {path: self._known(path) for path in self._folder.glob("*.json")}
        self._entries = {path: item for path, item in known.items() if item is not None}
        entries = [entry for _, entry in self._entries.values() if entry is not None]
        return sorted(entries, key=lambda entry: (entry.created, entry.id), reverse=True)

    def _known(self, path: Path) -> tuple[tuple[int, int], ResultEntry | None] | None:
        """The entry of a file as it is now, None in its place for what is no result."""
        try:
            status = path.stat()
            version = (status.st_mtime_ns, status.st_size)
            before = self._entries.get(path)
            if before is not None and before[0] == version:
                return before
            return version, _entry(json.loads(path.read_text(encoding="utf-8")))
        except OSError:
            return None  # deleted meanwhile
        except (ValueError, TypeError, KeyError):
            return version, None

    def load(self, result_id: str) -> Result:
        """One result; raises ResultNotFound."""
        name = _file_name(result_id)
        path = self._folder / name
        if not path.exists():
            path = self._lessons / name
        try:
            return Result.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ResultNotFound(
                f"There is no result {result_id}; it was deleted, or newer ones took its place."
            ) from None
        except (OSError, ValueError) as error:
            raise ResultNotFound(f"The result {result_id} cannot be read: {error}.") from None

    def delete(self, result_id: str) -> None:
        """Delete one result; harmless when it is gone."""
        (self._folder / _file_name(result_id)).unlink(missing_ok=True)

    def _drop_oldest(self, newest: Path) -> None:
        files = sorted(
            (path for path in newest.parent.glob("*.json") if path != newest),
            key=lambda path: path.stat().st_mtime_ns,
            reverse=True,
        )
        total = newest.stat().st_size
        for count, path in enumerate(files, start=2):
            total += path.stat().st_size
            if count > self._most[newest.parent] or total > self._max_bytes:
                path.unlink(missing_ok=True)


def _file_name(result_id: str) -> str:
    # Names come from links: nothing but our own may reach the file system.
    if not _ID.fullmatch(result_id):
        raise InvalidRequest(
            f"{result_id[:80]!r} is not the name of a result: letters, digits and hyphens."
        )
    return f"{result_id}.json"


def _entry(result: Any) -> ResultEntry:
    sides, verdict = result["sides"], result["verdict"]
    return ResultEntry(
        id=str(result["id"]),
        title=str(result["title"]),
        created=float(result["created"]),
        simulated=bool(result["simulated"]),
        num_sides=len(sides),
        summary=str(verdict["sentence"]) if verdict else _summary(sides[0]),
    )


def _summary(side: Any) -> str:
    """How many requests finished in how long, and how fast."""
    finished = int(side["requests"]["finished"])
    requests = "1 request" if finished == 1 else f"{finished:,} requests"
    window = f"{requests} finished in {side['seconds']:.1f} s"
    rate = side["throughput"]
    return window if rate is None else f"{window}, {rate:.1f} output tok/s"
