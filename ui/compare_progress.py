"""How far an experiment is, for the page: its sentences, and following it to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from html import escape

from engine.core.errors import PhaseScopeError
from ui.admin_key import WRONG_KEY_SECONDS, AdminKey
from ui.compare_desk import Job
from ui.formats import counted
from ui.words_compare import COMPARE

_LOOK_SECONDS = 0.3


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
