"""Greedy token ids equal those of `model.generate` in float32, however the work is cut up.

Tiny random models of several families: what is tested is attention, positions and the cache, and a
random model is quicker to show a wrong one than a trained model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from engine.core.clock import MonotonicClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.plan import NoText
from engine.core.request import Request, SamplingParams, Timeline
from engine.model.kernels import load_kernels
from engine.model.runner import TorchRunner
from engine.model.tuning import tune

VOCABULARY = 211
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,  # in multiples of 32, so that fused layers decode in one call
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.5,
}

FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**_SIZES),
    "qwen3": lambda: Qwen3Config(**_SIZES),
    "mistral, sliding window": lambda: MistralConfig(**_SIZES, sliding_window=24),
    "gemma3, mixed layers": lambda: Gemma3TextConfig(
        **_SIZES,
        sliding_window=20,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        query_pre_attn_scalar=8,
    ),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=48,
        n_layer=3,
        n_head=6,
        n_positions=1024,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.5,
    ),
}

# Ends the name of a family that is served with compiled kernels and fused layers.
COMPILED = ", compiled"
_WITH_KERNELS: set[PreTrainedModel] = set()


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()


def make(family: str) -> PreTrainedModel:
    """The same random model at every call."""
    torch.manual_seed(1)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        FAMILIES[family](), dtype=torch.float32
    )
    return model.eval()


@cache
def served_model(family: str) -> PreTrainedModel:
    """The model that is served: one for all tests, since serving switches its attention."""
    model = make(family.removesuffix(COMPILED))
    return tuned(model) if family.endswith(COMPILED) else model


def tuned(model: PreTrainedModel) -> PreTrainedModel:
    """The model with compiled kernels and fused layers; skips the test where none can be had."""
    if not load_kernels():
        pytest.skip("no compiler is here to build the kernels with")
    assert tune(model)
    _WITH_KERNELS.add(model)
    return model


@cache
def reference_model(family: str) -> PreTrainedModel:
    """The model that generates the reference."""
    return make(family.removesuffix(COMPILED))


def generate(model: PreTrainedModel, ids: list[int], count: int) -> list[int]:
    """The reference: what transformers itself generates, greedily."""
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=count,
            do_sample=False,
        )
    tokens: list[int] = output[0, len(ids) :].tolist()
    return tokens


class Served:
    """An engine over a torch model, checked after every step."""

    def __init__(self, model: PreTrainedModel, **settings: object) -> None:
        self.config = EngineConfig(
            **{"num_blocks": 128, "max_model_len": 1024, **settings}  # type: ignore[arg-type]
        )
        self.runner = TorchRunner(
            model,
            num_blocks=self.config.num_blocks,
            block_size=self.config.block_size,
            kernels=model in _WITH_KERNELS,
        )
        self.engine = Engine(self.config, self.runner, NoText(), MonotonicClock())
        self._number = 0

    def submit(self, ids: list[int], count: int, **params: object) -> Request:
        self._number += 1
        request = Request(
            number=self._number,
            token_ids=list(ids),
            params=SamplingParams(
                **{"temperature": 0.0, "max_tokens": count, **params}  # type: ignore[arg-type]
            ),
            seed=int(params.get("seed", self._number)),  # type: ignore[call-overload]
            timeline=Timeline(submitted=0.0),
        )
        self.engine.add(request)
        return request

    def run(self) -> None:
        while self.engine.step():
            self.engine.scheduler.check()


@pytest.fixture(scope="module", params=[*FAMILIES, *(name + COMPILED for name in FAMILIES)])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reference(family: str) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts of one family's tests and what `generate` makes of each alone."""
    prompts = [prompt(length, seed=length) for length in (1, 17, 90, 200)]
    model = reference_model(family)
    return prompts, [generate(model, ids, 24) for ids in prompts]


@pytest.mark.parametrize("budget", [7, 16, 33, 512])
def test_every_budget_gives_the_reference(
    family: str, reference: tuple[list[list[int]], list[list[int]]], budget: int
) -> None:
    prompts, expected = reference
    served = Served(served_model(family), max_batched_tokens=budget, max_running=4)
    alone = served.submit(prompts[3], 24)
    served.run()
    assert alone.output_token_ids == expected[3]
    batch = Served(served_model(family), max_batched_tokens=budget, max_running=4)
    requests = [batch.submit(ids, 24) for ids in prompts]
    batch.run()
    assert [r.output_token_ids for r in requests] == expected


def test_prefix_hits_give_the_reference(
    family: str, reference: tuple[list[list[int]], list[list[int]]]
) -> None:
    prompts, expected = reference
    served = Served(served_model(family))
    edge = prompts[2][:32]
    for _ in range(2):
        partial = served.submit(prompts[3], 24)
        whole = served.submit(edge, 10)
        served.run()
        assert partial.output_token_ids == expected[3]
        assert whole.output_token_ids == generate(reference_model(family), edge, 10)
    assert partial.num_cached_tokens == 192
    assert whole.num_cached_tokens == 16


def test_a_shared_opening_in_scattered_blocks_gives_the_reference(family: str) -> None:
    opening = prompt(48, seed=5)
    prompts = [opening + prompt(10, seed=seed) for seed in (6, 7, 8)]
    served = Served(served_model(family))
    requests = []
    for ids in prompts:
        requests.append(served.submit(ids, 20))
        served.engine.step()
        served.engine.step()
    served.run()
    model = reference_model(family)
    assert [r.output_token_ids for r in requests] == [generate(model, p, 20) for p in prompts]
    assert requests[2].num_cached_tokens == 48


def test_preemption_gives_the_reference(
    family: str, reference: tuple[list[list[int]], list[list[int]]]
) -> None:
    prompts, expected = reference
    served = Served(served_model(family), num_blocks=15)
    requests = [served.submit(ids, 24) for ids in prompts]
    for step in range(20):
        served.engine.step()
        if step == 8 and served.engine.scheduler.running:
            served.engine.scheduler.preempt(served.engine.scheduler.running[-1], 0.0)
    served.run()
    assert [r.output_token_ids for r in requests] == expected
    assert any(r.timeline.preemptions for r in requests)


def test_a_seeded_draw_does_not_depend_on_its_neighbours() -> None:
    def draw(neighbours: list[dict[str, object]], num_blocks: int = 128) -> list[int]:
        served = Served(served_model("llama"), num_blocks=num_blocks)
        for i, params in enumerate(neighbours):
            served.submit(prompt(30, seed=50 + i), 20, **params)
        request = served.submit(prompt(40), 20, temperature=0.9, seed=11)
        served.run()
        assert num_blocks > 8 or request.timeline.preemptions
        return request.output_token_ids

    alone = draw([])
    assert draw([{"temperature": 1.0}]) == alone
    assert draw([{"temperature": 1.0, "seed": 3}, {"repetition_penalty": 1.3}]) == alone
    assert draw([{"temperature": 1.0}], num_blocks=5) == alone


def test_a_penalty_on_one_request_leaves_its_neighbour_alone() -> None:
    model = reference_model("llama")
    served = Served(served_model("llama"))
    penalised = served.submit(prompt(20), 8, repetition_penalty=1.3)
    plain = served.submit(prompt(25, seed=2), 8)
    served.run()
    assert plain.output_token_ids == generate(model, prompt(25, seed=2), 8)
    assert penalised.num_output_tokens == 8
