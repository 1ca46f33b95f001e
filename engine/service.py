"""The engine for everybody else: submit, read, cancel, health, settings, restart.

The service stands in front of the worker that runs the engine, gives requests their numbers, and
keeps records over restarts. It knows no page and no route, and nothing of how a model computes.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from engine.contracts import (
    Build,
    EngineParts,
    ModelInfo,
    ServiceState,
    ServiceStatus,
    Tokenizer,
)
from engine.conversations import ConversationStore
from engine.core.clock import MonotonicClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.errors import EngineStopped, InvalidRequest
from engine.core.records import PoolRecord
from engine.core.request import Request, SamplingParams, Timeline
from engine.mailbox import TokenStream
from engine.telemetry.store import TraceStore
from engine.worker import Worker

_ENDED = (ServiceStatus.FAILED, ServiceStatus.STOPPED, ServiceStatus.STUCK, ServiceStatus.CLOSED)


class EngineService:
    """Serves one engine. Every public method may be called from any thread.

    build: makes the engine's parts and reports progress: loading or measuring, a sentence, and the
    share done if it is known.
    stuck_after: seconds that one step may take before the engine counts as stuck.
    recovery_pause: seconds after a failure in which nothing is accepted, so that every client
    learns of it and `/health` shows it.
    """

    def __init__(
        self,
        build: Build,
        *,
        clock: MonotonicClock | None = None,
        stuck_after: float = 60.0,
        recovery_pause: float = 2.0,
    ) -> None:
        self.clock = clock or MonotonicClock()
        self.store = TraceStore()
        self.stuck_after = stuck_after
        self._build = build
        self._recovery_pause = recovery_pause
        self._lock = threading.Lock()
        self._num_requests = 0
        self._conversations = ConversationStore(self.clock.now)
        self._worker: Worker | None = None

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the model and serve, on a new thread; does nothing while one is at work."""
        with self._lock:
            if self.state.status not in _ENDED:
                return
            self._worker = Worker(
                self._build,
                self.store,
                self.clock,
                stuck_after=self.stuck_after,
                recovery_pause=self._recovery_pause,
                num_steps=self.engine.num_steps if self.engine else 0,
            )
            self._worker.start()

    def close(self) -> None:
        """Stop serving; live requests end with an error. A step that runs is not waited for."""
        if self._worker is not None:
            self._worker.retire(ServiceStatus.CLOSED, "The engine was shut down.")

    def reconfigure(self, **changes: Any) -> None:
        """Change fields of the `EngineConfig`; returns when they hold.

        Another pool size, caching rule or policy starts the engine anew (see
        `EngineConfig.same_pool`), and live requests end with a sentence that says so. Raises
        InvalidRequest naming a field that is out of range, EngineStopped when no engine serves.
        """
        worker = self._serving_worker()
        worker.reconfigure(replace(worker.serving().config, **changes))

    # -- what is ----------------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """What the service is doing now."""
        if self._worker is None:
            return ServiceState(ServiceStatus.CLOSED, "The engine was not started.")
        return self._worker.state

    def health(self) -> tuple[bool, str]:
        """Whether requests are served, and if not, why, in a sentence."""
        state = self.state
        if state.status is ServiceStatus.READY:
            return True, "The engine serves."
        return False, state.reason or f"The engine is {state.status}."

    @property
    def config(self) -> EngineConfig | None:
        """The engine's limits; None until the model is loaded."""
        parts = self._parts
        return parts.config if parts else None

    @property
    def info(self) -> ModelInfo | None:
        """What the page says of the model and the device; None until the model is loaded."""
        parts = self._parts
        return parts.info if parts else None

    @property
    def engine(self) -> Engine | None:
        """The engine, to be looked at and not touched; None until the model is loaded."""
        return self._worker.engine if self._worker else None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; raises EngineStopped until the model is loaded."""
        parts = self._parts
        if parts is None:
            raise EngineStopped(self.state.reason)
        return parts.tokenizer

    def pool(self) -> PoolRecord | None:
        """The KV pool between two steps; see `Worker.pool`."""
        return self._worker.pool() if self._worker else None

    @property
    def num_refused(self) -> int:
        """Requests turned away because the queue was full, since the engine was started."""
        return self._worker.num_refused if self._worker else 0

    @property
    def num_waiting(self) -> int:
        """Requests submitted and not yet computing."""
        live = self.store.live()
        return sum(record.finished is None and record.scheduled is None for record in live)

    # -- requests ---------------------------------------------------------------------------------

    def submit_chat(
        self,
        messages: Sequence[dict[str, Any]],
        params: SamplingParams,
        *,
        conversation: str | None = None,
        **options: Any,
    ) -> TokenStream:
        """Submit a chat; see `submit`.

        `conversation` is a key that only this chat's owner knows: the ids of its earlier turns are
        taken up again, so that their KV blocks are found in the prefix cache.
        """
        known_ids = self._conversations.token_ids(conversation) if conversation else []
        stream, request = self._submit(
            lambda tokenizer: tokenizer.render(messages, known_ids=known_ids), params, **options
        )
        if conversation:
            self._conversations.put(conversation, request)
        return stream

    def submit_text(self, text: str, params: SamplingParams, **options: Any) -> TokenStream:
        """Submit plain text to be continued; see `submit`."""
        return self._submit(lambda tokenizer: tokenizer.encode(text), params, **options)[0]

    def submit(
        self, token_ids: Sequence[int], params: SamplingParams, **options: Any
    ) -> TokenStream:
        """Submit a prompt of token ids; tokenising happens in the caller's thread.

        Options: `cache_salt`, `label`, `streamed` and `composition`, as in `Request`. Raises
        InvalidRequest (or PromptTooLong) for what cannot be served, QueueFull, or EngineStopped;
        nothing is left behind then.
        """
        return self._submit(lambda _: list(token_ids), params, **options)[0]

    def _submit(
        self,
        prepare: Callable[[Tokenizer], list[int]],
        params: SamplingParams,
        *,
        cache_salt: str | None = None,
        label: str | None = None,
        streamed: bool = True,
        composition: Sequence[tuple[str, int]] = (),
    ) -> tuple[TokenStream, Request]:
        submitted = self.clock.now()
        worker = self._serving_worker()
        token_ids = prepare(worker.serving().tokenizer)
        if not token_ids:
            raise InvalidRequest("The prompt is empty; send at least one token.", field="prompt")

        def make(parts: EngineParts) -> Request:
            return Request(
                number=self._next_number(),
                token_ids=token_ids,
                params=params,
                seed=params.seed if params.seed is not None else secrets.randbits(63),
                timeline=Timeline(submitted=submitted),
                end_token_ids=parts.tokenizer.end_token_ids,
                cache_salt=cache_salt,
                label=label,
                streamed=streamed,
                composition=tuple(composition),
            )

        return worker.submit(make)

    def _next_number(self) -> int:
        with self._lock:
            self._num_requests += 1
            return self._num_requests

    def _serving_worker(self) -> Worker:
        worker = self._worker
        if worker is None:
            raise EngineStopped(self.state.reason)
        return worker

    @property
    def _parts(self) -> EngineParts | None:
        return self._worker.parts if self._worker else None
