"""Stand-ins on a CPU for what only a GPU has: `varlen_attn` and CUDA graphs.

The attention takes the real function's arguments, checks them as strictly as its kernels do, and
computes with plain operations; a recorded step is a call that may look at nothing but its buffers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from engine.model.cuda_graphs import Record
from engine.model.varlen import Kernel


def fake_kernel(
    *, paged: bool = True, windows: bool = True, calls: list[dict[str, object]] | None = None
) -> Kernel:
    """An attention function with or without block tables; without windows it ignores them.

    calls: gets the arguments of every call.
    """

    def kernel(*arguments: object, **keywords: object) -> Tensor:
        given = inspect.signature(varlen_attn).bind(*arguments, **keywords).arguments
        if calls is not None:
            calls.append(given)
        if given["block_table"] is not None and not paged:
            raise RuntimeError("this build of the kernel has no block tables")
        if not windows and given["window_size"] not in ((-1, -1), (-1, 0)):
            given["window_size"] = (-1, 0)
        return _attention(**given)

    return kernel


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: Tensor | None,
    block_table: Tensor | None,
) -> Tensor:
    heads = key.shape[-2]
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    assert query.shape[1] % heads == 0
    assert enable_gqa == (query.shape[1] != heads)
    count = len(cu_seq_q) - 1
    for numbers in (cu_seq_q, cu_seq_k, seqused_k, block_table):
        assert numbers is None or (numbers.dtype == torch.int32 and numbers.is_contiguous())
    if block_table is None:
        assert cu_seq_k is not None
        assert seqused_k is None
        assert key.dim() == 3
        assert cu_seq_k[-1] <= len(key), "keys are read beyond the last that were gathered"
        lengths = cu_seq_k.diff()
    else:
        assert cu_seq_k is None
        assert seqused_k is not None
        assert key.dim() == 4
        assert len(block_table) == len(seqused_k) == count
        assert block_table.min() >= 0
        assert block_table.max() < len(key)
        lengths = seqused_k
    queries = cu_seq_q.diff()
    assert max_q >= queries.max()
    assert max_k >= lengths.max()
    assert (queries >= 1).all()
    assert cu_seq_q[0] == 0
    assert cu_seq_q[-1] == len(query)
    output = torch.empty_like(query)
    for i in range(count):
        if block_table is None:
            mine = slice(cu_seq_k[i], cu_seq_k[i + 1])
            keys, values = key[mine], value[mine]
        else:
            keys = key[block_table[i].long()].flatten(0, 1)[: lengths[i]]
            values = value[block_table[i].long()].flatten(0, 1)[: lengths[i]]
        rows = slice(cu_seq_q[i], cu_seq_q[i + 1])
        output[rows] = _one(query[rows], keys, values, scale, window_size)
    return output


def _one(
    query: Tensor, keys: Tensor, values: Tensor, scale: float, window: tuple[int, int]
) -> Tensor:
    """One sequence, whose last query is the last key's position."""
    groups = query.shape[1] // keys.shape[1]
    keys, values = (x.float().repeat_interleave(groups, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * scale
    position = torch.arange(len(keys) - len(query), len(keys))[:, None]
    distance = torch.arange(len(keys))[None, :] - position
    left, right = window
    hidden = torch.zeros_like(distance, dtype=torch.bool)
    if left >= 0:
        hidden |= distance < -left
    if right >= 0:
        hidden |= distance > right
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)


def fake_recorder(device: torch.device) -> Record:
    """In place of `cuda_recorder`."""
    return fake_record


def fake_record(compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """As a CUDA graph: its output is one tensor, which is filled anew at each replay."""
    logits = compute().clone()

    def replay() -> None:
        logits.copy_(compute())

    return replay, logits
