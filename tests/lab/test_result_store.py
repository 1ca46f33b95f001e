"""The bounded folder of results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.errors import InvalidRequest
from engine.lab.result_store import ResultNotFound, ResultStore
from tests.lab.experiments import compared


def test_results_are_listed_reopened_and_deleted(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    assert store.list() == []
    result = compared()
    store.save(result)
    (entry,) = store.list()
    assert (entry.id, entry.title, entry.simulated) == (result.id, "=chat", True)
    assert store.load(result.id) == result
    (tmp_path / "results" / "broken.json").write_text("{")
    (tmp_path / "results" / "other.json").write_text("[1]")
    assert len(store.list()) == 1
    with pytest.raises(ResultNotFound, match="cannot be read"):
        store.load("broken")
    store.delete(result.id)
    store.delete(result.id)
    with pytest.raises(ResultNotFound, match="There is no result"):
        store.load(result.id)


@pytest.mark.parametrize("name", ["../secret", "", "a/b", "A", "x" * 65, ".."])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="not the name of a result"):
        ResultStore(tmp_path).load(name)


def test_the_folder_is_bounded_by_number_and_size(tmp_path: Path) -> None:
    result = compared(1)
    size = len(result.to_json().encode())
    by_number = ResultStore(tmp_path / "n", max_results=3)
    by_size = ResultStore(tmp_path / "s", max_bytes=int(2.5 * size))
    for number in range(5):
        made = replace(result, id=f"result-{number}", created=float(number))
        by_number.save(made)
        by_size.save(made)
    assert [entry.id for entry in by_number.list()] == ["result-4", "result-3", "result-2"]
    assert [entry.id for entry in by_size.list()] == ["result-4", "result-3"]
    tiny = ResultStore(tmp_path / "t", max_bytes=1)
    tiny.save(result)
    assert len(tiny.list()) == 1


def test_lessons_push_out_lessons_alone_and_are_not_listed(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, max_results=2, max_lessons=3)
    result = compared(1)
    for number in range(2):
        store.save(replace(result, id=f"result-{number}", created=float(number)))
    for number in range(5):
        store.save(replace(result, id=f"lesson-{number}"), lesson=True)
    assert [entry.id for entry in store.list()] == ["result-1", "result-0"]
    assert [store.load(f"lesson-{number}").id for number in (2, 3, 4)]
    for gone in ("lesson-0", "lesson-1"):
        with pytest.raises(ResultNotFound):
            store.load(gone)
    store.save(replace(result, id="result-2", created=2.0))
    assert [entry.id for entry in store.list()] == ["result-2", "result-1"]
    assert store.load("lesson-4").id == "lesson-4"


def test_an_entry_says_what_came_of_a_result(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    result = compared(1)
    assert result.verdict is not None
    store.save(replace(result, id="two", created=2.0))
    alone = replace(result, id="one", created=1.0, sides=result.sides[:1], verdict=None)
    store.save(alone)
    two, one = store.list()
    assert (two.num_sides, two.summary) == (2, result.verdict.sentence)
    assert one.num_sides == 1
    assert one.summary.startswith("8 requests finished in ")
    assert one.summary.endswith(" output tok/s")


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    path = store.save(compared(1))
    (before,) = store.list()
    path.chmod(0o600)
    assert store.list()[0] is before
    store.save(replace(compared(1), id=before.id, title="another title"))
    assert [entry.title for entry in store.list()] == ["another title"]
    path.unlink()
    assert store.list() == []
