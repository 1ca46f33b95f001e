"""Sampling: what a row's token depends on, and the filters against their definitions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.core.errors import InvalidRequest
from engine.core.plan import SampledToken
from engine.core.request import SamplingParams
from engine.model import sampling
from engine.model.sampling import SamplingRow, sample, uniform

VOCAB_SIZE = 97


@pytest.fixture(scope="module", autouse=True, params=["on the host", "on the device"])
def _where(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs on both ways: what an accelerator computes is computed here by the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "on the device":
            patch.setattr(sampling, "_choose_on_host", sampling._choose_on_device)
        yield


def row(
    position: int = 0,
    seed: int = 3,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    ends: Sequence[int] = (),
    **params: object,
) -> SamplingRow:
    return SamplingRow(
        SamplingParams(**params),  # type: ignore[arg-type]
        seed,
        position,
        tuple(prompt),
        tuple(output),
        frozenset(ends),
    )


def random_logits(num_rows: int, vocab_size: int = VOCAB_SIZE, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, vocab_size, generator=generator) * 3


def token_ids(logits: Tensor, rows: Sequence[SamplingRow]) -> list[int]:
    tokens = sample(logits, rows)
    assert all(token.error is None for token in tokens)
    return [token.token_id for token in tokens]


def reference(logits: Tensor, drawn: SamplingRow) -> int:
    """transformers' processors in float64, then the inverse CDF in token id order."""
    params = drawn.params
    seen = [*drawn.prompt_token_ids, *drawn.output_token_ids]
    processors = LogitsProcessorList()
    if params.repetition_penalty != 1.0:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    if params.min_tokens:
        processors.append(
            MinNewTokensLengthLogitsProcessor(
                len(drawn.prompt_token_ids), params.min_tokens, sorted(drawn.end_token_ids)
            )
        )
    processors.append(TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        processors.append(TopPLogitsWarper(params.top_p))
    if params.min_p:
        processors.append(MinPLogitsWarper(params.min_p))
    scores = processors(torch.tensor([seen], dtype=torch.long), logits.double()[None])
    cumulative = scores.softmax(-1)[0].cumsum(0)
    number = uniform(drawn.seed, drawn.position)
    return int((cumulative > number * cumulative[-1]).nonzero()[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_greedy_takes_the_largest_logit_and_of_equals_the_lowest_id(dtype: torch.dtype) -> None:
    logits = random_logits(5).to(dtype)
    logits[2, [70, 11, 40]] = 60.0
    found = token_ids(logits, [row(temperature=0.0)] * 5)
    assert found == logits.float().argmax(-1).tolist()
    assert found[2] == 11


@pytest.mark.parametrize("temperature", [1e-3, 1e-4, 1e-5, 1e-6, 1e-9, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tiny_temperatures_are_nearly_greedy(temperature: float, dtype: torch.dtype) -> None:
    logits = random_logits(12).to(dtype)
    logits[:, 0] = -60.0
    logits[:, 42] = 60.0
    rows = [row(position, seed=5, temperature=temperature) for position in range(12)]
    assert token_ids(logits, rows) == [42] * 12


def test_equal_logits_at_a_tiny_temperature_are_drawn_without_overflow() -> None:
    logits = torch.full((40, 8), -60.0)
    logits[:, [2, 5]] = 60.0
    drawn = token_ids(logits, [row(position, temperature=1e-9) for position in range(40)])
    assert set(drawn) == {2, 5}


@pytest.mark.parametrize("top_k", [VOCAB_SIZE, VOCAB_SIZE + 1, 50_000_000])
def test_top_k_beyond_the_vocabulary_is_off(top_k: int) -> None:
    logits = random_logits(20)
    limited = [row(position, top_k=top_k) for position in range(20)]
    unlimited = [row(position) for position in range(20)]
    assert token_ids(logits, limited) == token_ids(logits, unlimited)


def test_top_k_of_one_is_greedy_and_ties_with_the_last_stay() -> None:
    logits = random_logits(20)
    assert token_ids(logits, [row(i, top_k=1) for i in range(20)]) == logits.argmax(-1).tolist()
    tied = torch.zeros(60, 4)
    tied[:, 1:3] = 5.0
    assert set(token_ids(tied, [row(i, top_k=1) for i in range(60)])) == {1, 2}


params_strategy = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 1e-9, 0.3, 1.0, 1.7, 100.0]),
        "top_k": st.sampled_from([0, 1, 5, 40, 1000]),
        "top_p": st.sampled_from([1.0, 0.95, 0.5, 1e-9]),
        "min_p": st.sampled_from([0.0, 0.05, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.3, 0.7]),
        "presence_penalty": st.sampled_from([0.0, 1.5]),
        "frequency_penalty": st.sampled_from([0.0, -0.5]),
        "min_tokens": st.sampled_from([0, 6]),
        "logprobs": st.sampled_from([None, 0, 3]),
    }
)
ids_strategy = st.lists(st.integers(0, VOCAB_SIZE + 4), max_size=8)


@st.composite
def sampling_rows(draw: st.DrawFn) -> SamplingRow:
    return row(
        position=draw(st.integers(0, 12)),
        seed=draw(st.integers(-(2**63), 2**63 - 1)),
        prompt=draw(ids_strategy),
        output=draw(ids_strategy),
        ends=[2, 7],
        **draw(params_strategy),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(sampling_rows(), min_size=1, max_size=6), st.randoms(), st.integers(0, 9))
def test_a_row_is_the_same_alone_and_anywhere_in_any_batch(
    rows: list[SamplingRow], random: object, seed: int
) -> None:
    logits = random_logits(len(rows), seed=seed)
    together = sample(logits, rows)
    for i, single in enumerate(rows):
        assert sample(logits[i : i + 1], [single]) == [together[i]]
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert sample(logits[order], [rows[i] for i in order]) == [together[i] for i in order]


@pytest.mark.parametrize("vocab_size", [5_000, 50_000])
def test_a_row_of_a_large_vocabulary_is_the_same_in_any_batch(vocab_size: int) -> None:
    # Some of these rows find their mass in the first candidates, some need the whole vocabulary.
    logits = random_logits(6, vocab_size) * torch.tensor([0.0, 0.1, 0.5, 1.0, 2.0, 3.0])[:, None]
    rows = [row(i, top_p=0.9) for i in range(6)]
    together = sample(logits, rows)
    assert [sample(logits[i : i + 1], [rows[i]])[0] for i in range(6)] == together
    assert [token.token_id for token in together] == [
        reference(logits[i], rows[i]) for i in range(6)
    ]


def test_the_logits_are_left_as_they_came() -> None:
    logits = random_logits(2)
    before = logits.clone()
    sample(logits, [row(repetition_penalty=1.5, prompt=[3]), row(min_tokens=4, ends=[2])])
    assert torch.equal(logits, before)


def test_greedy_and_sampled_rows_share_a_batch() -> None:
    logits = random_logits(3)
    rows = [row(temperature=0.0), row(top_k=5), row()]
    assert token_ids(logits, rows)[0] == token_ids(logits[:1], rows[:1])[0]
    assert token_ids(logits, rows)[0] == int(logits[0].argmax())


def test_a_penalty_on_one_row_leaves_a_row_without_one_alone() -> None:
    logits = random_logits(1).expand(2, -1).clone()
    best = int(logits[0].argmax())
    rows = [
        row(temperature=0.0, repetition_penalty=9.0, output=[best]),
        row(temperature=0.0, output=[best]),
    ]
    penalised, plain = token_ids(logits, rows)
    assert plain == best
    assert penalised != best


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.7},
        {"temperature": 1.3, "top_k": 7},
        {"top_p": 0.8},
        {"top_p": 0.05},
        {"min_p": 0.1},
        {"temperature": 0.9, "top_k": 30, "top_p": 0.7, "min_p": 0.08},
        {"repetition_penalty": 1.4},
        {"repetition_penalty": 0.6, "temperature": 1.5, "top_p": 0.9},
        {"min_tokens": 8, "temperature": 2.0},
    ],
)
def test_draws_follow_the_distribution_of_transformers_processors(
    params: dict[str, float],
) -> None:
    num_rows = 150
    logits = random_logits(num_rows, seed=7)
    logits[:, :8] += 4.0
    rows = [
        row(i % 12, seed=i, prompt=[1, 5, 5], output=[9, 2, 60][: i % 12], ends=[2, 7], **params)
        for i in range(num_rows)
    ]
    # transformers counts the output tokens itself, so a row's position has to agree with them.
    rows = [dataclasses.replace(r, position=len(r.output_token_ids)) for r in rows]
    assert token_ids(logits, rows) == [reference(logits[i], r) for i, r in enumerate(rows)]


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass() -> None:
    # Shares 0.5, 0.25, 0.125, 0.125: exact in binary, so the edges are exact too.
    logits = torch.tensor([[2.0, 4.0, 1.0, 1.0]]).log().expand(200, -1)

    def support(top_p: float) -> set[int]:
        return set(token_ids(logits, [row(i, top_p=top_p) for i in range(200)]))

    assert support(1e-9) == {1}
    assert support(0.49) == {1}
    assert support(0.51) == {0, 1}
    assert support(0.8) == {0, 1, 2}  # of two equals the lower id
    assert support(0.99) == {0, 1, 2, 3}


def test_presence_and_frequency_penalties_subtract_over_the_output_only() -> None:
    logits = torch.tensor([[5.0, 4.9, 0.0]])
    frequency = {"temperature": 0.0, "frequency_penalty": 0.06}
    assert token_ids(logits, [row(prompt=[0, 0, 0], **frequency)]) == [0]
    assert token_ids(logits, [row(output=[0], **frequency)]) == [0]
    assert token_ids(logits, [row(output=[0, 0], **frequency)]) == [1]
    presence = {"temperature": 0.0, "presence_penalty": 0.06}
    assert token_ids(logits, [row(output=[0, 0, 0], **presence)]) == [0]
    assert token_ids(logits, [row(output=[0], temperature=0.0, presence_penalty=0.2)]) == [1]


@pytest.mark.parametrize("penalty", [5e-324, 1e-300, 1e-38, 1e-3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_extreme_repetition_penalties_stay_finite(penalty: float, temperature: float) -> None:
    logits = torch.tensor([[-math.inf, 0.0, 50.0, -1.0]])
    punished = row(temperature=temperature, prompt=range(4), repetition_penalty=penalty)
    assert token_ids(logits, [punished]) == [2]


def test_the_draw_is_the_inverse_of_the_cumulative_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits = torch.tensor([[-math.inf, 0.0, math.log(2.0), -math.inf, 0.0, -math.inf]])
    edges = {0.0: 1, 0.2499: 1, 0.2501: 2, 0.7499: 2, 0.7501: 4, 1 - 2**-52: 4}
    for number, expected in edges.items():
        monkeypatch.setattr(sampling, "uniform", lambda seed, position, n=number: n)
        assert token_ids(logits, [row()]) == [expected]


def test_uniform_numbers_depend_on_seed_and_position_and_lie_in_the_unit_interval() -> None:
    numbers = {uniform(seed, position) for seed in range(-20, 20) for position in range(25)}
    assert len(numbers) == 40 * 25
    assert all(0.0 <= number < 1.0 for number in numbers)
    assert 0.45 < sum(numbers) / len(numbers) < 0.55
    assert uniform(-(2**63), 0) != uniform(2**63 - 1, 0)


def test_end_tokens_are_masked_until_min_tokens() -> None:
    logits = torch.zeros(1, 9)
    logits[0, [2, 7]] = 50.0
    for position, temperature in [(0, 0.0), (3, 0.0), (0, 1.0), (3, 1.0)]:
        (early,) = token_ids(
            logits, [row(position, temperature=temperature, min_tokens=4, ends=[2, 7])]
        )
        assert early not in (2, 7)
    assert token_ids(logits, [row(4, temperature=0.0, min_tokens=4, ends=[2, 7])]) == [2]


def test_ignored_end_tokens_are_ordinary_tokens() -> None:
    logits = torch.zeros(1, 9)
    logits[0, 7] = 50.0
    ignoring = row(0, temperature=0.0, min_tokens=4, ignore_eos=True, ends=[2, 7])
    assert token_ids(logits, [ignoring]) == [7]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_fails_alone(bad: float, temperature: float) -> None:
    logits = random_logits(3)
    rows = [
        row(i, temperature=temperature, top_k=9, top_p=0.9, min_p=0.01, logprobs=2)
        for i in range(3)
    ]
    solo = [sample(logits[i : i + 1], [rows[i]])[0] for i in range(3)]
    logits[1, 4] = bad
    first, second, third = sample(logits, rows)
    assert [first, third] == [solo[0], solo[2]]
    assert second == SampledToken(error=sampling.NOT_FINITE)


def test_a_hidden_nan_still_fails_the_row() -> None:
    logits = random_logits(1)
    logits[0, 2] = math.nan
    (token,) = sample(logits, [row(temperature=0.0, min_tokens=3, ends=[2])])
    assert token.error == sampling.NOT_FINITE


def test_a_row_with_nothing_left_fails_alone() -> None:
    logits = torch.full((3, 5), -math.inf)
    logits[0, 3] = logits[2, 2] = 1.0
    rows = [row(), row(), row(min_tokens=3, ends=[2])]
    first, *others = sample(logits, rows)
    assert first.token_id == 3
    assert others == [SampledToken(error=sampling.NOTHING_LEFT)] * 2


def test_minus_infinity_is_never_drawn() -> None:
    logits = torch.full((50, 6), -math.inf)
    logits[:, [1, 4]] = 0.0
    assert set(token_ids(logits, [row(i) for i in range(50)])) == {1, 4}


def test_logprobs_are_those_of_the_model_before_any_setting() -> None:
    logits = random_logits(2)
    expected = logits.double().log_softmax(-1)
    rows = [
        row(temperature=0.2, top_k=1, repetition_penalty=2.0, prompt=[3], logprobs=4),
        row(temperature=0.0),
    ]
    with_logprobs, without = sample(logits, rows)
    assert with_logprobs.logprob == pytest.approx(float(expected[0, with_logprobs.token_id]))
    top = expected[0].topk(4)
    assert with_logprobs.top_logprobs is not None
    assert [pair[0] for pair in with_logprobs.top_logprobs] == top.indices.tolist()
    assert [pair[1] for pair in with_logprobs.top_logprobs] == pytest.approx(top.values.tolist())
    assert without.logprob is None
    assert without.top_logprobs is None


def test_zero_logprobs_give_the_chosen_one_only() -> None:
    (token,) = sample(random_logits(1), [row(logprobs=0)])
    assert token.logprob is not None
    assert token.top_logprobs == ()


def test_logprobs_are_finite_or_absent() -> None:
    logits = torch.tensor([[-math.inf, 3e38, -3e38, -math.inf]])
    (token,) = sample(logits, [row(temperature=0.0, min_tokens=1, ends=[1], logprobs=4)])
    assert token.token_id == 2
    assert token.logprob is not None
    assert math.isfinite(token.logprob)
    assert token.top_logprobs is not None
    assert [pair[0] for pair in token.top_logprobs] == [1, 2]
    assert all(math.isfinite(value) for _, value in token.top_logprobs)


def test_more_logprobs_than_tokens_give_them_all() -> None:
    (token,) = sample(random_logits(1, vocab_size=3), [row(logprobs=20)])
    assert token.top_logprobs is not None
    assert len(token.top_logprobs) == 3


def test_an_empty_batch_gives_nothing_and_a_wrong_shape_is_refused() -> None:
    assert sample(torch.empty(0, 5), []) == []
    with pytest.raises(ValueError, match="1 rows were given for logits of shape"):
        sample(random_logits(2), [row()])


@pytest.mark.parametrize("temperature", [math.nan, math.inf, -math.inf, -0.1])
def test_a_temperature_that_is_no_temperature_is_refused_by_name(temperature: float) -> None:
    with pytest.raises(InvalidRequest, match="temperature must be a finite number") as error:
        SamplingParams(temperature=temperature)
    assert error.value.field == "temperature"
