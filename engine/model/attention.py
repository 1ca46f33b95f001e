"""Attention over the paged KV pool, as one function that any transformers model can be given.

The model runs on a flat batch of tokens of several requests; this function writes their keys and
values into the pool and lets each request's queries see its own positions only. It must not know
how a step was planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.core.errors import ModelNotServable

# The name must not contain words by which transformers recognises its own kernels.
ATTENTION_NAME = "paged_kv"

# Keywords that models hand to every attention function and that change nothing here: either they
# describe training and outputs we do not ask for, or the model has applied them already.
_HARMLESS = frozenset(
    {"dropout", "position_ids", "use_cache", "output_attentions", "output_hidden_states"}
    | {"is_causal", "cache", "past_key_values", "cache_position", "return_dict"}
    | {"num_items_in_batch", "output_router_logits"}
)


@dataclass(frozen=True, slots=True)
class Span:
    """A run of neighbouring places in the pool: `[start, start + length)`."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class SequenceRow:
    """One request's share of a flat batch.

    Rows `[first, first + length)` of the batch are its positions `[start, start + length)`; `spans`
    are the places of positions `[0, start + length)`, in order.
    """

    first: int
    start: int
    length: int
    spans: tuple[Span, ...]


def spans_of(block_table: Sequence[int], num_positions: int, block_size: int) -> tuple[Span, ...]:
    """Places of the first `num_positions` positions, neighbouring blocks put together."""
    spans: list[Span] = []
    start = length = 0
    for block in block_table[: -(-num_positions // block_size)]:
        place = block * block_size
        if length and place == start + length:
            length += block_size
        else:
            if length:
                spans.append(Span(start, length))
            start, length = place, block_size
    spare = -num_positions % block_size
    spans.append(Span(start, length - spare))
    return tuple(spans)


class KVCache:
    """Keys and values of every layer, `[num_places, num_kv_heads, head_dim]` each.

    A layer's tensors are made when it first writes, with the shape and type that it writes.
    """

    def __init__(self, num_places: int) -> None:
        self.num_places = num_places
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def layers(self) -> tuple[int, ...]:
        """Indices of the layers that have written."""
        return tuple(self._layers)

    @property
    def bytes_per_token(self) -> int:
        """Bytes that one position takes over all layers that have written."""
        return sum(
            tensor[0].numel() * tensor.element_size()
            for pair in self._layers.values()
            for tensor in pair
        )

    def write(self, layer: int, places: Tensor, key: Tensor, value: Tensor) -> None:
        """Store `[num_tokens, num_kv_heads, head_dim]` keys and values at `places` [num_tokens]."""
        if layer not in self._layers:
            self._layers[layer] = (self._empty_like(key), self._empty_like(value))
        keys, values = self._layers[layer]
        keys.index_copy_(0, places, key)
        values.index_copy_(0, places, value)

    def read(self, layer: int, spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
        """Keys and values at `spans`; a view where there is one span, else a copy."""
        keys, values = self._layers[layer]
        if len(spans) == 1:
            where = slice(spans[0].start, spans[0].start + spans[0].length)
            return keys[where], values[where]
        slices = [slice(span.start, span.start + span.length) for span in spans]
        return torch.cat([keys[s] for s in slices]), torch.cat([values[s] for s in slices])

    def _empty_like(self, sample: Tensor) -> Tensor:
        # Only places that have been written are ever read, so nothing needs to be cleared.
        return sample.new_empty((self.num_places, *sample.shape[1:]))


@dataclass(slots=True)
class StepContext:
    """What one forward pass tells the attention function of every layer."""

    cache: KVCache
    places: Tensor
    rows: tuple[SequenceRow, ...]
    calls: list[int] = field(default_factory=list)
    _masks: dict[tuple[int, int, int], Tensor] = field(default_factory=dict)

    def mask(self, length: int, num_keys: int, offset: int, window: int | None) -> Tensor:
        """`[length, num_keys]`: query i, at position `offset + i` of the keys, sees which keys."""
        key = (length, num_keys, window or 0)
        if key not in self._masks:
            device = self.places.device
            query = torch.arange(offset, offset + length, device=device)[:, None]
            position = torch.arange(num_keys, device=device)[None, :]
            visible = position <= query
            if window is not None:
                visible &= position > query - window
            self._masks[key] = visible
        return self._masks[key]


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    kv_step: StepContext | None = None,
    **keywords: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer over a flat batch, called as `AttentionInterface` prescribes.

    query: `[1, num_heads, num_tokens, head_dim]`; key and value: the same with `num_kv_heads`.
    Returns `[1, num_tokens, num_heads, value_head_dim]` and no weights. Raises ModelNotServable for
    an attention feature that is not implemented here.
    """
    unknown = {
        name for name, value_ in keywords.items() if name not in _HARMLESS and value_ is not None
    }
    if unknown or kv_step is None or attention_mask is not None:
        what = ", ".join(sorted(unknown)) or "an attention mask of its own"
        raise ModelNotServable(f"The model's attention asks for {what}, which is not served here.")
    layer: int = module.layer_idx  # type: ignore[assignment]
    kv_step.calls.append(layer)
    kv_step.cache.write(layer, kv_step.places, key[0].transpose(0, 1), value[0].transpose(0, 1))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = query.new_empty((query.shape[2], query.shape[1], value.shape[-1]))
    for row in kv_step.rows:
        tokens = slice(row.first, row.first + row.length)
        spans, dropped = row.spans, 0
        if sliding_window is not None:
            spans, dropped = _skip(row.spans, row.start - sliding_window + 1)
        keys, values = kv_step.cache.read(layer, spans)
        output[tokens] = _attend(
            query[:, :, tokens],
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            context=kv_step,
            offset=row.start - dropped,
            scale=scale,
            window=sliding_window,
            softcap=softcap,
        )
    return output[None], None


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    context: StepContext,
    offset: int,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """One sequence: query `[1, num_heads, length, head_dim]` -> `[length, num_heads, head_dim]`."""
    length, num_keys = query.shape[2], keys.shape[2]
    if softcap is not None:
        visible = context.mask(length, num_keys, offset, window)
        return _attend_softcapped(query, keys, values, visible, scale, softcap)
    if length == 1:
        # Every key is visible. The heads that share a key are put where a longer query would be,
        # so that one pass over the keys serves them all.
        grouped = query.view(1, keys.shape[1], -1, query.shape[-1])
        result = F.scaled_dot_product_attention(grouped, keys, values, scale=scale)
        return result.reshape(1, query.shape[1], -1)
    whole = offset == 0 and length == num_keys and (window is None or window >= length)
    mask = None if whole else context.mask(length, num_keys, offset, window)
    result = F.scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, is_causal=whole, scale=scale, enable_gqa=True
    )
    return result[0].transpose(0, 1)


def _attend_softcapped(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float, softcap: float
) -> Tensor:
    """Attention whose scores pass through `softcap * tanh(score / softcap)` (Gemma 2)."""
    groups = query.shape[1] // keys.shape[1]
    scores = query @ keys.repeat_interleave(groups, dim=1).transpose(2, 3) * scale
    scores = (softcap * torch.tanh(scores / softcap)).masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return (weights @ values.repeat_interleave(groups, dim=1))[0].transpose(0, 1)


def _skip(spans: tuple[Span, ...], count: int) -> tuple[tuple[Span, ...], int]:
    """The spans without their first `count` places, and how many were dropped."""
    if count <= 0:
        return spans, 0
    kept: list[Span] = []
    left = count
    for span in spans:
        if left >= span.length:
            left -= span.length
            continue
        kept.append(Span(span.start + left, span.length - left))
        left = 0
    return tuple(kept), count


AttentionInterface.register(ATTENTION_NAME, paged_attention)
