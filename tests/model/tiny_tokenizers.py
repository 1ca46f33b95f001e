"""Small real tokenizers of the kinds that models have, with a vocabulary chosen by the test."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_level(
    pieces: Sequence[str | bytes] = (),
    *,
    chat_template: str | None = CHATML,
    adds_start_token: bool = False,
    added_tokens: Sequence[str] = (),
) -> PreTrainedTokenizerFast:
    """A GPT-2-style tokenizer: a token for each byte and each piece; ChatML control tokens."""
    letters = _byte_letters()
    vocab = {letter: i for i, letter in enumerate(letters)}
    for piece in pieces:
        data = piece if isinstance(piece, bytes) else piece.encode()
        vocab.setdefault("".join(letters[byte] for byte in data), len(vocab))
    backend = Backend(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    backend.add_tokens([AddedToken(token, normalized=False) for token in added_tokens])
    if adds_start_token:
        start = backend.token_to_id("<|im_start|>")
        backend.post_processor = processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", start)]
        )
    return _wrap(backend, "<|im_start|>", "<|im_end|>", chat_template)


def sentencepiece(
    pieces: Sequence[str], *, chat_template: str | None = None
) -> PreTrainedTokenizerFast:
    """A Llama-style tokenizer: `▁` for spaces, byte fallback, and a start token on every text."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    for piece in ["▁", *pieces]:
        vocab.setdefault(piece, len(vocab))
    backend = Backend(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return _wrap(backend, "<s>", "</s>", chat_template)


def metaspace(pieces: Sequence[str]) -> PreTrainedTokenizerFast:
    """A T5- or XGLM-style tokenizer, whose decoder drops the space of the first token only."""
    vocab = [("<unk>", -9.0), ("</s>", -1.0), *((piece, -1.0) for piece in pieces)]
    backend = Backend(models.Unigram(vocab, unk_id=0, byte_fallback=False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens(["<unk>", "</s>"])
    return _wrap(backend, None, "</s>", None)


def word_piece(pieces: Sequence[str]) -> PreTrainedTokenizerFast:
    """A BERT-style tokenizer, whose decoder joins words by spaces and `##` pieces without."""
    vocab = {piece: i for i, piece in enumerate(["[UNK]", "[SEP]", *pieces])}
    backend = Backend(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    backend.add_special_tokens(["[UNK]", "[SEP]"])
    return _wrap(backend, None, "[SEP]", None)


def ids_of(tokenizer: PreTrainedTokenizerFast, pieces: Sequence[str | bytes]) -> list[int]:
    """Ids of pieces by their own names (bytes and text of a byte-level tokenizer both work)."""
    vocab = tokenizer.get_vocab()
    letters = _byte_letters()
    ids = []
    for piece in pieces:
        data = piece if isinstance(piece, bytes) else piece.encode()
        name = piece if piece in vocab else "".join(letters[byte] for byte in data)
        ids.append(vocab[name])
    return ids


def _wrap(
    backend: Backend, start: str | None, end: str, chat_template: str | None
) -> PreTrainedTokenizerFast:
    # transformers leaves this on unless told otherwise, as tokenizer files often do.
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=start,
        eos_token=end,
        clean_up_tokenization_spaces=True,
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def _byte_letters() -> list[str]:
    """GPT-2's printable stand-in for each byte."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = {byte: chr(byte) for byte in shown}
    letters |= {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]
