"""Work counted by hand on a small shape, and the rule that names what bounds a step."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.capacity import Ceilings, ModelShape
from engine.core.records import StepRow
from engine.core.request import Phase
from engine.telemetry.roofline import (
    Bound,
    Work,
    classify,
    ideal_seconds,
    raised,
    roof,
    step_work,
)

SHAPE = ModelShape(
    hidden_size=8,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=3,
    intermediate_size=20,
    vocab_size=100,
    tied=True,
    weight_bytes=10_000,
    matrix_parameters=1_000,
    kv_bytes_per_token=48,
    activation_bytes=2,
)
CEILINGS = Ceilings(flops_per_second=1e12, bytes_per_second=1e10, overhead_seconds=0.002)


def row(start: int, length: int) -> StepRow:
    return StepRow(1, start, length, Phase.DECODE if length == 1 else Phase.PREFILL)


def flops_one_by_one(start: int, length: int) -> int:
    """Attention over p + 1 keys and the matrices, position after position."""
    total = 0
    for position in range(start, start + length):
        scores = 2 * 3 * (position + 1) * 4 * 2
        total += scores + scores + 2 * 1_000
    return total


@pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 7), (5, 1), (16, 9), (100, 33)])
def test_arithmetic_is_that_of_each_position(start: int, length: int) -> None:
    assert step_work(SHAPE, [row(start, length)], 0).flops == flops_one_by_one(start, length)
    sampled = step_work(SHAPE, [row(start, length)], 1)
    assert sampled.flops == flops_one_by_one(start, length) + 2 * 8 * 100


def test_one_decode_row_moves_the_weights_its_context_and_little_else() -> None:
    weights = 10_000
    kv = (5 + 1) * 48 + 48
    layer = (8 + 12 + 2 * 6) + (12 + 12) + (12 + 8) + (8 + 2 * 20) + (20 + 8)
    activations = 2 * (2 * layer + 2 * 8 + 8 + 100)
    assert step_work(SHAPE, [row(5, 1)], 1).bytes_moved == weights + kv + activations


def test_the_head_is_read_only_when_something_is_sampled() -> None:
    table = 8 * 100 * 2
    head = 2 * (8 + 100)
    sampled, unsampled = (step_work(SHAPE, [row(0, 4)], n).bytes_moved for n in (1, 0))
    assert sampled - unsampled == table + head


def test_an_embedding_of_its_own_is_looked_into_and_not_read() -> None:
    table = 8 * 100 * 2
    untied = dataclasses.replace(SHAPE, tied=False, weight_bytes=10_000 + table)
    assert step_work(untied, [row(3, 2)], 1) == step_work(SHAPE, [row(3, 2)], 1)


def test_weights_are_read_once_however_many_rows_share_the_step() -> None:
    one = step_work(SHAPE, [row(5, 1)], 1)
    eight = step_work(SHAPE, [row(5, 1)] * 8, 8)
    assert eight.flops == 8 * one.flops
    assert eight.bytes_moved - 10_000 == 8 * (one.bytes_moved - 10_000)
    assert eight.intensity > one.intensity


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(1, 60), st.integers(1, 59))
def test_a_prompt_takes_the_same_arithmetic_however_it_is_cut(
    start: int, length: int, cut: int
) -> None:
    cut = min(cut, length)
    pieces = [row(start, cut)] + ([row(start + cut, length - cut)] if cut < length else [])
    whole = step_work(SHAPE, [row(start, length)], 1)
    assert step_work(SHAPE, pieces, 1).flops == whole.flops
    assert step_work(SHAPE, pieces, 1).bytes_moved >= whole.bytes_moved


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "duration", "bound"),
    [
        (1e9, 1e8, 0.012, Bound.MEMORY),  # 1 ms and 10 ms, 2 ms left over
        (2e10, 1e8, 0.025, Bound.COMPUTE),  # 20 ms and 10 ms, 5 ms left over
        (1e9, 1e8, 0.0201, Bound.OVERHEAD),  # 10.1 ms left over
        (1e9, 1e8, 0.0199, Bound.MEMORY),
        (2e10, 1e8, 0.041, Bound.OVERHEAD),
        (1e9, 1e8, 0.001, Bound.MEMORY),  # faster than the roof says: nothing is left over
        (0, 0, 0.001, Bound.OVERHEAD),
    ],
)
def test_the_largest_of_the_three_times_names_the_bound(
    flops: float, bytes_moved: float, duration: float, bound: Bound
) -> None:
    assert classify(Work(flops, bytes_moved), duration, CEILINGS) is bound


def test_the_roof_rises_to_the_ridge_and_is_flat_behind_it() -> None:
    assert CEILINGS.ridge == 100.0
    assert roof(10.0, CEILINGS) == 1e11
    assert roof(100.0, CEILINGS) == roof(1_000.0, CEILINGS) == 1e12
    assert roof(Work(5.0, 0.0).intensity, CEILINGS) == 0.0


@settings(deadline=None)
@given(st.floats(1.0, 1e12), st.floats(1.0, 1e12))
def test_a_step_of_ideal_duration_lies_on_the_roof(flops: float, bytes_moved: float) -> None:
    work = Work(flops, bytes_moved)
    reached = work.flops / ideal_seconds(work, CEILINGS)
    assert reached == pytest.approx(roof(work.intensity, CEILINGS))


@settings(deadline=None)
@given(st.floats(1e3, 1e15), st.floats(1e3, 1e13), st.floats(1e-6, 1e3, allow_subnormal=False))
def test_no_step_stands_above_a_roof_that_knows_it(
    flops: float, bytes_moved: float, duration: float
) -> None:
    work = Work(flops, bytes_moved)
    ceilings = raised(CEILINGS, work, duration)
    assert flops / duration <= roof(work.intensity, ceilings) * (1 + 1e-9)
    assert ceilings.flops_per_second >= CEILINGS.flops_per_second
    assert ceilings.bytes_per_second >= CEILINGS.bytes_per_second
    assert raised(ceilings, work, duration) == ceilings
    assert raised(CEILINGS, work, 1e9) is CEILINGS
