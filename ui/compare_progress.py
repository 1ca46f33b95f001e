"""Starting an experiment from the page, saying how far it is, and stopping it: what Compare and
Workload have in common. It knows no form and no result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from engine.core.errors import PhaseScopeError
from ui.admin_key import WRONG_KEY_SECONDS, AdminKey
from ui.compare_desk import Desk, Job
from ui.events import QUIET
from ui.formats import counted
from ui.words_compare import COMPARE

_LOOK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Controls:
    """The button that starts, the one that stops, and the line that says how far it is."""

    desk: Desk
    lock: AdminKey
    run: gr.Button
    stop: gr.Button
    status: gr.HTML

    def connect(
        self,
        inputs: Sequence[gr.components.Component],
        shown: Sequence[Any],
        start: Callable[[str, Sequence[Any]], Job],
        show: Callable[[str], dict[Any, Any]],
    ) -> None:
        """Connect both buttons; inside the page's Blocks.

        inputs: the key's field, then those whose values `start` takes behind the visitor's name.
        shown: every component that a run changes.
        """

        async def run(request: gr.Request, key: str, *values: Any) -> AsyncIterator[dict[Any, Any]]:
            visitor = str(request.session_hash)
            async with aclosing(self.serve(key, lambda: start(visitor, values), show)) as steps:
                async for updates in steps:
                    yield updates

        self.run.click(run, inputs, shown, **QUIET)
        self.stop.click(self.stop_own, None, self.status, queue=False, **QUIET)

    async def serve(
        self, key: str, start: Callable[[], Job], show: Callable[[str], dict[Any, Any]]
    ) -> AsyncGenerator[dict[Any, Any]]:
        """Start a job, tell how far it is, and show its result by its name.

        `start` and `show` are called on other threads; each may raise PhaseScopeError. The job ends
        with its asker's page: whoever leaves gives the engine back. Close it when it is not read
        to its end.
        """
        try:
            await unlock(self.lock, key)
            job = await asyncio.to_thread(start)
        except PhaseScopeError as error:
            yield {self.status: message(str(error), "err")}
            return
        try:
            yield {self.run: gr.Button(visible=False), self.stop: gr.Button(visible=True)}
            async for told in follow(job):
                yield {self.status: gr.skip() if told is None else told}
        finally:
            # Also where the page was closed before it was followed.
            job.stop()
        buttons = {self.run: gr.Button(visible=True), self.stop: gr.Button(visible=False)}
        yield {**buttons, **await asyncio.to_thread(self._ended, job, show)}

    def stop_own(self, request: gr.Request) -> str:
        """End the visitor's own job."""
        self.desk.stop(str(request.session_hash))
        return message(COMPARE["stopping"], "busy")

    def _ended(self, job: Job, show: Callable[[str], dict[Any, Any]]) -> dict[Any, Any]:
        if job.state.result_id is None:
            return {self.status: message(job.state.error or "", "err")}
        try:
            return show(job.state.result_id)
        except PhaseScopeError as error:
            return {self.status: message(str(error), "err")}


async def unlock(lock: AdminKey, key: str) -> None:
    """Raise PhaseScopeError, after a while, unless the key opens the lock."""
    if not lock.opens(key):
        await asyncio.sleep(WRONG_KEY_SECONDS)
        raise PhaseScopeError(COMPARE["wrong_key"])


async def follow(job: Job) -> AsyncIterator[str | None]:
    """What to show until the experiment has ended; None where nothing has changed.

    It yields all the time, since a yield is what tells a closed page, and an experiment ends with
    its asker's page: whoever leaves gives the engine back.
    """
    told = ""
    try:
        while not job.state.ended:
            now = progress(job)
            yield now if now != told else None
            told = now
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        job.stop()


def message(text: str, kind: str) -> str:
    """A line of the status: `err` for what went wrong, `busy` for what goes on."""
    return f'<p class="ps-status" role="status" data-kind="{kind}">{escape(text)}</p>'


def progress(job: Job) -> str:
    """Where an experiment stands, in a sentence."""
    state, made = job.state, job.state.progress
    if job.stopping:
        return message(COMPARE["stopping"], "busy")
    if state.position > 0:
        before = counted(state.position, "experiment")
        be = "is" if state.position == 1 else "are"
        return message(COMPARE["before_you"].format(experiments=f"{before} {be}"), "busy")
    if made is None:
        return message(COMPARE["preparing"], "busy")
    text = COMPARE["progress"].format(
        run=made.run,
        runs=made.num_runs,
        side=made.side,
        done=made.requests_done,
        total=made.num_requests,
    )
    share = (made.run - 1 + made.requests_done / made.num_requests) / made.num_runs
    bar = f'<progress max="1" value="{share:.3f}" aria-label="Progress"></progress>'
    return f'<p class="ps-status" role="status" data-kind="busy">{escape(text)}{bar}</p>'
