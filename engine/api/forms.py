"""A choice written as chat or as plain completion, whole or as one chunk of a stream.

The two differ in their words only; what happens is the same (`engine.api.batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from engine.api.batch import Choice, Event
from engine.api.logprobs import TokenLogprob, chat_logprobs, completion_logprobs
from engine.contracts import Tokenizer
from engine.core.request import FinishReason


class Form(Protocol):
    """How one route writes its choices; made anew for each call."""

    prefix: str
    whole_object: str
    chunk_object: str

    def opening(self, choice: Choice) -> dict[str, Any] | None:
        """What a stream says of a choice before its first token; None: nothing."""
        ...

    def chunk(self, event: Event) -> dict[str, Any]:
        """One event of a stream."""
        ...

    def whole(
        self, choice: Choice, text: str, tokens: Sequence[TokenLogprob], reason: FinishReason
    ) -> dict[str, Any]:
        """A choice that has ended."""
        ...


def logprobs_of(event: Event) -> list[TokenLogprob]:
    """The event's token with its log-probability: one entry, or none where there is none."""
    if event.token is None or event.logprob is None:
        return []
    return [TokenLogprob(event.token.token_id, event.text, event.logprob)]


class ChatForm:
    """Answers to a conversation."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def opening(self, choice: Choice) -> dict[str, Any] | None:
        """The role alone: no client takes it for a token."""
        return {"index": choice.index, "delta": {"role": "assistant"}, "finish_reason": None}

    def chunk(self, event: Event) -> dict[str, Any]:
        """A token's text, which may be empty while a character is unfinished."""
        # An end without a token must not look like one to clients that count contents.
        has_content = event.token is not None or event.text
        choice: dict[str, Any] = {
            "index": event.choice.index,
            "delta": {"content": event.text} if has_content else {},
            "finish_reason": event.finish_reason,
        }
        if tokens := logprobs_of(event):
            choice["logprobs"] = chat_logprobs(self._tokenizer, tokens)
        return choice

    def whole(
        self, choice: Choice, text: str, tokens: Sequence[TokenLogprob], reason: FinishReason
    ) -> dict[str, Any]:
        """The assistant's message."""
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": text},
            "logprobs": chat_logprobs(self._tokenizer, tokens) if tokens else None,
            "finish_reason": reason,
        }


class CompletionForm:
    """Continuations of plain text; `echoes` holds the prompts' texts where they are asked for."""

    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, tokenizer: Tokenizer, echoes: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._echoes = echoes
        self._lengths: dict[int, int] = {}

    def opening(self, choice: Choice) -> dict[str, Any] | None:
        """The prompt's text, if it is echoed."""
        return self._choice(choice.index, self._echo(choice), None, None) if self._echoes else None

    def chunk(self, event: Event) -> dict[str, Any]:
        """A token's text, which may be empty while a character is unfinished."""
        index = event.choice.index
        start = self._lengths.get(index, 0)
        self._lengths[index] = start + len(event.text)
        tokens = logprobs_of(event)
        entry = completion_logprobs(self._tokenizer, tokens, start) if tokens else None
        return self._choice(index, event.text, entry, event.finish_reason)

    def whole(
        self, choice: Choice, text: str, tokens: Sequence[TokenLogprob], reason: FinishReason
    ) -> dict[str, Any]:
        """The text, behind the prompt's if it is echoed."""
        entry = completion_logprobs(self._tokenizer, tokens) if tokens else None
        return self._choice(choice.index, self._echo(choice) + text, entry, reason)

    def echoed(self, index: int, text: str) -> dict[str, Any]:
        """A prompt given back with nothing generated behind it."""
        return self._choice(index, text, None, FinishReason.LENGTH)

    def _echo(self, choice: Choice) -> str:
        return self._echoes[choice.prompt_index] if self._echoes else ""

    def _choice(
        self, index: int, text: str, logprobs: dict[str, Any] | None, reason: FinishReason | None
    ) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
