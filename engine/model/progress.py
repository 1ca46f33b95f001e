"""How far the loading of a model has come, as real numbers that only grow."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["downloading", "converting", "loading", "warming"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes done of the bytes one stage has to handle.

    downloading: bytes received; converting: bytes of GGUF tensors dequantised; loading: bytes of
    stored tensors brought into memory; warming: nothing to count, both are 0.
    """

    stage: Stage
    done_bytes: int
    total_bytes: int


ReportProgress = Callable[[Progress], None]


class ByteCounter:
    """Counts the bytes of one stage from several threads and reports each step in order."""

    def __init__(self, stage: Stage, total_bytes: int, report: ReportProgress) -> None:
        self._stage: Stage = stage
        self._total = total_bytes
        self._report = report
        self._done = 0
        self._lock = threading.Lock()
        report(Progress(stage, 0, total_bytes))

    def add(self, num_bytes: int) -> None:
        """Count `num_bytes` more as done."""
        with self._lock:
            self._done = min(self._done + num_bytes, self._total)
            self._report(Progress(self._stage, self._done, self._total))

    def expect(self, num_bytes: int) -> None:
        """Add `num_bytes` to the total, for a stage that learns its size as it goes."""
        with self._lock:
            self._total += num_bytes

    def finish(self) -> None:
        """Report the stage as complete: tensors the model has no use for are never read."""
        with self._lock:
            if self._done < self._total:
                self._done = self._total
                self._report(Progress(self._stage, self._done, self._total))
