"""A runner whose attention is torch's `varlen_attn`, and whose decoding steps are CUDA graphs.

Inputs are put together on the host and reach the device in one copy; nothing in a step waits for
the device before its tokens are copied back.
"""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel

from engine.core.plan import StepPlan
from engine.model.cuda_graphs import DecodeGraphs, Recorder
from engine.model.paging import SequenceRow, StepContext
from engine.model.runner import TorchRunner
from engine.model.step_buffer import (
    StepLayout,
    StepTensors,
    decode_layout,
    layout_of,
    pack,
    sequence_rows,
    unpack,
)
from engine.model.varlen import VarlenAttention, varlen_batch


class VarlenRunner(TorchRunner):
    """Computes steps of one model on one CUDA device.

    attention: what `engine.model.varlen_probe` found the device to compute right; recorder: makes
    what records CUDA graphs, None to do without. Other arguments, and what is raised: as for
    `TorchRunner`.
    """

    _num_spare_blocks = 1  # where the rows that fill up a recorded batch write and read

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        attention: VarlenAttention,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(model, num_blocks=num_blocks, block_size=block_size)
        self._attention = attention
        self._graphs = (
            DecodeGraphs(self._device, recorder)
            if recorder is not None and attention.every_layer
            else None
        )

    @property
    def num_graphs(self) -> int:
        """CUDA graphs recorded so far."""
        return len(self._graphs) if self._graphs is not None else 0

    def reset(self) -> None:
        """Drop every key and value, and the graphs that read them."""
        if self._graphs is not None:
            self._graphs.clear()
        super().reset()

    def _logits(self, plan: StepPlan) -> Tensor:
        if self._graphs is not None:
            layout = decode_layout(plan, self.block_size, paged=self._attention.paged)
            if layout is not None:
                packed = self._pack(plan, layout)
                logits = self._graphs.run(packed, layout, self._compute_buffer)
                if logits is not None:
                    return logits[: len(plan.chunks)]
        return super()._logits(plan)

    def _inputs(self, plan: StepPlan) -> tuple[StepContext, Tensor, Tensor, Tensor]:
        layout = layout_of(plan, self.block_size)
        tensors = unpack(self._pack(plan, layout).to(self._device, non_blocking=True), layout)
        rows = () if self._attention.every_layer else sequence_rows(plan, self.block_size)
        context = self._context(tensors, layout, rows)
        return context, tensors.token_ids, tensors.positions, tensors.samples

    def _compute_buffer(self, buffer: Tensor, layout: StepLayout) -> Tensor:
        tensors = unpack(buffer, layout)
        context = self._context(tensors, layout)
        return self._compute(context, tensors.token_ids, tensors.positions, tensors.samples)

    def _context(
        self, tensors: StepTensors, layout: StepLayout, rows: tuple[SequenceRow, ...] = ()
    ) -> StepContext:
        batch = varlen_batch(self._attention, tensors, layout, self.block_size)
        return StepContext(self._cache, tensors.places, rows, whole=batch)

    def _pack(self, plan: StepPlan, layout: StepLayout) -> Tensor:
        return pack(
            plan,
            layout,
            block_size=self.block_size,
            scratch_block=self._num_blocks,
            pinned=self._device.type == "cuda",
        )
