"""How a step is filled. A policy only orders the calls to a `StepFiller`, which keeps the budget,
the slots and the blocks; so a policy cannot break a limit, whatever it does.
"""

from __future__ import annotations

from typing import Protocol

from engine.core.request import Request


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

    def compute(self, request: Request) -> None:
        """Schedule as much of the request as budget and blocks allow; may preempt newer ones."""
        ...

    def admit_next(self) -> bool:
        """Admit the head of the queue and schedule its first chunk; False if it has to wait."""
        ...


class Policy(Protocol):
    """One way to fill a step."""

    def fill(self, step: StepFiller) -> None:
        """Schedule chunks until the policy wants no more or the step allows no more."""
        ...


class ChunkedPrefill:
    """Decode first, then read prompts in chunks with what is left of the token budget."""

    def fill(self, step: StepFiller) -> None:
        """Decoding requests, then unfinished prompts, then the queue, first come first served."""
        for request in step.decoding:
            step.compute(request)
        for request in step.reading:
            step.compute(request)
        while step.admit_next():
            pass


POLICIES: dict[str, type[Policy]] = {"chunked": ChunkedPrefill}
