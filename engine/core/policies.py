"""How a step is filled. A policy only orders the calls to a `StepFiller`, which keeps slots and
blocks and, where the policy does not say otherwise, the budget; so no policy can break a limit.

`explanation` is the sentence that the page shows beside the policy's name.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Protocol

from engine.core.request import Request


class Reading(Enum):
    """How much of a prompt one step takes.

    CHUNK: what the token budget leaves, at most the long-prompt threshold.
    WHOLE: all of it or nothing; prompts share a step while the budget holds them all, and one that
    is longer than the budget is read alone.
    WHOLE_BATCH: all of it, whatever the budget.
    """

    CHUNK = "chunk"
    WHOLE = "whole"
    WHOLE_BATCH = "whole batch"


class StepFiller(Protocol):
    """What a policy may do while a step is being planned."""

    @property
    def decoding(self) -> list[Request]:
        """Running requests with exactly one known token left to compute, oldest first."""
        ...

    @property
    def reading(self) -> list[Request]:
        """Running requests with more than one known token left to compute, oldest first."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been scheduled in this step so far."""
        ...

    def compute(self, request: Request, reading: Reading = Reading.CHUNK) -> None:
        """Schedule as much of the request as `reading` and blocks allow; may preempt newer ones."""
        ...

    def admit_next(self, reading: Reading = Reading.CHUNK) -> bool:
        """Admit the next of the queue and schedule its first chunk; False if it has to wait."""
        ...


class Policy(Protocol):
    """One way to fill a step.

    `reads_whole_prompts` says that a step may compute more positions than the token budget.
    """

    explanation: ClassVar[str]
    reads_whole_prompts: ClassVar[bool]

    def fill(self, step: StepFiller) -> None:
        """Schedule chunks until the policy wants no more or the step allows no more."""
        ...


class StaticBatching:
    """A batch is made of whoever waits when the engine is empty, and runs to its end.

    Its prompts are read whole in one step, whatever the budget, as `generate` of a model library
    does with a padded batch; slots and blocks bound it. A request that was preempted for want of
    blocks joins the next batch.
    """

    explanation: ClassVar[str] = (
        "Whoever waits becomes one batch; nobody joins until its longest answer is finished."
    )
    reads_whole_prompts: ClassVar[bool] = True

    def fill(self, step: StepFiller) -> None:
        """A new batch when nobody runs, else one token for each of the running batch."""
        if not (step.decoding or step.reading):
            while step.admit_next(Reading.WHOLE_BATCH):
                pass
            return
        # Prompts are left over only where the step that read them did not fit in memory.
        for request in step.reading or step.decoding:
            step.compute(request, Reading.WHOLE_BATCH)


class PrefillFirst:
    """Continuous batching as vLLM did it before chunked prefill: a step reads or writes.

    While a waiting prompt can be admitted, the step holds whole prompts only and every running
    stream waits for it. The budget bounds how many prompts share a step, not how long one is: a
    prompt longer than the budget is read in a step of its own.
    """

    explanation: ClassVar[str] = (
        "New prompts are read whole at once, and every running answer pauses until they are."
    )
    reads_whole_prompts: ClassVar[bool] = True

    def fill(self, step: StepFiller) -> None:
        """Whole prompts, first those left over and then the queue; else everybody's next token."""
        for request in step.reading:
            step.compute(request, Reading.WHOLE)
        while step.admit_next(Reading.WHOLE):
            pass
        if step.is_empty:
            for request in step.decoding:
                step.compute(request)


class ChunkedPrefill:
    """Decode first, then read prompts in chunks with what is left of the token budget."""

    explanation: ClassVar[str] = (
        "Running answers get their next token in every step; prompts are read in chunks with the "
        "rest of the token budget."
    )
    reads_whole_prompts: ClassVar[bool] = False

    def fill(self, step: StepFiller) -> None:
        """Decoding requests, then unfinished prompts oldest first, then the queue in its order."""
        for request in step.decoding:
            step.compute(request)
        for request in step.reading:
            step.compute(request)
        while step.admit_next():
            pass


POLICIES: dict[str, type[Policy]] = {
    "chunked": ChunkedPrefill,
    "prefill-first": PrefillFirst,
    "static": StaticBatching,
}
