"""What the service needs to be given and what it says of itself: the contracts around it.

Nothing here does anything; the page, the routes and the assembly of an engine share these types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from engine.core.capacity import Ceilings, ModelShape
from engine.core.config import EngineConfig
from engine.core.plan import Runner, Text


class Tokenizer(Text, Protocol):
    """What the service needs of a tokenizer; `engine.model.text` has the real one."""

    @property
    def end_token_ids(self) -> frozenset[int]:
        """Every token id that ends an answer."""
        ...

    @property
    def vocab_size(self) -> int:
        """Token ids that there are."""
        ...

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        add_generation_prompt: bool | None = None,
        continue_final: bool = False,
        *,
        known_ids: Sequence[int] = (),
    ) -> list[int]:
        """Token ids of a chat, ready for the answer; raises InvalidRequest.

        continue_final: the last message goes on; else a turn is opened unless
        `add_generation_prompt` is False. known_ids: ids of the turns so far, to begin with where
        they fit.
        """
        ...

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of plain text; raises InvalidRequest."""
        ...

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """What one token stands for on its own, often only part of a character."""
        ...


class ServiceStatus(StrEnum):
    """What the service is doing."""

    LOADING = "loading"
    MEASURING = "measuring"
    READY = "ready"
    RECOVERING = "recovering"
    STUCK = "stuck"
    STOPPED = "stopped"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """Status, why in a sentence, how much is done (0 to 1, None: unknown) and since when."""

    status: ServiceStatus
    reason: str = ""
    progress: float | None = None
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What the page says of the model and the device it runs on.

    `kv_bytes_per_token` is what one position takes in the KV pool; shape and ceilings are None
    where nobody has measured them.
    """

    name: str
    dtype: str
    device: str
    kv_bytes_per_token: int
    shape: ModelShape | None = None
    ceilings: Ceilings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """A model ready to be served: what `build` makes, on the engine's thread."""

    config: EngineConfig
    runner: Runner
    tokenizer: Tokenizer
    info: ModelInfo


Report = Callable[[ServiceStatus, str, float | None], object]
Build = Callable[[Report], EngineParts]
