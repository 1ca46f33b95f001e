"""Takes experiments in, runs them one after another on threads of their own, and keeps the results.

There is one desk for the whole page. A visitor is known by the hash of the browser tab and has one
experiment at a time; the desk knows no component of the page.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace

from engine.core.errors import PhaseScopeError
from engine.lab.experiment import (
    Experiment,
    ExperimentProgress,
    ExperimentStopped,
    perform,
    perform_in_turn,
)
from engine.lab.result_store import ResultStore
from engine.lab.results import Result
from engine.service import EngineService
from engine.turns import MAX_TURN_SECONDS
from ui.compare_places import Place
from ui.words_compare import COMPARE

_log = logging.getLogger(__name__)
_POSITION_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class JobState:
    """Where an experiment stands.

    position: experiments before this one; progress: None until the first run; result_id: once it is
    done; error: the sentence why there is no result.
    """

    position: int = 0
    progress: ExperimentProgress | None = None
    result_id: str | None = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.result_id is not None or self.error is not None


class Job:
    """One experiment on its way; every method may be called from any thread."""

    def __init__(self) -> None:
        self._state = JobState()
        self._stop = threading.Event()

    @property
    def state(self) -> JobState:
        """Where it stands now."""
        return self._state

    def stop(self) -> None:
        """End it soon: pairs of runs that were completed still make a result."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    # The job's own thread alone changes the state.
    def move_up(self, position: int) -> None:
        """Say how many are before it."""
        self._state = replace(self._state, position=position)

    def report(self, progress: ExperimentProgress) -> None:
        """Say how far the runs are."""
        self._state = replace(self._state, progress=progress, position=0)

    def finish(self, result_id: str) -> None:
        """Say that the result is kept."""
        self._state = replace(self._state, result_id=result_id)

    def fail(self, sentence: str) -> None:
        """Say why there is no result."""
        self._state = replace(self._state, error=sentence)


class Desk:
    """The experiments of all visitors. They queue for the service's turns, simulated ones too."""

    def __init__(self, service: EngineService, store: ResultStore) -> None:
        self.service = service
        self.store = store
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}

    def start(
        self, visitor: str, experiment: Experiment, place: Place, *, lesson: bool = False
    ) -> Job:
        """Take an experiment in; raises PhaseScopeError while the visitor has one already.

        lesson: its result is kept apart from the others, and only if it was not stopped.
        """
        job = Job()
        with self._lock:
            earlier = self._jobs.get(visitor)
            if earlier is not None and not earlier.state.ended:
                raise PhaseScopeError(COMPARE["running_already"])
            self._jobs = {v: j for v, j in self._jobs.items() if not j.state.ended}
            self._jobs[visitor] = job
        args = (job, experiment, place, lesson)
        threading.Thread(target=self._work, args=args, name="experiment", daemon=True).start()
        return job

    def stop(self, visitor: str) -> None:
        """End the visitor's experiment, if there is one."""
        with self._lock:
            job = self._jobs.get(visitor)
        if job is not None:
            job.stop()

    def close(self) -> None:
        """End every experiment: the server stops."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.stop()

    def _work(self, job: Job, experiment: Experiment, place: Place, lesson: bool) -> None:
        try:
            result = self._perform(job, experiment, place)
            if lesson and job.stopping:
                raise ExperimentStopped(COMPARE["lesson_stopped"])
            self.store.save(result, lesson=lesson)
        except PhaseScopeError as error:
            job.fail(str(error))
        except OSError as error:
            reason = error.strerror or str(error)
            job.fail(COMPARE["save_failed"].format(folder=error.filename, reason=reason))
        except Exception as error:
            # Whatever it was, the visitor who waits is told.
            _log.exception("an experiment failed")
            job.fail(COMPARE["failed"].format(reason=error))
        else:
            job.finish(result.id)

    def _perform(self, job: Job, experiment: Experiment, place: Place) -> Result:
        if place.backend is not None:
            return self._simulate(job, experiment, place)
        return perform_in_turn(
            experiment,
            self.service,
            report=job.report,
            on_position=job.move_up,
            should_stop=lambda: job.stopping,
        )

    def _simulate(self, job: Job, experiment: Experiment, place: Place) -> Result:
        """In the same queue as real ones: only one experiment takes this machine's time."""
        assert place.backend is not None, "a simulation has its backend"
        ticket = self.service.turns.join(experiment.title)
        try:
            while not ticket.wait(_POSITION_SECONDS):
                if job.stopping:
                    raise ExperimentStopped("The experiment was given up while it waited.")
                job.move_up(ticket.position)
            ends_by = time.monotonic() + MAX_TURN_SECONDS
            return perform(
                experiment,
                place.backend,
                report=job.report,
                should_stop=lambda: job.stopping or time.monotonic() > ends_by,
            )
        finally:
            ticket.leave()
