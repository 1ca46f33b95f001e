"""Simulated visitors: ordinary chat requests that belong to nobody who looks at the page.

They show what sharing an engine means. Each asks one question of its own and reads its answer to
the end; together they are bounded over all sessions. This module knows no page.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import cycle

from engine.core.errors import EngineStopped, PhaseScopeError
from engine.core.request import SamplingParams
from engine.mailbox import RequestFailed, TokenStream
from engine.service import EngineService
from ui.prompts import QUESTIONS

MAX_VISITORS = 20
LABEL = "added user"
STAGGER_SECONDS = 0.4
MAX_TOKENS = (96, 160, 224)


class TooManyVisitors(PhaseScopeError):
    """As many visitors are at work as may be."""


class Visitors:
    """The simulated visitors of one server. Every method belongs to its event loop."""

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions = cycle(QUESTIONS)
        self._limits = cycle(MAX_TOKENS)

    @property
    def num_running(self) -> int:
        """Visitors that are waiting, reading or about to ask."""
        return len(self._tasks)

    def add(self, count: int) -> list[asyncio.Task[None]]:
        """Let `count` visitors come, one after the other; returns their tasks.

        Raises TooManyVisitors or EngineStopped, and then none comes.
        """
        if not 1 <= count <= MAX_VISITORS:
            raise TooManyVisitors(f"Add 1 to {MAX_VISITORS} users at once; got {count}.")
        free = MAX_VISITORS - self.num_running
        if count > free:
            raise TooManyVisitors(
                f"{self.num_running} added users are at work and {MAX_VISITORS} is the limit; "
                f"wait for some to finish, or stop them."
            )
        serves, reason = self._service.health()
        if not serves:
            raise EngineStopped(reason)
        added = [asyncio.create_task(self._visit(i * STAGGER_SECONDS)) for i in range(count)]
        for task in added:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return added

    def stop(self) -> None:
        """Send all visitors away; their requests are stopped."""
        for task in self._tasks:
            task.cancel()

    async def _visit(self, delay: float) -> None:
        await asyncio.sleep(delay)
        # A visitor that is turned away or loses its engine simply leaves: its lane shows it.
        with contextlib.suppress(PhaseScopeError, RequestFailed):
            stream = await asyncio.to_thread(self._ask, next(self._questions), next(self._limits))
            try:
                async for _ in stream:
                    pass
            finally:
                stream.close()

    def _ask(self, text: str, max_tokens: int) -> TokenStream:
        params = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=max_tokens)
        return self._service.submit_chat([{"role": "user", "content": text}], params, label=LABEL)
