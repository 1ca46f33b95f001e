"""What falls into a stretch of time: everything that was going on at some moment of it."""

from __future__ import annotations

import math

import pytest

from engine.core.request import FinishReason
from engine.telemetry.window import Window, request_end
from tests.telemetry.records import failed, record, step

DELIVERED_LATE = record(1, submitted=10.0, finished=12.0, token_delivered=(11.0, 13.0))


@pytest.mark.parametrize(
    ("window", "found"),
    [
        (Window(), True),
        (Window(0.0, 9.9), False),
        (Window(0.0, 10.0), True),
        (Window(11.2, 11.3), True),
        (Window(12.5, 20.0), True),
        (Window(13.1, 20.0), False),
        (Window(start=14.0), False),
    ],
)
def test_a_request_is_there_until_its_last_token_is_taken(window: Window, found: bool) -> None:
    assert window.requests([DELIVERED_LATE]) == ([DELIVERED_LATE] if found else [])


def test_a_request_that_goes_on_has_no_end() -> None:
    going_on = record(2, submitted=1.0, finished=None, finish_reason=None)
    assert request_end(going_on) == math.inf
    assert Window(100.0, 200.0).requests([going_on]) == [going_on]
    refused = failed(3, submitted=5.0, finished=5.5)
    assert refused.finish_reason is FinishReason.ERROR
    assert request_end(refused) == 5.5


def test_steps_that_overlap_the_window() -> None:
    steps = [step(number) for number in range(1, 6)]
    assert [one.number for one in Window(2.005, 4.0).steps(steps)] == [2, 3, 4]
