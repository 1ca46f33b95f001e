"""Runs a step plan on a transformers model: one flat forward pass, then sampling.

The runner owns the memory behind the block tables. It must not decide what is computed.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.core.errors import OutOfMemory
from engine.core.plan import Chunk, StepPlan, StepResult, sampled_chunks
from engine.model.attention import ATTENTION_NAME
from engine.model.paging import KVCache, PagedRows, SequenceRow, StepContext, spans_of
from engine.model.sampling import SamplingRow, sample
from engine.model.transfer import wait_for

# Sampling reckons in float64, which other accelerators lack.
_SAMPLED_WHERE_COMPUTED = frozenset({"cpu", "cuda"})
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "MPS backend out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


class TorchRunner:
    """Computes steps of one model on one device.

    model: a transformers causal LM in eval mode, whose attention is switched to ours; num_blocks
    and block_size: the KV pool; kernels: whether steps use compiled kernels
    (`engine.model.kernels`). `engine.model.probe` says whether the model can be served so.
    """

    _num_spare_blocks = 0  # beyond the pool's, for a runner's own use

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        num_blocks: int,
        block_size: int = 16,
        kernels: bool = False,
    ) -> None:
        self._model = model
        self.block_size = block_size
        self._num_blocks = num_blocks
        self.kernels = kernels
        self._device = model.device
        model.set_attn_implementation(ATTENTION_NAME)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._cache = self._empty_cache()

    def run(self, plan: StepPlan) -> StepResult:
        """Compute and sample a plan; raises OutOfMemory when it did not fit."""
        chunks = sampled_chunks(plan)
        try:
            with torch.inference_mode():
                logits = self._logits(plan)
                if self._device.type not in _SAMPLED_WHERE_COMPUTED:
                    logits = logits.cpu()
                tokens = sample(logits, [_sampling_row(c) for c in chunks]) if chunks else []
            if not chunks:
                wait_for(self._device)  # else the step would end, and be timed, before its work
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            raise OutOfMemory(
                f"A step of {plan.num_tokens:,} tokens did not fit in the memory of {self._device}."
                f" A shorter prompt or a smaller token budget needs less."
            ) from error
        return StepResult(tuple(tokens))

    @property
    def num_positions(self) -> int:
        """How many positions the KV pool has room for."""
        return self._num_blocks * self.block_size

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one position takes in the KV pool, once a step has been computed."""
        return self._cache.bytes_per_token

    def resize(self, num_blocks: int) -> None:
        """Drop every key and value and take another number of blocks."""
        self._num_blocks = num_blocks
        self.reset()

    def reset(self) -> None:
        """Drop every key and value."""
        self._cache = self._empty_cache()

    def forward(self, plan: StepPlan) -> tuple[Tensor, StepContext]:
        """Compute a plan's keys and values, and the logits of the rows it samples from.

        Returns `[num_sampling_chunks, vocab_size]` and what the attention function was told.
        """
        context, ids, positions, last = self._inputs(plan)
        return self._compute(context, ids, positions, last), context

    def _logits(self, plan: StepPlan) -> Tensor:
        return self.forward(plan)[0]

    def _compute(
        self, context: StepContext, ids: Tensor, positions: Tensor, last: Tensor
    ) -> Tensor:
        keywords: dict[str, Any] = {"logits_to_keep": last} if self._keeps_logits else {}
        logits: Tensor = self._model(
            input_ids=ids[None],
            position_ids=positions[None],
            use_cache=False,
            kv_step=context,
            **keywords,
        ).logits[0]
        return logits if self._keeps_logits else logits[last]

    def _empty_cache(self) -> KVCache:
        return KVCache((self._num_blocks + self._num_spare_blocks) * self.block_size)

    def _inputs(self, plan: StepPlan) -> tuple[StepContext, Tensor, Tensor, Tensor]:
        """The step as tensors: context, token ids, positions and the rows to sample from."""
        size = self.block_size
        ids: list[int] = []
        positions: list[int] = []
        places: list[int] = []
        rows: list[SequenceRow] = []
        everyone: list[tuple[int, Chunk]] = []
        last: list[int] = []
        for chunk in plan.chunks:
            request, end = chunk.request, chunk.start + chunk.length
            table = request.block_table
            everyone.append((len(ids), chunk))
            if chunk.length == 1 and self.kernels:
                ids.append(request.token_ids[chunk.start])
                positions.append(chunk.start)
                places.append(table[chunk.start // size] * size + chunk.start % size)
            else:
                spans = spans_of(table, end, size)
                rows.append(SequenceRow(len(ids), chunk.start, chunk.length, spans))
                ids.extend(request.token_ids[chunk.start : end])
                positions.extend(range(chunk.start, end))
                places.extend(table[p // size] * size + p % size for p in range(chunk.start, end))
            if chunk.samples:
                last.append(len(ids) - 1)
        tensors = torch.tensor([ids, positions, places], device=self._device)
        context = StepContext(self._cache, tensors[2], tuple(rows))
        if self.kernels:
            context.everyone = self._paged(everyone)
            single = [(row, chunk) for row, chunk in everyone if chunk.length == 1]
            if rows and single:
                context.decode = self._paged(single)
            elif single:
                context.decode = context.everyone
        rows_to_sample = torch.tensor(last, dtype=torch.long, device=self._device)
        return context, tensors[0], tensors[1], rows_to_sample

    def _paged(self, chunks: list[tuple[int, Chunk]]) -> PagedRows:
        """Chunks, each with its first row of the batch, for one kernel call."""
        lengths = [chunk.start + chunk.length for _, chunk in chunks]
        starts: list[int] = []
        blocks: list[int] = []
        for (_, chunk), length in zip(chunks, lengths, strict=True):
            starts.append(len(blocks))
            blocks.extend(chunk.request.block_table[: -(-length // self.block_size)])
        counts = [chunk.length for _, chunk in chunks]
        head = torch.tensor([[row for row, _ in chunks], counts, lengths, starts])
        return PagedRows(head[0], head[1], head[2], head[3], torch.tensor(blocks), self.block_size)


def _sampling_row(chunk: Chunk) -> SamplingRow:
    request, params = chunk.request, chunk.request.params
    penalised = params.penalises  # else nobody asks for the tokens, of which there may be many
    return SamplingRow(
        params=params,
        seed=request.seed,
        position=request.num_output_tokens,
        prompt_token_ids=request.prompt_token_ids if penalised else (),
        output_token_ids=request.output_token_ids if penalised else (),
        end_token_ids=request.end_token_ids,
    )


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; only CUDA's and XPU's allocators have an error type for that."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in _OUT_OF_MEMORY)
