"""The paged KV pool as tensors, and what a step tells the attention of every layer about it.

Knows places and shapes, not how attention is computed or how a step was planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


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


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Requests of a flat batch, as int64 tensors for one kernel call.

    Request i adds `counts[i]` tokens: the batch's rows from `rows[i]` on, and the last of its
    `lengths[i]` positions. blocks: their block tables one after another, from `starts[i]` on.
    """

    rows: Tensor
    counts: Tensor
    lengths: Tensor
    starts: Tensor
    blocks: Tensor
    block_size: int


class AttentionCall(NamedTuple):
    """What a layer asked of the attention function; window and softcap are None where unused."""

    layer: int
    scale: float
    window: int | None
    softcap: float | None
    num_kv_heads: int
    head_dim: int


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

    def layer(self, layer: int, like: Tensor, num_kv_heads: int) -> tuple[Tensor, Tensor]:
        """A layer's keys and values, made as `[num_places, num_kv_heads, head_dim]` at first use.

        like: a tensor whose last dimension is `head_dim`, for the pool's type and device.
        """
        if layer not in self._layers:
            shape = (self.num_places, num_kv_heads, like.shape[-1])
            self._layers[layer] = (like.new_empty(shape), like.new_empty(shape))
        return self._layers[layer]

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


class WholeStep(Protocol):
    """A way to compute a layer's attention for all requests of a step in one call."""

    def serves(self, call: AttentionCall) -> bool:
        """Whether it does what this layer asks for."""
        ...

    def attend(self, cache: KVCache, call: AttentionCall, query: Tensor) -> Tensor:
        """`[num_tokens, num_heads, head_dim]` -> the same; the new keys are in the pool already."""
        ...


@dataclass(slots=True)
class StepContext:
    """What one forward pass tells the attention function of every layer.

    places `[num_tokens]`: where in the pool each token goes. In a layer that `whole` serves every
    token belongs to it, else either to one of `rows` or to `decode`, requests that add one token
    each. everyone: all requests, for layers that are computed in one call.
    """

    cache: KVCache
    places: Tensor
    rows: tuple[SequenceRow, ...]
    decode: PagedRows | None = None
    everyone: PagedRows | None = None
    whole: WholeStep | None = None
    calls: list[AttentionCall] = field(default_factory=list)
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
