"""Comparisons as the page asks for them, for the tests of its Compare tab."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from engine.lab.experiment import Experiment, perform
from engine.lab.results import Result
from engine.lab.verdict import MIN_PAIRS
from engine.service import EngineService
from tests.stub_service import wait_until
from ui.compare_desk import Job
from ui.compare_form import SIDE_FIELDS, Wanted, make_experiment, side_values
from ui.compare_places import Place, find_place

WANTED = Wanted(preset="long-prompt", num_pairs=1, seed=0)


def filled(place: Place, wanted: Wanted = WANTED, **of_b: Any) -> Experiment:
    a = side_values(wanted.preset, "a", place.config)
    b = side_values(wanted.preset, "b", place.config)
    for name, value in of_b.items():
        b[SIDE_FIELDS.index(name)] = value
    return make_experiment(place, wanted, a, b)


def ended(job: Job) -> Job:
    wait_until(lambda: job.state.ended, timeout=60)
    return job


def simulated() -> Place:
    """The simulation beside an engine that was never started."""
    return find_place(
        EngineService(lambda report: pytest.fail("it is not started")), simulated=True
    )


@cache
def compared(num_pairs: int) -> Result:
    """The long prompt, simulated, with limits where there are six pairs."""
    limits = {"ttft_limit": 300, "tpot_limit": 50} if num_pairs >= MIN_PAIRS else {}
    place = simulated()
    assert place.backend is not None
    return perform(filled(place, replace(WANTED, num_pairs=num_pairs, **limits)), place.backend)
