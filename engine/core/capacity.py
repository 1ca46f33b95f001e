"""What the work of a step depends on, and what a device can do: numbers that the model layer
measures and telemetry reckons with.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What the work of a step depends on.

    matrix_parameters: weights that one position is multiplied with, without the vocabulary head
    (of a mixture of experts: those of the experts that one position goes through).
    weight_bytes: all weights in memory, tied ones once; tied: the head is the input embedding.
    kv_bytes_per_token: keys and values of one position over all layers, as the KV pool holds them.
    activation_bytes: one element of an activation, and of an embedding's or the head's weights.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied: bool
    weight_bytes: int
    matrix_parameters: int
    kv_bytes_per_token: int
    activation_bytes: int


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a device can do at most, and the seconds that any step costs beside its work."""

    flops_per_second: float
    bytes_per_second: float
    overhead_seconds: float

    @property
    def ridge(self) -> float:
        """The operations per byte from which on arithmetic is the limit, not memory."""
        return self.flops_per_second / self.bytes_per_second
