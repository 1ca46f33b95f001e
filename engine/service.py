"""The engine for everybody else: submit, read, cancel, health, settings, restart.

The service stands in front of the worker that runs the engine, gives requests their numbers, and
keeps records over restarts. It knows no page and no route, and nothing of how a model computes.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from engine.core.clock import MonotonicClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.errors import EngineStopped, InvalidRequest
from engine.core.records import PoolRecord
from engine.core.request import Request, SamplingParams, Timeline
from engine.mailbox import TokenStream
from engine.telemetry.store import TraceStore
from engine.turns import MAX_TURN_SECONDS, Turn, TurnQueue, TurnState
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
        self._worker: Worker | None = None
        self.turns = TurnQueue()
        self._turn_state: TurnState | None = None

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

    def close(self, *, wait: float = 0.0) -> None:
        """Stop serving; live requests end with an error.

        A step that runs is waited for `wait` seconds at most. A program that ends right after this
        should wait: Python's end must not meet a thread that is inside of torch.
        """
        if self._worker is not None:
            self._worker.retire(ServiceStatus.CLOSED, "The engine was shut down.")
            if wait > 0:
                self._worker.join(wait)

    def reconfigure(self, **changes: Any) -> None:
        """Change fields of the `EngineConfig`; returns when they hold.

        Another pool size, caching rule or policy starts the engine anew (see
        `EngineConfig.same_pool`), and live requests end with a sentence that says so. Raises
        InvalidRequest naming a field that is out of range, EngineStopped when no engine serves.
        """
        worker = self._serving_worker()
        worker.reconfigure(replace(worker.serving().config, **changes))

    # -- exclusive turns --------------------------------------------------------------------------

    @contextmanager
    def exclusive_turn(
        self, label: str, *, max_seconds: float = MAX_TURN_SECONDS, patience: float = 60.0
    ) -> Iterator[ExclusiveTurn]:
        """Have the engine alone, for `max_seconds` at most; what others send meanwhile waits.

        Call it with a place at the head of `turns`. Raises TurnOver when what runs has not ended
        after `patience` seconds, EngineStopped when no engine serves. When the time is up the
        holder's requests are ended and everything else it does raises TurnOver.
        """
        worker = self._serving_worker()
        turn = Turn()
        worker.begin_turn(turn, patience)
        self._turn_state = TurnState(label, self.clock.now() + max_seconds, len(self.turns) - 1)
        # A holder that never returns must not keep everybody else waiting.
        timer = threading.Timer(max_seconds, worker.end_turn, (turn,))
        timer.daemon = True
        timer.start()
        try:
            yield ExclusiveTurn(self, worker, turn, self._turn_state.ends_by)
        finally:
            timer.cancel()
            self._turn_state = None
            worker.end_turn(turn)

    @property
    def turn(self) -> TurnState | None:
        """The turn that lasts, for a banner; None while everybody is served."""
        state = self._turn_state
        return replace(state, num_waiting=max(0, len(self.turns) - 1)) if state else None

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

    # -- requests ---------------------------------------------------------------------------------

    def submit_chat(
        self, messages: Sequence[dict[str, Any]], params: SamplingParams, **options: Any
    ) -> TokenStream:
        """Submit a chat; see `submit`."""
        return self._submit(lambda tokenizer: tokenizer.render(messages), params, **options)[0]

    def submit_text(self, text: str, params: SamplingParams, **options: Any) -> TokenStream:
        """Submit plain text to be continued; see `submit`."""
        return self._submit(lambda tokenizer: tokenizer.encode(text), params, **options)[0]

    def submit(
        self, token_ids: Sequence[int], params: SamplingParams, **options: Any
    ) -> TokenStream:
        """Submit a prompt of token ids; tokenising happens in the caller's thread.

        Options: `cache_salt`, `priority`, `label`, `streamed` and `composition`, as in `Request`.
        Raises InvalidRequest (or PromptTooLong) for what cannot be served, QueueFull, or
        EngineStopped; nothing is left behind then.
        """
        return self._submit(lambda _: list(token_ids), params, **options)[0]

    def submit_request(
        self, token_ids: Sequence[int], params: SamplingParams, **options: Any
    ) -> tuple[TokenStream, Request]:
        """As `submit`, with the engine's own request: to be read, and changed by nobody else.

        A further option is `submitted`: when the request came, on the service's clock, if its
        prompt was tokenised before this call.
        """
        return self._submit(lambda _: list(token_ids), params, **options)

    def _submit(
        self,
        prepare: Callable[[Tokenizer], list[int]],
        params: SamplingParams,
        *,
        cache_salt: str | None = None,
        priority: int = 0,
        label: str | None = None,
        streamed: bool = True,
        composition: Sequence[tuple[str, int]] = (),
        submitted: float | None = None,
        turn: Turn | None = None,
    ) -> tuple[TokenStream, Request]:
        submitted = self.clock.now() if submitted is None else submitted
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
                priority=priority,
                label=label,
                streamed=streamed,
                composition=tuple(composition),
            )

        return worker.submit(make, turn)

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


class ExclusiveTurn:
    """The engine as the holder of a turn has it; every method raises TurnOver once it is over.

    `ends_by` is when that is at the latest, in seconds of the service's clock.
    """

    def __init__(self, service: EngineService, worker: Worker, turn: Turn, ends_by: float) -> None:
        self.ends_by = ends_by
        self._service = service
        self._worker = worker
        self._turn = turn

    def prepare(self, config: EngineConfig) -> None:
        """Start from an empty cache under `config`, which holds until the next call or the end."""
        self._worker.prepare_turn(self._turn, config)

    def submit(
        self, token_ids: Sequence[int], params: SamplingParams, **options: Any
    ) -> TokenStream:
        """As `EngineService.submit`, ahead of everybody who waits; the queue has no limit."""
        return self._service.submit(token_ids, params, turn=self._turn, **options)
