"""A recording in the place of an engine, for a server that loads no model: a feed that says one
frame, and a service that serves nobody and says why.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import brotli
import orjson

from engine.contracts import EngineParts, Report, ServiceState, ServiceStatus
from engine.core.errors import EngineStopped
from engine.service import EngineService
from ui.recording import MAX_BYTES, Document, NotARecording, read_recording, replay_frame
from ui.words_replay import REPLAY


def load_recording(path: Path) -> Document:
    """The recording in a file; raises NotARecording with a sentence."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotARecording(f"{path} cannot be read ({error.strerror}).") from None
    return read_recording(data, path.name)


class ReplayFeed:
    """Answers as `ui.feed.Feed` does, with the recording as its only frame."""

    def __init__(self, document: Document) -> None:
        self.epoch = secrets.token_hex(4)
        body = {"cursor": 1, "epoch": self.epoch, "frames": [replay_frame(document)]}
        self._body = orjson.dumps(body)
        self._compressed = brotli.compress(self._body, quality=9)

    def is_near(self, cursor: int, epoch: str) -> bool:
        """Whether the reader has the recording already."""
        return epoch == self.epoch and cursor == 1

    def answer(self, cursor: int, epoch: str, *, compress: bool) -> bytes | None:
        """The recording; None for a reader that has it."""
        if self.is_near(cursor, epoch):
            return None
        return self._compressed if compress else self._body


class ReplayService(EngineService):
    """Serves nothing and cannot be started: whoever asks learns that this is a recording."""

    def __init__(self) -> None:
        super().__init__(_no_engine)

    @property
    def state(self) -> ServiceState:
        """Closed, and why."""
        return ServiceState(ServiceStatus.CLOSED, REPLAY["no_engine"])

    def start(self) -> None:
        """Raise EngineStopped."""
        raise EngineStopped(REPLAY["no_engine"])


def _no_engine(report: Report) -> EngineParts:
    raise EngineStopped(REPLAY["no_engine"])
