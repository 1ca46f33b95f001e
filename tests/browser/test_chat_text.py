"""Token estimates and sentence ends, as the chat card's script works them out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Module = Callable[[str, str], Any]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("  \n ", 1),
        ("one", 1),
        ("one two three.", 4),
        ("internationalisation", 3),
        ("2026", 4),
        ("if (a<b)", 6),
        ("naïve café", 2),
        ("日本語", 3),
        ("a\n\n\nb", 3),
        ("👋", 1),
    ],
)
def test_an_estimate_counts_words_digits_and_signs(module: Module, text: str, tokens: int) -> None:
    assert module("chat_text.js", f"m.estimateTokens({json.dumps(text)})") == tokens


def test_an_estimate_of_a_long_text_is_quick(module: Module) -> None:
    milliseconds = module(
        "chat_text.js",
        "(() => { const text = 'a few plain words, '.repeat(20000);"
        " const began = performance.now(); m.estimateTokens(text);"
        " return performance.now() - began; })()",
    )
    assert milliseconds < 500


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("", ""),
        ("No end yet", ""),
        ("One. Two", "One."),
        ("One.", ""),
        ("3.14 is a number", ""),
        ('He said "so!" Then', 'He said "so!"'),
        ("A line\nand more", "A line\n"),
    ],
)
def test_a_sentence_has_ended_once_something_follows_it(
    module: Module, text: str, finished: str
) -> None:
    assert module("chat_text.js", f"m.finishedSentences({json.dumps(text)})") == len(finished)
