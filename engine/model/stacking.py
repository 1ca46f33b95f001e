"""Fused layers of a whole model, computed with a single call.

Between layers nothing is left for Python to do, so threads need not be put to sleep and woken for
each operation, and the interpreter is free for others meanwhile. Knows how layers are laid out, not
which models have them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.model.fusing import TOLERANCE, FusedLayer
from engine.model.paging import StepContext

log = logging.getLogger(__name__)


class FusedStack(nn.Module):
    """All of a model's layers as a single call.

    Prompts go layer by layer where the kernels have no tiles for them: torch's own products are
    faster for many tokens. Takes the layers' weights as they are now. Raises ValueError where the
    kernels cannot take them, or where layers differ in more than those and their windows.
    """

    def __init__(self, layers: list[FusedLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        first = layers[0]
        self._call = first.call
        self._calls = [layer.call for layer in layers]
        self._eps = _eps_of(first)
        alike = {(_eps_of(layer), layer.call._replace(layer=0, window=None)) for layer in layers}
        if len(alike) > 1:
            raise ValueError("the layers differ in more than their weights")
        if first.call.softcap is not None:
            raise ValueError("scores are capped")
        self._windows = [layer.call.window or 0 for layer in layers]
        self._parts = [part for layer in layers for part in _parts_of(layer)]

    def forward(
        self,
        hidden_states: Tensor,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        kv_step: StepContext,
        **keywords: Any,
    ) -> Tensor:
        """`[1, num_tokens, hidden_size]` -> the same shape, as the layers it replaces."""
        everyone, call = kv_step.everyone, self._call
        if everyone is None or (kv_step.rows and not self._fills_tiles(everyone.block_size)):
            for layer in self.layers:
                hidden_states = layer(
                    hidden_states,
                    position_embeddings=position_embeddings,
                    kv_step=kv_step,
                    **keywords,
                )
            return hidden_states
        like = hidden_states.new_empty(call.head_dim)
        pool = [
            tensor
            for one in self._calls
            for tensor in kv_step.cache.layer(one.layer, like, one.num_kv_heads)
        ]
        total = hidden_states.clone()
        torch.ops.phasescope.run_layers(
            total,
            *position_embeddings,
            kv_step.places,
            everyone.rows,
            everyone.counts,
            everyone.lengths,
            everyone.starts,
            everyone.blocks,
            everyone.block_size,
            self._parts,
            pool,
            self._windows,
            self._eps,
            call.scale,
        )
        return total

    def _fills_tiles(self, block_size: int) -> bool:
        """Whether prompts are computed on the processor's tiles."""
        in_halves = self._parts[0].dtype == torch.bfloat16
        ops = torch.ops.phasescope
        return in_halves and bool(ops.fills_tiles(self._call.head_dim, block_size))


def _eps_of(layer: FusedLayer) -> tuple[float, float, float]:
    before, after = layer.input_norm, layer.output_norm
    return before.variance_epsilon, after.variance_epsilon, layer.head_eps


def _parts_of(layer: FusedLayer) -> list[Tensor]:
    """A layer's tensors in the order in which `run_layers` takes them."""
    norms = [layer.input_norm, layer.output_norm, layer.query_norm, layer.key_norm]
    none = layer.input_norm.weight.new_empty(0)
    parts = [norm.weight.detach() if norm is not None else none.detach() for norm in norms]
    for projection in layer.projections:
        panels = projection.panels
        if panels is None:
            raise ValueError("the weights do not fill our kernels' panels")
        parts += [panels, projection.bias]
    return parts


def stack_layers(model: PreTrainedModel, step: Callable[[], Tensor]) -> bool:
    """Put a model's layers into one `FusedStack` where all are fused; whether they were.

    step: computes a prefill and a decoding step with kernels, and returns the logits, which must
    stay the same within rounding.
    """
    for parent in model.modules():
        for name, child in parent.named_children():
            layers = list(child) if isinstance(child, nn.ModuleList) else []
            fused = [layer for layer in layers if isinstance(layer, FusedLayer)]
            if fused and len(fused) == len(layers):
                return _stack(parent, name, fused, step)
    return False


def _stack(
    parent: nn.Module, name: str, layers: list[FusedLayer], step: Callable[[], Tensor]
) -> bool:
    expected = step()
    try:
        setattr(parent, name, nn.ModuleList([FusedStack(layers)]))
        logits = step()
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        log.info("Steps go layer by layer: %s", error)
    else:
        tolerance = TOLERANCE[layers[0].input_norm.weight.dtype]
        if torch.allclose(logits, expected, rtol=tolerance, atol=tolerance * expected.std().item()):
            return True
        log.info("Steps go layer by layer: all at once gives other logits")
    setattr(parent, name, nn.ModuleList(layers))
    return False
