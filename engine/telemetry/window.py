"""A stretch of time, and which requests and steps fall into it.

It compares times of records and knows neither a clock nor who asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from engine.core.records import RequestRecord, StepRecord


class Window(NamedTuple):
    """From `start` to `end`, both included, in seconds of the service's clock."""

    start: float = -math.inf
    end: float = math.inf

    def requests(self, records: Sequence[RequestRecord]) -> list[RequestRecord]:
        """Those that were in the engine or being delivered at some time in it."""
        return [record for record in records if self._meets(record.submitted, request_end(record))]

    def steps(self, steps: Sequence[StepRecord]) -> list[StepRecord]:
        """Those that ran at some time in it."""
        return [step for step in steps if self._meets(step.start, step.end)]

    def _meets(self, start: float, end: float) -> bool:
        return start <= self.end and end >= self.start


def request_end(record: RequestRecord) -> float:
    """When the request ended or its last token was taken; infinite while it has not ended."""
    if record.finished is None:
        return math.inf
    return max(record.finished, record.last_token_delivered or record.finished)
