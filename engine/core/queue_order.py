"""Who is admitted next when several requests wait. An order only ranks the queue: it holds no slot,
preempts nobody and knows no policy.

Every order ages: a request that waits long enough goes before any that comes later, so none can
starve however much traffic follows it. `explanation` is the sentence that the page shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from engine.core.request import Request

TOKENS_PER_SECOND_WAITED = 256.0
"""Prompt tokens by which a second of waiting makes a prompt count as shorter."""

SECONDS_PER_PRIORITY = 10.0
"""Seconds of waiting that lift a request by one level of priority."""


class QueueOrder(Protocol):
    """One way to rank the queue."""

    explanation: ClassVar[str]

    def rank(self, request: Request, now: float) -> float:
        """The request with the lowest rank is next; ties go to the one that came first."""
        ...


class FirstCome:
    """In order of arrival."""

    explanation: ClassVar[str] = "Whoever came first is served first."

    def rank(self, request: Request, now: float) -> float:
        """The request's place in the order of arrival."""
        return request.arrival


class ShortestPrompt:
    """Short prompts before long ones, less what they have waited."""

    explanation: ClassVar[str] = (
        "The shortest waiting prompt is served first; "
        f"each second of waiting counts as {TOKENS_PER_SECOND_WAITED:.0f} tokens less."
    )

    def rank(self, request: Request, now: float) -> float:
        """Prompt tokens, less those that the wait makes up for."""
        return request.num_prompt_tokens - TOKENS_PER_SECOND_WAITED * _waited(request, now)


class ByPriority:
    """Low numbers first, as in vLLM, less what the request has waited."""

    explanation: ClassVar[str] = (
        "The lowest priority number is served first; "
        f"every {SECONDS_PER_PRIORITY:.0f} s of waiting lower it by one."
    )

    def rank(self, request: Request, now: float) -> float:
        """The priority, less the levels that the wait makes up for."""
        return request.priority - _waited(request, now) / SECONDS_PER_PRIORITY


QUEUE_ORDERS: dict[str, QueueOrder] = {
    "first-come": FirstCome(),
    "shortest-prompt": ShortestPrompt(),
    "priority": ByPriority(),
}


def next_index(order: QueueOrder, waiting: Sequence[Request], now: float) -> int:
    """The place in `waiting` (in order of arrival, not empty) of the request to admit next.

    A preempted request goes before all others, whatever the order: somebody reads its answer.
    """

    def key(index: int) -> tuple[bool, float, int]:
        request = waiting[index]
        if request.timeline.preemptions:
            return False, 0.0, request.arrival
        return True, order.rank(request, now), request.arrival

    return min(range(len(waiting)), key=key)


def _waited(request: Request, now: float) -> float:
    since = request.timeline.queued
    return now - (request.timeline.submitted if since is None else since)
