"""A service without a model: stub tokenizer and runner behind the real engine and thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from engine.contracts import Build, EngineParts, ModelInfo, Report, ServiceStatus
from engine.core.config import EngineConfig
from engine.core.errors import InvalidRequest
from engine.core.plan import Chunk, SampledToken, StepPlan, StepResult, TextDelta, TextStream
from engine.core.request import Request
from engine.service import EngineService

END = 2


class StubTokenizer:
    """One token for each character: `chr(id)`. The end token is 2."""

    end_token_ids = frozenset({END})

    def render(
        self, messages: Sequence[dict[str, Any]], *, known_ids: Sequence[int] = ()
    ) -> list[int]:
        if not messages:
            raise InvalidRequest("messages is empty; send at least one.", field="messages")
        return self.encode("\n".join(str(message["content"]) for message in messages))

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def stream(self, request: Request) -> TextStream:
        return _Characters()


class _Characters:
    def push(self, token_id: int) -> TextDelta:
        return TextDelta(chr(token_id), False)

    def flush(self) -> str:
        return ""


class ScriptedRunner:
    """Says `script` over and over, `seconds` a step; `before` may raise or sleep as it likes."""

    def __init__(
        self,
        script: str = "words ",
        seconds: float = 0.0,
        before: Callable[[StepPlan], None] | None = None,
    ) -> None:
        self._script = script
        self._seconds = seconds
        self._before = before
        self.num_resets = 0
        self.num_blocks: int | None = None

    def run(self, plan: StepPlan) -> StepResult:
        if self._before is not None:
            self._before(plan)
        if self._seconds:
            time.sleep(self._seconds)
        return StepResult(tuple(self._say(chunk) for chunk in plan.chunks if chunk.samples))

    def resize(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks

    def reset(self) -> None:
        self.num_resets += 1

    def _say(self, chunk: Chunk) -> SampledToken:
        spoken = chunk.request.num_output_tokens
        return SampledToken(ord(self._script[spoken % len(self._script)]))


def stub_build(runner: ScriptedRunner, **settings: Any) -> Build:
    """A `build` for `EngineService` around a scripted runner."""

    def build(report: Report) -> EngineParts:
        report(ServiceStatus.LOADING, "Loading a stub.", 0.5)
        config = EngineConfig(**{"num_blocks": 256, "max_model_len": 2048, **settings})
        info = ModelInfo(name="stub", dtype="none", device="no device", kv_bytes_per_token=64)
        return EngineParts(
            config=config,
            runner=runner,
            tokenizer=StubTokenizer(),
            info=info,
        )

    return build


def wait_until(condition: Callable[[], bool], timeout: float = 10.0) -> None:
    """Wait for something that another thread brings about; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def started(runner: ScriptedRunner, *, stuck_after: float = 60.0, **settings: Any) -> EngineService:
    """A service that is ready."""
    service = EngineService(
        stub_build(runner, **settings), stuck_after=stuck_after, recovery_pause=0.3
    )
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    return service
