"""Every metric from its two timestamps, and statistics that stay within what was observed."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import clock as core_clock
from engine.core.request import FinishReason
from engine.telemetry import metrics
from engine.telemetry.metrics import request_metrics
from tests.telemetry.records import failed, record

moments = st.floats(0.0, 1e6)
finite = st.floats(-1e9, 1e9)


@settings(deadline=None)
@given(st.lists(moments, min_size=5, max_size=5).map(sorted))
def test_the_four_parts_add_up_to_ttft_exactly_in_any_order(times: list[float]) -> None:
    submitted, queued, scheduled, sampled, delivered = times
    values = request_metrics(
        record(
            submitted=submitted,
            queued=queued,
            scheduled=scheduled,
            token_sampled=(sampled,),
            token_delivered=(delivered,),
        )
    )
    parts = (values.input_preparation, values.queueing, values.prefill, values.delivery)
    assert all(part is not None and part >= 0 for part in parts)
    for order in itertools.permutations(parts):
        assert sum(order) == values.ttft
    assert values.ttft == pytest.approx(delivered - submitted, abs=2e-9)


def test_each_part_has_its_own_two_timestamps() -> None:
    values = request_metrics(
        record(
            submitted=1.0,
            queued=1.5,
            scheduled=2.75,
            finished=9.0,
            token_sampled=(4.0, 5.0, 6.0),
            token_delivered=(4.25, 5.5, 6.25),
        )
    )
    assert values.input_preparation == 0.5
    assert values.queueing == 1.25
    assert values.prefill == 1.25
    assert values.delivery == 0.25
    assert values.ttft == 3.25
    assert values.tpot == 1.0
    assert values.longest_pause == 1.25
    assert values.e2e == 5.25
    assert values.engine_ttft == 3.0
    assert values.engine_tpot == 1.0
    assert values.engine_e2e == 5.0


def test_the_wait_for_the_first_token_is_no_gap() -> None:
    answer = record(tokens=[1.0, 1.1, 1.2])
    assert metrics.itl([answer]).tolist() == pytest.approx([0.1, 0.1])
    assert request_metrics(answer).ttft == 1.0
    assert metrics.describe(metrics.itl([answer])).max == pytest.approx(0.1)


def test_tokens_that_come_together_share_the_gap() -> None:
    answer = record(tokens=[0.10, *[0.14] * 4, *[0.18] * 4])
    assert metrics.itl([answer]).tolist() == pytest.approx([0.01] * 8)
    assert metrics.output_gaps([answer]).tolist() == pytest.approx([0.04, 0.04])
    assert request_metrics(answer).tpot == pytest.approx(0.01)
    assert request_metrics(answer).longest_pause == pytest.approx(0.04)


def test_tokens_that_come_with_the_first_waited_for_nothing_more() -> None:
    answer = record(tokens=[0.5, 0.5, 0.5, 0.8])
    assert metrics.itl([answer]).tolist() == pytest.approx([0.0, 0.0, 0.3])
    assert metrics.output_gaps([answer]).tolist() == pytest.approx([0.3])


@settings(deadline=None)
@given(st.lists(st.lists(moments, max_size=6).map(sorted), max_size=5))
def test_gaps_of_many_requests_are_those_of_each(times: list[list[float]]) -> None:
    answers = [record(number, tokens=each) for number, each in enumerate(times)]
    apart = [gap for answer in answers for gap in metrics.itl([answer]).tolist()]
    assert metrics.itl(answers).tolist() == apart
    for answer, gaps in zip(answers, metrics.itl_by_request(answers), strict=True):
        assert gaps.size == max(0, len(answer.token_delivered) - 1)
        assert (gaps >= 0).all()
        if gaps.size:
            assert gaps.mean() == pytest.approx(request_metrics(answer).tpot, abs=1e-9)


def test_average_over_requests_and_over_tokens_are_different_numbers() -> None:
    short = record(1, tokens=[1.0, 1.1])
    long = record(2, tokens=[1.0 + 0.01 * i for i in range(101)])
    tpot = [request_metrics(answer).tpot for answer in (short, long)]
    assert metrics.describe(tpot).mean == pytest.approx(0.055)
    assert metrics.describe(metrics.itl([short, long])).mean == pytest.approx(1.1 / 101)


def test_a_request_that_is_not_streamed_has_neither_ttft_nor_itl() -> None:
    answer = record(streamed=False, tokens=[1.0, 1.2, 1.4], token_delivered=(), finished=1.4)
    values = request_metrics(answer)
    assert (values.ttft, values.delivery, values.tpot, values.longest_pause) == (None,) * 4
    assert values.e2e == pytest.approx(1.4)
    assert values.engine_ttft == 1.0
    assert values.engine_tpot == pytest.approx(0.2)
    assert metrics.itl([answer]).size == metrics.ttft([answer]).size == 0
    assert metrics.engine_itl([answer]).tolist() == pytest.approx([0.2, 0.2])


def test_engine_side_gaps_differ_from_the_readers() -> None:
    answer = record(token_sampled=(1.0, 1.1, 1.2), token_delivered=(1.5, 1.5, 1.5))
    assert metrics.engine_itl([answer]).tolist() == pytest.approx([0.1, 0.1])
    assert metrics.itl([answer]).tolist() == [0.0, 0.0]
    assert request_metrics(answer).longest_pause is None


def test_one_token_has_a_ttft_and_no_time_per_token() -> None:
    values = request_metrics(record(tokens=[0.4]))
    assert values.ttft == pytest.approx(0.4)
    assert (values.tpot, values.engine_tpot, values.longest_pause) == (None, None, None)


def test_a_request_without_tokens_has_only_what_happened() -> None:
    values = request_metrics(record(submitted=1.0, queued=1.25, scheduled=None, finished=2.0))
    assert values.input_preparation == 0.25
    assert set(values[1:]) == {None}


def test_durations_ignore_a_wall_clock_that_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = [1_800_000_000.0]
    monotonic = [500.0]
    monkeypatch.setattr(core_clock.time, "time", lambda: wall[0])
    monkeypatch.setattr(core_clock.time, "monotonic", lambda: monotonic[0])
    clock = core_clock.MonotonicClock()
    times = []
    for moment in range(4):
        monotonic[0] += 0.25
        wall[0] += 0.25 if moment != 1 else -3_600.0
        times.append(clock.now())
    answer = record(submitted=0.0, tokens=times)
    assert metrics.itl([answer]).tolist() == [0.25] * 3
    assert request_metrics(answer).e2e == 1.0


def test_percentiles_of_one_and_two_samples_stay_within_them() -> None:
    one = metrics.describe([40.0])
    assert (one.p50, one.p95, one.p99, one.min, one.max, one.count) == (40, 40, 40, 40, 40, 1)
    two = metrics.describe([10.0, 30.0])
    assert two.p50 == 20
    assert all(10 <= value <= 30 for value in (two.p50, two.p95, two.p99))


@settings(deadline=None)
@given(st.lists(finite, min_size=1), st.floats(0, 100))
def test_percentiles_interpolate_linearly_and_stay_in_range(values: list[float], q: float) -> None:
    ours = metrics.percentile(values, q)
    assert min(values) <= ours <= max(values)
    scale = max(map(abs, values))
    assert ours == pytest.approx(np.percentile(values, q, method="linear"), abs=1e-12 * scale)
    described = metrics.describe(values)
    assert described.min <= described.p50 <= described.p95 <= described.p99 <= described.max
    assert described.min <= described.mean <= described.max


def test_missing_samples_are_left_out_and_no_samples_have_no_values() -> None:
    described = metrics.describe([math.nan, 2.0, math.nan])
    assert (described.count, described.mean) == (1, 2.0)
    nothing = metrics.describe([math.nan])
    assert nothing == metrics.Distribution(0)
    assert nothing.p50 is None
    assert metrics.percentile([], 50) is None


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, ()),
        (1, ("max",)),
        (2, ("p50", "max")),
        (19, ("p50", "max")),
        (20, ("p50", "p95", "max")),
        (99, ("p50", "p95", "max")),
        (100, ("p50", "p95", "p99")),
    ],
)
def test_only_percentiles_that_a_count_can_carry_are_shown(
    count: int, shown: tuple[str, ...]
) -> None:
    assert metrics.shown_percentiles(count) == shown


def test_throughput_counts_the_output_tokens_of_its_window() -> None:
    answer = record(tokens=[1.0, 2.0, 3.0, 4.0])
    assert metrics.throughput([answer], 1.0, 3.0).tokens == 2
    assert metrics.throughput([answer], 1.0, 3.0).tokens_per_second == 1.0
    first, second = (metrics.throughput([answer], a, a + 2).tokens for a in (0.0, 2.0))
    assert first + second == 4


def test_throughput_is_zero_when_idle_and_names_its_window() -> None:
    idle = metrics.throughput([record(tokens=[1.0, 2.0])], 10.0, 15.0)
    assert (idle.tokens, idle.tokens_per_second) == (0, 0.0)
    assert (idle.start, idle.end) == (10.0, 15.0)
    assert metrics.throughput([], 5.0, 5.0).tokens_per_second is None


def test_throughput_keeps_failed_requests_apart() -> None:
    broken = failed(2, token_sampled=(1.5,), token_delivered=(1.5,))
    cancelled = record(3, tokens=[1.6], finish_reason=FinishReason.CANCELLED)
    counted = metrics.throughput([record(1, tokens=[1.0, 2.0]), broken, cancelled], 0.0, 2.0)
    assert (counted.tokens, counted.failed_tokens) == (3, 1)


def test_throughput_of_a_request_not_streamed_counts_sampled_tokens() -> None:
    answer = record(streamed=False, tokens=[1.0, 2.0], token_delivered=())
    assert metrics.throughput([answer], 0.0, 2.0).tokens == 2


def test_json_values_hold_no_nan_and_no_infinity() -> None:
    value = {
        "nan": math.nan,
        "inf": -math.inf,
        "array": np.array([1.0, np.inf]),
        "scalar": np.float32(2.0),
        "reason": FinishReason.STOP,
        FinishReason.LENGTH: (1, None, True),
    }
    text = json.dumps(metrics.to_json_value(value), allow_nan=False)
    assert json.loads(text) == {
        "nan": None,
        "inf": None,
        "array": [1.0, None],
        "scalar": 2.0,
        "reason": "stop",
        "length": [1, None, True],
    }
