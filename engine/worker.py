"""One life of an engine: its thread from loading to the end, its inbox and its live requests.

A restart makes another worker; one whose step never returns is left behind with all it had. Others
talk to the thread through a locked inbox. The worker knows no page and not how a model computes.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from engine.contracts import Build, EngineParts, ServiceState, ServiceStatus
from engine.core.clock import Clock
from engine.core.config import EngineConfig
from engine.core.engine import Engine, Output
from engine.core.errors import EngineStopped, InvalidRequest, PhaseScopeError, QueueFull
from engine.core.records import PoolRecord, record_pool
from engine.core.request import FinishReason, Request, RequestStatus, SamplingParams, Timeline
from engine.mailbox import Ending, Mailbox, TokenStream
from engine.telemetry.store import TraceStore
from engine.turns import Turn, TurnGate, TurnOver

log = logging.getLogger(__name__)

FAILURES_TO_STOP = 3
FAILURE_WINDOW = 60.0

# In these states the thread reads the inbox.
_ATTENDED = (ServiceStatus.READY, ServiceStatus.LOADING, ServiceStatus.MEASURING)


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


@dataclass(frozen=True, slots=True)
class _Reconfigure:
    config: EngineConfig
    applied: Future[None]


@dataclass(frozen=True, slots=True)
class _Call:
    """Something to be done between two steps; `act` may raise a PhaseScopeError."""

    act: Callable[[], None]
    applied: Future[None]


_Message = _Submit | _Cancel | _Delivered | _Reconfigure | _Call


class Worker:
    """Runs one engine. Every public method may be called from any thread.

    stuck_after: seconds that a step may take; recovery_pause: seconds after a failure in which
    nothing is accepted; num_steps: steps of the engines before this one.
    """

    def __init__(
        self,
        build: Build,
        store: TraceStore,
        clock: Clock,
        *,
        stuck_after: float,
        recovery_pause: float,
        num_steps: int,
    ) -> None:
        self.parts: EngineParts | None = None
        self.engine: Engine | None = None
        self.num_refused = 0
        self.state = ServiceState(ServiceStatus.LOADING, "Loading the model.", since=clock.now())
        self._build = build
        self._store = store
        self._clock = clock
        self._stuck_after = stuck_after
        self._recovery_pause = recovery_pause
        self._num_steps = num_steps
        self._lock = threading.Condition()
        self._inbox: deque[_Message] = deque()
        self._live: dict[int, tuple[Request, Mailbox]] = {}
        self._retired = False
        self._step_started: float | None = None
        self._pool_wanted = False
        self._pool: PoolRecord | None = None
        self._failures: deque[float] = deque(maxlen=FAILURES_TO_STOP)
        self._gate = TurnGate()
        self._threads: list[threading.Thread] = []

    # -- for everybody ----------------------------------------------------------------------------

    def start(self) -> None:
        """Load and serve, on threads that end with this worker."""
        for target, name in ((self._run, "engine"), (self._watch, "engine-watchdog")):
            thread = threading.Thread(target=target, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the threads to end, each `timeout` seconds at most; retire the worker before."""
        for thread in self._threads:
            thread.join(timeout)

    def retire(self, status: ServiceStatus, reason: str) -> None:
        """Serve no more; live requests end with the reason. A running step is not waited for."""
        with self._lock:
            if not self._retired:
                self._retired = True
                self._set_state(status, reason)
                self._end_live(reason)

    def serving(self) -> EngineParts:
        """The parts of the engine that serves; raises EngineStopped when none does."""
        if self.state.status is not ServiceStatus.READY or self.parts is None:
            raise EngineStopped(self.state.reason or "The engine does not take requests.")
        return self.parts

    def submit(
        self, make: Callable[[EngineParts], Request], turn: Turn | None = None
    ) -> tuple[TokenStream, Request]:
        """Queue the request that `make` makes, once there is a place for it.

        While a turn lasts, requests made in it are taken whatever their number, and others wait.

        Raises EngineStopped, QueueFull or PromptTooLong; the last leaves a record of the refusal.
        """
        mailbox = Mailbox()
        with self._lock:
            parts = self.serving()
            if turn is None:
                self._check_queue(self._gate.config or parts.config)
            else:
                self._gate.check(turn)
            request = make(parts)
            if turn is not None:
                turn.numbers.add(request.number)
            self._store.open(request)
            try:
                assert self.engine is not None
                config = self._gate.config if turn is None else None
                self.engine.scheduler.limit_output(request, config)
            except InvalidRequest as error:
                self._mark_failed(request, str(error))
                self._store.close(request)
                raise
            request.timeline.queued = self._clock.now()
            self._live[request.number] = (request, mailbox)
            self._post(_Submit(request))
        return self._stream(request, mailbox), request

    def reconfigure(self, config: EngineConfig) -> None:
        """Take over new limits; returns when they hold.

        Another pool or policy starts the engine anew: live requests end and are told why. Raises
        EngineStopped when no engine serves.
        """
        applied: Future[None] = Future()
        with self._lock:
            self.serving()
            if self._gate.turn is not None:
                raise InvalidRequest(
                    "An experiment has the engine for up to two minutes; change the settings "
                    "when it is over."
                )
            self._post(_Reconfigure(config, applied))
        applied.result()

    def begin_turn(self, turn: Turn, timeout: float) -> None:
        """Hold back what others submit from now on; returns once what runs has ended.

        Raises TurnOver when that takes more than `timeout` seconds, EngineStopped when no engine
        serves.
        """
        self._call(lambda: self._gate.begin(turn, self.serving().config))
        try:
            turn.begun.result(timeout)
        except TimeoutError:
            self.end_turn(turn)
            raise TurnOver(
                f"The engine was still busy after {timeout:g} s. Try again when fewer people use "
                f"it."
            ) from None

    def prepare_turn(self, turn: Turn, config: EngineConfig) -> None:
        """In a turn, start from an empty cache under `config`; what the holder left is ended."""

        def prepare() -> None:
            self._gate.check(turn)
            self._publish(self._serving_engine().fail_all("The experiment went on without it."))
            self._start_again(config)

        self._call(prepare)

    def end_turn(self, turn: Turn) -> None:
        """Give the engine back as it was: those who waited are served. Harmless when over."""

        def end() -> None:
            if self._gate.turn is not turn:
                return
            before = self._gate.config
            engine = self._serving_engine()
            if turn.begun.done():
                self._publish(engine.fail_all("The experiment's turn was over."))
            if before is not None and engine.config != before:
                self._start_again(before)
            for request in self._gate.end():
                self._add(request)

        while not self._retired:
            try:
                self._call(end)
                return
            except EngineStopped:
                # After a failure nothing is accepted for a moment; the turn has to end all the
                # same.
                with self._lock:
                    self._lock.wait_for(
                        lambda: self._retired or self.state.status is ServiceStatus.READY
                    )

    def pool(self) -> PoolRecord | None:
        """The KV pool as it was when this was last called, and ask for it as it is now.

        The engine's thread copies it between two steps, so that a copy never shows half a step.
        None before the first copy.
        """
        with self._lock:
            self._pool_wanted = True
            self._lock.notify_all()
            return self._pool

    def _call(self, act: Callable[[], None]) -> None:
        applied: Future[None] = Future()
        with self._lock:
            self.serving()
            self._post(_Call(act, applied))
        applied.result()

    def _check_queue(self, config: EngineConfig) -> None:
        """Raise QueueFull when no more requests of everybody may wait. The lock is held."""
        turn = self._gate.turn
        own = turn.numbers if turn is not None else set()
        if len(self._live.keys() - own) >= config.max_running + config.max_waiting:
            self.num_refused += 1
            raise QueueFull(
                f"The queue is full ({config.max_waiting} waiting). Try again in a moment."
            )

    def _stream(self, request: Request, mailbox: Mailbox) -> TokenStream:
        def report(times: list[float], done: bool) -> None:
            self._post(_Delivered(request, times if request.streamed else [], done))

        return TokenStream(
            request,
            mailbox,
            self._clock,
            cancel=lambda: self._post(_Cancel(request)),
            report=report,
        )

    def _post(self, message: _Message) -> None:
        with self._lock:
            if self.state.status in _ATTENDED and not self._retired:
                self._inbox.append(message)
                self._lock.notify_all()
            elif isinstance(message, _Delivered):
                self._delivered(message)  # every request has ended, and no thread reads the inbox

    # -- the engine's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            parts = self._build(self._advance)
        except Exception as error:
            # Whatever loading runs into, the page must say it and offer to try again.
            log.exception("The model could not be loaded")
            self.retire(ServiceStatus.FAILED, _sentence(error))
            return
        with self._lock:
            self._start_engine(parts)
            if not self._advance(ServiceStatus.READY, ""):
                return
        while True:
            try:
                if not self._receive():
                    return
                self._step()
                if not self._serving_engine().has_work:
                    self._gate.grant()
            except Exception as error:
                if not self._recover(error):
                    return

    def _start_engine(self, parts: EngineParts) -> Engine:
        num_steps = self.engine.num_steps if self.engine else self._num_steps
        engine = Engine(
            parts.config, parts.runner, parts.tokenizer, self._clock, num_steps=num_steps
        )
        self.parts, self.engine = parts, engine
        return engine

    def _receive(self) -> bool:
        """Act on the inbox; wait while there is nothing to do. False when this thread is to end."""
        engine = self._serving_engine()
        with self._lock:
            if not (engine.has_work or self._inbox or self._pool_wanted):
                engine.scheduler.check()
            self._lock.wait_for(
                lambda: engine.has_work or self._inbox or self._pool_wanted or self._retired
            )
            if self._retired:
                return False
            messages = list(self._inbox)
            self._inbox.clear()
            if self._pool_wanted:
                self._pool = record_pool(engine.scheduler.pool, engine.scheduler.running)
                self._pool_wanted = False
        for message in messages:
            self._act(message)
        return True

    def _act(self, message: _Message) -> None:
        engine = self._serving_engine()
        if isinstance(message, _Submit):
            # A restart with other settings, before it in the inbox, may have ended it.
            request = message.request
            if request.finish_reason is None and not self._gate.holds(request):
                self._add(request)
        elif isinstance(message, _Cancel):
            if self._gate.drop(message.request):
                output: Output | None = self._cancel_held(message.request)
            else:
                output = engine.cancel(message.request)
            if output is not None:
                self._publish((output,))
        elif isinstance(message, _Delivered):
            self._delivered(message)
        elif isinstance(message, _Reconfigure):
            self._apply(message)
        else:
            try:
                message.act()
            except PhaseScopeError as error:
                message.applied.set_exception(error)
            else:
                message.applied.set_result(None)

    def _step(self) -> None:
        self._step_started = self._clock.now()
        try:
            output = self._serving_engine().step()
        finally:
            self._step_started = None
        if output is None or self._retired:
            return
        if output.record is not None:
            self._store.add_step(output.record)
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
                    self._live.pop(request.number, None)

    def _add(self, request: Request) -> None:
        """Queue a request in the engine; one that no longer fits, after a turn, fails alone."""
        try:
            self._serving_engine().add(request)
        except InvalidRequest as error:
            self._mark_failed(request, str(error))
            self._publish((Output(request, None, "", FinishReason.ERROR, str(error)),))

    def _delivered(self, message: _Delivered) -> None:
        message.request.timeline.token_delivered.extend(message.times)
        if message.done:
            self._store.close(message.request)

    def _apply(self, message: _Reconfigure) -> None:
        engine, parts = self._serving_engine(), self.serving()
        try:
            if engine.config.same_pool(message.config):
                engine.reconfigure(message.config)
                self.parts = replace(parts, config=message.config)
            else:
                reason = "The engine was restarted with other settings; send the message again."
                with self._lock:
                    self._publish(engine.fail_all(reason))
                    self._end_live(reason)
                    self._start_again(message.config)
        except Exception as error:
            message.applied.set_exception(error)
            raise
        message.applied.set_result(None)

    def _start_again(self, config: EngineConfig) -> None:
        """An engine with an empty pool under `config`, for the same model."""
        parts = self.serving()
        parts.runner.resize(config.num_blocks)
        self._start_engine(replace(parts, config=config))

    def _serving_engine(self) -> Engine:
        assert self.engine is not None, "the engine's thread runs before there is an engine"
        return self.engine

    # -- failure ----------------------------------------------------------------------------------

    def _recover(self, error: Exception) -> bool:
        """End everybody with the reason and go on with an empty pool; False when it is enough."""
        log.exception("An engine step failed")
        reason = f"The engine failed: {_sentence(error)}"
        with self._lock:
            if self._retired:
                return False
            now = self._clock.now()
            self._failures.append(now)
            often = len(self._failures) == FAILURES_TO_STOP
            if often and now - self._failures[0] <= FAILURE_WINDOW:
                self.retire(
                    ServiceStatus.STOPPED,
                    f"{reason} It failed {FAILURES_TO_STOP} times within a minute, so it was "
                    f"stopped. Restart the engine to try again.",
                )
                return False
            self._set_state(ServiceStatus.RECOVERING, reason)
            self._publish(self._serving_engine().fail_all(reason))
            self._end_live(reason)
            self._lock.wait_for(lambda: self._retired, timeout=self._recovery_pause)
        try:
            _probe_step(self._serving_engine(), self._clock.now())
        except Exception as again:
            return self._recover(again)
        return self._advance(ServiceStatus.READY, "")

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
            elif isinstance(message, _Reconfigure | _Call):
                message.applied.set_exception(EngineStopped(reason))
        self._gate.forget()
        if self._retired:
            self._gate.end(reason)

    def _cancel_held(self, request: Request) -> Output:
        request.status = RequestStatus.FINISHED
        request.finish_reason = FinishReason.CANCELLED
        request.timeline.finished = self._clock.now()
        return Output(request, None, "", FinishReason.CANCELLED)

    def _mark_failed(self, request: Request, reason: str) -> None:
        request.finish_reason = FinishReason.ERROR
        request.error = reason
        request.timeline.finished = self._clock.now()

    def _watch(self) -> None:
        """Notice a step that never returns: its clients are told, and the state says so.

        The thread cannot be stopped from outside; what it computes is dropped.
        """
        with self._lock:
            while not self._retired:
                started = self._step_started
                if started is not None and self._clock.now() - started > self._stuck_after:
                    self.retire(
                        ServiceStatus.STUCK,
                        f"A step has run for more than {self._stuck_after:g} s. "
                        f"Restart the engine to try again.",
                    )
                    return
                self._lock.wait(timeout=min(1.0, self._stuck_after / 4))

    def _advance(self, status: ServiceStatus, reason: str, progress: float | None = None) -> bool:
        """Change the state unless this worker is retired; whether it was changed."""
        with self._lock:
            if not self._retired:
                self._set_state(status, reason, progress)
            return not self._retired

    def _set_state(self, status: ServiceStatus, reason: str, progress: float | None = None) -> None:
        since = self.state.since if status is self.state.status else self._clock.now()
        self.state = ServiceState(status, reason, progress, since)
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
