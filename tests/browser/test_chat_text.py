"""Token estimates, sentence ends and tokens' waits, as the chat card's scripts word them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ui.words_chat import CHAT

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


@pytest.mark.parametrize(
    ("value", "label", "sentence"),
    [
        ("1||99 ms", None, "token 1 · read 99 ms after sending"),
        (
            "12|302 ms|1.24 s",
            None,
            "token 12 · 302 ms after the one before · read 1.24 s after sending",
        ),
        (
            "12-14|35 ms|1.24 s",
            None,
            "tokens 12–14 · longest gap 35 ms · read 1.24 s after sending",  # noqa: RUF001
        ),
        (
            "2|35 ms|1.24 s|83 %",
            "“a” 83 %, “>” 4 %",
            "token 2 · 35 ms after the one before · read 1.24 s after sending · "
            "probability 83 % · “a” 83 %, “>” 4 %",
        ),
    ],
)
def test_a_token_is_described_by_what_its_attributes_say(
    module: Module, value: str, label: str | None, sentence: str
) -> None:
    arguments = ", ".join(json.dumps(part) for part in (value, label, CHAT))
    assert module("chat_waits.js", f"m.describeToken({arguments})") == sentence
