"""Packed linear layers give the logits of the plain ones, or are not packed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.model import packing
from engine.model.packing import PackedLinear, pack_linear_layers
from engine.model.probe import probe, probe_logits
from tests.model.test_parity import FAMILIES

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN"
)


def make(family: str, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    torch.manual_seed(1)
    config = FAMILIES[family]()
    config.initializer_range = 0.1
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.eval()


@needs_onednn
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral, sliding window"])
def test_logits_stay_and_requests_stay_apart(family: str) -> None:
    model = make(family)
    expected = probe_logits(model)
    # Seven matrices a layer, and the head.
    assert pack_linear_layers(model, lambda: probe_logits(model)) == 3 * 7 + 1
    assert torch.allclose(probe_logits(model), expected, rtol=0.02, atol=0.02)
    probe(model)
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    # Query, key and value are one product, gate and up another; output, down and head stand alone.
    assert len(packed) == 3 * 4 + 1


@needs_onednn
def test_what_is_not_a_plain_linear_layer_is_left_as_it_is() -> None:
    model = make("gpt2")
    before = [type(module) for module in model.modules()]
    assert pack_linear_layers(model, lambda: probe_logits(model)) == 1  # the head
    after = [type(module) for module in model.modules()]
    assert [kind for kind in after if kind is not PackedLinear] == [
        kind for kind in before if kind is not nn.Linear
    ]


def test_the_reference_precision_is_never_touched() -> None:
    model = make("llama", torch.float32)
    assert pack_linear_layers(model, lambda: probe_logits(model)) == 0


@needs_onednn
def test_layers_are_put_back_when_the_logits_change(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("llama")
    expected = probe_logits(model)
    monkeypatch.setattr(
        PackedLinear,
        "forward",
        lambda self, x: nn.functional.pad(x[..., :1], (0, self.out_features - 1)),
    )
    assert pack_linear_layers(model, lambda: probe_logits(model)) == 0
    assert torch.equal(probe_logits(model), expected)


@needs_onednn
def test_layers_are_put_back_when_an_operation_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("llama")

    def broken(self: object, layers: object) -> None:
        raise RuntimeError("no such operation")

    monkeypatch.setattr(PackedLinear, "__init__", broken)
    assert pack_linear_layers(model, lambda: probe_logits(model)) == 0
    probe(model)
    monkeypatch.undo()
    monkeypatch.setattr(packing, "_packable", lambda weight: False)
    assert pack_linear_layers(model, lambda: probe_logits(model)) == 0


@needs_onednn
def test_biases_are_packed_too() -> None:
    first, second = (nn.Linear(16, 24, dtype=torch.bfloat16) for _ in range(2))
    packed = PackedLinear([first, second])
    value = torch.randn(3, 16, dtype=torch.bfloat16)
    expected: Tensor = torch.cat([first(value), second(value)], dim=-1)
    with torch.inference_mode():
        assert torch.allclose(packed(value), expected, rtol=0.02, atol=0.02)
