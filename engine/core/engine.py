"""One engine step, start to end, as a plain function: plan, run, text, commit, record.

The engine is handed its clock, its runner and its text interface, so that the same code serves a
real model and a simulated one. It has no thread; whoever calls it does so from one thread at a
time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from engine.core.clock import Clock
from engine.core.config import EngineConfig
from engine.core.errors import OutOfMemory
from engine.core.plan import (
    Chunk,
    Runner,
    SampledToken,
    StepPlan,
    Text,
    TextStream,
    sampled_chunks,
)
from engine.core.records import StepRecord, StepRow
from engine.core.request import FinishReason, Phase, Request, SampledLogprob
from engine.core.scheduler import Scheduler, TokenOutcome


class Output(NamedTuple):
    """One thing for a request's reader: a token with the text it makes certain, an end, or both.

    `token_id` is None when the request ended without a token (cancelled, failed); `finish_reason`
    is set on a request's last output and only there.
    """

    request: Request
    token_id: int | None
    text: str
    finish_reason: FinishReason | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step leaves for others: its record (None if it had to be given up) and the outputs."""

    record: StepRecord | None
    outputs: tuple[Output, ...]


class Engine:
    """Scheduler, runner and text put together. Not thread-safe."""

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        text: Text,
        clock: Clock,
        *,
        num_steps: int = 0,
    ) -> None:
        """`num_steps` counts on from an engine before this one, so that step numbers only rise."""
        self.config = config
        self.scheduler = Scheduler(config)
        self.num_steps = num_steps
        self._runner = runner
        self._text = text
        self._clock = clock
        self._streams: dict[int, TextStream] = {}

    @property
    def has_work(self) -> bool:
        """Whether a call of `step` would find something to do."""
        return self.scheduler.has_work

    def add(self, request: Request) -> None:
        """Queue a request; raises PromptTooLong when it can never fit."""
        self.scheduler.add(request)
        self._streams[request.number] = self._text.stream(request)

    def cancel(self, request: Request) -> Output | None:
        """End a request on its reader's wish; None if it had already ended or never was here."""
        return self._end(request, FinishReason.CANCELLED)

    def step(self) -> StepOutput | None:
        """Compute one step; None when there was nothing to do.

        When the step does not fit in memory, its largest prompt chunk's request fails and the
        others are left for the next step. Whatever else the runner raises goes to the caller, and
        no token has been added to any request then.
        """
        start = self._clock.now()
        plan = self.scheduler.plan(start)
        if not plan.chunks:
            return None
        num_running = len(self.scheduler.running)
        model_start = self._clock.now()
        try:
            result = self._runner.run(plan)
        except OutOfMemory as error:
            return StepOutput(None, self._fail_largest(plan, str(error)))
        model_seconds = self._clock.now() - model_start
        chunks = sampled_chunks(plan)
        pairs = [
            self._read(chunk.request, token)
            for chunk, token in zip(chunks, result.tokens, strict=True)
        ]
        end = self._clock.now()
        finished = self.scheduler.commit(plan, [outcome for outcome, _ in pairs], start, end)
        for request in finished:
            del self._streams[request.number]
        outputs = tuple(
            _output(chunk.request, outcome, text)
            for chunk, (outcome, text) in zip(chunks, pairs, strict=True)
        )
        record = self._record(
            plan,
            start=start,
            duration=end - start,
            model_seconds=model_seconds,
            num_running=num_running,
            finished=tuple(request.number for request in finished),
        )
        return StepOutput(record, outputs)

    def reconfigure(self, config: EngineConfig) -> None:
        """Take over another budget, slots or queue limit; see `Scheduler.reconfigure`."""
        self.scheduler.reconfigure(config, self._clock.now())
        self.config = config

    def fail_all(self, reason: str) -> tuple[Output, ...]:
        """End every request with an error and start again with an empty pool and runner."""
        scheduler = self.scheduler
        outputs = self._end_all([*scheduler.running, *scheduler.waiting], reason)
        scheduler.rebuild_pool()
        self._runner.reset()
        return outputs

    def _read(self, request: Request, token: SampledToken) -> tuple[TokenOutcome, str]:
        """Turn a sampled token into its outcome and the text that it makes certain."""
        if token.error is not None:
            text = self._streams[request.number].flush()
            return TokenOutcome(-1, FinishReason.ERROR, token.error), text
        logprob = (
            None
            if token.logprob is None
            else SampledLogprob(token.logprob, token.top_logprobs or ())
        )
        stream = self._streams[request.number]
        reason: FinishReason | None = None
        text = ""
        if token.token_id in request.end_token_ids and not request.params.ignore_eos:
            reason = FinishReason.STOP
        else:
            text, stopped = stream.push(token.token_id)
            if stopped:
                return TokenOutcome(token.token_id, FinishReason.STOP, None, logprob), text
            if request.num_output_tokens + 1 >= request.max_output_tokens:
                reason = FinishReason.LENGTH
        if reason is not None:
            text += stream.flush()
        return TokenOutcome(token.token_id, reason, None, logprob), text

    def _end(self, request: Request, reason: FinishReason, error: str = "") -> Output | None:
        stream = self._streams.pop(request.number, None)
        if stream is None:
            return None
        self.scheduler.end(request, reason, self._clock.now(), error)
        return Output(request, None, stream.flush(), reason, request.error)

    def _end_all(self, requests: Iterable[Request], error: str) -> tuple[Output, ...]:
        outputs = (self._end(request, FinishReason.ERROR, error) for request in requests)
        return tuple(output for output in outputs if output is not None)

    def _fail_largest(self, plan: StepPlan, reason: str) -> tuple[Output, ...]:
        """Fail the request with the largest prompt chunk, or the newest where nobody reads one."""

        def weight(chunk: Chunk) -> tuple[bool, int, int]:
            return chunk.phase is not Phase.DECODE, chunk.length, chunk.request.arrival

        largest = max(plan.chunks, key=weight)
        return self._end_all([largest.request], reason)

    def _record(
        self,
        plan: StepPlan,
        *,
        start: float,
        duration: float,
        model_seconds: float,
        num_running: int,
        finished: tuple[int, ...],
    ) -> StepRecord:
        scheduler, pool = self.scheduler, self.scheduler.pool
        self.num_steps += 1
        rows = tuple(StepRow(c.request.number, c.start, c.length, c.phase) for c in plan.chunks)
        tokens = dict.fromkeys(Phase, 0)
        for row in rows:
            tokens[row.phase] += row.length
        return StepRecord(
            number=self.num_steps,
            start=start,
            duration=duration,
            model_seconds=model_seconds,
            prefill_tokens=tokens[Phase.PREFILL],
            recompute_tokens=tokens[Phase.RECOMPUTE],
            decode_tokens=tokens[Phase.DECODE],
            num_running=num_running,
            num_waiting=len(scheduler.waiting),
            used_blocks=pool.num_used,
            evictable_blocks=pool.num_evictable,
            free_blocks=pool.num_free,
            num_sampled=sum(chunk.samples for chunk in plan.chunks),
            rows=rows,
            admitted=tuple(request.number for request in plan.admitted),
            preempted=tuple(request.number for request in plan.preempted),
            finished=finished,
            displaced=pool.take_displaced(),
        )


def _output(request: Request, outcome: TokenOutcome, text: str) -> Output:
    token_id = None if outcome.error is not None else outcome.token_id
    return Output(request, token_id, text, outcome.finish_reason, outcome.error)
