"""Attention of a whole step in one call of torch's `varlen_attn`, over the paged pool.

Prompts and decoding requests go through the same call. Where its kernel takes block tables at our
block size it reads the pool in place, else keys and values are gathered first. What a device's
kernel computes right is `engine.model.varlen_probe`'s to find out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.model.paging import AttentionCall, KVCache
from engine.model.step_buffer import StepLayout, StepTensors

Kernel = Callable[..., Any]  # varlen_attn's own type depends on its arguments


@dataclass(frozen=True, slots=True)
class VarlenAttention:
    """`varlen_attn` as far as this device computes it right.

    kernel: the function itself; paged: it takes block tables; windows: it takes sliding windows;
    every_layer: the model has no layer that it does not serve.
    """

    kernel: Kernel
    paged: bool
    windows: bool
    every_layer: bool

    def serves(self, call: AttentionCall) -> bool:
        """Whether a layer that asks for this goes through the kernel: no soft-capping is there."""
        return call.softcap is None and (self.windows or call.window is None)


@dataclass(frozen=True, slots=True)
class VarlenBatch:
    """A step as the kernel wants it; all tensors are on the device.

    query_starts and key_starts `[num_sequences + 1]` int32: where each sequence begins among the
    queries and among its keys; lengths `[num_sequences]` int32: positions each sees; table
    `[num_sequences, width]` int32: its blocks, filled up with any; key_places `[num_keys]` int64:
    every key's place in the pool, None where the kernel takes block tables. max_query: the longest
    sequence's queries; max_key: no sequence has more keys.
    """

    attention: VarlenAttention
    query_starts: Tensor
    key_starts: Tensor
    lengths: Tensor
    table: Tensor
    key_places: Tensor | None
    max_query: int
    max_key: int
    block_size: int

    def serves(self, call: AttentionCall) -> bool:
        """As `VarlenAttention.serves`."""
        return self.attention.serves(call)

    def attend(self, cache: KVCache, call: AttentionCall, query: Tensor) -> Tensor:
        """`[num_tokens, num_heads, head_dim]` -> the same; the new keys are in the pool already."""
        keys, values = cache.layer(call.layer, query, call.num_kv_heads)
        if self.key_places is None:
            pages = (-1, self.block_size, *keys.shape[1:])
            keys, values = keys.view(pages), values.view(pages)
            key_starts, lengths, table = None, self.lengths, self.table
        else:
            keys, values = keys[self.key_places], values[self.key_places]
            key_starts, lengths, table = self.key_starts, None, None
        mixed: Tensor = self.attention.kernel(
            query,
            keys,
            values,
            self.query_starts,
            key_starts,
            self.max_query,
            self.max_key,
            scale=call.scale,
            window_size=self._window(call),
            enable_gqa=query.shape[1] != call.num_kv_heads,
            seqused_k=lengths,
            block_table=table,
        )
        return mixed

    def _window(self, call: AttentionCall) -> tuple[int, int]:
        """Keys before and after a query's own that it sees; -1: all of them."""
        if call.window is not None:
            return call.window - 1, 0  # transformers counts a query's own key, the kernel does not
        # A single query is the last position: nothing comes after it, and the kernel has a faster
        # way for grouped heads where it need not be causal.
        return (-1, 0) if self.max_query > 1 else (-1, -1)


def varlen_batch(
    attention: VarlenAttention, tensors: StepTensors, layout: StepLayout, block_size: int
) -> VarlenBatch:
    """A step's tensors as the kernel wants them."""
    places = None
    if not attention.paged:
        places = key_places(tensors.table, tensors.key_starts, layout.num_keys, block_size)
    return VarlenBatch(
        attention=attention,
        query_starts=tensors.query_starts,
        key_starts=tensors.key_starts,
        lengths=tensors.lengths,
        table=tensors.table,
        key_places=places,
        max_query=layout.max_query,
        max_key=layout.table_width * block_size,
        block_size=block_size,
    )


def key_places(table: Tensor, key_starts: Tensor, num_keys: int, block_size: int) -> Tensor:
    """Where in the pool each key of each sequence lies, one sequence after another: `[num_keys]`.

    table `[num_sequences, width]` and key_starts `[num_sequences + 1]` as in `VarlenBatch`. Places
    beyond the last sequence's keys are of blocks in the table, so that num_keys may be rounded up.
    Computed on the device, with shapes that depend on no value.
    """
    index = torch.arange(num_keys, device=table.device, dtype=torch.int32)
    sequence = torch.searchsorted(key_starts[1:], index, right=True)
    sequence = sequence.clamp_(max=table.shape[0] - 1)
    position = (index - key_starts[sequence]).clamp_(max=table.shape[1] * block_size - 1)
    block = table[sequence, position // block_size]
    return block.long() * block_size + position % block_size
