"""Proof, before a model is served, that it runs on our attention and keeps requests apart.

Some models accept an attention function by name and never call it; one visitor's tokens would then
attend to another's. So nothing is served that has not passed a step with two requests in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.core.errors import ModelNotServable
from engine.core.plan import Chunk, StepPlan
from engine.core.request import Phase, Request, SamplingParams, Timeline
from engine.model.paging import AttentionCall
from engine.model.runner import TorchRunner

_PROMPTS = ([5, 6, 7, 8, 9], [11, 12, 13])
# Wide enough for half precision, where the batch changes the order of sums; a request that sees
# another's tokens moves its logits by far more.
_RELATIVE, _ABSOLUTE = 0.05, 0.1


def probe(model: PreTrainedModel) -> int:
    """Compute two short requests together and alone; returns the KV bytes one position takes.

    Raises ModelNotServable when a layer does not call our attention exactly once, or when a request
    gets other logits because another shares its batch.
    """
    name = type(model).__name__
    config = model.config.get_text_config()
    prompts = _prompts(model)
    together, calls, kv_bytes = _step(model, prompts)
    if sorted(call.layer for call in calls) != list(range(config.num_hidden_layers)):
        raise ModelNotServable(
            f"{name} calls the attention function {len(calls)} times in a step of "
            f"{config.num_hidden_layers} layers; it must do so once a layer to be served here."
        )
    alone = torch.cat([_step(model, [prompt])[0] for prompt in prompts])
    if not torch.allclose(together, alone, rtol=_RELATIVE, atol=_ABSOLUTE * alone.std().item()):
        raise ModelNotServable(
            f"{name} gives other logits for a request when another shares its batch, so requests "
            f"cannot be served together."
        )
    return kv_bytes


def probe_logits(model: PreTrainedModel) -> Tensor:
    """Last logits of the probe's two requests, `[2, vocab_size]` in float32."""
    return _step(model, _prompts(model))[0]


def probe_decoding(
    model: PreTrainedModel, *, kernels: bool = False, runner: TorchRunner | None = None
) -> tuple[Tensor, list[AttentionCall]]:
    """The probe's requests through a prefill step and a decoding step in one pool.

    Returns their logits, `[4, vocab_size]` in float32, and what the layers asked of attention.
    kernels: as for `TorchRunner`; runner: another one to take, with two blocks at least.
    """
    prompts = _prompts(model)
    runner = runner or TorchRunner(model, num_blocks=len(prompts), kernels=kernels)
    requests = [_request(index, prompt) for index, prompt in enumerate(prompts)]
    logits: list[Tensor] = []
    calls: list[AttentionCall] = []
    for phase in (Phase.PREFILL, Phase.DECODE):
        chunks = []
        for request, prompt in zip(requests, prompts, strict=True):
            start = 0 if phase is Phase.PREFILL else len(prompt) - 1
            end = len(prompt) - 1 if phase is Phase.PREFILL else len(prompt)
            chunks.append(Chunk(request, start, end - start, phase, samples=True))
        with torch.inference_mode():
            result, context = runner.forward(StepPlan(tuple(chunks)))
        logits.append(result.float())
        calls += context.calls
    return torch.cat(logits), calls


def _prompts(model: PreTrainedModel) -> list[list[int]]:
    vocabulary = model.config.get_text_config().vocab_size
    return [[token % vocabulary for token in prompt] for prompt in _PROMPTS]


def _step(
    model: PreTrainedModel, prompts: Sequence[list[int]]
) -> tuple[Tensor, list[AttentionCall], int]:
    """Last logits of each prompt in float32, layers that called attention, KV bytes a position."""
    runner = TorchRunner(model, num_blocks=len(prompts))
    chunks = []
    for index, prompt in enumerate(prompts):
        request = _request(index, prompt)
        chunks.append(Chunk(request, 0, len(prompt), Phase.PREFILL, samples=True))
    with torch.inference_mode():
        logits, context = runner.forward(StepPlan(tuple(chunks)))
    return logits.float(), context.calls, runner.kv_bytes_per_token


def _request(index: int, prompt: list[int]) -> Request:
    """A request with a block of its own."""
    return Request(
        number=index,
        token_ids=prompt,
        params=SamplingParams(),
        seed=0,
        timeline=Timeline(submitted=0.0),
        block_table=[index],
    )
