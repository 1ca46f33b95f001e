"""The way from the engine's thread to one request's reader: tokens in order, then one end.

Each request has a mailbox of its own, so that a slow reader holds up nobody. It knows neither the
engine nor the web: the service puts in, a `TokenStream` takes out, on an event loop or in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from engine.core.clock import Clock
from engine.core.errors import PhaseScopeError
from engine.core.request import FinishReason, Request


@dataclass(frozen=True, slots=True)
class Token:
    """One output token as its reader gets it; `text` is what it makes certain, often nothing."""

    index: int
    token_id: int
    text: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended; `text` is what had been held back until then."""

    reason: FinishReason
    text: str = ""
    error: str | None = None


class RequestFailed(PhaseScopeError):
    """A request ended with an error; the message says which."""


class Mailbox:
    """Holds what its reader has not taken yet: at most one entry for each output token, and an end.

    `wake` is called, from the putting thread, whenever there is something new.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._tokens: deque[Token] = deque()
        self._ending: Ending | None = None
        self._num_put = 0
        self._wake: Callable[[], None] | None = None

    def put(self, token_id: int, text: str) -> None:
        """Add the next token; what comes after the end is dropped."""
        with self._lock:
            if self._ending is None:
                self._tokens.append(Token(self._num_put, token_id, text))
                self._num_put += 1
                self._notify()

    def close(self, ending: Ending) -> None:
        """End the request for its reader; only the first end counts."""
        with self._lock:
            if self._ending is None:
                self._ending = ending
                self._notify()

    def take(self) -> tuple[list[Token], Ending | None]:
        """Everything that has arrived since the last call, without waiting."""
        with self._lock:
            return self._take()

    def wait(self, timeout: float | None) -> tuple[list[Token], Ending | None]:
        """Like `take`, but waits up to `timeout` seconds for something to arrive."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._tokens or self._ending is not None, timeout)
            return self._take()

    def on_arrival(self, wake: Callable[[], None]) -> None:
        """Call `wake` for each arrival from now on, and at once if something is here already."""
        with self._lock:
            self._wake = wake
            if self._tokens or self._ending is not None:
                wake()

    def _take(self) -> tuple[list[Token], Ending | None]:
        tokens = list(self._tokens)
        self._tokens.clear()
        return tokens, self._ending

    def _notify(self) -> None:
        self._arrived.notify_all()
        if self._wake is not None:
            self._wake()


class TokenStream:
    """One request as its owner holds it: its tokens, its end, and the right to stop it.

    Iterate over it once, either with `async for` on an event loop or with `for` in a thread. Both
    end after the last token; both raise RequestFailed if the request failed. `ending` is set then.
    A stream that is dropped stops its request: nothing is computed for a reader that has gone.
    """

    def __init__(
        self,
        request: Request,
        mailbox: Mailbox,
        clock: Clock,
        *,
        cancel: Callable[[], None],
        report: Callable[[list[float], bool], None],
    ) -> None:
        self._request = request
        self._mailbox = mailbox
        self._clock = clock
        self._cancel = cancel
        self._report = report
        self._closed = False
        self.ending: Ending | None = None

    @property
    def number(self) -> int:
        """The request's number in the records and on the page."""
        return self._request.number

    @property
    def id(self) -> str:
        """The request's name on the page, such as `R18`."""
        return self._request.id

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the rendered prompt."""
        return self._request.num_prompt_tokens

    @property
    def max_output_tokens(self) -> int:
        """The output limit after clipping to context and pool."""
        return self._request.max_output_tokens

    def cancel(self) -> None:
        """Stop the request; harmless when it has ended. The stream then ends as usual."""
        self._cancel()

    def close(self) -> None:
        """Say that nothing more will be read: stops the request and completes its record."""
        if not self._closed:
            self._closed = True
            self._cancel()
            self._report([], True)

    def __del__(self) -> None:
        self.close()

    def __iter__(self) -> Iterator[Token]:
        """Tokens in order, from a thread of its own."""
        while self.ending is None:
            tokens, ending = self._mailbox.wait(None)
            self._taken(tokens, ending)
            yield from tokens
        self._finish()

    async def __aiter__(self) -> AsyncIterator[Token]:
        """Tokens in order, on the running event loop.

        A token counts as delivered when the loop takes it from the mailbox, whether or not the
        consumer of this iterator is ready for it.
        """
        loop = asyncio.get_running_loop()
        buffer: deque[Token] = deque()
        arrived = asyncio.Event()
        # The mailbox outlives this iteration: it must not keep a dropped stream alive.
        reference = weakref.ref(self)

        def take() -> None:
            stream = reference()
            if stream is not None and stream.ending is None:
                tokens, ending = stream._mailbox.take()
                stream._taken(tokens, ending)
                buffer.extend(tokens)
                arrived.set()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: its reader has gone
                loop.call_soon_threadsafe(take)

        self._mailbox.on_arrival(wake)
        while self.ending is None or buffer:
            if not buffer:
                arrived.clear()
                await arrived.wait()
                continue
            yield buffer.popleft()
        self._finish()

    async def text(self) -> str:
        """Wait for the end and return the whole text; raises RequestFailed."""
        parts = [token.text async for token in self]
        assert self.ending is not None
        return "".join([*parts, self.ending.text])

    def _taken(self, tokens: list[Token], ending: Ending | None) -> None:
        now = self._clock.now()
        self.ending = ending
        if ending is not None:
            self._closed = True
        if tokens or ending is not None:
            self._report([now] * len(tokens), ending is not None)

    def _finish(self) -> None:
        if self.ending is not None and self.ending.error is not None:
            raise RequestFailed(self.ending.error)
