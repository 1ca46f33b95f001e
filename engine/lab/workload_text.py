"""Synthetic prompts that are exactly as long as asked, in the tokens of the loaded model.

Prompts are token ids drawn at random from a vocabulary, so no tokenizer can split them otherwise;
where a server takes only text, `exact_text` finds one that encodes to the length. The ids mean
nothing: they have the work of a real prompt, not its sense.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from engine.core.errors import InvalidRequest

_MAX_ROUNDS = 500
REPLACEMENT = "\ufffd"


@runtime_checkable
class Vocabulary(Protocol):
    """What a tokenizer says of its tokens; `engine.model.text.Tokenizer` does."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids, from 0 on."""
        ...

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Ids that are no text: control and end tokens."""
        ...


@runtime_checkable
class TextCoder(Protocol):
    """A tokenizer both ways, as far as `exact_text` needs it."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        ...

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        ...


class TokenSource:
    """Draws ordinary tokens of one vocabulary; the same seed gives the same ids."""

    def __init__(self, vocab_size: int, special_token_ids: Iterable[int] = ()) -> None:
        avoid = frozenset(special_token_ids)
        self.ordinary: tuple[int, ...] = tuple(i for i in range(vocab_size) if i not in avoid)
        if len(self.ordinary) < 2:
            raise InvalidRequest(
                f"A vocabulary of {vocab_size:,} tokens leaves fewer than two ordinary ones to "
                f"draw prompts from."
            )

    @classmethod
    def of(cls, vocabulary: Vocabulary, limit: int | None = None) -> TokenSource:
        """The source of a tokenizer; `limit` is the model's own number of rows, if it has fewer."""
        size = vocabulary.vocab_size if limit is None else min(limit, vocabulary.vocab_size)
        return cls(size, vocabulary.special_token_ids)

    def draw(self, seed: str, count: int) -> list[int]:
        """`count` token ids; the first ones do not depend on the count."""
        return random.Random(seed).choices(self.ordinary, k=count)


def exact_text(coder: TextCoder, source: TokenSource, seed: str, count: int) -> str:
    """A text that `coder` encodes to exactly `count` tokens, special ones not counted.

    Random tokens often encode to others once they stand side by side: the text is encoded again
    and cut or lengthened until its length is right. Raises InvalidRequest where no text is found.
    """
    rng = random.Random(seed)
    ids: list[int] = []
    excess = -count
    for _ in range(_MAX_ROUNDS):
        if excess < 0:
            ids += [_readable(coder, source, rng) for _ in range(-excess)]
        else:
            # One piece may stand for several tokens: leave at least one out, and try others.
            del ids[-excess:]
        text = coder.decode(ids)
        excess = len(coder.encode(text, add_special_tokens=False)) - count
        if excess == 0:
            return text
    raise InvalidRequest(
        f"No text of exactly {count:,} tokens was found for this tokenizer; send token ids instead."
    )


def _readable(coder: TextCoder, source: TokenSource, rng: random.Random) -> int:
    """A token that is text by itself: a part of a character would be shown as a replacement."""
    for _ in range(_MAX_ROUNDS):
        token = rng.choice(source.ordinary)
        text = coder.decode([token])
        if text and text.isprintable() and REPLACEMENT not in text:
            return token
    raise InvalidRequest("This tokenizer has hardly any tokens that are text by themselves.")
