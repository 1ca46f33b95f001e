"""One live feed for all viewers: each tick is made and serialised once, and read by cursor.

A sampler thread makes frames while somebody watches; readers with the same cursor get the same
bytes. What a frame says is the business of `ui.frames`.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque

import brotli
import orjson

from engine.service import EngineService
from ui.frames import FrameBuilder

log = logging.getLogger(__name__)

PERIOD = 0.4
KEPT_FRAMES = 150
IDLE_AFTER = 10.0
HISTORY_AGE = 1.0
NEAR = 4


class Feed:
    """Frames of one service, numbered from 1. `answer` may be called from any thread.

    A cursor is the number of the last frame its reader has; `epoch` tells a restarted server from
    the one that gave the cursor out. While nobody asks for `IDLE_AFTER` seconds no frames are made.
    """

    def __init__(self, service: EngineService, period: float = PERIOD) -> None:
        self.epoch = secrets.token_hex(4)
        self._service = service
        self._period = period
        self._builder = FrameBuilder(service)
        self._lock = threading.Lock()
        self._frames: deque[bytes] = deque(maxlen=KEPT_FRAMES)
        self._last = 0
        self._answers: dict[tuple[int, bool], bytes] = {}
        self._histories: dict[bool, tuple[float, bytes]] = {}
        self._asked = threading.Event()
        self._closed = False
        self._last_asked = 0.0
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        """Make frames from now on."""
        self._thread.start()

    def close(self) -> None:
        """Make no more frames."""
        self._closed = True
        self._asked.set()

    def is_near(self, cursor: int, epoch: str) -> bool:
        """Whether an answer to this cursor is a few frames at most."""
        return epoch == self.epoch and 0 <= self._last - cursor < NEAR

    def answer(self, cursor: int, epoch: str, *, compress: bool) -> bytes | None:
        """JSON (brotli-compressed on wish) of every frame after `cursor`; None when none is new.

        A cursor that is unknown, too old or of another epoch gets the bounded history instead.
        """
        self._last_asked = self._service.clock.now()
        self._asked.set()
        with self._lock:
            if epoch == self.epoch and cursor == self._last:
                return None
            if epoch != self.epoch or not self._last - len(self._frames) <= cursor < self._last:
                return self._history(compress)
            if (cursor, compress) not in self._answers:
                frames = list(self._frames)[cursor - self._last :]
                self._answers[cursor, compress] = self._body(frames, compress)
            return self._answers[cursor, compress]

    def _history(self, compress: bool) -> bytes:
        """The history as bytes, made once a second at most however many viewers arrive."""
        if not self._last:
            self._make_frame()
        now = self._service.clock.now()
        made, body = self._histories.get(compress, (now - HISTORY_AGE, b""))
        if now - made >= HISTORY_AGE:
            body = self._body([orjson.dumps(self._builder.history())], compress)
            self._histories[compress] = now, body
        return body

    def _body(self, frames: list[bytes], compress: bool) -> bytes:
        head = orjson.dumps({"cursor": self._last, "epoch": self.epoch})
        body = head[:-1] + b',"frames":[' + b",".join(frames) + b"]}"
        return brotli.compress(body, quality=4) if compress else body

    def _run(self) -> None:
        pause = threading.Event()
        while not self._closed:
            try:
                with self._lock:
                    self._make_frame()
            except Exception:
                # The page must go on with the next tick, whatever was wrong with this one.
                log.exception("A frame of the live feed could not be made")
            pause.wait(self._period)
            if self._service.clock.now() - self._last_asked > IDLE_AFTER:
                self._asked.clear()
                self._asked.wait()

    def _make_frame(self) -> None:
        frame = self._builder.delta()
        if frame is not None:
            self._frames.append(orjson.dumps(frame))
            self._last += 1
            self._answers.clear()
            self._histories.clear()
