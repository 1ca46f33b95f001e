"""Simulated visitors: ordinary chat requests that belong to nobody who looks at the page.

They show what sharing an engine means. Each asks one question of its own and reads its answer to
the end; together they are bounded over all sessions. This module knows no page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from enum import StrEnum
from itertools import count
from typing import NamedTuple

from engine.core.errors import EngineStopped, PhaseScopeError
from engine.core.request import SamplingParams
from engine.mailbox import RequestFailed, TokenStream
from engine.service import EngineService
from ui.prompts import (
    DOCUMENT_QUESTIONS,
    LONG_ANSWER_TASKS,
    QUESTIONS,
    document_prompt,
    long_prompt,
)

MAX_VISITORS = 20
LABEL = "added user"
STAGGER_SECONDS = 0.4
LONG_PROMPT_TOKENS = 1_500
DOCUMENT_TOKENS = 1_000
SHORT_ANSWERS = (96, 160, 224)
LONG_ANSWER_TOKENS = 800
BRIEF_ANSWER_TOKENS = 64


class Kind(StrEnum):
    """What added visitors do.

    short_chat: a question each; long_prompt: much to read, each its own; long_answer: much to
    write; shared_document: a question each about one and the same document.
    """

    SHORT_CHAT = "short_chat"
    LONG_PROMPT = "long_prompt"
    LONG_ANSWER = "long_answer"
    SHARED_DOCUMENT = "shared_document"


class TooManyVisitors(PhaseScopeError):
    """As many visitors are at work as may be, or a number that cannot be added."""


class _Question(NamedTuple):
    text: str
    max_tokens: int


class Visitors:
    """The simulated visitors of one server. Every method belongs to its event loop."""

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = count()

    @property
    def num_running(self) -> int:
        """Visitors that are waiting, reading or about to ask."""
        return len(self._tasks)

    def add(self, num_visitors: int, kind: Kind = Kind.SHORT_CHAT) -> list[asyncio.Task[None]]:
        """Let visitors come, one after the other; returns their tasks.

        Raises TooManyVisitors or EngineStopped, and then none comes.
        """
        if not 1 <= num_visitors <= MAX_VISITORS:
            raise TooManyVisitors(f"Add 1 to {MAX_VISITORS} users at once; got {num_visitors}.")
        free = MAX_VISITORS - self.num_running
        if num_visitors > free:
            raise TooManyVisitors(
                f"{self.num_running} added users are at work and {MAX_VISITORS} is the limit; "
                f"wait for some to finish, or stop them."
            )
        serves, reason = self._service.health()
        if not serves:
            raise EngineStopped(reason)
        # A document can be reused once it has been read: the others come after the first.
        read = asyncio.Event()
        if kind is not Kind.SHARED_DOCUMENT:
            read.set()
        added = [
            asyncio.create_task(self._visit(kind, i * STAGGER_SECONDS, read, first=i == 0))
            for i in range(num_visitors)
        ]
        for task in added:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return added

    def stop(self) -> None:
        """Send all visitors away; their requests are stopped."""
        for task in self._tasks:
            task.cancel()

    async def _visit(self, kind: Kind, delay: float, read: asyncio.Event, *, first: bool) -> None:
        try:
            if not first:
                await read.wait()
            await asyncio.sleep(delay)
            # A visitor that is turned away or loses its engine simply leaves: its lane shows it.
            with contextlib.suppress(PhaseScopeError, RequestFailed):
                stream = await asyncio.to_thread(self._ask, kind, next(self._turns))
                try:
                    async for _ in stream:
                        read.set()
                finally:
                    stream.close()
        finally:
            read.set()

    def _ask(self, kind: Kind, turn: int) -> TokenStream:
        tokenizer, config = self._service.tokenizer, self._service.config
        assert config is not None, "a service with a tokenizer has a configuration"
        # A quarter of the context is left for the template and an answer.
        limit = min(config.max_model_len, config.pool_tokens) * 3 // 4
        asked = _question(kind, turn, limit, lambda text: len(tokenizer.encode(text)))
        params = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=asked.max_tokens)
        messages = [{"role": "user", "content": asked.text}]
        return self._service.submit_chat(messages, params, label=LABEL)


def _question(kind: Kind, turn: int, limit: int, measure: Callable[[str], int]) -> _Question:
    """What the visitor number `turn` asks. limit: tokens that a text may have."""
    if kind is Kind.LONG_PROMPT:
        text = long_prompt(min(LONG_PROMPT_TOKENS, limit), measure, first_day=turn + 1)
        return _Question(text, BRIEF_ANSWER_TOKENS)
    if kind is Kind.LONG_ANSWER:
        task = LONG_ANSWER_TASKS[turn % len(LONG_ANSWER_TASKS)]
        return _Question(task, LONG_ANSWER_TOKENS)
    if kind is Kind.SHARED_DOCUMENT:
        question = DOCUMENT_QUESTIONS[turn % len(DOCUMENT_QUESTIONS)]
        text = document_prompt(min(DOCUMENT_TOKENS, limit), measure, question)
        return _Question(text, BRIEF_ANSWER_TOKENS)
    return _Question(QUESTIONS[turn % len(QUESTIONS)], SHORT_ANSWERS[turn % len(SHORT_ANSWERS)])
