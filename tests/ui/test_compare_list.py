"""Which tab opens the result that the page's address names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from engine.lab.result_store import ResultNotFound, ResultStore
from tests.ui.comparisons import compared
from ui.admin_key import AdminKey
from ui.compare_list import ResultsList
from ui.learn_lessons import LESSONS, LessonUnmeasured, lesson_of
from ui.words_learn import LEARN


def lists(store: ResultStore) -> list[ResultsList]:
    """Those of Compare and of Workload."""
    with gr.Blocks():
        return [
            ResultsList(store, AdminKey(), name=f"sides-{n}", title="Results", num_sides=n)
            for n in (2, 1)
        ]


def named(results: ResultsList, name: str) -> str | None:
    request: Any = SimpleNamespace(query_params={"result": name})
    return results.named(request)


def test_a_result_is_opened_by_the_one_tab_that_lists_it(tmp_path: Path) -> None:
    store, result = ResultStore(tmp_path), compared(1)
    single = replace(result, id="single", sides=result.sides[:1])
    for each in (result, single):
        store.save(each)
    store.save(replace(result, id="a-lessons"), lesson=True)
    compare, workload = lists(store)
    found = [
        (named(compare, name), named(workload, name))
        for name in (result.id, "single", "a-lessons", "")
    ]
    assert found == [(result.id, None), (None, "single"), (None, None), (None, None)]


def test_a_result_that_is_gone_is_told(tmp_path: Path) -> None:
    compare, _ = lists(ResultStore(tmp_path))
    with pytest.raises(ResultNotFound, match="deleted"):
        named(compare, "gone")


def test_a_lessons_result_names_its_lesson() -> None:
    title = f"{LEARN['tab']}: {LESSONS['stall'].words.title}"
    assert lesson_of(replace(compared(1), title=title)) is LESSONS["stall"]
    with pytest.raises(LessonUnmeasured, match="a lesson that this page does not have"):
        lesson_of(compared(1))
