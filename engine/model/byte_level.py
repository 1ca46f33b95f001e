"""Byte-level vocabularies read as what they are: each token is a string of bytes.

Such tokenizers (GPT-2's kind) decode a text by joining its tokens' bytes, so a token's share needs
no look at its neighbours and costs well under a microsecond, where a general decoder costs twenty.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

# How GPT-2's vocabulary writes bytes: printable ones as themselves, the others, in order, as the
# characters from U+0100 on.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_SHIFTED = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + index): byte for index, byte in enumerate(_SHIFTED)
}


def byte_table(tokenizer: Any) -> list[bytes] | None:
    """Bytes of every token id of a fast transformers tokenizer; None unless it is byte-level."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or type(backend.decoder).__name__ != "ByteLevel":
        return None
    table = [b""] * len(tokenizer)
    for token, token_id in backend.get_vocab(with_added_tokens=True).items():
        table[token_id] = _token_bytes(token)
    return table


def _token_bytes(token: str) -> bytes:
    """A token whose characters do not all stand for bytes, such as an added one, is plain text."""
    values = [_BYTE_OF.get(character) for character in token]
    known = [value for value in values if value is not None]
    return bytes(known) if len(known) == len(values) else token.encode()


class ByteLevelStream:
    """Tokens in, whole characters out; what cannot become one is shown as U+FFFD."""

    def __init__(self, table: Sequence[bytes]) -> None:
        self._table = table
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Text that the token completes; ids outside the vocabulary give none."""
        known = 0 <= token_id < len(self._table)
        return self._decoder.decode(self._table[token_id]) if known else ""

    def flush(self) -> str:
        """What was held back, as U+FFFD."""
        return self._decoder.decode(b"", final=True)
