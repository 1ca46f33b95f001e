"""Attention over the paged KV pool, as one function that any transformers model can be given.

The model runs on a flat batch of tokens of several requests; this function writes their keys and
values into the pool and lets each request's queries see its own positions only. It must not know
how a step was planned.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.core.errors import ModelNotServable
from engine.model.paging import AttentionCall, Span, StepContext

# The name must not contain words by which transformers recognises its own kernels.
ATTENTION_NAME = "paged_kv"

# Keywords that models hand to every attention function and that change nothing here: either they
# describe training and outputs we do not ask for, or the model has applied them already.
_HARMLESS = frozenset(
    {"dropout", "position_ids", "use_cache", "output_attentions", "output_hidden_states"}
    | {"is_causal", "cache", "past_key_values", "cache_position", "return_dict"}
    | {"num_items_in_batch", "output_router_logits"}
)


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
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    call = AttentionCall(layer, scale, sliding_window, softcap, key.shape[1], key.shape[-1])
    kv_step.calls.append(call)
    kv_step.cache.write(layer, kv_step.places, key[0].transpose(0, 1), value[0].transpose(0, 1))
    whole = kv_step.whole
    if whole is not None and whole.serves(call):
        return whole.attend(kv_step.cache, call, query[0].transpose(0, 1))[None], None
    output = query.new_empty((query.shape[2], query.shape[1], value.shape[-1]))
    attend(kv_step, call, query[0].transpose(0, 1), output)
    return output[None], None


def attend(context: StepContext, call: AttentionCall, query: Tensor, output: Tensor) -> None:
    """Attention of one layer whose new keys and values are in the pool already.

    query: `[num_tokens, num_heads, head_dim]`; output, which is filled:
    `[num_tokens, num_heads, value_head_dim]`.
    """
    if (decode := context.decode) is not None:
        keys, values = context.cache.layer(call.layer, query, call.num_kv_heads)
        torch.ops.phasescope.decode_attention(
            query.contiguous(),
            keys,
            values,
            decode.rows,
            decode.lengths,
            decode.starts,
            decode.blocks,
            decode.block_size,
            call.scale,
            call.window or 0,
            call.softcap or 0.0,
            output,
        )
    for row in context.rows:
        tokens = slice(row.first, row.first + row.length)
        spans, dropped = row.spans, 0
        if call.window is not None:
            spans, dropped = _skip(row.spans, row.start - call.window + 1)
        keys, values = context.cache.read(call.layer, spans)
        output[tokens] = _attend(
            query[tokens].transpose(0, 1)[None],
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            context=context,
            offset=row.start - dropped,
            call=call,
        )


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    context: StepContext,
    offset: int,
    call: AttentionCall,
) -> Tensor:
    """One sequence: query `[1, num_heads, length, head_dim]` -> `[length, num_heads, head_dim]`."""
    length, num_keys = query.shape[2], keys.shape[2]
    scale, window = call.scale, call.window
    if call.softcap is not None:
        visible = context.mask(length, num_keys, offset, window)
        return _attend_softcapped(query, keys, values, visible, scale, call.softcap)
    if length == 1:
        # Every key is visible. The heads that share a key are put where a longer query would be,
        # so that one pass over the keys serves them all.
        grouped = query.reshape(1, keys.shape[1], -1, query.shape[-1])
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
