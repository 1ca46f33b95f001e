"""The engine on a thread of its own, for everybody else: submit, read, cancel, health, restart.

One thread loads the model and then steps the engine; all others talk to it through a locked inbox.
The service knows no page and no route, and nothing of how a model computes.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.contracts import Build, EngineParts, ModelInfo, ServiceState, ServiceStatus, Tokenizer
from engine.core.clock import MonotonicClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine, Output
from engine.core.errors import EngineStopped, InvalidRequest, PhaseScopeError, QueueFull
from engine.core.records import PoolRecord, record_pool
from engine.core.request import FinishReason, Request, SamplingParams, Timeline
from engine.mailbox import Ending, Mailbox, TokenStream
from engine.telemetry.store import TraceStore

log = logging.getLogger(__name__)

FAILURES_TO_STOP = 3
FAILURE_WINDOW = 60.0


@dataclass(frozen=True, slots=True)
class _Submit:
    request: Request


@dataclass(frozen=True, slots=True)
class _Cancel:
    request: Request


@dataclass(frozen=True, slots=True)
class _Delivered:
    request: Request
    times: list[float]
    done: bool


# In these states a thread reads the inbox.
_ATTENDED = (ServiceStatus.READY, ServiceStatus.LOADING, ServiceStatus.MEASURING)


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
        self._lock = threading.Condition()
        self._inbox: deque[_Submit | _Cancel | _Delivered] = deque()
        self._live: dict[int, tuple[Request, Mailbox]] = {}
        self._num_requests = 0
        self._num_refused = 0
        self._generation = 0
        self._state = ServiceState(ServiceStatus.CLOSED)
        self._parts: EngineParts | None = None
        self._engine: Engine | None = None
        self._step_started: float | None = None
        self._pool_wanted = False
        self._pool: PoolRecord | None = None
        self._failures: deque[float] = deque(maxlen=FAILURES_TO_STOP)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Load the model and serve, on a new thread; does nothing while one is at work."""
        with self._lock:
            if self._state.status not in (
                ServiceStatus.CLOSED,
                ServiceStatus.FAILED,
                ServiceStatus.STOPPED,
                ServiceStatus.STUCK,
            ):
                return
            self._generation += 1
            generation = self._generation
            self._step_started = None
            self._failures.clear()
            self._set_state(ServiceStatus.LOADING, "Loading the model.")
        for target, name in ((self._run, "engine"), (self._watch, "engine-watchdog")):
            threading.Thread(target=target, args=(generation,), name=name, daemon=True).start()

    def close(self) -> None:
        """Stop serving; live requests end with an error. A step that runs is not waited for."""
        with self._lock:
            self._generation += 1
            self._set_state(ServiceStatus.CLOSED, "The engine was shut down.")
            self._end_live(self._state.reason)

    @property
    def state(self) -> ServiceState:
        """What the service is doing now."""
        return self._state

    def health(self) -> tuple[bool, str]:
        """Whether requests are served, and if not, why, in a sentence."""
        state = self._state
        if state.status is ServiceStatus.READY:
            return True, "The engine serves."
        return False, state.reason or f"The engine is {state.status}."

    @property
    def config(self) -> EngineConfig | None:
        """The engine's limits; None until the model is loaded."""
        return self._parts.config if self._parts else None

    @property
    def info(self) -> ModelInfo | None:
        """What the page says of the model and the device; None until the model is loaded."""
        return self._parts.info if self._parts else None

    @property
    def engine(self) -> Engine | None:
        """The engine, to be looked at and not touched; None until the model is loaded."""
        return self._engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer; raises EngineStopped until the model is loaded."""
        if self._parts is None:
            raise EngineStopped(self._state.reason or "The model is not loaded yet.")
        return self._parts.tokenizer

    def pool(self) -> PoolRecord | None:
        """The KV pool as it was when this was last called, and ask for it as it is now.

        The engine's thread copies it between two steps, so that a copy never shows half a step.
        None before the first copy.
        """
        with self._lock:
            self._pool_wanted = True
            self._lock.notify_all()
            return self._pool

    @property
    def num_refused(self) -> int:
        """Requests turned away because the queue was full."""
        return self._num_refused

    @property
    def num_waiting(self) -> int:
        """Requests submitted and not yet computing."""
        with self._lock:
            return sum(request.timeline.scheduled is None for request, _ in self._live.values())

    # -- requests -------------------------------------------------------------------------------

    def submit_chat(
        self, messages: Sequence[dict[str, Any]], params: SamplingParams, **options: Any
    ) -> TokenStream:
        """Submit a chat; see `submit`."""
        return self._submit(lambda tokenizer: tokenizer.render(messages), params, **options)

    def submit_text(self, text: str, params: SamplingParams, **options: Any) -> TokenStream:
        """Submit plain text to be continued; see `submit`."""
        return self._submit(lambda tokenizer: tokenizer.encode(text), params, **options)

    def submit(
        self, token_ids: Sequence[int], params: SamplingParams, **options: Any
    ) -> TokenStream:
        """Submit a prompt of token ids; tokenising happens in the caller's thread.

        Options: `cache_salt`, `label` and `streamed`, as in `Request`. Raises InvalidRequest (or
        PromptTooLong) for what cannot be served, QueueFull, or EngineStopped; nothing is left
        behind then.
        """
        return self._submit(lambda _: list(token_ids), params, **options)

    def _submit(
        self,
        prepare: Callable[[Tokenizer], list[int]],
        params: SamplingParams,
        *,
        cache_salt: str | None = None,
        label: str | None = None,
        streamed: bool = True,
    ) -> TokenStream:
        submitted = self.clock.now()
        parts, _ = self._check_open()
        token_ids = prepare(parts.tokenizer)
        if not token_ids:
            raise InvalidRequest("The prompt is empty; send at least one token.", field="prompt")
        mailbox = Mailbox()
        with self._lock:
            parts, engine = self._check_open()
            limit = parts.config.max_running + parts.config.max_waiting
            if len(self._live) >= limit:
                self._num_refused += 1
                raise QueueFull(
                    f"The queue is full ({parts.config.max_waiting} waiting). "
                    f"Try again in a moment."
                )
            self._num_requests += 1
            request = Request(
                number=self._num_requests,
                token_ids=token_ids,
                params=params,
                seed=params.seed if params.seed is not None else secrets.randbits(63),
                timeline=Timeline(submitted=submitted),
                end_token_ids=parts.tokenizer.end_token_ids,
                cache_salt=cache_salt,
                label=label,
                streamed=streamed,
            )
            self.store.open(request)
            try:
                engine.scheduler.limit_output(request)
            except InvalidRequest as error:
                self._refuse(request, str(error))
                raise
            request.timeline.queued = self.clock.now()
            self._live[request.number] = (request, mailbox)
            self._post(_Submit(request))
        return self._stream(request, mailbox)

    def _stream(self, request: Request, mailbox: Mailbox) -> TokenStream:
        def report(times: list[float], done: bool) -> None:
            self._post(_Delivered(request, times if request.streamed else [], done))

        return TokenStream(
            request,
            mailbox,
            self.clock,
            cancel=lambda: self._post(_Cancel(request)),
            report=report,
        )

    def _refuse(self, request: Request, reason: str) -> None:
        """Keep the record of a request that was turned down for what it asks."""
        self._mark_failed(request, reason)
        self.store.close(request)

    def _check_open(self) -> tuple[EngineParts, Engine]:
        if self._state.status is not ServiceStatus.READY or not self._parts or not self._engine:
            raise EngineStopped(self._state.reason or "The engine does not take requests.")
        return self._parts, self._engine

    def _post(self, message: _Submit | _Cancel | _Delivered) -> None:
        with self._lock:
            if self._state.status in _ATTENDED:
                self._inbox.append(message)
                self._lock.notify_all()
            elif isinstance(message, _Delivered):
                self._delivered(message)  # every request has ended, and no thread reads the inbox

    # -- the engine's thread --------------------------------------------------------------------

    def _run(self, generation: int) -> None:
        try:
            parts = self._build(
                lambda status, text, share: self._advance(generation, status, text, share)
            )
        except Exception as error:
            # Whatever loading runs into, the page must say it and offer to try again.
            log.exception("The model could not be loaded")
            self._advance(generation, ServiceStatus.FAILED, _sentence(error))
            return
        with self._lock:
            if generation != self._generation:
                return
            num_steps = self._engine.num_steps if self._engine else 0
            engine = Engine(
                parts.config, parts.runner, parts.tokenizer, self.clock, num_steps=num_steps
            )
            self._parts, self._engine = parts, engine
            self._set_state(ServiceStatus.READY, "")
        while self._receive(generation, engine):
            try:
                self._step(generation, engine)
            except Exception as error:
                if not self._recover(generation, engine, error):
                    return

    def _receive(self, generation: int, engine: Engine) -> bool:
        """Act on the inbox; wait while there is nothing to do. False when this thread is to end."""
        with self._lock:
            if not (engine.has_work or self._inbox or self._pool_wanted):
                engine.scheduler.check()
            self._lock.wait_for(
                lambda: (
                    engine.has_work
                    or self._inbox
                    or self._pool_wanted
                    or generation != self._generation
                )
            )
            if generation != self._generation:
                return False
            messages = list(self._inbox)
            self._inbox.clear()
            if self._pool_wanted:
                self._pool = record_pool(engine.scheduler.pool, engine.scheduler.running)
                self._pool_wanted = False
        for message in messages:
            if isinstance(message, _Submit):
                engine.add(message.request)
            elif isinstance(message, _Cancel):
                output = engine.cancel(message.request)
                if output is not None:
                    self._publish((output,))
            else:
                self._delivered(message)
        return True

    def _step(self, generation: int, engine: Engine) -> None:
        self._step_started = self.clock.now()
        try:
            output = engine.step()
        finally:
            if generation == self._generation:
                self._step_started = None
        if output is None or generation != self._generation:
            return
        if output.record is not None:
            self.store.add_step(output.record)
        self._publish(output.outputs)

    def _publish(self, outputs: Sequence[Output]) -> None:
        """Hand tokens and ends to their readers. A request's record stays open for its reader."""
        for request, token_id, text, reason, error in outputs:
            entry = self._live.get(request.number)
            if entry is None:
                continue
            mailbox = entry[1]
            if token_id is not None:
                mailbox.put(token_id, text)
                text = ""
            if reason is not None:
                mailbox.close(Ending(reason, text, error))
                with self._lock:
                    del self._live[request.number]

    def _delivered(self, message: _Delivered) -> None:
        message.request.timeline.token_delivered.extend(message.times)
        if message.done:
            self.store.close(message.request)

    # -- failure --------------------------------------------------------------------------------

    def _recover(self, generation: int, engine: Engine, error: Exception) -> bool:
        """End everybody with the reason and go on with an empty pool; False when it is enough."""
        log.exception("An engine step failed")
        reason = f"The engine failed: {_sentence(error)}"
        with self._lock:
            if generation != self._generation:
                return False
            now = self.clock.now()
            self._failures.append(now)
            often = len(self._failures) == FAILURES_TO_STOP
            stopped = often and now - self._failures[0] <= FAILURE_WINDOW
            if stopped:
                reason += (
                    f" It failed {FAILURES_TO_STOP} times within a minute, so it was stopped. "
                    f"Restart the engine to try again."
                )
            self._set_state(ServiceStatus.STOPPED if stopped else ServiceStatus.RECOVERING, reason)
            self._publish(engine.fail_all(reason))
            self._end_live(reason)
        return not stopped and self._wait_and_probe(generation, engine)

    def _wait_and_probe(self, generation: int, engine: Engine) -> bool:
        with self._lock:
            self._lock.wait_for(
                lambda: generation != self._generation, timeout=self._recovery_pause
            )
        try:
            _probe_step(engine, self.clock.now())
        except Exception as error:
            return self._recover(generation, engine, error)
        return self._advance(generation, ServiceStatus.READY, "")

    def _end_live(self, reason: str) -> None:
        """Give every live request its end: nobody is left waiting. The lock is held."""
        live = list(self._live.values())
        posted = list(self._inbox)
        self._live.clear()
        self._inbox.clear()
        for request, mailbox in live:
            if request.finish_reason is None:
                self._mark_failed(request, reason)
            mailbox.close(Ending(FinishReason.ERROR, "", reason))
        for message in posted:
            if isinstance(message, _Delivered):
                self._delivered(message)

    def _mark_failed(self, request: Request, reason: str) -> None:
        request.finish_reason = FinishReason.ERROR
        request.error = reason
        request.timeline.finished = self.clock.now()

    def _watch(self, generation: int) -> None:
        """Notice a step that never returns: its clients are told, and the state says so."""
        with self._lock:
            while generation == self._generation:
                started = self._step_started
                running = started is not None and self._state.status is ServiceStatus.READY
                if running and started is not None and self._is_stuck(started):
                    # The thread cannot be stopped from outside; what it computes is dropped.
                    self._generation += 1
                    self._set_state(
                        ServiceStatus.STUCK,
                        f"A step has run for more than {self.stuck_after:g} s. "
                        f"Restart the engine to try again.",
                    )
                    self._end_live(self._state.reason)
                    return
                self._lock.wait(timeout=min(1.0, self.stuck_after / 4))

    def _is_stuck(self, started: float) -> bool:
        return self.clock.now() - started > self.stuck_after

    def _advance(
        self,
        generation: int,
        status: ServiceStatus,
        reason: str,
        progress: float | None = None,
    ) -> bool:
        """Change the state unless another thread has taken over; whether it was changed."""
        with self._lock:
            if generation != self._generation:
                return False
            self._set_state(status, reason, progress)
            return True

    def _set_state(self, status: ServiceStatus, reason: str, progress: float | None = None) -> None:
        since = self._state.since if status is self._state.status else self.clock.now()
        self._state = ServiceState(status, reason, progress, since)
        self._lock.notify_all()


def _probe_step(engine: Engine, now: float) -> None:
    """One token of one short request, to see that the engine computes again."""
    request = Request(
        number=0,
        token_ids=[0],
        params=SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True),
        seed=0,
        timeline=Timeline(submitted=now),
    )
    engine.add(request)
    engine.step()
    if request.finish_reason is not FinishReason.LENGTH:
        raise PhaseScopeError(request.error or "the step after the failure gave no token")


def _sentence(error: Exception) -> str:
    """An error as a person may read it: our own are sentences, others are named."""
    if isinstance(error, PhaseScopeError):
        return str(error)
    return f"{type(error).__name__}: {error}"
