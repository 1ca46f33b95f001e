"""The texts that the page sends by itself."""

from __future__ import annotations

import pytest

from ui.prompts import (
    DOCUMENT_QUESTIONS,
    LONG_ANSWER_TASKS,
    QUESTIONS,
    TASK,
    document_prompt,
    long_prompt,
)


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


def test_long_prompts_of_other_days_share_the_task_alone() -> None:
    first, second = (long_prompt(200, _words, first_day=day) for day in (1, 2))
    assert _words(first) == _words(second) == 200
    assert first.startswith(f"{TASK}Day 1: ")
    assert second.startswith(f"{TASK}Day 2: ")


def test_a_shared_document_differs_in_its_question_alone() -> None:
    first, second = (document_prompt(200, _words, text) for text in DOCUMENT_QUESTIONS[:2])
    document = first.removesuffix(DOCUMENT_QUESTIONS[0])
    assert _words(document) == 200
    assert second == document + DOCUMENT_QUESTIONS[1]


@pytest.mark.parametrize("texts", [QUESTIONS, DOCUMENT_QUESTIONS, LONG_ANSWER_TASKS])
def test_questions_differ(texts: tuple[str, ...]) -> None:
    assert len(set(texts)) == len(texts)
