"""Text on its way in and out: tokenising, chat prompts, and turning tokens back into text.

`Tokenizer` wraps a transformers tokenizer that somebody else loaded; `DetokenizerStream` yields a
request's text piece by piece and watches for its stop strings. This module knows no model, no
scheduler and no client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.core.plan import TextDelta
from engine.core.request import Request, SamplingParams
from engine.model.byte_level import ByteLevelStream, byte_table
from engine.model.chat import (
    check_messages,
    check_text,
    continue_ids,
    control_tokens,
    render_chat,
)

REPLACEMENT = "\ufffd"

# A UTF-8 character has at most four bytes, so at most three can wait for the rest of it, and a
# decoder shows each by at most one replacement character.
_MAX_PENDING_BYTES = 3
# Tokens that stay in the window as context, and the length at which it is cut back to them.
_CONTEXT_TOKENS = 8
_MAX_WINDOW_TOKENS = 32


class Tokenizer:
    """One model's tokenizer; every method may be called from any thread.

    tokenizer: a transformers tokenizer. generation_end_ids: `eos_token_id` of the model's
    generation config, which may list more end tokens than the tokenizer knows of.
    """

    def __init__(
        self, tokenizer: Any, generation_end_ids: int | Iterable[int] | None = None
    ) -> None:
        self._tokenizer = tokenizer
        ends = generation_end_ids
        listed = {ends} if isinstance(ends, int) else set(ends or ())
        own = tokenizer.eos_token_id
        self.end_token_ids: frozenset[int] = frozenset(listed if own is None else listed | {own})
        # Control tokens: they give no text. End tokens count, whatever the tokenizer makes of them.
        self.special_token_ids: frozenset[int] = self.end_token_ids.union(
            tokenizer.all_special_ids,
            (i for i, token in tokenizer.added_tokens_decoder.items() if token.special),
        )
        if tokenizer.chat_template and tokenizer.chat_control_tokens is None:
            tokenizer.chat_control_tokens = control_tokens(tokenizer)
        # A fast tokenizer raises "Already borrowed" when a call changes its settings (truncation,
        # padding, splitting of special tokens) during another. This first call settles them, and no
        # later one asks for anything else, so that all the others only read.
        self._prefix = self._special_prefix()
        self.byte_table = byte_table(tokenizer)

    @property
    def vocab_size(self) -> int:
        """Tokens the tokenizer knows, those added to its vocabulary included."""
        return len(self._tokenizer)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a raw prompt; control-token text in it does become control tokens.

        add_special_tokens: add what the tokenizer puts round a text by default, such as the start
        token. Raises InvalidRequest for what is not text.
        """
        ids = self._tokenizer.encode(
            check_text(text, "prompt"), add_special_tokens=add_special_tokens
        )
        return list(ids)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids, spaces as the tokens have them; unknown ids give no text."""
        # Never tidied up ("is n't" -> "isn't"): that would change text that was already sent.
        text: str = self._tokenizer.decode(
            list(token_ids),
            skip_special_tokens=skip_special_tokens,
            clean_up_tokenization_spaces=False,
        )
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for on its own, often only part of a character; unknown: none.

        Only byte-level vocabularies know the bytes; of others it is the token's decoded text.
        """
        if self.byte_table is not None:
            return self.byte_table[token_id] if 0 <= token_id < len(self.byte_table) else b""
        return self.decode([token_id], skip_special_tokens=False).encode()

    def count(self, text: str) -> int:
        """Tokens of a text on its own, without any added around it."""
        return len(self.encode(text, add_special_tokens=False))

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        add_generation_prompt: bool | None = None,
        continue_final: bool = False,
        known_ids: Sequence[int] = (),
    ) -> list[int]:
        """Prompt token ids of a conversation of `{"role", "content"}` messages.

        Content is a string or a list of text parts, and never becomes control tokens.
        add_generation_prompt opens the assistant's turn (None: unless `continue_final`);
        continue_final leaves the last message, the assistant's, open for the model to go on. A
        base model without a chat template continues the texts, one a line, after its start token.
        known_ids: prompt and answer of the turn before, as they were computed. They begin the
        prompt wherever their text does, since an answer tokenised again may become other tokens.

        Raises InvalidRequest for messages that are wrong in themselves or to the template.
        """
        checked = check_messages(messages)
        opens_turn = not continue_final if add_generation_prompt is None else add_generation_prompt
        ids = render_chat(
            self._tokenizer,
            checked,
            add_generation_prompt=opens_turn,
            continue_final=continue_final,
        )
        if known_ids and opens_turn:
            return self._continued(checked, known_ids) or ids
        return ids if self._tokenizer.chat_template else self._prefix + ids

    def _continued(
        self, messages: list[dict[str, str]], known_ids: Sequence[int]
    ) -> list[int] | None:
        def text_of(token_ids: Sequence[int]) -> str:
            return self.decode(token_ids, skip_special_tokens=False)

        known_text = text_of(known_ids)
        return continue_ids(self._tokenizer, messages, known_ids, known_text, text_of)

    def stream(self, request: Request) -> DetokenizerStream:
        """A fresh stream for the request's output."""
        return DetokenizerStream(self, request.params, request.prompt_token_ids)

    def _special_prefix(self) -> list[int]:
        """Ids the tokenizer puts before a text by default: a start token, or nothing."""
        bare = self.encode("a", add_special_tokens=False)
        full = self.encode("a")
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return full[:start]
        return []


class DetokenizerStream:
    """One request's output as text: whole characters only, ended by its stop strings.

    Without a stop, what `push` and `flush` return joins to the decoding of all output tokens,
    special tokens skipped and end tokens too, even those that the tokenizer does not mark as
    special. One exception: a byte-fallback decoder shows a run of bytes that breaks off as invalid
    from its start; whole characters of it that are out stay as they are.

    Where the prompt ends in ordinary text the output continues it, so that a leading space of the
    first token is kept ("Roses are" + " red"); after a control token it begins afresh.

    A stop string counts from output token number `min_tokens` on: one that is complete before is
    ordinary text. Of several, the one complete first ends the text, and none of it is returned.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        params: SamplingParams,
        prompt_token_ids: Sequence[int] = (),
    ) -> None:
        self._silent_token_ids = tokenizer.special_token_ids
        self._characters: ByteLevelStream | _CharacterStream = (
            ByteLevelStream(tokenizer.byte_table)
            if tokenizer.byte_table is not None
            else _CharacterStream(tokenizer, prompt_token_ids)
        )
        self._matcher = _StopMatcher(params.stop)
        self._has_stops = bool(params.stop)
        self._min_tokens = params.min_tokens
        self._num_tokens = 0

    def push(self, token_id: int) -> TextDelta:
        """Take one more token; the text returned never changes afterwards."""
        self._num_tokens += 1
        if token_id in self._silent_token_ids:
            return TextDelta("", self._matcher.stopped)
        text = self._characters.push(token_id)
        return self._match(text) if self._has_stops else TextDelta(text, False)

    def flush(self) -> str:
        """Text held back so far, once no more tokens will come."""
        return self._match(self._characters.flush()).text + self._matcher.flush()

    def _match(self, text: str) -> TextDelta:
        sent = self._matcher.push(text, counts=self._num_tokens >= self._min_tokens)
        return TextDelta(sent, self._matcher.stopped)


class _CharacterStream:
    """Tokens in, text out, with unfinished characters held back.

    A token is decoded behind a window of the tokens before it, since decoders look back: a
    SentencePiece space is dropped at the start of a text only, and a character may be spread over
    tokens. `_sent` counts the characters of the window's text that are out already.

        window   [ ...context... | newest ]
        text      The red fo       x \\ufffd
                             ^ _sent   ^ held back: may be the first half of a character
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._window = _prompt_context(tokenizer, prompt_token_ids)
        self._text = tokenizer.decode(self._window)
        self._sent = len(self._text)
        # The window's text when nothing was held back last, and its number of tokens then.
        self._settled = self._text
        self._num_settled = len(self._window)

    def push(self, token_id: int) -> str:
        self._window.append(token_id)
        self._text = self._tokenizer.decode(self._window)
        if not self._text.startswith(self._settled):
            self._restart()
        trailing = len(self._text) - len(self._text.rstrip(REPLACEMENT))
        end = max(self._sent, len(self._text) - min(trailing, _MAX_PENDING_BYTES))
        new, self._sent = self._text[self._sent : end], end
        if end == len(self._text) and not trailing:
            self._settle()
        if len(self._window) > _MAX_WINDOW_TOKENS:
            new += self._cut()
        return new

    def flush(self) -> str:
        rest, self._sent = self._text[self._sent :], len(self._text)
        return rest

    def _settle(self) -> None:
        """Note that all text is out, and drop a token that added none to it.

        Not at the start of a text: there a bare space gives no text, but keeps the next one.
        """
        if self._text and self._text == self._settled:
            del self._window[self._num_settled :]
        self._settled, self._num_settled = self._text, len(self._window)

    def _restart(self) -> None:
        """Begin again behind the settled text, which the decoder has just taken back.

        Byte-fallback decoders show a whole run of bytes as invalid while its last character is
        unfinished, the finished ones before it included.
        """
        del self._window[: self._num_settled]
        self._sent -= len(self._settled)
        self._settled, self._num_settled = "", 0
        self._text = self._tokenizer.decode(self._window)

    def _cut(self) -> str:
        """Forget old tokens; returns text that can wait no longer because its tokens go."""
        unsent = self._text[self._sent :]
        window = self._window[-_CONTEXT_TOKENS:]
        text = self._tokenizer.decode(window)
        released = ""
        if not text.endswith(unsent):
            released, unsent = unsent, ""
        self._window, self._text = window, text
        self._sent = len(text) - len(unsent)
        self._settled, self._num_settled = ("", 0) if unsent else (text, len(window))
        return released


def _prompt_context(tokenizer: Tokenizer, prompt_token_ids: Sequence[int]) -> list[int]:
    """The last tokens of ordinary text that the output continues; none after a control token."""
    context = list(prompt_token_ids[-_CONTEXT_TOKENS:])
    for i in reversed(range(len(context))):
        if context[i] in tokenizer.special_token_ids:
            context = context[i + 1 :]
            break
    # Behind half a character nothing could be told apart.
    return [] if tokenizer.decode(context).endswith(REPLACEMENT) else context


class _StopMatcher:
    """Finds the first complete stop string in text that comes in pieces, however it is cut."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.stopped = False

    def push(self, text: str, *, counts: bool) -> str:
        """Text that is certain now. counts: whether a stop string completed by `text` ends it."""
        if self.stopped or not text:
            return ""
        known = len(self._held)
        self._held += text
        if counts and (start := self._first_match(known)) is not None:
            sent, self._held, self.stopped = self._held[:start], "", True
            return sent
        certain = len(self._held) - self._num_partial()
        sent, self._held = self._held[:certain], self._held[certain:]
        return sent

    def flush(self) -> str:
        rest, self._held = self._held, ""
        return rest

    def _first_match(self, known: int) -> int | None:
        """Where the match begins that ends first, behind the `known` characters."""
        matches = []
        for stop in self._stops:
            start = self._held.find(stop, max(0, known - len(stop) + 1))
            if start >= 0:
                matches.append((start + len(stop), start))
        return min(matches)[1] if matches else None

    def _num_partial(self) -> int:
        """Length of the longest end of the text with which a stop string begins."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:size]):
                    longest = size
                    break
        return longest
