"""Who may have the engine alone, one after another: the queue of exclusive turns, and what waits
while a turn lasts. Nothing here knows what a turn is used for, nor how an engine computes.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from engine.core.config import EngineConfig
from engine.core.errors import PhaseScopeError
from engine.core.request import Request

MAX_TURN_SECONDS = 120.0
MAX_TICKETS = 8


class TurnsFull(PhaseScopeError):
    """As many wait for a turn as may wait."""


class TurnOver(PhaseScopeError):
    """The turn has ended: its time was up, or the engine was restarted."""


@dataclass(frozen=True, slots=True)
class TurnState:
    """The turn that lasts, for the banner: whose, until when at most (seconds of the service's
    clock), and how many wait for the next ones.
    """

    label: str
    ends_by: float
    num_waiting: int


class Ticket:
    """A place in the queue of turns; leave it whatever happens."""

    def __init__(self, queue: TurnQueue, label: str) -> None:
        self._queue = queue
        self.label = label

    @property
    def position(self) -> int:
        """0: it is this ticket's turn; else how many are before it. -1 once it has left."""
        return self._queue.position(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the turn; whether it has come within `timeout` seconds."""
        return self._queue.wait(self, timeout)

    def leave(self) -> None:
        """Give the turn or the place up; harmless when that was done before."""
        self._queue.leave(self)


class TurnQueue:
    """First come, first served. Every method may be called from any thread."""

    def __init__(self, max_tickets: int = MAX_TICKETS) -> None:
        self._max_tickets = max_tickets
        self._changed = threading.Condition()
        self._tickets: list[Ticket] = []

    def join(self, label: str) -> Ticket:
        """Take a place; raises TurnsFull when too many wait."""
        with self._changed:
            if len(self._tickets) >= self._max_tickets:
                raise TurnsFull(
                    f"{len(self._tickets)} experiments wait already. Try again in a few minutes."
                )
            ticket = Ticket(self, label)
            self._tickets.append(ticket)
            return ticket

    def position(self, ticket: Ticket) -> int:
        """See `Ticket.position`."""
        with self._changed:
            return self._tickets.index(ticket) if ticket in self._tickets else -1

    def wait(self, ticket: Ticket, timeout: float | None) -> bool:
        """See `Ticket.wait`."""
        with self._changed:
            self._changed.wait_for(
                lambda: ticket not in self._tickets or self._tickets[0] is ticket, timeout
            )
            return bool(self._tickets) and self._tickets[0] is ticket

    def leave(self, ticket: Ticket) -> None:
        """See `Ticket.leave`."""
        with self._changed:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._tickets)


class Turn:
    """The time in which one holder has the engine alone: handed to everything done in it."""

    def __init__(self) -> None:
        self.begun: Future[None] = Future()
        self.numbers: set[int] = set()


class TurnGate:
    """Holds the requests of others back while a turn lasts; the engine's thread asks it.

    `config` is what the engine had before the turn: others are served by it again afterwards, so
    their requests are judged by it. None while no turn lasts.
    """

    def __init__(self) -> None:
        self.turn: Turn | None = None
        self.config: EngineConfig | None = None
        self._held: dict[int, Request] = {}

    def begin(self, turn: Turn, config: EngineConfig) -> None:
        """Hold others back from now on; raises TurnOver when another turn lasts."""
        if self.turn is not None:
            raise TurnOver("Another experiment has the engine.")
        self.turn, self.config = turn, config

    def grant(self) -> None:
        """Say that nobody else runs any more: the holder may start."""
        if self.turn is not None and not self.turn.begun.done():
            self.turn.begun.set_result(None)

    def check(self, turn: Turn) -> None:
        """Raise TurnOver unless this turn lasts."""
        if self.turn is not turn:
            raise TurnOver("The turn is over; start the experiment again.")

    def holds(self, request: Request) -> bool:
        """Whether a request has to wait; it is kept then."""
        if self.turn is None or request.number in self.turn.numbers:
            return False
        self._held[request.number] = request
        return True

    def drop(self, request: Request) -> bool:
        """Forget a request that is cancelled; whether it was held."""
        return self._held.pop(request.number, None) is not None

    def forget(self) -> None:
        """Hold nothing any more: all that was held has been ended."""
        self._held.clear()

    def end(self, reason: str = "") -> list[Request]:
        """End the turn and hand out what was held, in order of arrival.

        With a reason, a holder that still waits for the turn to begin is told it.
        """
        if self.turn is not None and not self.turn.begun.done():
            self.turn.begun.set_exception(TurnOver(reason or "The turn was given up."))
        held = list(self._held.values())
        self.turn = self.config = None
        self._held.clear()
        return held
