"""Drives a request's text stream as the engine does, for the tests of text."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerFast

from engine.core.request import SamplingParams
from engine.model.text import DetokenizerStream, Tokenizer
from tests.model.tiny_tokenizers import ids_of

FOX = "🦊".encode()
FIRST_HALF, SECOND_HALF = FOX[:2], FOX[2:]


def general(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, read through its decoder as those are that are not byte-level."""
    tokenizer.byte_table = None
    return tokenizer


def stream_text(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    *,
    stop: Sequence[str] = (),
    min_tokens: int = 0,
    prompt: Sequence[int] = (),
) -> tuple[list[str], bool]:
    """Deltas up to a stop, and the flush; whether a stop string ended the text."""
    params = SamplingParams(stop=tuple(stop), min_tokens=min_tokens, max_tokens=100_000)
    stream = DetokenizerStream(tokenizer, params, prompt)
    deltas, stopped = [], False
    for token_id in token_ids:
        text, stopped = stream.push(token_id)
        deltas.append(text)
        if stopped:
            break
    return [*deltas, stream.flush()], stopped


def joined(tokenizer: Tokenizer, token_ids: Sequence[int], **options: Sequence[int]) -> str:
    return "".join(stream_text(tokenizer, token_ids, **options)[0])


def of(hf: PreTrainedTokenizerFast, pieces: Sequence[str | bytes]) -> tuple[Tokenizer, list[int]]:
    return Tokenizer(hf), ids_of(hf, pieces)
