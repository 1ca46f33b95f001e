"""Chooses how a model's steps are computed: the fastest way that its device has and that a probe
found right. It knows the ways, and nothing of how they work.
"""

from __future__ import annotations

from transformers import PreTrainedModel

from engine.model.cuda_graphs import cuda_recorder
from engine.model.runner import TorchRunner
from engine.model.varlen_probe import find_varlen_attention
from engine.model.varlen_runner import VarlenRunner


def make_runner(
    model: PreTrainedModel, *, num_blocks: int, block_size: int, kernels: bool
) -> tuple[TorchRunner, str]:
    """A runner with an empty pool, and how it computes in a few words: "portable attention".

    kernels: whether steps use the compiled kernels, as `engine.model.tuning.tune` says.
    """
    if model.device.type == "cpu":
        runner = TorchRunner(model, num_blocks=num_blocks, block_size=block_size, kernels=kernels)
        return runner, "compiled kernels" if kernels else "plain operators"
    attention = find_varlen_attention(model, block_size)
    if attention is None:
        runner = TorchRunner(model, num_blocks=num_blocks, block_size=block_size)
        return runner, "portable attention"
    runner = VarlenRunner(
        model,
        num_blocks=num_blocks,
        block_size=block_size,
        attention=attention,
        recorder=cuda_recorder,
    )
    reads = "block tables" if attention.paged else "gathered keys"
    return runner, f"CUDA varlen attention with {reads}"
