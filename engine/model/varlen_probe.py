"""Finds out what of torch's `varlen_attn` can be relied on: numbers, not versions, decide.

Which features its kernel has depends on the device and on the kernel that torch was given; one that
is wrong or missing is done without, with a line in the log.
"""

from __future__ import annotations

import importlib.util
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.attention import activate_flash_attention_impl
from transformers import PreTrainedModel

from engine.core.plan import Chunk, StepPlan
from engine.core.request import Phase, Request, SamplingParams, Timeline
from engine.model.attention import attend
from engine.model.paging import AttentionCall, KVCache, StepContext
from engine.model.probe import probe_decoding
from engine.model.step_buffer import decode_layout, layout_of, pack, sequence_rows, unpack
from engine.model.varlen import Kernel, VarlenAttention, varlen_batch
from engine.model.varlen_runner import VarlenRunner

log = logging.getLogger(__name__)

# Of the spread of what is compared; both round to half precision, in another order.
_TOLERANCE = 0.05
_WINDOW = 24
# (positions in the cache already, new ones), with ends at, before and after those of blocks.
_MIXED = ((0, 5), (16, 40), (63, 1), (0, 32), (299, 1))
_DECODING = ((0, 1), (15, 1), (16, 1), (299, 1), (31, 1))
# FlashAttention 3 reads block tables of any size; its package has to be installed on its own.
_BETTER_KERNEL, _ITS_MODULE, _ITS_CAPABILITY = "FA3", "flash_attn_interface", (9, 0)


def find_varlen_attention(model: PreTrainedModel, block_size: int) -> VarlenAttention | None:
    """What `varlen_attn` can do for this model on its device; None where it can do nothing.

    The reason for None is in the log.
    """
    reason: str | None = None
    if model.device.type != "cuda":
        reason = "it runs on CUDA devices only"
    elif model.dtype not in (torch.bfloat16, torch.float16):
        reason = f"it takes bfloat16 and float16, not {model.dtype}".replace("torch.", "")
    elif len({parameter.device for parameter in model.parameters()}) > 1:
        reason = "the model is spread over several devices"
    if reason is not None:
        log.info("Serving without varlen_attn: %s.", reason)
        return None
    # Importing it takes a while, which other devices need not spend.
    from torch.nn.attention.varlen import varlen_attn

    _activate_better_kernel(model.device)
    return probe_kernel(model, varlen_attn, block_size)


def probe_kernel(model: PreTrainedModel, kernel: Kernel, block_size: int) -> VarlenAttention | None:
    """What `kernel`, which has `varlen_attn`'s signature, does right on the model's device.

    Compared with our portable attention: first its numbers, then the logits of the whole model.
    """
    expected, calls = probe_decoding(model)
    plain = {call._replace(layer=0, window=None, softcap=None) for call in calls}
    num_heads = model.config.get_text_config().num_attention_heads
    paged = next(
        (
            paged
            for paged in (True, False)
            if _agrees(
                model, VarlenAttention(kernel, paged, False, False), plain, num_heads, block_size
            )
        ),
        None,
    )
    if paged is None:
        log.info("Serving without varlen_attn: it computes otherwise than it should.")
        return None
    windowed = {call._replace(window=_WINDOW) for call in plain}
    windows = all(call.window is None for call in calls) or _agrees(
        model, VarlenAttention(kernel, paged, True, False), windowed, num_heads, block_size
    )
    attention = VarlenAttention(kernel, paged, windows, every_layer=False)
    attention = replace(attention, every_layer=all(map(attention.serves, calls)))
    if not any(map(attention.serves, calls)):
        log.info("Serving without varlen_attn: it does nothing that this model's layers ask for.")
        return None
    return attention if _model_agrees(model, attention, expected, block_size) else None


def _activate_better_kernel(device: torch.device) -> None:
    if torch.cuda.get_device_capability(device) != _ITS_CAPABILITY:
        return
    if importlib.util.find_spec(_ITS_MODULE) is None:
        return
    try:
        activate_flash_attention_impl(_BETTER_KERNEL)
    except (ImportError, RuntimeError, ValueError) as error:
        log.info("Serving without %s: %s", _BETTER_KERNEL, error)


def _model_agrees(
    model: PreTrainedModel, attention: VarlenAttention, expected: Tensor, block_size: int
) -> bool:
    runner = VarlenRunner(model, num_blocks=4, block_size=block_size, attention=attention)
    try:
        logits, _ = probe_decoding(model, runner=runner)
    except (RuntimeError, ValueError, TypeError) as error:
        log.info("Serving without varlen_attn: %s", error)
        return False
    if not _near(logits, expected):
        log.info("Serving without varlen_attn: the model's logits differ with it.")
        return False
    return True


def _agrees(
    model: PreTrainedModel,
    attention: VarlenAttention,
    calls: set[AttentionCall],
    num_heads: int,
    block_size: int,
) -> bool:
    """Whether the kernel computes these calls as the portable attention does.

    Over scattered blocks, in a pool where all that no request owns is not a number.
    """
    for call in calls:
        for steps in (_MIXED, _DECODING):
            try:
                same = _same_numbers(model, attention, call, num_heads, block_size, steps)
            except (RuntimeError, ValueError, TypeError) as error:
                log.info("varlen_attn (block tables: %s): %s", attention.paged, error)
                return False
            if not same:
                log.info("varlen_attn computes %s otherwise than it should.", call)
                return False
    return True


def _same_numbers(
    model: PreTrainedModel,
    attention: VarlenAttention,
    call: AttentionCall,
    num_heads: int,
    block_size: int,
    steps: Sequence[tuple[int, int]],
) -> bool:
    plan, num_blocks = _scattered_plan(steps, block_size)
    layout = decode_layout(plan, block_size, paged=attention.paged)
    layout = layout or layout_of(plan, block_size)
    packed = pack(plan, layout, block_size=block_size, scratch_block=num_blocks, pinned=False)
    tensors = unpack(packed.to(model.device), layout)
    rows = sequence_rows(plan, block_size)
    context = StepContext(KVCache((num_blocks + 1) * block_size), tensors.places, rows)
    generator = torch.Generator().manual_seed(0)

    def random_numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(model.device, model.dtype)

    _fill(context, call, random_numbers)
    query = random_numbers(layout.num_tokens, num_heads, call.head_dim)
    batch = varlen_batch(attention, tensors, layout, block_size)
    result = batch.attend(context.cache, call, query)
    expected = torch.empty_like(query)
    attend(context, call, query, expected)
    count = plan.num_tokens  # what comes after them fills up the batch
    return bool(result.isfinite().all()) and _near(result[:count], expected[:count])


def _fill(context: StepContext, call: AttentionCall, random_numbers: Callable[..., Tensor]) -> None:
    """Random keys and values where the step or its requests have any; the rest is not a number."""
    device = context.places.device
    like = random_numbers(call.head_dim)
    for pool in context.cache.layer(call.layer, like, call.num_kv_heads):
        pool.fill_(torch.nan)
    spans = [span for row in context.rows for span in row.spans]
    read = [torch.arange(s.start, s.start + s.length, device=device) for s in spans]
    places = torch.cat([context.places, *read])
    shape = (len(places), call.num_kv_heads, call.head_dim)
    context.cache.write(call.layer, places, random_numbers(*shape), random_numbers(*shape))


def _scattered_plan(steps: Sequence[tuple[int, int]], block_size: int) -> tuple[StepPlan, int]:
    """Requests with `(computed, new)` positions in blocks out of order, and how many blocks."""
    counts = [-(-(start + length) // block_size) for start, length in steps]
    order = list(range(sum(counts)))
    random.Random(0).shuffle(order)
    chunks = []
    for number, ((start, length), count) in enumerate(zip(steps, counts, strict=True)):
        request = Request(
            number=number,
            token_ids=[0] * (start + length),
            params=SamplingParams(),
            seed=0,
            timeline=Timeline(submitted=0.0),
            block_table=[order.pop() for _ in range(count)],
        )
        chunks.append(Chunk(request, start, length, Phase.PREFILL, samples=True))
    return StepPlan(tuple(chunks)), sum(counts)


def _near(actual: Tensor, expected: Tensor) -> bool:
    slack = _TOLERANCE * expected.float().std().item()
    return torch.allclose(actual.float(), expected.float(), rtol=_TOLERANCE, atol=slack)
