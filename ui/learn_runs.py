"""Which lesson each visitor has the engine at work for, so that it can be stopped or left behind.

A visitor's experiments of other tabs are none of its business, and it knows no component.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.core.errors import PhaseScopeError
from ui.compare_desk import Job
from ui.words_learn import LEARN


class LessonRun:
    """One run of a lesson, from the click on, before there is a job; for use by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._job: Job | None = None
        self._stopped = False
        self._abandoned = False

    @property
    def abandoned(self) -> bool:
        """Whether its visitor has opened another lesson since."""
        return self._abandoned

    def start(self, begin: Callable[[], Job]) -> Job:
        """The job that `begin` starts, stopped at once where the run was stopped before."""
        job = begin()
        with self._lock:
            self._job = job
            if self._stopped:
                job.stop()
        return job

    def stop(self) -> None:
        """End it soon."""
        with self._lock:
            self._stopped = True
            if self._job is not None:
                self._job.stop()

    def abandon(self) -> None:
        """End it soon, and have nothing more of it shown."""
        self._abandoned = True
        self.stop()


class LessonRuns:
    """The lessons that run now, one at most for a visitor; each is forgotten with its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, LessonRun] = {}

    @contextmanager
    def running(self, visitor: str) -> Iterator[LessonRun]:
        """A new run for as long as the block; raises PhaseScopeError while there is another."""
        run = LessonRun()
        with self._lock:
            if visitor in self._runs:
                raise PhaseScopeError(LEARN["running_already"])
            self._runs[visitor] = run
        try:
            yield run
        finally:
            with self._lock:
                del self._runs[visitor]

    def stop(self, visitor: str) -> None:
        """End the visitor's lesson soon, if one runs."""
        run = self._find(visitor)
        if run is not None:
            run.stop()

    def abandon(self, visitor: str) -> None:
        """End the visitor's lesson soon, if one runs, and have nothing more of it shown."""
        run = self._find(visitor)
        if run is not None:
            run.abandon()

    def _find(self, visitor: str) -> LessonRun | None:
        with self._lock:
            return self._runs.get(visitor)
