"""The test behind a verdict, and the sentence that it allows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lab.verdict import (
    MIN_PAIRS,
    SIGNIFICANCE,
    VerdictKind,
    change_words,
    duration_words,
    find,
    judge,
    sign_flip_p_value,
)

Measures = list[dict[str, float | None]]


def runs(count: int, **measures: float) -> Measures:
    """`count` runs whose values scatter by 1 % around the given ones."""
    return [
        {
            name.replace("__", "."): value * (1 + 0.01 * (-1) ** i)
            for name, value in measures.items()
        }
        for i in range(count)
    ]


BASE = {"longest_pause__max": 3.58, "ttft__max": 1.0, "ttft__p50": 0.2, "throughput": 50.0}


def test_p_value_is_exact_for_small_samples() -> None:
    # Of the 8 ways to choose signs, only +++ and --- reach the sum of 1, 2, 3.
    assert sign_flip_p_value([1.0, 2.0, 3.0]) == 2 / 8
    # |1 + 2 - 3| = 0 is reached by all 8.
    assert sign_flip_p_value([1.0, 2.0, -3.0]) == 1.0
    # The sums are +-1, +-3, +-5 and +-7; the observed 5 is reached by four of the eight.
    assert sign_flip_p_value([-1.0, 2.0, 4.0]) == 4 / 8
    assert sign_flip_p_value([1.0] * 6) == 2 / 64
    assert sign_flip_p_value([]) == 1.0


@given(st.lists(st.floats(-10, 10), max_size=8))
def test_p_value_is_a_share_and_does_not_care_which_side_is_called_a(values: list[float]) -> None:
    p_value = sign_flip_p_value(values)
    assert 0 < p_value <= 1
    assert p_value == sign_flip_p_value([-value for value in values])


def test_chance_is_called_a_difference_no_more_often_than_stated() -> None:
    # All 2**8 patterns of signs are equally likely under chance: count those that are claimed.
    sizes = [0.1, 0.13, 0.17, 0.2, 0.22, 0.3, 0.31, 0.4]
    claimed = 0
    for pattern in range(2**8):
        signs = [1 if pattern >> i & 1 else -1 for i in range(8)]
        b = [math.exp(s * size) for s, size in zip(signs, sizes, strict=True)]
        finding = find("ttft.p50", [1.0] * 8, b)
        assert finding is not None
        claimed += finding.real
    assert claimed / 2**8 < SIGNIFICANCE


def test_fewer_than_six_pairs_never_have_a_winner() -> None:
    a = runs(MIN_PAIRS - 1, **BASE)
    b = runs(MIN_PAIRS - 1, **(BASE | {"longest_pause__max": 0.1}))
    verdict = judge(a, b, "chunked prefill")
    assert verdict.kind is VerdictKind.TOO_FEW
    assert verdict.sentence.startswith("Too few runs to tell from noise: 5 pairs")
    assert all(finding.better is None for finding in verdict.findings.values())


def test_a_throughput_that_differs_by_chance_is_not_called_unchanged() -> None:
    b = [
        *runs(3, **(BASE | {"longest_pause__max": 0.3, "throughput": 60.0})),
        *runs(3, **(BASE | {"longest_pause__max": 0.3, "throughput": 90.0})),
    ]
    a = [*runs(3, **BASE | {"throughput": 90.0}), *runs(3, **BASE | {"throughput": 89.0})]
    sentence = judge(a, b, "chunked prefill").sentence
    assert sentence.endswith("shows no change in throughput that stands out from noise.")


def test_a_gain_its_cost_and_the_throughput_are_named() -> None:
    b = runs(6, **(BASE | {"longest_pause__max": 0.309, "ttft__max": 1.6}))
    verdict = judge(runs(6, **BASE), b, "chunked prefill")
    assert verdict.kind is VerdictKind.MIXED
    assert verdict.sentence == (
        "Chunked prefill (B) cuts the longest pause in a stream from 3.58 s to 0.31 s, raises the "
        "longest time to first token from 1.00 s to 1.60 s, and leaves throughput unchanged."
    )
    assert verdict.findings["longest_pause.max"].better is True
    assert verdict.findings["ttft.max"].better is False
    assert verdict.findings["throughput"].better is None


def test_a_side_that_wins_everything_is_said_to() -> None:
    better = {"longest_pause__max": 0.3, "ttft__max": 0.5, "ttft__p50": 0.1, "throughput": 80.0}
    verdict = judge(runs(6, **BASE), runs(6, **better), "16 slots")
    assert verdict.kind is VerdictKind.BETTER
    assert "costs nothing measurable" in verdict.sentence
    assert "raises throughput from 50.0 to 80.0 tok/s" in verdict.sentence

    worse = judge(runs(6, **better), runs(6, **BASE), "2 slots")
    assert worse.kind is VerdictKind.WORSE
    assert worse.sentence.startswith("A wins on this workload: 2 slots (B) raises")
    assert "gains nothing measurable" in worse.sentence


def test_equal_sides_perform_the_same_and_noise_is_called_noise() -> None:
    same = judge(runs(8, **BASE), runs(8, **BASE), "the same configuration")
    assert same.kind is VerdictKind.SAME
    assert same.sentence == "A and B perform the same on this workload."
    a: Measures = [{"ttft.p50": 1.0} for _ in range(8)]
    b: Measures = [{"ttft.p50": 1.5 if i % 2 else 0.8} for i in range(8)]
    noise = judge(a, b, "4 slots")
    assert noise.kind is VerdictKind.SAME
    assert "stands out from noise" in noise.sentence


def test_a_real_difference_within_three_percent_is_no_difference() -> None:
    finding = find("ttft.p50", [1.0] * 8, [1.02] * 8)
    assert finding is not None
    assert finding.p_value < SIGNIFICANCE
    assert finding.better is None


def test_pairs_without_a_value_on_both_sides_are_left_out() -> None:
    finding = find("tpot.p50", [1.0, None, 0.0, 2.0], [2.0, 1.0, 1.0, 4.0])
    assert finding is not None
    assert (finding.num_pairs, finding.ratio) == (2, pytest.approx(2.0))
    assert find("tpot.p50", [None], [1.0]) is None


def test_more_is_better_of_throughput_and_goodput() -> None:
    for measure, better in (("throughput", True), ("goodput", True), ("e2e.p50", False)):
        finding = find(measure, [1.0] * 6, [2.0] * 6)
        assert finding is not None
        assert finding.better is better


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.03, "no change"),
        (0.98, "no change"),
        (1.16, "16 % higher"),
        (0.84, "16 % lower"),
        (2.0, "2.0\N{MULTIPLICATION SIGN} higher"),
        (1 / 12.2, "12.2\N{MULTIPLICATION SIGN} lower"),
    ],
)
def test_changes_are_put_in_words(ratio: float, words: str) -> None:
    assert change_words(ratio) == words


def test_two_durations_share_the_unit_of_the_larger() -> None:
    assert duration_words(0.134, 0.099) == ("134 ms", "99 ms")
    assert duration_words(3.58, 0.309) == ("3.58 s", "0.31 s")
    assert duration_words(15.71, 2.0) == ("15.7 s", "2.0 s")
    assert duration_words(0.0042, 0.5) == ("4.2 ms", "500.0 ms")
