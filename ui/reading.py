"""Reads one token stream at the pace of a screen: the first token at once, then a few times a
second.

Tokens are taken, and so counted as delivered, as they come; only the looking is paced. This module
knows neither chats nor pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from engine.mailbox import RequestFailed, Token, TokenStream

UPDATE_SECONDS = 0.1
"""Shortest time between two looks: drawing an answer costs a browser up to 30 ms."""

PATIENCE_SECONDS = 0.5
"""Longest time between two looks: a reader that has gone is noticed only at one of them."""

STOP_SECONDS = 0.5
"""How long a stopped stream may take to end before its reader leaves it: a step can be long."""


class Reading:
    """One stream while it is read: its tokens so far, and its error once it has failed."""

    def __init__(self, stream: TokenStream) -> None:
        self.stream = stream
        self.error: str | None = None
        self.tokens: list[Token] = []
        self._parts: list[str] = []
        self._arrived = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(lambda _: self._arrived.set())

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return "".join(self._parts)

    async def looks(self) -> AsyncIterator[None]:
        """A moment to look at the text: after news, and at least every PATIENCE_SECONDS."""
        while not self._reader.done():
            try:
                await asyncio.wait_for(self._arrived.wait(), PATIENCE_SECONDS)
            except TimeoutError:
                yield
                continue
            self._arrived.clear()
            if not self._reader.done():
                yield
                await asyncio.sleep(UPDATE_SECONDS)

    def stop(self) -> None:
        """Stop the request; the looks end soon, whatever the engine is busy with."""
        self.stream.cancel()
        asyncio.get_running_loop().call_later(STOP_SECONDS, self._reader.cancel)

    def close(self) -> None:
        """Say that nothing more will be read."""
        self._reader.cancel()
        self.stream.close()

    async def _read(self) -> None:
        try:
            async for token in self.stream:
                self.tokens.append(token)
                self._parts.append(token.text)
                self._arrived.set()
        except RequestFailed as error:
            self.error = str(error)
        if self.stream.ending is not None:
            self._parts.append(self.stream.ending.text)
