"""The measured roof: real steps stay under it, and a kept measurement is used where it fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from engine.core.capacity import Ceilings
from engine.core.clock import MonotonicClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.errors import OutOfMemory
from engine.core.plan import NoText, StepPlan, StepResult
from engine.core.records import StepRecord
from engine.core.request import Request, SamplingParams, Timeline
from engine.model import ceilings
from engine.model.ceilings import measure_ceilings, shape_of
from engine.model.probe import probe
from engine.model.runner import TorchRunner
from engine.telemetry.roofline import roof, step_work

CPU = torch.device("cpu")
_SIZES = {
    "vocab_size": 500,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads that wait for each other are slowed many times over by other processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(config: PreTrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def llama(**changes: object) -> PreTrainedModel:
    return make(LlamaConfig(**{**_SIZES, **changes}))


def serve(model: PreTrainedModel, prompts: list[int], max_tokens: int) -> list[StepRecord]:
    """Step records of prompts of the given lengths, served together."""
    config = EngineConfig(num_blocks=256, max_batched_tokens=256, max_running=8)
    clock = MonotonicClock()
    engine = Engine(config, TorchRunner(model, num_blocks=256), NoText(), clock)
    for number, length in enumerate(prompts, start=1):
        engine.add(
            Request(
                number=number,
                token_ids=[(7 * i + number) % 500 for i in range(length)],
                params=SamplingParams(temperature=0.0, max_tokens=max_tokens),
                seed=0,
                timeline=Timeline(submitted=clock.now()),
            )
        )
    steps = []
    while (output := engine.step()) is not None:
        assert output.record is not None
        steps.append(output.record)
    return steps


def test_no_step_stands_more_than_five_percent_above_the_roof() -> None:
    model = llama(hidden_size=256, intermediate_size=1024, num_hidden_layers=6)
    before = measure_ceilings(model, CPU, seconds=0.8)
    steps = serve(model, [300, 40, 120, 700], max_tokens=30)
    after = measure_ceilings(model, CPU, seconds=0.8)
    # Other processes may slow either measurement down, and not the steps between them.
    measured = Ceilings(
        max(before.flops_per_second, after.flops_per_second),
        max(before.bytes_per_second, after.bytes_per_second),
        overhead_seconds=0.0,
    )
    shape = shape_of(model, probe(model))
    assert any(step.prefill_tokens for step in steps)
    for step in steps:
        work = step_work(shape, step.rows, step.num_sampled)
        reached = work.flops / step.duration
        assert 0 < reached <= 1.05 * roof(work.intensity, measured)


def test_measured_values_are_those_of_a_computer() -> None:
    measured = measure_ceilings(llama(), CPU, seconds=0.3)
    assert 1e8 < measured.flops_per_second < 1e14
    assert 1e8 < measured.bytes_per_second < 1e13
    assert 0 <= measured.overhead_seconds < 1


def test_steps_of_the_runner_that_serves_count_too() -> None:
    """They may be faster than products one by one, and then nothing may stand above the roof."""

    class Instant(TorchRunner):
        def run(self, plan: StepPlan) -> StepResult:
            tokens.append(plan.num_tokens)
            return StepResult(())

    tokens: list[int] = []
    runner = Instant(llama(), num_blocks=40)
    plain = measure_ceilings(llama(), CPU, seconds=0.1)
    measured = measure_ceilings(llama(), CPU, seconds=0.1, runner=runner)
    assert set(tokens) == {1, 512}
    assert measured.flops_per_second > 100 * plain.flops_per_second
    assert measured.bytes_per_second > 100 * plain.bytes_per_second
    assert measured.overhead_seconds < 1e-9


def test_a_prompt_is_no_longer_than_the_models_context() -> None:
    config = GPT2Config(vocab_size=500, n_embd=64, n_layer=2, n_head=4, n_positions=48)
    model = AutoModelForCausalLM.from_config(config).eval()
    runner = TorchRunner(model, num_blocks=40)
    assert measure_ceilings(model, CPU, seconds=0.1, runner=runner).flops_per_second > 0


def test_a_prompt_that_takes_too_much_memory_is_done_without() -> None:
    class Small(TorchRunner):
        def run(self, plan: StepPlan) -> StepResult:
            if plan.num_tokens > 1:
                raise OutOfMemory("too large")
            return super().run(plan)

    runner = Small(llama(), num_blocks=40)
    assert measure_ceilings(llama(), CPU, seconds=0.1, runner=runner).flops_per_second > 0


def test_measuring_leaves_the_model_as_it_was() -> None:
    model = llama()
    before = [parameter.clone() for parameter in model.parameters()]
    measure_ceilings(model, CPU, seconds=0.1)
    assert all(map(torch.equal, model.parameters(), before))


@pytest.mark.parametrize("tied", [True, False])
def test_shape_counts_each_weight_once(tied: bool) -> None:
    model = llama(tie_word_embeddings=tied)
    shape = shape_of(model, kv_bytes_per_token=384)
    attention = 128 * 128 * 2 + 128 * 32 * 2
    assert shape.matrix_parameters == 3 * (attention + 3 * 128 * 320)
    tables = 500 * 128 * (1 if tied else 2)
    norms = 128 * (2 * 3 + 1)
    assert shape.weight_bytes == 4 * (shape.matrix_parameters + tables + norms)
    assert (shape.tied, shape.kv_bytes_per_token, shape.activation_bytes) == (tied, 384, 4)
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (8, 2, 16)
    assert (shape.hidden_size, shape.intermediate_size, shape.vocab_size) == (128, 320, 500)


def test_shape_of_a_model_with_other_names_for_its_sizes() -> None:
    shape = shape_of(
        make(GPT2Config(vocab_size=500, n_embd=64, n_layer=2, n_head=4, n_positions=128)), 1024
    )
    assert (shape.hidden_size, shape.num_layers, shape.num_heads) == (64, 2, 4)
    assert (shape.num_kv_heads, shape.head_dim, shape.intermediate_size) == (4, 16, 256)
    assert shape.matrix_parameters == 2 * 12 * 64 * 64
    assert shape.tied


def test_a_position_goes_through_some_experts_only() -> None:
    sizes = {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}
    shape = shape_of(make(MixtralConfig(**sizes)), 384)
    attention = 128 * 128 * 2 + 128 * 32 * 2
    expert = 3 * 128 * 320
    assert shape.matrix_parameters == 3 * (attention + 2 * expert + 4 * 128)


def test_models_of_transposed_linear_layers_are_measured() -> None:
    model = make(GPT2Config(vocab_size=500, n_embd=64, n_layer=2, n_head=4, n_positions=128))
    assert measure_ceilings(model, CPU, seconds=0.1).flops_per_second > 0


def refuse_to_measure(*_: object) -> float:
    raise AssertionError("measured although a fitting measurement was kept")


def test_a_kept_measurement_is_used_for_the_same_model_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "new folder" / "ceilings.json"
    first = measure_ceilings(llama(), CPU, seconds=0.1, cache=cache)
    monkeypatch.setattr(ceilings, "_peak_flops", refuse_to_measure)
    assert measure_ceilings(llama(), CPU, seconds=0.1, cache=cache) == first
    with pytest.raises(AssertionError, match="although"):
        measure_ceilings(llama(hidden_size=64), CPU, seconds=0.1, cache=cache)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    with pytest.raises(AssertionError, match="although"):
        measure_ceilings(llama(), CPU, seconds=0.1, cache=cache)


def spoil_text(stored: str) -> str:
    return stored[: len(stored) // 2]


def spoil_values(stored: str) -> str:
    return json.dumps({**json.loads(stored), "flops_per_second": 0.0})


def spoil_kind(stored: str) -> str:
    return "[1, 2]"


@pytest.mark.parametrize("spoil", [spoil_text, spoil_values, spoil_kind])
def test_a_spoilt_measurement_is_replaced(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    cache = tmp_path / "ceilings.json"
    measure_ceilings(llama(), CPU, seconds=0.1, cache=cache)
    cache.write_text(spoil(cache.read_text()))
    again = measure_ceilings(llama(), CPU, seconds=0.1, cache=cache)
    stored = json.loads(cache.read_text())
    del stored["key"]
    assert Ceilings(**stored) == again


def test_a_place_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    measured = measure_ceilings(llama(), CPU, seconds=0.1, cache=blocker / "ceilings.json")
    assert measured.flops_per_second > 0


def test_a_device_without_the_weights_is_refused() -> None:
    with pytest.raises(ValueError, match="no linear layers on meta"):
        measure_ceilings(llama(), torch.device("meta"))
