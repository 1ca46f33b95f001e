"""A step's inputs in one buffer, so that a single copy brings them to the device.

The layout of the buffer depends on sizes alone: steps of one layout can share one CUDA graph. Knows
how a plan becomes numbers, not what is computed with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from engine.core.plan import Chunk, StepPlan
from engine.model.paging import SequenceRow, spans_of

_SHORTEST_TABLE = 64  # blocks: below, another graph for each length would save nothing


@dataclass(frozen=True, slots=True)
class StepLayout:
    """The sizes of a step.

    num_keys: keys and values that are gathered where the kernel takes no block tables;
    table_width: columns of the block tables; max_query: the longest chunk.
    """

    num_tokens: int
    num_sequences: int
    num_samples: int
    num_keys: int
    table_width: int
    max_query: int

    @property
    def sections(self) -> list[int]:
        """Numbers of int64 in the buffer: token ids, positions, places, rows to sample from."""
        return [self.num_tokens, self.num_tokens, self.num_tokens, self.num_samples]

    @property
    def short_sections(self) -> list[int]:
        """Numbers of int32 after those: query starts, key starts, lengths, block tables."""
        count = self.num_sequences
        return [count + 1, count + 1, count, count * self.table_width]

    @property
    def num_words(self) -> int:
        """Size of the buffer, in int64."""
        return sum(self.sections) + -(-sum(self.short_sections) // 2)


@dataclass(frozen=True, slots=True)
class StepTensors:
    """Views of a buffer; see `StepLayout.sections`. table: `[num_sequences, table_width]`."""

    token_ids: Tensor
    positions: Tensor
    places: Tensor
    samples: Tensor
    query_starts: Tensor
    key_starts: Tensor
    lengths: Tensor
    table: Tensor


def layout_of(plan: StepPlan, block_size: int) -> StepLayout:
    """The layout that a plan fills exactly."""
    ends = [chunk.start + chunk.length for chunk in plan.chunks]
    return StepLayout(
        num_tokens=plan.num_tokens,
        num_sequences=len(plan.chunks),
        num_samples=sum(chunk.samples for chunk in plan.chunks),
        num_keys=sum(ends),
        table_width=-(-max(ends) // block_size),
        max_query=max(chunk.length for chunk in plan.chunks),
    )


def decode_layout(plan: StepPlan, block_size: int, *, paged: bool) -> StepLayout | None:
    """A layout with room for the plan that many decoding steps share; None for any other step.

    Requests are rounded up to a power of two, from 8 on to a multiple of 8, and lengths to powers
    of two. paged: no keys will be gathered.
    """
    if not all(chunk.length == 1 and chunk.samples for chunk in plan.chunks):
        return None
    exact = layout_of(plan, block_size)
    batch = batch_size(exact.num_sequences)
    num_keys = exact.num_keys + batch - exact.num_sequences
    keys = 0 if paged else _power_of_two(max(num_keys, _SHORTEST_TABLE * block_size))
    width = _power_of_two(max(exact.table_width, _SHORTEST_TABLE))
    return StepLayout(batch, batch, batch, keys, width, 1)


def batch_size(num_requests: int) -> int:
    """The least batch with room for them that is worth a graph of its own."""
    return _power_of_two(num_requests) if num_requests <= 8 else -(-num_requests // 8) * 8


def pack(
    plan: StepPlan, layout: StepLayout, *, block_size: int, scratch_block: int, pinned: bool
) -> Tensor:
    """The plan as a buffer in main memory, `[layout.num_words]` int64.

    Sequences that the layout has beyond the plan's are one position long, and lie in
    `scratch_block`, which must belong to no request. pinned: in memory that a GPU can fetch from.
    """
    spare = layout.num_sequences - len(plan.chunks)
    ids, positions, places, samples = _token_numbers(plan.chunks, block_size)
    ids += [0] * spare
    positions += [0] * spare
    places += [scratch_block * block_size] * spare
    samples += range(len(ids) - spare, len(ids))
    lengths = [chunk.start + chunk.length for chunk in plan.chunks] + [1] * spare
    queries = [chunk.length for chunk in plan.chunks] + [1] * spare
    table: list[int] = []
    for chunk, length in zip(plan.chunks, lengths, strict=False):
        blocks = chunk.request.block_table[: -(-length // block_size)]
        table += blocks
        table += [scratch_block] * (layout.table_width - len(blocks))
    table += [scratch_block] * (spare * layout.table_width)
    starts = [*accumulate(queries, initial=0), *accumulate(lengths, initial=0)]
    buffer = torch.empty(layout.num_words, dtype=torch.int64, pin_memory=pinned)
    num_long = sum(layout.sections)
    buffer[:num_long] = torch.tensor([*ids, *positions, *places, *samples])
    short = torch.tensor([*starts, *lengths, *table], dtype=torch.int32)
    buffer[num_long:].view(torch.int32)[: len(short)] = short
    return buffer


def sequence_rows(plan: StepPlan, block_size: int) -> tuple[SequenceRow, ...]:
    """The same step for layers whose attention is computed request by request."""
    rows: list[SequenceRow] = []
    first = 0
    for chunk in plan.chunks:
        spans = spans_of(chunk.request.block_table, chunk.start + chunk.length, block_size)
        rows.append(SequenceRow(first, chunk.start, chunk.length, spans))
        first += chunk.length
    return tuple(rows)


def unpack(buffer: Tensor, layout: StepLayout) -> StepTensors:
    """The buffer's parts, on the device where it is."""
    num_long = sum(layout.sections)
    ids, positions, places, samples = torch.split(buffer[:num_long], layout.sections)
    short = buffer[num_long:].view(torch.int32)[: sum(layout.short_sections)]
    query_starts, key_starts, lengths, table = torch.split(short, layout.short_sections)
    shape = (layout.num_sequences, layout.table_width)
    return StepTensors(
        ids, positions, places, samples, query_starts, key_starts, lengths, table.view(shape)
    )


def _token_numbers(
    chunks: Sequence[Chunk], block_size: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Token ids, positions and places of all tokens, and the rows to sample from."""
    ids: list[int] = []
    positions: list[int] = []
    places: list[int] = []
    samples: list[int] = []
    for chunk in chunks:
        table, end = chunk.request.block_table, chunk.start + chunk.length
        ids += chunk.request.token_ids[chunk.start : end]
        positions += range(chunk.start, end)
        places += [
            table[p // block_size] * block_size + p % block_size for p in range(chunk.start, end)
        ]
        if chunk.samples:
            samples.append(len(ids) - 1)
    return ids, positions, places, samples


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
