"""How much arithmetic and memory traffic a step needs, and what kept it from being faster.

Work is counted from the model's shape and the positions a step computed; nothing is measured here.
The model is the roofline of Williams, Waterman and Patterson, "Roofline: an insightful visual
performance model for multicore architectures" (2009); the counts of arithmetic follow Kaplan et
al., "Scaling laws for neural language models" (2020), section 2.1: two operations for each weight
of a matrix and position, a multiplication and an addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from engine.core.capacity import Ceilings, ModelShape
from engine.core.records import StepRow


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations and bytes moved to and from memory."""

    flops: float
    bytes_moved: float

    @property
    def intensity(self) -> float:
        """Operations per byte; 0 when no byte is moved."""
        return self.flops / self.bytes_moved if self.bytes_moved else 0.0


class Bound(StrEnum):
    """What a step's duration is owed to most."""

    MEMORY = "memory"
    COMPUTE = "compute"
    OVERHEAD = "overhead"


def step_work(shape: ModelShape, rows: Sequence[StepRow], sampled_rows: int) -> Work:
    """The work of one step: its rows, of which `sampled_rows` go through the vocabulary head."""
    return Work(_flops(shape, rows, sampled_rows), _bytes_moved(shape, rows, sampled_rows))


def ideal_seconds(work: Work, ceilings: Ceilings) -> float:
    """The least time the work can take: that of its arithmetic or its memory, which overlap."""
    return max(work.flops / ceilings.flops_per_second, work.bytes_moved / ceilings.bytes_per_second)


def classify(work: Work, duration: float, ceilings: Ceilings) -> Bound:
    """What bounds a step that took `duration` seconds.

    Overhead when more of the duration is left over than the ideal time explains; else whichever of
    arithmetic and memory gave the ideal time.
    """
    ideal = ideal_seconds(work, ceilings)
    if duration - ideal > ideal:
        return Bound.OVERHEAD
    compute = work.flops / ceilings.flops_per_second
    return (
        Bound.COMPUTE if compute >= work.bytes_moved / ceilings.bytes_per_second else Bound.MEMORY
    )


def raised(ceilings: Ceilings, work: Work, duration: float) -> Ceilings:
    """Ceilings that a step of `duration` seconds does not exceed: what was done can be done.

    A measurement at start-up may have been disturbed; a step that beats it is the better one.
    """
    flops, bandwidth = work.flops / duration, work.bytes_moved / duration
    if flops <= ceilings.flops_per_second and bandwidth <= ceilings.bytes_per_second:
        return ceilings
    return replace(
        ceilings,
        flops_per_second=max(flops, ceilings.flops_per_second),
        bytes_per_second=max(bandwidth, ceilings.bytes_per_second),
    )


def roof(intensity: float, ceilings: Ceilings) -> float:
    """The most operations a second that work of this intensity (operations per byte) can reach."""
    return min(ceilings.flops_per_second, intensity * ceilings.bytes_per_second)


def _flops(shape: ModelShape, rows: Sequence[StepRow], sampled_rows: int) -> float:
    """Matrices: 2 for each weight and position; the head: 2 * hidden * vocabulary a sampled row.

    Attention, for each layer, head and position p: 2 * head_dim for each of the p + 1 scores and as
    many for the weighted sum of values, so 4 * heads * head_dim * (p + 1); the contexts of the
    positions [start, start + length) sum up to length * start + length * (length + 1) / 2. Sliding
    layers are counted as full ones: they compute the whole context here.
    """
    positions = sum(row.length for row in rows)
    contexts = sum(row.length * row.start + row.length * (row.length + 1) // 2 for row in rows)
    matrices = 2 * shape.matrix_parameters * positions
    attention = 4 * shape.num_layers * shape.num_heads * shape.head_dim * contexts
    head = 2 * shape.hidden_size * shape.vocab_size * sampled_rows
    return float(matrices + attention + head)


def _bytes_moved(shape: ModelShape, rows: Sequence[StepRow], sampled_rows: int) -> float:
    """Weights once, each row's keys and values read once, new ones written, and activations.

    The embedding table is only looked into, a row a position, and the head is read only when some
    row is sampled: both count apart from the other weights.
    """
    positions = sum(row.length for row in rows)
    table = shape.hidden_size * shape.vocab_size * shape.activation_bytes
    body = max(0, shape.weight_bytes - (table if shape.tied else 2 * table))
    weights = body + (table if sampled_rows else 0)
    kv_read = sum(row.start + row.length for row in rows) * shape.kv_bytes_per_token
    kv_written = positions * shape.kv_bytes_per_token
    return float(weights + kv_read + kv_written + _activation_bytes(shape, positions, sampled_rows))


def _activation_bytes(shape: ModelShape, positions: int, sampled_rows: int) -> int:
    """Each matrix product reads its input and writes its output once; all else counts as fused.

    Elements a position and layer, with q = heads * head_dim and kv = kv_heads * head_dim:
    projections hidden + q + 2 kv, attention q + q (keys and values are counted as KV), its output
    q + hidden, a gated MLP hidden + 2 intermediate and intermediate + hidden. Beside the layers:
    the embedding's row read and written; at the head hidden read and the logits written.
    """
    q = shape.num_heads * shape.head_dim
    kv = shape.num_kv_heads * shape.head_dim
    layer = 4 * shape.hidden_size + 4 * q + 2 * kv + 3 * shape.intermediate_size
    position = shape.num_layers * layer + 2 * shape.hidden_size
    head = shape.hidden_size + shape.vocab_size
    return (positions * position + sampled_rows * head) * shape.activation_bytes
