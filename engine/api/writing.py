"""Replies on their way out: a whole one, or a stream of server-sent events.

A stream holds one event a token, each a message to the server of its own so that it is flushed at
once, then at most one without choices, then `[DONE]`; an error ends it as `event: error`.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import orjson
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.api.batch import Batch, Event, usage
from engine.api.errors import as_api_error
from engine.api.forms import Form, logprobs_of
from engine.api.logprobs import TokenLogprob
from engine.api.timings import timings
from engine.core.request import FinishReason
from engine.service import EngineService

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes one call's reply.

    with_usage, along: a stream ends with the usage, and carries it all along; with_timings: the
    reply holds what the engine measured.
    """

    service: EngineService
    form: Form
    model: str
    id: str
    with_usage: bool = False
    along: bool = False
    with_timings: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    async def whole(self, batch: Batch) -> bytes:
        """Wait for every choice; raises RequestFailed when one fails."""
        texts: dict[int, list[str]] = defaultdict(list)
        tokens: dict[int, list[TokenLogprob]] = defaultdict(list)
        reasons: dict[int, FinishReason] = {}
        async for event in batch.events():
            index = event.choice.index
            texts[index].append(event.text)
            tokens[index] += logprobs_of(event)
            if event.finish_reason is not None:
                reasons[index] = event.finish_reason
        choices = [
            self.form.whole(choice, "".join(texts[i]), tokens[i], reasons[i])
            for i, choice in enumerate(batch.choices)
        ]
        reply = self._reply(self.form.whole_object, choices) | {"usage": batch.usage()}
        if self.with_timings:
            reply["timings"] = await timings(self.service, batch)
        return orjson.dumps(reply)

    def echoed(self, choices: list[dict[str, Any]], num_prompt_tokens: int) -> bytes:
        """A reply for which nothing was computed."""
        reply = self._reply(self.form.whole_object, choices)
        return orjson.dumps(reply | {"usage": usage(num_prompt_tokens, 0, 0)})

    async def echoed_events(
        self, choices: list[dict[str, Any]], num_prompt_tokens: int
    ) -> AsyncIterator[bytes]:
        """The same as a stream."""
        for choice in choices:
            yield self._chunk([choice])
        if self.with_usage:
            yield self._chunk([], usage=usage(num_prompt_tokens, 0, 0))
        yield DONE

    async def events(self, batch: Batch) -> AsyncIterator[bytes]:
        """The stream of a call; an error inside it is its last event."""
        try:
            for choice in batch.choices:
                opening = self.form.opening(choice)
                if opening is not None:
                    yield self._chunk([opening], **self._usage_along(batch, None))
            async for event in batch.events():
                yield self._chunk([self.form.chunk(event)], **self._usage_along(batch, event))
            extra: dict[str, Any] = {"usage": batch.usage()} if self.with_usage else {}
            if self.with_timings:
                extra["timings"] = await timings(self.service, batch)
            if extra:
                yield self._chunk([], **extra)
            yield DONE
        except Exception as error:
            # The status is out already; clients tell an error event from a token by its name.
            yield b"event: error\n" + _data(as_api_error(error).body())

    def _usage_along(self, batch: Batch, event: Event | None) -> dict[str, Any]:
        if not self.along:
            return {}
        request = event.choice.request if event else batch.choices[0].request
        count = event.num_output_tokens if event else 0
        return {"usage": usage(request.num_prompt_tokens, count, request.num_cached_tokens or 0)}

    def _chunk(self, choices: list[dict[str, Any]], **extra: Any) -> bytes:
        # OpenAI's streams with usage have the field in every chunk, null in all but the last.
        unused = {"usage": None} if self.with_usage else {}
        return _data(self._reply(self.form.chunk_object, choices) | unused | extra)

    def _reply(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


class EventStream(StreamingResponse):
    """Server-sent events of a batch, which is closed however the stream ends."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[bytes], batch: Batch | None, headers: dict[str, str]
    ) -> None:
        # Proxies such as nginx would collect events otherwise.
        own = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, headers={**own, **headers})
        self._batch = batch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; a client that goes cancels it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._batch is not None:
                self._batch.close()


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work, or None as soon as the client has gone; the body was read before."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        gone.cancel()


def new_id(prefix: str) -> str:
    """A reply's id."""
    return f"{prefix}-{uuid4().hex}"


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
