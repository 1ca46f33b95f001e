"""The engine's limits and policy, validated together in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.core.errors import InvalidRequest
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What one engine may use.

    max_batched_tokens: token budget of a step; max_running: slots; max_waiting: requests that may
    wait; max_model_len: positions of the model's context; num_blocks and block_size: the KV pool;
    policy and queue_order: names in `POLICIES` and `QUEUE_ORDERS`; long_prompt_threshold: most
    positions of one prompt in a step that reads in chunks, 0 for no limit but the budget;
    fingerprint: what identifies the model in the prefix cache. Raises InvalidRequest naming the
    setting that is out of range.
    """

    num_blocks: int
    max_batched_tokens: int = 256
    max_running: int = 8
    max_waiting: int = 64
    max_model_len: int = 4096
    block_size: int = 16
    prefix_caching: bool = True
    policy: str = "chunked"
    queue_order: str = "first-come"
    long_prompt_threshold: int = 0
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
        if self.long_prompt_threshold < 0:
            raise InvalidRequest(
                f"long_prompt_threshold must be at least 0 (0: no limit but the token budget); got "
                f"{self.long_prompt_threshold}.",
                field="long_prompt_threshold",
            )
        for name, known in (("policy", POLICIES), ("queue_order", QUEUE_ORDERS)):
            if getattr(self, name) not in known:
                raise InvalidRequest(
                    f"{name} must be one of {', '.join(sorted(known))}; "
                    f"got {getattr(self, name)!r}.",
                    field=name,
                )

    def same_pool(self, other: EngineConfig) -> bool:
        """Whether `other` differs in nothing but budget, slots, queue and long-prompt threshold.

        Those can change between two steps; anything else needs another scheduler and pool.
        """
        as_here = replace(
            other,
            max_batched_tokens=self.max_batched_tokens,
            max_running=self.max_running,
            max_waiting=self.max_waiting,
            queue_order=self.queue_order,
            long_prompt_threshold=self.long_prompt_threshold,
        )
        return as_here == self

    @property
    def pool_tokens(self) -> int:
        """Positions that the whole KV pool holds."""
        return self.num_blocks * self.block_size
