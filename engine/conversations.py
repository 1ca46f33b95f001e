"""Token ids of recent conversations, so that a follow-up begins with the very ids of what was said.

An answer that is tokenised again from its text often comes out as other tokens, and from there on
no cached block fits any more. The store is bounded and forgets; it knows ids and keys, and no text.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from engine.core.request import Request


@dataclass(frozen=True, slots=True)
class _Entry:
    request: Request
    used: float


class ConversationStore:
    """The newest request of each conversation, by a key that only its owner knows.

    max_conversations are kept, each for `keep_seconds` after its last use; thread-safe.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        max_conversations: int = 200,
        keep_seconds: float = 3600.0,
    ) -> None:
        self._now = now
        self._max_conversations = max_conversations
        self._keep_seconds = keep_seconds
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def put(self, key: str, request: Request) -> None:
        """Make `request` the newest of its conversation."""
        with self._lock:
            self._entries[key] = _Entry(request, self._now())
            self._entries.move_to_end(key)
            self._expire()

    def token_ids(self, key: str) -> list[int]:
        """Prompt and answer of the conversation's newest request; empty if none is kept or done."""
        with self._lock:
            self._expire()
            entry = self._entries.get(key)
        if entry is None or not entry.request.finished:
            return []
        return list(entry.request.token_ids)

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._entries)

    def _expire(self) -> None:
        oldest = self._now() - self._keep_seconds
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if len(self._entries) <= self._max_conversations and entry.used > oldest:
                return
            del self._entries[key]
