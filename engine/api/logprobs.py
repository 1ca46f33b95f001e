"""Log-probabilities in the two forms that OpenAI's clients know.

A token that is only part of a character has no text of its own; its bytes say what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from engine.contracts import Tokenizer
from engine.core.request import SampledLogprob

LOWEST = -9999.0
"""Stands for minus infinity, which JSON cannot hold; vLLM writes the same."""


class TokenLogprob(NamedTuple):
    """One output token with its log-probability, and the text it added to the answer."""

    token_id: int
    text: str
    logprob: SampledLogprob


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
    """The `logprobs` of a chat choice."""

    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        data = tokenizer.token_bytes(token_id)
        return {
            "token": data.decode("utf-8", "replace"),
            "logprob": max(logprob, LOWEST),
            "bytes": list(data),
        }

    content = [
        {
            **entry(token.token_id, token.logprob.logprob),
            "top_logprobs": [entry(token_id, value) for token_id, value in token.logprob.top],
        }
        for token in tokens
    ]
    return {"content": content}


def completion_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[TokenLogprob], start: int = 0
) -> dict[str, Any]:
    """The `logprobs` of a completion choice; its text so far has `start` characters."""
    offsets = []
    for token in tokens:
        offsets.append(start)
        start += len(token.text)
    return {
        "tokens": [_text(tokenizer, token.token_id) for token in tokens],
        "token_logprobs": [max(token.logprob.logprob, LOWEST) for token in tokens],
        "top_logprobs": [_named(tokenizer, token) for token in tokens],
        "text_offset": offsets,
    }


def _named(tokenizer: Tokenizer, token: TokenLogprob) -> dict[str, float]:
    """The most likely tokens by text, and the chosen one where it is not among them."""
    entries = [*token.logprob.top, (token.token_id, token.logprob.logprob)]
    named: dict[str, float] = {}
    for token_id, value in entries:
        # Of tokens that look alike the most likely one, which comes first, is kept.
        named.setdefault(_text(tokenizer, token_id), max(value, LOWEST))
    return named


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")
