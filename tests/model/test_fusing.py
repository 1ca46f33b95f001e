"""Fused layers take the place of the layers they equal, and of no others."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.model.fusing import FusedLayer, FusedStack, fuse_layers, stack_layers
from engine.model.kernels import has_tiles, load_kernels
from engine.model.packing import PackedLinear
from engine.model.paging import KVCache, PagedRows, SequenceRow, StepContext, spans_of
from engine.model.probe import probe_decoding
from engine.model.tuning import tune
from tests.model.test_parity import FAMILIES


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    if not load_kernels():
        pytest.skip("no compiler is here to build the kernels with")


def make(family: str, dtype: torch.dtype = torch.float32, **changes: object) -> PreTrainedModel:
    torch.manual_seed(1)
    config = FAMILIES[family]()
    config.update({"initializer_range": 0.1} | changes)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return model.eval()


def fuse(model: PreTrainedModel) -> int:
    return fuse_layers(model, lambda: probe_decoding(model, kernels=True)[1])


def _through(
    part: nn.Module,
    mix: list[tuple[int, int, int]],
    cache: KVCache,
    head_dim: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """A step through a stack or a list of layers: (request, first position, tokens) each.

    Requests have eight blocks each, not neighbours. What was never written is not a number.
    """
    generator = torch.Generator().manual_seed(sum(start for _, start, _ in mix))
    hidden = torch.randn(1, sum(count for *_, count in mix), 64, generator=generator).to(dtype)
    table = torch.randperm(32, generator=torch.Generator().manual_seed(0)).view(4, 8)
    for layer in range(3):
        for pool in cache.layer(layer, hidden.new_empty(head_dim), 2):
            if mix[0][1] == 0:
                pool.fill_(math.nan)
    positions = torch.cat([torch.arange(start, start + count) for _, start, count in mix])
    places = torch.cat(
        [
            table[request, p // 16] * 16 + p % 16
            for request, start, count in mix
            for p in [torch.arange(start, start + count)]
        ]
    )
    angles = positions[:, None] * torch.logspace(0, -3, head_dim // 2)
    rotation = [torch.cat([f(angles)] * 2, dim=-1)[None].to(dtype) for f in (torch.cos, torch.sin)]
    firsts = [sum(count for *_, count in mix[:i]) for i in range(len(mix))]
    rows, singles = [], []
    for first, (request, start, count) in zip(firsts, mix, strict=True):
        if count > 1:
            spans = spans_of(table[request].tolist(), start + count, 16)
            rows.append(SequenceRow(first, start, count, spans))
        else:
            singles.append((first, request, start, count))
    everyone = [(first, *chunk) for first, chunk in zip(firsts, mix, strict=True)]
    step = StepContext(cache, places, tuple(rows))
    step.everyone = _paged(everyone, table)
    step.decode = _paged(singles, table) if singles else None
    with torch.inference_mode():
        for layer in [part] if isinstance(part, FusedStack) else part:
            hidden = layer(hidden, position_embeddings=tuple(rotation), kv_step=step)
    return hidden[0].float()


def _paged(chunks: list[tuple[int, int, int, int]], table: torch.Tensor) -> PagedRows:
    firsts, requests, starts, counts = (
        torch.tensor(column) for column in zip(*chunks, strict=True)
    )
    blocks = table[requests].flatten()
    at = torch.arange(len(chunks)) * 8
    return PagedRows(firsts, counts, starts + counts, at, blocks, 16)


def stack(model: PreTrainedModel) -> bool:
    return stack_layers(model, lambda: probe_decoding(model, kernels=True)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral, sliding window"])
def test_layers_of_the_common_shape_are_replaced(family: str, dtype: torch.dtype) -> None:
    model = make(family, dtype)
    expected, _ = probe_decoding(model, kernels=False)
    assert fuse(model) == 3
    logits, _ = probe_decoding(model, kernels=True)
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    assert torch.allclose(logits, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral, sliding window"])
def test_a_model_of_fused_layers_is_one_call(family: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not has_tiles():
        pytest.skip("this processor has no tiles for bfloat16")
    model = make(family, dtype)
    assert fuse(model) == 3
    expected, _ = probe_decoding(model, kernels=True)
    assert stack(model)
    (only,) = model.model.layers
    assert isinstance(only, FusedStack)
    calls = []
    for layer in only.layers:
        layer.register_forward_hook(lambda *_: calls.append(1))
    logits, _ = probe_decoding(model, kernels=True)
    assert len(calls) == (3 if dtype == torch.float32 else 0), "float32 prompts go layer by layer"
    # In half precision a number may round the other way after another order of sums.
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    assert torch.allclose(logits, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [8, 32, 64, 96, 128])
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral, sliding window"])
def test_a_stack_computes_every_mix_as_its_layers_do(
    family: str, head_dim: int, dtype: torch.dtype
) -> None:
    """Prompts from their start and from the middle, in and out of whole tiles; single tokens."""
    if dtype == torch.bfloat16 and not has_tiles():
        pytest.skip("this processor has no tiles for bfloat16")
    model = make(family, dtype, head_dim=head_dim)
    assert fuse(model) == 3
    fused = list(model.model.layers)
    assert stack(model)
    (stacked,) = model.model.layers
    one_by_one = nn.ModuleList(fused)
    mixes = [
        [(0, 0, 40), (1, 0, 1), (2, 0, 16), (3, 0, 70)],
        [(0, 40, 1), (1, 1, 33), (2, 16, 17)],
        [(3, 70, 1), (0, 41, 1)],
        [(2, 33, 64), (3, 71, 31)],
    ]
    outputs = []
    for part in (stacked, one_by_one):
        cache = KVCache(num_places=32 * 16)
        outputs.append([_through(part, mix, cache, head_dim, dtype) for mix in mixes])
    # In half precision sums in another order round another way, and later layers carry it on.
    tolerance = 1e-4 if dtype == torch.float32 else 0.06
    for ours, theirs in zip(*outputs, strict=True):
        assert torch.isfinite(ours).all()
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


def test_weights_that_fill_no_panels_go_layer_by_layer() -> None:
    model = make("llama", hidden_size=48, num_attention_heads=6)
    assert fuse(model) == 3
    expected, _ = probe_decoding(model, kernels=True)
    assert not stack(model)
    assert torch.equal(probe_decoding(model, kernels=True)[0], expected)


def test_layers_that_differ_go_one_by_one() -> None:
    model = make("llama")
    model.model.layers[1].input_layernorm.variance_epsilon = 0.1
    assert fuse(model) == 3
    assert not stack(model)
    assert len(model.model.layers) == 3


def test_a_stack_with_other_logits_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("llama")
    assert fuse(model) == 3
    monkeypatch.setattr(FusedStack, "forward", lambda self, hidden_states, **_: hidden_states)
    assert not stack(model)
    assert len(model.model.layers) == 3


def test_a_model_with_a_layer_of_its_own_is_not_stacked() -> None:
    model = make("llama")
    model.model.layers[1].mlp.act_fn = nn.ReLU()
    assert fuse(model) == 2
    assert not stack(model)


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
