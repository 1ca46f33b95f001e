"""The same scheduler on a virtual clock and a cost model: what a machine that nobody has would do.

A step takes the longer of its arithmetic and its memory traffic at the device's ceilings, and the
fixed seconds of a step (`engine.telemetry.roofline` has the counts and their sources). Nothing is
computed and nothing is delivered: whatever comes of this is labelled simulated.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.core.capacity import Ceilings, ModelShape
from engine.core.clock import VirtualClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.errors import PromptTooLong
from engine.core.plan import Chunk, NoText, SampledToken, StepPlan, StepResult
from engine.core.records import StepRecord, StepRow, record_request
from engine.core.request import Request, SamplingParams, Timeline
from engine.lab.runs import Progress, Run, Schedule, Sent
from engine.lab.workload import WorkItem, Workload
from engine.lab.workload_text import TokenSource
from engine.telemetry.roofline import ideal_seconds, step_work

SMOLLM2_135M = ModelShape(
    hidden_size=576,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    intermediate_size=1536,
    vocab_size=49_152,
    tied=True,
    weight_bytes=2 * 134_515_008,
    matrix_parameters=106_168_320,
    kv_bytes_per_token=2 * 30 * 3 * 64 * 2,
    activation_bytes=2,
)
"""SmolLM2-135M in bfloat16, after its published configuration."""

# A time that was reached by adding steps may fall short of itself by a rounding.
_TOLERANCE = 1e-9


class SimulatedRunner:
    """Lets a step's time pass and makes up a token for each row that samples."""

    def __init__(self, shape: ModelShape, ceilings: Ceilings, clock: VirtualClock) -> None:
        self._shape = shape
        self._ceilings = ceilings
        self._clock = clock

    def run(self, plan: StepPlan) -> StepResult:
        """Advance the clock by what the plan costs on this device."""
        rows = [StepRow(c.request.number, c.start, c.length, c.phase) for c in plan.chunks]
        sampled = [chunk for chunk in plan.chunks if chunk.samples]
        work = step_work(self._shape, rows, len(sampled))
        self._clock.advance(ideal_seconds(work, self._ceilings) + self._ceilings.overhead_seconds)
        return StepResult(tuple(SampledToken(self._token(chunk)) for chunk in sampled))

    def resize(self, num_blocks: int) -> None:
        """Nothing is stored, so any size will do."""

    def reset(self) -> None:
        """Nothing is stored."""

    def _token(self, chunk: Chunk) -> int:
        # Answers of different requests must differ, or the prefix cache would find them equal.
        request = chunk.request
        return (request.seed * 2_654_435_761 + request.num_tokens) % self._shape.vocab_size


def simulate(
    workload: Workload,
    config: EngineConfig,
    shape: ModelShape,
    ceilings: Ceilings,
    *,
    progress: Progress = lambda done, total: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Serve a workload under a configuration in virtual time, from an empty cache.

    Requests are sent exactly as planned, tokens are delivered as they are sampled, and the queue
    has no limit: only the scheduler and the device count.
    """
    return _Simulation(workload, config, shape, ceilings).run(progress, should_stop)


def simulated_tokens(shape: ModelShape) -> TokenSource:
    """Tokens to make prompts of where there is no tokenizer: all of them are ordinary."""
    return TokenSource(shape.vocab_size)


class _Simulation:
    def __init__(
        self, workload: Workload, config: EngineConfig, shape: ModelShape, ceilings: Ceilings
    ) -> None:
        self._workload = workload
        self._clock = VirtualClock()
        runner = SimulatedRunner(shape, ceilings, self._clock)
        self._engine = Engine(config, runner, NoText(), self._clock)
        self._schedule = Schedule(workload)
        self._requests: list[Request] = []
        self._sends: list[Sent] = []
        self._steps: list[StepRecord] = []
        self._num_ended = 0

    def run(self, progress: Progress, should_stop: Callable[[], bool]) -> Run:
        total = len(self._workload.items)
        stopped = False
        while self._send_due() or self._engine.has_work:
            if should_stop():
                stopped = True
                break
            if self._step():
                progress(self._num_ended, total)
        for request in self._requests:
            request.timeline.token_delivered[:] = request.timeline.token_sampled
        return Run(
            records=tuple(record_request(r, complete=r.finished) for r in self._requests),
            steps=tuple(self._steps),
            sends=tuple(self._sends),
            start=0.0,
            end=self._clock.now(),
            stopped=stopped,
        )

    def _send_due(self) -> bool:
        """Send what is due, or pass the time until something is; False when nothing is left."""
        while True:
            now = self._clock.now()
            while due := self._schedule.take(now + _TOLERANCE):
                planned, index = due
                self._send(planned, index, self._workload.items[index])
            next_time = self._schedule.next_time
            if self._engine.has_work or next_time is None:
                return self._engine.has_work
            self._clock.advance(max(0.0, next_time - now))

    def _send(self, planned: float, index: int, item: WorkItem) -> None:
        number = index + 1
        request = Request(
            number=number,
            token_ids=list(item.token_ids),
            params=SamplingParams(
                temperature=0.0, max_tokens=item.num_output_tokens, ignore_eos=True
            ),
            seed=number,
            timeline=Timeline(submitted=planned, queued=planned),
            priority=item.priority,
            streamed=self._workload.streamed,
        )
        error = None
        try:
            self._engine.add(request)
        except PromptTooLong as refusal:
            error = str(refusal)
            self._end(index, planned)
        else:
            self._requests.append(request)
        self._sends.append(Sent(index, planned, planned, error))

    def _step(self) -> bool:
        """One engine step; whether a request ended in it."""
        output = self._engine.step()
        if output is None or output.record is None:
            return False
        self._steps.append(output.record)
        ended = self._num_ended
        for item in output.outputs:
            if item.finish_reason is not None:
                self._end(item.request.number - 1, self._clock.now())
        return self._num_ended > ended

    def _end(self, index: int, now: float) -> None:
        self._num_ended += 1
        self._schedule.ended(index, now)
