"""Drawing traffic: lengths, arrivals, text, seeds, and sentences for what cannot be drawn."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import InvalidRequest
from engine.lab.workload import Part, Seeds, Workload, WorkloadSpec, build, shared_share
from engine.lab.workload_arrivals import (
    Arrivals,
    Burst,
    ClosedLoop,
    Constant,
    Gamma,
    Poisson,
    TraceTimes,
)
from engine.lab.workload_lengths import (
    Empirical,
    Fixed,
    Lengths,
    LogNormal,
    Normal,
    Uniform,
    draw,
    effective_mean,
    extremes,
    histogram,
)
from engine.lab.workload_shapes import SHAPES, fixed
from engine.lab.workload_text import TokenSource, exact_text
from engine.model.text import Tokenizer
from tests.model.tiny_tokenizers import byte_level, sentencepiece

SOURCE = TokenSource(1_000, {0, 1, 2})


def spec(**changes: object) -> WorkloadSpec:
    """A small mix with everything random."""
    settings: dict[str, object] = {
        "name": "test",
        "parts": (Part(prompt=Uniform(10, 60), output=Uniform(2, 20), shared_share=0.5),),
        "num_requests": 30,
        "arrivals": Poisson(5.0),
    }
    return WorkloadSpec(**{**settings, **changes})  # type: ignore[arg-type]


def content(workload: Workload) -> bytes:
    return "".join(workload.lines()).encode()


ALL_LENGTHS = [
    Fixed(12),
    Uniform(3, 9),
    Normal(50, 10, 1, 100),
    LogNormal(40, 0.8, 5, 300),
    Empirical((9, 1, 4, 4)),
]


@pytest.mark.parametrize("lengths", ALL_LENGTHS, ids=lambda item: type(item).__name__)
def test_drawn_lengths_have_the_mean_that_is_shown(lengths: Lengths) -> None:
    drawn = draw(lengths, random.Random(1), 4_000)
    assert sum(drawn) / len(drawn) == pytest.approx(effective_mean(lengths), rel=0.05)
    assert lengths.describe()
    bins = histogram(lengths, 24)
    assert sum(share for _, _, share in bins) == pytest.approx(1)
    assert len(bins) <= 24
    assert all(bins[0][0] <= value <= bins[-1][1] for value in drawn)
    assert bins[-1][1] <= extremes(lengths)[1]
    assert all(after[0] == before[1] + 1 for before, after in pairwise(bins))


def test_wide_normal_is_clipped_to_its_limits_and_says_where_the_mean_went() -> None:
    for mean, spread, high in ((10, 40, 120), (5, 20, 60)):
        lengths = Normal(mean, spread, 1, high)
        drawn = draw(lengths, random.Random(2), 1_000)
        assert min(drawn) == 1
        assert max(drawn) <= high
        assert sum(drawn) / 1_000 == pytest.approx(effective_mean(lengths), rel=0.15)
        assert effective_mean(lengths) > 1.5 * mean
        assert f"effective mean {effective_mean(lengths):,.1f}" in lengths.describe()


@given(share=st.floats(1e-12, 1 - 1e-12), which=st.sampled_from(ALL_LENGTHS))
def test_no_share_gives_a_length_out_of_range(share: float, which: Lengths) -> None:
    assert 1 <= which.at(share) <= 1_000_000


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(0),
        lambda: Uniform(9, 3),
        lambda: Normal(math.nan, 1, 1, 5),
        lambda: Normal(5, -1, 1, 5),
        lambda: LogNormal(5, math.inf, 1, 5),
        lambda: Empirical(()),
        lambda: Empirical((3, 0)),
    ],
)
def test_impossible_lengths_are_refused(make: object) -> None:
    with pytest.raises(InvalidRequest):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("rate", [0.0, -5.0, math.nan])
@pytest.mark.parametrize("process", [Poisson, Constant, lambda rate: Gamma(rate, 1.0)])
def test_impossible_rates_are_refused(process: object, rate: float) -> None:
    with pytest.raises(InvalidRequest, match="rate must be above 0"):
        process(rate)  # type: ignore[operator]


@pytest.mark.parametrize("burstiness", [0.0, -1.0, math.nan, math.inf])
def test_impossible_burstiness_is_refused(burstiness: float) -> None:
    with pytest.raises(InvalidRequest, match="burstiness must be a number above 0"):
        Gamma(1.0, burstiness)


@pytest.mark.parametrize(
    "make",
    [
        lambda: spec(num_requests=0),
        lambda: spec(num_requests=10**9),
        lambda: spec(parts=()),
        lambda: spec(turns=0),
        lambda: Part(prompt=Fixed(1), output=Fixed(1), weight=0),
        lambda: Part(prompt=Fixed(1), output=Fixed(1), shared_share=1.5),
        lambda: Burst(0, 1.0),
        lambda: ClosedLoop(0),
        lambda: ClosedLoop(1, -1.0),
        lambda: TraceTimes((0.0, 1.0), 0.0),
        lambda: TraceTimes((1.0, 0.0)),
        lambda: TraceTimes((0.0,)).starts(random.Random(0), 2),
    ],
)
def test_impossible_workloads_are_refused(make: object) -> None:
    with pytest.raises(InvalidRequest):
        make()  # type: ignore[operator]


def test_more_prompt_tokens_than_memory_should_hold_are_refused() -> None:
    part = Part(prompt=Fixed(100_000), output=Fixed(1))
    with pytest.raises(InvalidRequest, match="Ask for fewer"):
        build(spec(parts=(part,), num_requests=100), SOURCE)


@pytest.mark.parametrize("process", [Poisson, Constant, lambda rate: Gamma(rate, 0.5)])
def test_infinite_rate_sends_all_at_once(process: object) -> None:
    starts = process(math.inf).starts(random.Random(0), 20)  # type: ignore[operator]
    assert [start.time for start in starts] == [0.0] * 20
    assert process(math.inf).describe() == "all at once"  # type: ignore[operator]
    assert process(1.0).describe().endswith("1 request a second")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("arrivals", "variation"), [(Poisson(4.0), 1.0), (Gamma(4.0, 0.25), 2.0), (Gamma(4.0, 4), 0.5)]
)
def test_gaps_have_the_rate_and_the_burstiness_asked_for(
    arrivals: Arrivals, variation: float
) -> None:
    times = [start.time or 0.0 for start in arrivals.starts(random.Random(3), 4_001)]
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(0.25, rel=0.1)
    assert spread / mean == pytest.approx(variation, rel=0.15)
    assert times[0] == 0.0


def test_regular_processes_place_requests_exactly() -> None:
    rng = random.Random(0)
    assert [s.time for s in Constant(4.0).starts(rng, 3)] == [0.0, 0.25, 0.5]
    assert [s.time for s in Burst(2, 3.0).starts(rng, 5)] == [0.0, 0.0, 3.0, 3.0, 6.0]
    trace = TraceTimes((10.0, 12.0, 16.0), speed=2.0)
    assert [s.time for s in trace.starts(rng, 3)] == [0.0, 1.0, 3.0]
    loop = ClosedLoop(2, 0.5).starts(rng, 4)
    assert [(s.time, s.after, s.delay) for s in loop] == [
        (0.0, None, 0.0),
        (0.0, None, 0.0),
        (None, 0, 0.5),
        (None, 1, 0.5),
    ]


def test_equal_seeds_give_workloads_equal_to_the_byte() -> None:
    for shape in SHAPES.values():
        first, second = (build(shape.spec, SOURCE) for _ in range(2))
        assert content(first) == content(second)
        assert content(build(shape.spec.with_seed(1), SOURCE)) != content(first)


def test_each_seed_reaches_its_own_part_and_no_other() -> None:
    def parts(workload: Workload) -> tuple[list[tuple[int, int]], list[object], list[object]]:
        lengths = [(len(i.token_ids), i.num_output_tokens) for i in workload.items]
        return lengths, [i.token_ids for i in workload.items], [i.start for i in workload.items]

    base = parts(build(spec(), SOURCE))
    lengths = parts(build(spec(seeds=Seeds(lengths=1)), SOURCE))
    text = parts(build(spec(seeds=Seeds(text=1)), SOURCE))
    arrivals = parts(build(spec(seeds=Seeds(arrivals=1)), SOURCE))
    assert (lengths[0] != base[0], lengths[2] == base[2]) == (True, True)
    assert (text[0] == base[0], text[1] != base[1], text[2] == base[2]) == (True, True, True)
    assert (arrivals[0] == base[0], arrivals[1] == base[1]) == (True, True)
    assert arrivals[2] != base[2]


def test_prompts_begin_alike_by_the_share_asked_for_and_not_otherwise() -> None:
    part = Part(prompt=Fixed(100), output=Fixed(4), shared_share=0.6)
    prompts = [i.token_ids for i in build(spec(parts=(part,)), SOURCE).items]
    assert len({prompt[:60] for prompt in prompts}) == 1
    assert len({prompt[60:] for prompt in prompts}) == 30
    alone = replace(part, shared_share=0.0)
    workload = build(spec(parts=(alone,)), SOURCE)
    assert workload.shared_share < 0.01


def test_shared_share_counts_each_shared_token_once() -> None:
    assert shared_share([(1, 2, 3, 4), (1, 2, 9, 9), (5, 6, 7, 8)]) == pytest.approx(2 / 12)
    assert shared_share([(1, 2), (1, 2), (1, 2)]) == pytest.approx(4 / 6)
    assert shared_share([()]) == 0.0


def test_agent_turns_carry_everything_said_before() -> None:
    workload = build(replace(SHAPES["agent"].spec, num_requests=8), SOURCE)
    for index, item in enumerate(workload.items):
        if index % 4 == 0:
            assert item.start.after is None
            continue
        before = workload.items[index - 1]
        assert item.start.after == index - 1
        assert item.start.delay == 0.5
        assert item.token_ids[: len(before.token_ids)] == before.token_ids
        grown = len(before.token_ids) + before.num_output_tokens
        assert 80 <= len(item.token_ids) - grown <= 160


def test_users_of_a_closed_loop_finish_a_conversation_before_the_next() -> None:
    workload = build(spec(turns=3, num_requests=12, arrivals=ClosedLoop(2, 1.0)), SOURCE)
    assert [item.start.after for item in workload.items] == [
        *(None, 0, 1),
        *(None, 3, 4),
        *(2, 6, 7),
        *(5, 9, 10),
    ]


def test_a_mix_keeps_its_proportions_among_few_requests() -> None:
    workload = build(SHAPES["mixed"].spec, SOURCE)
    assert sum(len(item.token_ids) >= 1_000 for item in workload.items) == 4


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_each_shape_states_its_lengths_and_what_is_shared(name: str) -> None:
    text = SHAPES[name].describe()
    assert "prompts" in text
    assert "answers" in text
    assert "shared" in text


def test_lengths_of_a_shape_can_be_fixed() -> None:
    workload = build(fixed(SHAPES["mixed"].spec, 64, 7), SOURCE)
    assert workload.prompt_tokens == (64, 64)
    assert workload.output_tokens == (7, 7)


def test_clipping_to_a_context_keeps_beginnings_and_says_so() -> None:
    workload = build(spec(parts=(Part(prompt=Fixed(90), output=Fixed(30)),)), SOURCE)
    clipped = workload.clipped(64)
    assert clipped.prompt_tokens == (63, 63)
    assert clipped.output_tokens == (1, 1)
    assert clipped.items[0].token_ids == workload.items[0].token_ids[:63]
    assert clipped.notes == ("30 requests were cut to the model's context of 64 tokens.",)
    assert workload.clipped(200) is workload


@pytest.mark.parametrize(
    "backend",
    [
        byte_level(["the", "in", "er", " a", "ing", "th", "xx", "é"]),
        sentencepiece(["▁the", "ing", "▁a", "er", "in", "▁x", "th"]),
    ],
    ids=["byte level", "sentencepiece"],
)
def test_prompts_measure_exactly_the_length_asked(backend: object) -> None:
    tokenizer = Tokenizer(backend)
    source = TokenSource.of(tokenizer)
    assert not set(source.ordinary) & tokenizer.special_token_ids
    part = Part(prompt=Fixed(256), output=Fixed(4))
    workload = build(spec(parts=(part,), num_requests=50), source)
    assert {len(item.token_ids) for item in workload.items} == {256}
    texts = {exact_text(tokenizer, source, f"{seed}", 256) for seed in range(50)}
    assert len(texts) == 50
    assert {tokenizer.count(text) for text in texts} == {256}


def test_a_vocabulary_without_ordinary_tokens_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="fewer than two"):
        TokenSource(3, {0, 1})
