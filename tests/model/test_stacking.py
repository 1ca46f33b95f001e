"""A model's fused layers as one call give what they give one by one, in every mix of requests."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from engine.model.kernels import has_tiles
from engine.model.paging import KVCache, PagedRows, SequenceRow, StepContext, spans_of
from engine.model.probe import probe_decoding
from engine.model.stacking import FusedStack, stack_layers
from tests.model.test_fusing import fuse, make

Mix = list[tuple[int, int, int]]
"""A step: each request's number, first position and count of tokens."""

MIXES: list[Mix] = [
    [(0, 0, 40), (1, 0, 1), (2, 0, 16), (3, 0, 70)],
    [(0, 40, 1), (1, 1, 33), (2, 16, 17)],
    [(3, 70, 1), (0, 41, 1)],
    [(2, 33, 64), (3, 71, 31)],
]


pytestmark = pytest.mark.usefixtures("built_kernels")


def stack(model: PreTrainedModel) -> bool:
    return stack_layers(model, lambda: probe_decoding(model, kernels=True)[0])


def both(family: str, dtype: torch.dtype, **changes: object) -> tuple[FusedStack, nn.ModuleList]:
    """A model's layers as one call, and the same layers one by one."""
    if family == "llama, biases":
        changes |= {"attention_bias": True, "mlp_bias": True}
    model = make(family.removesuffix(", biases"), dtype, **changes)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            with torch.no_grad():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    num_layers = len(model.model.layers)
    assert fuse(model) == num_layers
    one_by_one = nn.ModuleList(list(model.model.layers))
    assert stack(model)
    (stacked,) = model.model.layers
    return stacked, one_by_one


def pool() -> KVCache:
    return KVCache(num_places=64 * 16)


def _through(
    part: nn.Module,
    mix: Mix,
    cache: KVCache,
    head_dim: int,
    dtype: torch.dtype,
    shared: int = 0,
) -> torch.Tensor:
    """A step through a stack or a list of layers: (request, first position, tokens) each.

    Requests have sixteen blocks each, not neighbours. What was never written is not a number.
    shared: blocks that request 1 has from request 0.
    """
    generator = torch.Generator().manual_seed(sum(start for _, start, _ in mix))
    hidden = torch.randn(1, sum(count for *_, count in mix), 64, generator=generator).to(dtype)
    table = torch.randperm(64, generator=torch.Generator().manual_seed(0)).view(4, 16)
    for layer in range(3):
        fresh = layer not in cache.layers
        for pool in cache.layer(layer, hidden.new_empty(head_dim), 2):
            if fresh:
                pool.fill_(math.nan)
    table[1, :shared] = table[0, :shared]
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
    at = torch.arange(len(chunks)) * 16
    return PagedRows(firsts, counts, starts + counts, at, blocks, 16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral, sliding window"])
def test_a_model_of_fused_layers_is_one_call(family: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not has_tiles():
        pytest.skip("this processor has no tiles for bfloat16")
    model = make(family, dtype, head_dim=32)
    assert fuse(model) == 3
    expected, _ = probe_decoding(model, kernels=True)
    assert stack(model)
    (only,) = model.model.layers
    assert isinstance(only, FusedStack)
    calls = []
    for layer in only.layers:
        layer.register_forward_hook(lambda *_: calls.append(1))
    logits, _ = probe_decoding(model, kernels=True)
    assert len(calls) == (3 if dtype == torch.float32 else 0), (
        "prompts go layer by layer without tiles"
    )
    # In half precision a number may round the other way after another order of sums.
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    assert torch.allclose(logits, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [8, 32, 64, 96, 128])
@pytest.mark.parametrize("family", ["llama", "llama, biases", "qwen3", "mistral, sliding window"])
def test_a_stack_computes_every_mix_as_its_layers_do(
    family: str, head_dim: int, dtype: torch.dtype
) -> None:
    """Prompts from their start and from the middle, in and out of whole tiles; single tokens."""
    if dtype == torch.bfloat16 and not has_tiles():
        pytest.skip("this processor has no tiles for bfloat16")
    stacked, one_by_one = both(family, dtype, head_dim=head_dim)
    ours, theirs = (
        [_through(part, mix, cache, head_dim, dtype) for mix in MIXES]
        for part, cache in ((stacked, pool()), (one_by_one, pool()))
    )
    # In half precision sums in another order round another way, and later layers carry it on.
    tolerance = 1e-4 if dtype == torch.float32 else 0.06
    for our, their in zip(ours, theirs, strict=True):
        assert torch.isfinite(our).all()
        assert (our - their).abs().max() <= tolerance * their.abs().max()


@pytest.mark.parametrize("window", [None, 1, 16, 31, 32, 33, 200])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (2, 2), (14, 2)])
def test_a_prompts_attention_on_tiles(window: int | None, heads: int, kv_heads: int) -> None:
    """One layer, so that a key too many or too few cannot hide in the rounding of others."""
    if not has_tiles():
        pytest.skip("this processor has no tiles for bfloat16")
    family = "llama" if window is None else "mistral, sliding window"
    changes = {} if window is None else {"sliding_window": window}
    stacked, one_by_one = both(
        family,
        torch.bfloat16,
        head_dim=32,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        **changes,
    )
    ours, theirs = pool(), pool()
    for mix in (
        [(0, 0, 250), (1, 0, 2), (2, 0, 17)],
        [(2, 17, 33), (0, 250, 5), (1, 2, 30)],
    ):
        our = _through(stacked, mix, ours, 32, torch.bfloat16)
        their = _through(one_by_one, mix, theirs, 32, torch.bfloat16)
        assert (our - their).abs().max() <= 0.02 * their.abs().max()
        rows = (our - their).norm(dim=-1) / their.norm(dim=-1)
        assert rows.max() <= 0.01


def test_requests_that_share_blocks_of_a_prefix() -> None:
    """As with a cached prefix: two tables name the same blocks, and each request adds its own."""
    stacked, one_by_one = both("llama", torch.float32)
    outputs = []
    for part in (stacked, one_by_one):
        cache = pool()
        _through(part, [(0, 0, 32)], cache, 8, torch.float32)
        outputs.append(_through(part, [(0, 32, 1), (1, 32, 1)], cache, 8, torch.float32, shared=2))
    assert torch.allclose(*outputs, atol=1e-4)
    assert torch.isfinite(outputs[0]).all()


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


def test_what_does_not_fit_is_refused() -> None:
    """The kernel trusts nobody: a wrong table would have it read another's memory."""
    stacked, _ = both("llama", torch.float32)
    good = {"rows": [0, 1], "counts": [1, 1], "lengths": [3, 20], "starts": [0, 1]}
    good["blocks"] = [0, 1, 2]

    def step(hidden_size: int = 64, places: tuple[int, int] = (2, 35), **wrong: list[int]) -> None:
        numbers = {name: torch.tensor(value) for name, value in (good | wrong).items()}
        context = StepContext(KVCache(num_places=64), torch.tensor(places), ())
        context.everyone = PagedRows(**numbers, block_size=16)
        rotation = torch.ones(1, 2, 8)
        stacked(
            torch.ones(1, 2, hidden_size),
            position_embeddings=(rotation, rotation),
            kv_step=context,
        )

    with torch.inference_mode():
        step()
        for wrong, sentence in (
            ({"rows": [0, 0]}, "must follow each other"),
            ({"rows": [0], "counts": [1], "lengths": [3], "starts": [0]}, "must belong to"),
            ({"counts": [1, 2]}, "outside the batch"),
            ({"lengths": [0, 20]}, "not all given"),
            ({"lengths": [3, 40]}, "not all given"),
            ({"blocks": [0, 1, 4]}, "outside the pool"),
            ({"places": (2, 64)}, "outside the pool"),
            ({"hidden_size": 32}, "does not fit"),
        ):
            with pytest.raises(RuntimeError, match=sentence):
                step(**wrong)
