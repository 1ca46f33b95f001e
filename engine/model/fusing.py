"""Decoder layers of the common shape, computed with few operations instead of many.

Most decoder-only models share one layer: two RMS norms, rotary attention, a gated feed-forward
with SiLU. Such layers are recognised by their parts, not by the model's name, and each replacement
is compared with the layer it replaces, in a prefill and a decoding step, before it stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.model.attention import attend
from engine.model.packing import PackedLinear, combine, has_panels, panels_of
from engine.model.paging import AttentionCall, StepContext

log = logging.getLogger(__name__)

_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_NORMS = {"q_norm", "k_norm"}
_FEED_FORWARD = {"gate_proj", "up_proj", "down_proj", "act_fn"}
# Of the spread of what a layer adds. Both round alike, so what differs is the order of sums.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}
# Some models scale queries by position beyond some length; rotary positions come as an argument.
_FAR = 100_000


class Projection(nn.Module):
    """Linear layers over one input as one product, and what a layer does with it.

    panels and bias: its weights as our kernels take them, None where they cannot.
    """

    def __init__(self, layers: list[nn.Linear]) -> None:
        super().__init__()
        self.linear = combine(layers)
        self._packed = isinstance(self.linear, PackedLinear) and self.linear.in_panels

    @property
    def panels(self) -> Tensor | None:
        """The weights, `[outputs / 16, ...]`; see `panels_of`."""
        weight: Any = self.linear.weight
        if self._packed:
            packed: Tensor = weight
            return packed
        plain = type(self.linear) is nn.Linear and has_panels(weight)
        return panels_of(weight.detach()) if plain else None

    @property
    def bias(self) -> Tensor:
        """`[outputs]`, or no numbers."""
        weight: Any = self.linear.weight
        bias: Any = self.linear.bias
        found: Tensor = bias.detach() if bias is not None else weight.new_empty(0)
        return found

    def forward(self, x: Tensor) -> Tensor:
        """`[..., inputs]` -> `[..., outputs]`."""
        output: Tensor = self.linear(x)
        return output

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """Add the product of x `[..., inputs]` to `total` `[..., outputs]`."""
        if self._packed:
            torch.ops.phasescope.project_add(x, self.linear.weight, self.linear.bias, total)
        else:
            total += self.linear(x)

    def gated(self, x: Tensor) -> Tensor:
        """silu(first half of the product) * second half: `[..., outputs / 2]`."""
        output: Tensor
        if self._packed:
            output = torch.ops.phasescope.project_gated(x, self.linear.weight, self.linear.bias)
        else:
            output = torch.ops.phasescope.silu_mul(self.linear(x))
        return output


class FusedLayer(nn.Module):
    """A decoder layer over our KV pool with its element-wise work in compiled kernels.

    layer: the transformers layer whose weights it takes; call: how that layer calls attention.
    """

    def __init__(self, layer: nn.Module, call: AttentionCall) -> None:
        super().__init__()
        attention: Any = layer.self_attn
        feed_forward: Any = layer.mlp
        self.call = call
        self.input_norm: Any = layer.input_layernorm
        self.output_norm: Any = layer.post_attention_layernorm
        self.query_norm: Any = getattr(attention, "q_norm", None)
        self.key_norm: Any = getattr(attention, "k_norm", None)
        self.qkv = Projection([attention.q_proj, attention.k_proj, attention.v_proj])
        self.attention_output = Projection([attention.o_proj])
        self.gate_up = Projection([feed_forward.gate_proj, feed_forward.up_proj])
        self.down = Projection([feed_forward.down_proj])
        _lay_side_by_side([projection.linear for projection in self.projections])

    @property
    def projections(self) -> tuple[Projection, Projection, Projection, Projection]:
        """In the order in which a step takes them."""
        return self.qkv, self.attention_output, self.gate_up, self.down

    @property
    def head_eps(self) -> float:
        """What the norms of queries and keys add to a variance; 0 without such norms."""
        return 0.0 if self.query_norm is None else float(self.query_norm.variance_epsilon)

    def forward(
        self,
        hidden_states: Tensor,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        kv_step: StepContext,
        **_: Any,
    ) -> Tensor:
        """`[1, num_tokens, hidden_size]` -> the same shape, as the layer it replaces."""
        ops, call = torch.ops.phasescope, self.call
        before, after = self.input_norm, self.output_norm
        qkv = self.qkv(ops.rms_norm(hidden_states, before.weight, before.variance_epsilon))
        keys, values = kv_step.cache.layer(
            call.layer, qkv.new_empty(call.head_dim), call.num_kv_heads
        )
        weights = (None, None)
        if self.query_norm is not None:
            weights = (self.query_norm.weight, self.key_norm.weight)
        query = ops.rotate_and_store(
            qkv, *position_embeddings, kv_step.places, keys, values, *weights, self.head_eps
        )
        mixed = torch.empty_like(query)
        attend(kv_step, call, query, mixed)
        total = hidden_states.clone()
        self.attention_output.add_to(total, mixed.view(1, mixed.shape[0], -1))
        normed = ops.rms_norm(total, after.weight, after.variance_epsilon)
        self.down.add_to(total, self.gate_up.gated(normed))
        return total


def _lay_side_by_side(matrices: list[nn.Module]) -> None:
    """Move a layer's packed weights next to each other: large pages serve only large buffers."""
    packed = [m for m in matrices if isinstance(m, PackedLinear) and m.in_panels]
    if not packed:
        return
    sizes = [matrix.weight.numel() for matrix in packed]
    pieces = torch.split(torch.cat([matrix.weight.flatten() for matrix in packed]), sizes)
    for matrix, piece in zip(packed, pieces, strict=True):
        matrix.register_buffer("weight", piece.view(matrix.weight.shape))


class _Seen(NamedTuple):
    """One call of a layer."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Any


def fuse_layers(model: PreTrainedModel, step: Callable[[], list[AttentionCall]]) -> int:
    """Replace the layers of the common shape; returns how many were replaced.

    step: computes a prefill and a decoding step on the model, in one pool and with kernels, and
    returns what its layers asked of attention. The kernels must have been loaded.
    """
    weight = next(model.parameters())
    fusable = weight.device.type == "cpu" and weight.dtype in TOLERANCE
    if not fusable or hasattr(model, "hf_device_map"):
        return 0
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if _has_the_shape(child)
    ]
    seen: dict[nn.Module, list[_Seen]] = {layer: [] for _, _, layer in found}
    handles = [
        layer.register_forward_hook(
            lambda module, inputs, keywords, output: seen[module].append(
                _Seen(inputs, keywords, output)
            ),
            with_kwargs=True,
        )
        for layer in seen
    ]
    try:
        calls = {call.layer: call for call in step()}
    finally:
        for handle in handles:
            handle.remove()
    num_found, replaced = len(found), 0
    tolerance = TOLERANCE[weight.dtype]
    while found:
        # Taken off the list, so that a layer's weights go as soon as their copy is in its place.
        parent, name, layer = found.pop()
        call = calls.get(getattr(layer.self_attn, "layer_idx", -1))
        observed = seen.pop(layer)
        if call is None or not observed:
            continue
        fused = FusedLayer(layer, call).eval()
        if all(_agrees(layer, fused, one, tolerance) for one in observed):
            setattr(parent, name, fused)
            replaced += 1
    if replaced < num_found:
        log.info(
            "%d of %d layers compute otherwise than they look", num_found - replaced, num_found
        )
    return replaced


def _agrees(layer: nn.Module, fused: FusedLayer, seen: _Seen, tolerance: float) -> bool:
    """Whether the fused layer adds what the layer does, which must not ask for positions itself.

    What a layer adds is compared, not its output: that is mostly what came in.
    """
    arguments, keywords, expected = seen
    if not isinstance(expected, Tensor) or len(arguments) != 1:
        return False
    far = dict(keywords)
    if isinstance(keywords.get("position_ids"), Tensor):
        far["position_ids"] = keywords["position_ids"] + _FAR
    try:
        with torch.inference_mode():
            output = fused(*arguments, **keywords)
            elsewhere = layer(*arguments, **far)
    except (RuntimeError, TypeError) as error:
        log.info("A layer is left as it is: %s", error)
        return False
    added = (expected - arguments[0]).float()
    limit = tolerance * (added.abs() + added.std())
    limit += 2 * torch.finfo(expected.dtype).eps * expected.float().abs()
    near = ((output - expected).float().abs() <= limit).all()
    return bool(near) and torch.equal(elsewhere, expected)


def _has_the_shape(layer: nn.Module) -> bool:
    if {name for name, _ in layer.named_children()} != _LAYER:
        return False
    attention: Any = layer.self_attn
    feed_forward: Any = layer.mlp
    parts = {name for name, _ in attention.named_children()}
    linear = [getattr(attention, name, None) for name in sorted(_ATTENTION)]
    linear += [getattr(feed_forward, name, None) for name in sorted(_FEED_FORWARD - {"act_fn"})]
    norms: list[Any] = [layer.input_layernorm, layer.post_attention_layernorm]
    norms += [getattr(attention, name) for name in sorted(_NORMS) if hasattr(attention, name)]
    return (
        parts in (_ATTENTION, _ATTENTION | _NORMS)
        and {name for name, _ in feed_forward.named_children()} == _FEED_FORWARD
        and all(type(one) is nn.Linear for one in linear)
        and _share_bias(attention.q_proj, attention.k_proj, attention.v_proj)
        and _share_bias(feed_forward.gate_proj, feed_forward.up_proj)
        and all(hasattr(norm, "weight") and hasattr(norm, "variance_epsilon") for norm in norms)
    )


def _share_bias(*layers: Any) -> bool:
    return len({layer.bias is None for layer in layers}) == 1
