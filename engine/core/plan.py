"""What one engine step is asked to do and what comes back: the contracts between the scheduler, the
runner that holds the model and the text interface. Nothing here knows how either side works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from engine.core.request import Phase, Request


class Chunk(NamedTuple):
    """The positions `[start, start + length)` of one request that a step computes.

    `samples` says that the chunk reaches the last known token, so that its last row's logits give
    the next one. `request` is read by the runner (token ids, block table) and changed by nobody
    while the step runs.
    """

    request: Request
    start: int
    length: int
    phase: Phase
    samples: bool


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: its chunks in batch order, and who was admitted or preempted to make it."""

    chunks: tuple[Chunk, ...]
    admitted: tuple[Request, ...] = ()
    preempted: tuple[Request, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Positions computed in this step, over all requests."""
        return sum(chunk.length for chunk in self.chunks)

    def count(self, *phases: Phase) -> int:
        """Positions computed in this step in the given phases."""
        return sum(chunk.length for chunk in self.chunks if chunk.phase in phases)


class SampledToken(NamedTuple):
    """The outcome of one sampled row: a token id, or the sentence that says why there is none."""

    token_id: int = -1
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """One sampled token for each chunk with `samples`, in the order of the plan's chunks."""

    tokens: tuple[SampledToken, ...]


class Runner(Protocol):
    """Computes a step. Raises `OutOfMemory` when it did not fit; all else is a failure."""

    def run(self, plan: StepPlan) -> StepResult:
        """Compute every chunk's keys and values and sample the rows that ask for it."""
        ...

    def resize(self, num_blocks: int) -> None:
        """Start again with an empty pool of another size."""
        ...

    def reset(self) -> None:
        """Forget every key and value; called after a failure, when the pool is rebuilt."""
        ...


class TextDelta(NamedTuple):
    """Text that one more token makes certain; `stopped` once a stop string has matched."""

    text: str
    stopped: bool


class TextStream(Protocol):
    """Turns one request's output tokens into text as they come."""

    def push(self, token_id: int) -> TextDelta:
        """Take one more token; the text returned never changes afterwards."""
        ...

    def flush(self) -> str:
        """Text held back so far, once no more tokens will come."""
        ...


class Text(Protocol):
    """Makes a `TextStream` for a request."""

    def stream(self, request: Request) -> TextStream:
        """A fresh stream for this request's output."""
        ...


class NoText:
    """A text interface for engines that need none (simulation, scheduler tests)."""

    def stream(self, request: Request) -> TextStream:
        """A stream that yields no text and never stops."""
        return _SilentStream()


class _SilentStream:
    def push(self, token_id: int) -> TextDelta:
        return TextDelta("", False)

    def flush(self) -> str:
        return ""


def sampled_chunks(plan: StepPlan) -> Sequence[Chunk]:
    """The chunks of a plan that yield a token, in the order of `StepResult.tokens`."""
    return [chunk for chunk in plan.chunks if chunk.samples]
