"""The engine's limits and policy, validated together in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.core.errors import InvalidRequest
from engine.core.policies import POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What one engine may use.

    max_batched_tokens: token budget of a step; max_running: slots; max_waiting: requests that may
    wait; max_model_len: positions of the model's context; num_blocks and block_size: the KV pool;
    fingerprint: what identifies the model in the prefix cache. Raises InvalidRequest naming the
    setting that is out of range.
    """

    num_blocks: int
    max_batched_tokens: int = 256
    max_running: int = 8
    max_waiting: int = 64
    max_model_len: int = 8192
    block_size: int = 16
    prefix_caching: bool = True
    policy: str = "chunked"
    fingerprint: str = ""

    def __post_init__(self) -> None:
        for name in (
            "num_blocks",
            "max_batched_tokens",
            "max_running",
            "max_waiting",
            "block_size",
        ):
            if getattr(self, name) < 1:
                raise InvalidRequest(
                    f"{name} must be at least 1; got {getattr(self, name)}.", field=name
                )
        if self.max_model_len < 2:
            raise InvalidRequest(
                f"max_model_len must hold a prompt token and an output token, so at least 2; "
                f"got {self.max_model_len}.",
                field="max_model_len",
            )
        if self.max_running > self.max_batched_tokens:
            # Otherwise a decoding request could find no token of budget left, step after step.
            raise InvalidRequest(
                f"max_running ({self.max_running}) must not exceed max_batched_tokens "
                f"({self.max_batched_tokens}).",
                field="max_running",
            )
        if self.policy not in POLICIES:
            known = ", ".join(sorted(POLICIES))
            raise InvalidRequest(
                f"policy must be one of {known}; got {self.policy!r}.", field="policy"
            )

    def same_pool(self, other: EngineConfig) -> bool:
        """Whether `other` differs in nothing but budget, slots and queue.

        Those can change between two steps; anything else needs another scheduler and pool.
        """
        as_here = replace(
            other,
            max_batched_tokens=self.max_batched_tokens,
            max_running=self.max_running,
            max_waiting=self.max_waiting,
        )
        return as_here == self

    @property
    def pool_tokens(self) -> int:
        """Positions that the whole KV pool holds."""
        return self.num_blocks * self.block_size
