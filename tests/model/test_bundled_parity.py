"""The bundled model as it is served: greedy ids equal those of `model.generate` in float32."""

from __future__ import annotations

import copy

import pytest
from transformers import PreTrainedModel

from engine.model.loading import LoadedModel
from engine.model.probe import probe
from engine.model.text import Tokenizer
from tests.model.test_parity import Served, generate, tuned

QUESTIONS = [
    "Why is the sky blue?",
    "List three rivers of Europe, with a word about each of them.",
    "Write a haiku about a slow network.",
    "Explain to a child what a cache is, then to an engineer. " * 8,
]
COUNT = 16


@pytest.fixture(scope="module", params=["plain", "compiled"])
def model(request: pytest.FixtureRequest, bundled_model: LoadedModel) -> PreTrainedModel:
    """A copy to be served, since serving switches the model's attention."""
    model = copy.deepcopy(bundled_model.model)
    return tuned(model) if request.param == "compiled" else model


@pytest.fixture(scope="module")
def prompts(bundled_model: LoadedModel) -> list[list[int]]:
    tokenizer = Tokenizer(bundled_model.tokenizer, bundled_model.generation_config.eos_token_id)
    return [tokenizer.render([{"role": "user", "content": text}]) for text in QUESTIONS]


@pytest.fixture(scope="module")
def expected(bundled_model: LoadedModel, prompts: list[list[int]]) -> list[list[int]]:
    with pytest.MonkeyPatch.context() as patch:  # a fixed length is compared
        patch.setattr(bundled_model.model.generation_config, "eos_token_id", None)
        return [generate(bundled_model.model, prompt, COUNT) for prompt in prompts]


@pytest.mark.parametrize("budget", [7, 16, 33, 512])
def test_a_batch_gives_the_reference_at_every_budget(
    model: PreTrainedModel, prompts: list[list[int]], expected: list[list[int]], budget: int
) -> None:
    served = Served(model, max_batched_tokens=budget, max_running=4)
    requests = [served.submit(prompt, COUNT) for prompt in prompts]
    served.run()
    assert [request.output_token_ids for request in requests] == expected


def test_hits_and_preemption_give_the_reference(
    model: PreTrainedModel, prompts: list[list[int]], expected: list[list[int]]
) -> None:
    served = Served(model, num_blocks=24, max_running=4)
    for _ in range(2):
        requests = [served.submit(prompt, COUNT) for prompt in prompts]
        for _ in range(12):
            served.engine.step()
        served.engine.scheduler.preempt(served.engine.scheduler.running[-1], 0.0)
        served.run()
        assert [request.output_token_ids for request in requests] == expected
    assert any(request.num_cached_tokens for request in requests)


def test_the_probe_accepts_it(bundled_model: LoadedModel) -> None:
    assert probe(copy.deepcopy(bundled_model.model)) == 30 * 2 * 3 * 64 * 4
