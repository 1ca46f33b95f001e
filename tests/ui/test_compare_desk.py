"""The desk that runs the experiments of all visitors, one after another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import PhaseScopeError
from engine.core.request import SamplingParams
from engine.lab.result_store import ResultStore
from engine.service import EngineService
from tests.stub_lab import lab_service
from tests.stub_service import wait_until
from tests.ui.comparisons import WANTED, ended, filled
from ui.compare_desk import Desk
from ui.compare_places import find_place


@pytest.fixture
def service() -> Iterator[EngineService]:
    service = lab_service(0.002)
    yield service
    service.close()


@pytest.fixture
def desk(service: EngineService, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(service, ResultStore(tmp_path / "results"))
    yield desk
    desk.close()


def test_an_experiment_on_the_engine_leaves_a_result_that_is_not_simulated(desk: Desk) -> None:
    place = find_place(desk.service, simulated=False)
    before = desk.service.config
    job = ended(desk.start("me", filled(place), place))
    assert job.state.error is None
    result = desk.store.load(job.state.result_id or "")
    assert not result.simulated
    assert [side.config["policy"] for side in result.sides] == ["prefill-first", "chunked"]
    assert all(side.requests["finished"] == 4 for side in result.sides)
    assert desk.service.config == before
    assert desk.service.turn is None


def test_a_simulated_experiment_is_labelled_and_holds_up_no_chat(desk: Desk) -> None:
    place = find_place(desk.service, simulated=True)
    job = desk.start("me", filled(place), place)
    answer = list(desk.service.submit([65] * 8, SamplingParams(max_tokens=3, ignore_eos=True)))
    assert answer
    result = desk.store.load(ended(job).state.result_id or "")
    assert result.simulated
    assert desk.store.list()[0].simulated


def test_experiments_of_several_visitors_run_one_after_another(desk: Desk) -> None:
    place = find_place(desk.service, simulated=False)
    jobs = [desk.start(f"visitor {i}", filled(place), place) for i in range(3)]
    wait_until(lambda: sorted(job.state.position for job in jobs) == [0, 1, 2])
    for job in jobs:
        ended(job)
    assert [job.state.error for job in jobs] == [None] * 3
    assert len(desk.store.list()) == 3


def test_a_visitor_has_one_experiment_at_a_time(desk: Desk) -> None:
    place = find_place(desk.service, simulated=False)
    first = desk.start("me", filled(place), place)
    with pytest.raises(PhaseScopeError, match="still running"):
        desk.start("me", filled(place), place)
    desk.stop("me")
    ended(first)
    assert desk.start("me", filled(place), place) is not first


def test_stop_gives_the_engine_back_and_says_that_nothing_came_of_it(desk: Desk) -> None:
    place = find_place(desk.service, simulated=False)
    job = desk.start("me", filled(place, replace(WANTED, num_pairs=12)), place)
    wait_until(lambda: desk.service.turn is not None and job.state.progress is not None)
    desk.stop("somebody else")
    assert not job.stopping
    desk.stop("me")
    ended(job)
    wait_until(lambda: desk.service.turn is None)
    assert "stopped" in (job.state.error or "")
    assert len(desk.service.turns) == 0
    assert desk.store.list() == []


def test_one_that_waits_can_be_given_up(desk: Desk) -> None:
    real, simulated = (find_place(desk.service, simulated=value) for value in (False, True))
    first = desk.start("first", filled(real), real)
    wait_until(lambda: len(desk.service.turns) == 1)
    waiting = desk.start("second", filled(simulated), simulated)
    wait_until(lambda: waiting.state.position == 1)
    desk.stop("second")
    assert "given up" in (ended(waiting).state.error or "")
    assert ended(first).state.result_id


def test_a_result_that_cannot_be_written_is_said_so(service: EngineService, tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    desk = Desk(service, ResultStore(blocked))
    place = find_place(service, simulated=True)
    error = ended(desk.start("me", filled(place), place)).state.error or ""
    assert "could not be written" in error
    assert "a file" in error


def test_an_unexpected_failure_reaches_the_one_who_waits(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(pair: int) -> Any:
        raise RuntimeError("no traffic today")

    place = find_place(desk.service, simulated=True)
    job = desk.start("me", replace(filled(place), workload=broken), place)
    assert ended(job).state.error == "The experiment failed: no traffic today"
    assert "an experiment failed" in caplog.text
    assert len(desk.service.turns) == 0


def test_no_thread_is_left_behind(desk: Desk) -> None:
    place = find_place(desk.service, simulated=True)
    ended(desk.start("me", filled(place), place))
    wait_until(lambda: not any(t.name == "experiment" for t in threading.enumerate()))


def test_a_lesson_is_kept_apart_and_not_at_all_where_it_was_stopped(desk: Desk) -> None:
    place = find_place(desk.service, simulated=True)
    kept = ended(desk.start("me", filled(place), place, lesson=True)).state.result_id
    assert desk.store.load(kept or "").id == kept
    assert desk.store.list() == []
    real = find_place(desk.service, simulated=False)
    alone = replace(filled(real), configs=filled(real).configs[:1], num_pairs=1)
    stopped = desk.start("me", alone, real, lesson=True)
    wait_until(lambda: stopped.state.progress is not None)
    stopped.stop()
    assert ended(stopped).state.result_id is None
    assert "lesson was stopped" in (stopped.state.error or "")
