"""A bounded history of what the engine did: one thread writes, any number of others read.

It keeps the core's records and works nothing out of them. The lock is held for short copies only,
so that no reader delays a step; freezing a live request happens outside it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice

from engine.core.records import RequestRecord, StepRecord, record_request
from engine.core.request import FinishReason, Request

MAX_STEPS = 4_000
MAX_RECORDS = 1_000
MAX_VALUES = 2_000_000


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the store was made, whatever has been dropped from the history since.

    `requests` counts closed requests by how they ended; `output_tokens` includes those of requests
    still open.
    """

    requests: dict[FinishReason, int]
    output_tokens: int
    steps: int


class TraceStore:
    """The history of one service: open requests, closed ones and steps, the last two bounded.

    `open`, `add_step` and `close` belong to the engine's thread; everything else may be called from
    any. At most `max_steps` steps and `max_records` closed requests are kept, and fewer requests
    when they hold more than `max_values` numbers together (token times, log-probabilities), so that
    long answers cannot fill the memory; the newest one is always kept.
    """

    def __init__(
        self,
        *,
        max_steps: int = MAX_STEPS,
        max_records: int = MAX_RECORDS,
        max_values: int = MAX_VALUES,
    ) -> None:
        if min(max_steps, max_records, max_values) < 1:
            raise ValueError(
                "max_steps, max_records and max_values must each be at least 1; got "
                f"{max_steps}, {max_records} and {max_values}."
            )
        self._max_records = max_records
        self._max_values = max_values
        self._lock = threading.Lock()
        self._steps: deque[StepRecord] = deque(maxlen=max_steps)
        self._live: dict[int, Request] = {}
        self._records: OrderedDict[int, RequestRecord] = OrderedDict()
        self._displaced: dict[int, float] = {}
        self._num_values = 0
        self._num_steps = 0
        self._num_output_tokens = 0
        self._num_closed = dict.fromkeys(FinishReason, 0)

    def open(self, request: Request) -> None:
        """Show a request among the live ones from now on, until it is closed.

        Raises ValueError when its number was used before: a number names one request.
        """
        with self._lock:
            if request.number in self._live or request.number in self._records:
                raise ValueError(f"{request.id} has been opened before; give it a new number.")
            self._live[request.number] = request

    def add_step(self, step: StepRecord) -> None:
        """Append a step; raises ValueError unless its number is above all earlier ones."""
        with self._lock:
            if self._steps and step.number <= self._steps[-1].number:
                raise ValueError(
                    f"Step {step.number} came after step {self._steps[-1].number}; step numbers "
                    f"must rise, also over a restart of the engine."
                )
            self._steps.append(step)
            self._num_steps += 1
            for number in step.displaced:
                self._note_displaced(number, step.start)

    def close(self, request: Request) -> RequestRecord | None:
        """Freeze an ended request and move it to the closed ones.

        Returns its record, or None when it is not open (any more): the reader's end and the
        service's may both ask. Raises ValueError while the request has not ended.
        """
        if request.finish_reason is None:
            raise ValueError(f"{request.id} has not ended; cancel it before closing it.")
        record = record_request(request, complete=True)
        with self._lock:
            if self._live.pop(request.number, None) is None:
                return None
            self._records[record.number] = record
            self._num_closed[request.finish_reason] += 1
            self._num_output_tokens += record.num_output_tokens
            self._num_values += _num_values(record)
            while len(self._records) > 1 and (
                len(self._records) > self._max_records or self._num_values > self._max_values
            ):
                number, oldest = self._records.popitem(last=False)
                self._num_values -= _num_values(oldest)
                self._displaced.pop(number, None)
        return record

    def steps_since(self, number: int) -> list[StepRecord]:
        """Kept steps numbered above `number`, oldest first; 0 gives all that are kept."""
        steps: list[StepRecord] = []
        with self._lock:
            for step in reversed(self._steps):
                if step.number <= number:
                    break
                steps.append(step)
        steps.reverse()
        return steps

    def live(self) -> list[RequestRecord]:
        """Every open request as it stands, in order of submission (not `complete`).

        One that is closed meanwhile may be here and in a later `records` too: the closed one holds.
        """
        with self._lock:
            requests = list(self._live.values())
        return [record_request(request) for request in requests]

    def records(self) -> list[RequestRecord]:
        """The kept closed requests, in the order in which they were closed."""
        with self._lock:
            return list(self._records.values())

    def find(self, number: int) -> RequestRecord | None:
        """One request, open or closed; None when it is not known or no longer kept."""
        with self._lock:
            request = self._live.get(number)
            if request is None:
                return self._records.get(number)
        return record_request(request)

    def closed_since(self, cursor: int) -> tuple[list[RequestRecord], int]:
        """Kept requests closed after the cursor was given, oldest first, and the next cursor.

        A cursor counts the requests closed so far; start with 0.
        """
        with self._lock:
            closed = sum(self._num_closed.values())
            news = min(closed - cursor, len(self._records))
            records = list(islice(reversed(self._records.values()), max(0, news)))
        records.reverse()
        return records, closed

    def displaced_at(self, number: int) -> float | None:
        """When a finished request first lost cached blocks to another one (start of that step).

        None while all that it left in the cache is still there, and for a request not kept.
        """
        with self._lock:
            return self._displaced.get(number)

    def totals(self) -> Totals:
        """Counts that outlive the bounds of the history."""
        with self._lock:
            open_tokens = sum(request.num_output_tokens for request in self._live.values())
            return Totals(
                dict(self._num_closed), self._num_output_tokens + open_tokens, self._num_steps
            )

    def _note_displaced(self, number: int, time: float) -> None:
        # A preempted request loses blocks too, but computes them again: only what happens after
        # its end takes something out of the cache for good.
        request = self._live.get(number)
        if request is not None:
            finished = request.timeline.finished
        elif number in self._records:
            finished = self._records[number].finished
        else:
            return
        if finished is not None and finished <= time:
            self._displaced.setdefault(number, time)


def _num_values(record: RequestRecord) -> int:
    """How many numbers a record holds that grow with its length."""
    logprobs = sum(1 + len(entry.top) for entry in record.logprobs)
    return len(record.token_sampled) + len(record.token_delivered) + len(record.chunks) + logprobs
