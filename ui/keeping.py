"""What the server keeps of answers it has given: their token ids and the text of each token.

The ids let a follow-up begin with the very tokens of the turns before it, so that their KV blocks
are found again; the texts let an answer be shown token by token. An answer is found only by the
session it was given to; all of them together are bounded, and forgotten in time.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.mailbox import Token


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """Ids of a prompt, and the tokens of its answer that its reader has taken."""

    prompt_ids: array[int]
    output_ids: array[int]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, prompt_ids: Sequence[int], tokens: Sequence[Token]) -> KeptAnswer:
        """What is to be kept of an answer."""
        return cls(
            array("q", prompt_ids),
            array("q", [token.token_id for token in tokens]),
            tuple(token.text for token in tokens),
        )

    @property
    def token_ids(self) -> list[int]:
        """Prompt and answer, as they were computed."""
        return [*self.prompt_ids, *self.output_ids]

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.output_ids)


class KeptAnswers:
    """Answers by session and request number; every method belongs to one event loop.

    max_tokens are kept over all sessions, each answer for `keep_seconds` at most; the oldest go
    first.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        max_tokens: int = 500_000,
        keep_seconds: float = 3600.0,
    ) -> None:
        self._now = now
        self._max_tokens = max_tokens
        self._keep_seconds = keep_seconds
        self._kept: OrderedDict[tuple[str, int], tuple[KeptAnswer, float]] = OrderedDict()
        self._num_tokens = 0

    def put(self, session: str, number: int, answer: KeptAnswer) -> None:
        """Keep the answer that request `number` gave to a session."""
        self._remove((session, number))
        self._kept[session, number] = (answer, self._now())
        self._num_tokens += len(answer)
        self._expire()

    def get(self, session: str, number: int | None) -> KeptAnswer | None:
        """A session's own answer, or None."""
        self._expire()
        found = self._kept.get((session, number)) if number is not None else None
        return found[0] if found else None

    def drop(self, session: str) -> None:
        """Forget all that was answered to a session."""
        for key in [key for key in self._kept if key[0] == session]:
            self._remove(key)

    def __len__(self) -> int:
        return len(self._kept)

    def _remove(self, key: tuple[str, int]) -> None:
        if key in self._kept:
            self._num_tokens -= len(self._kept.pop(key)[0])

    def _expire(self) -> None:
        oldest = self._now() - self._keep_seconds
        while self._kept:
            key, (_, since) = next(iter(self._kept.items()))
            if self._num_tokens <= self._max_tokens and since > oldest:
                return
            self._remove(key)
