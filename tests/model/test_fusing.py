"""Fused layers take the place of the layers they equal, and of no others."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.model.fusing import FusedLayer, fuse_layers
from engine.model.kernels import load_kernels
from engine.model.packing import PackedLinear
from engine.model.probe import probe_decoding
from engine.model.tuning import tune
from tests.model.test_parity import FAMILIES


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    if not load_kernels():
        pytest.skip("no compiler is here to build the kernels with")


def make(family: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    torch.manual_seed(1)
    config = FAMILIES[family]()
    config.initializer_range = 0.1
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
