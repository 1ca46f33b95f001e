"""Fused layers take the place of the layers they equal, and of no others."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.model.fusing import FusedLayer, fuse_layers
from engine.model.packing import PackedLinear
from engine.model.probe import probe_decoding
from engine.model.tuning import tune
from tests.model.test_parity import FAMILIES

pytestmark = pytest.mark.usefixtures("built_kernels")


def make(family: str, dtype: torch.dtype = torch.float32, **changes: object) -> PreTrainedModel:
    torch.manual_seed(1)
    config = FAMILIES[family]()
    config.update({"initializer_range": 0.1} | changes)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.eval()


def fuse(model: PreTrainedModel) -> int:
    return fuse_layers(model, lambda: probe_decoding(model, kernels=True)[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral, sliding window"])
def test_layers_of_the_common_shape_are_replaced(family: str, dtype: torch.dtype) -> None:
    model = make(family, dtype)
    expected, _ = probe_decoding(model, kernels=False)
    assert fuse(model) == 3
    logits, _ = probe_decoding(model, kernels=True)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    assert torch.allclose(logits, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", ["gpt2", "gemma3, mixed layers"])
def test_layers_of_another_shape_are_left_alone(family: str) -> None:
    model = make(family)
    assert fuse(model) == 0
    assert not any(isinstance(module, FusedLayer) for module in model.modules())


def test_a_layer_that_computes_otherwise_than_it_looks_is_left_alone() -> None:
    model = make("llama")
    odd = model.model.layers[1]
    odd.mlp.act_fn = nn.ReLU()  # a gated feed-forward of the common shape, but not SiLU's
    assert fuse(model) == 2
    assert model.model.layers[1] is odd


def test_a_layer_that_asks_for_positions_itself_is_left_alone() -> None:
    """As models do that scale queries beyond some length: near positions would not show it."""

    class Scaled(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.self_attn, self.mlp = layer.self_attn, layer.mlp
            self.input_layernorm = layer.input_layernorm
            self.post_attention_layernorm = layer.post_attention_layernorm
            self._layer = [layer]  # in a list, so that it is no part of this one

        def forward(self, hidden_states: torch.Tensor, **keywords: object) -> torch.Tensor:
            output: torch.Tensor = self._layer[0](hidden_states, **keywords)
            return output + (keywords["position_ids"] > 16_384)[..., None]

    model = make("llama")
    model.model.layers[1] = Scaled(model.model.layers[1])
    assert fuse(model) == 2
    assert isinstance(model.model.layers[1], Scaled)


def test_what_a_layer_adds_is_compared_and_not_what_it_was_given() -> None:
    model = make("llama", torch.bfloat16)
    odd = model.model.layers[0]
    odd.mlp.act_fn = nn.ReLU()
    with torch.no_grad():  # activations as large as trained models have, beside a small layer
        model.model.embed_tokens.weight[:, 0] += 3_000.0
    fuse(model)
    assert model.model.layers[0] is odd


def test_tuning_packs_what_it_does_not_fuse() -> None:
    model = make("llama", torch.bfloat16)
    assert tune(model)
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    expected = 3 * 4 + 1 if torch.backends.mkldnn.is_available() else 0
    assert len(packed) == expected


def test_tuning_without_kernels_still_packs() -> None:
    model = make("llama", torch.bfloat16)
    assert not tune(model, kernels=False)
    assert not any(isinstance(module, FusedLayer) for module in model.modules())
