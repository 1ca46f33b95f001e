"""The texts that the page sends by itself."""

from __future__ import annotations

import pytest

from ui.prompts import QUESTIONS, TASK, long_prompt


def _words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("wanted", [50, 500, 2000])
def test_a_long_prompt_has_the_wanted_length(wanted: int) -> None:
    text = long_prompt(wanted, _words)
    assert text.startswith(TASK)
    assert _words(text) == wanted


def test_a_long_prompt_never_exceeds_what_its_measure_allows() -> None:
    assert 1900 < len(long_prompt(2000, len)) <= 2000


def test_a_long_prompt_is_found_in_few_measurements() -> None:
    calls = []

    def measure(text: str) -> int:
        calls.append(text)
        return _words(text)

    long_prompt(2000, measure)
    assert len(calls) <= 12


def test_questions_differ() -> None:
    assert len(set(QUESTIONS)) == len(QUESTIONS)
