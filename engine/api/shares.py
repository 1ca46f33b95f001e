"""How much of the engine one client may hold at once: requests, those that wait, and tokens.

A share counts from before a call's prompts are tokenised until its reply is out. This module is
told who a client is and how many slots are free; it knows neither headers nor the service.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from engine.api.errors import RETRY_SECONDS, ApiError
from engine.core.request import Request, RequestStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client may hold; 0: whatever the engine can.

    requests: running and queued together. queued: how many of them may wait for a slot. tokens:
    their prompts and output limits together, which is what they may come to hold in the KV cache.
    """

    requests: int = 0
    queued: int = 0
    tokens: int = 0


class Held(NamedTuple):
    """What a share, or a client, holds; `waiting` is part of `requests`."""

    requests: int
    waiting: int
    tokens: int


class Shares:
    """What every client of one app holds."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._open: defaultdict[str, list[Share]] = defaultdict(list)

    def take(self, client: str, count: int, *, slots: int, free_slots: int) -> Share:
        """Count `count` engine requests as the client's until the share is closed.

        slots: what the engine has; the free ones are reckoned to whoever asks. Raises ApiError:
        429 when the client would have more than it may, 400 when even alone the call asks for too
        much.
        """
        with self._lock:
            held = self._held_by(client)
            _check_number(self._limits.requests, count, held.requests)
            _check_queue(self._limits.queued, count, slots, held.waiting - free_slots)
            share = Share(self, client, count)
            self._open[client].append(share)
        return share

    def reserve(self, share: Share, num_tokens: int) -> None:
        """See `Share.reserve`."""
        with self._lock:
            _check_tokens(self._limits.tokens, num_tokens, self._held_by(share.client).tokens)
            share.num_reserved = num_tokens

    def drop(self, share: Share) -> None:
        """See `Share.close`."""
        with self._lock:
            shares = self._open[share.client]
            if share in shares:
                shares.remove(share)
            if not shares:
                del self._open[share.client]

    def _held_by(self, client: str) -> Held:
        # Asked for by get, since looking must not make an entry for every client that comes by.
        held = [share.held() for share in self._open.get(client, ())]
        return Held(*map(sum, zip(*held, strict=True))) if held else Held(0, 0, 0)


class Share:
    """One call's part of what its client holds; whoever took it closes it."""

    def __init__(self, shares: Shares, client: str, count: int) -> None:
        self.client = client
        self.num_reserved = 0
        self._shares = shares
        self._count = count
        self._requests: list[Request] = []

    def reserve(self, num_tokens: int) -> None:
        """Count the call's prompts and output limits; raises ApiError as `Shares.take` does."""
        self._shares.reserve(self, num_tokens)

    def add(self, request: Request) -> None:
        """Name one of the engine's requests that were counted: from now on its state counts."""
        self._requests.append(request)

    def held(self) -> Held:
        """What is held now: what has ended is not, what is not submitted yet is."""
        requests = list(self._requests)  # another thread may add to them meanwhile
        still_open = [request for request in requests if not request.finished]
        num_to_come = self._count - len(requests)
        waiting = sum(request.status is RequestStatus.WAITING for request in still_open)
        tokens = sum(
            request.num_prompt_tokens + request.max_output_tokens for request in still_open
        )
        return Held(
            requests=num_to_come + len(still_open),
            waiting=num_to_come + waiting,
            tokens=self.num_reserved if num_to_come else tokens,
        )

    def close(self) -> None:
        """Give it back; harmless when that was done."""
        self._shares.drop(self)


def _check_number(limit: int, asked: int, held: int) -> None:
    if not limit or held + asked <= limit:
        return
    if asked > limit:
        raise ApiError(
            400,
            f"The call asks for {asked} answers; one client may have {limit} requests running and "
            f"queued. Send fewer prompts, or a smaller n.",
            param="n",
            code="client_limit",
        )
    raise _later(
        f"You have {held} requests running or queued and asked for {asked} more; the limit of one "
        f"client is {limit}."
    )


def _check_queue(limit: int, asked: int, slots: int, waiting: int) -> None:
    """waiting: the client's requests that wait, less the slots that are free."""
    if not limit or waiting + asked <= limit:
        return
    if asked > limit + slots:
        raise ApiError(
            400,
            f"The call asks for {asked} answers; the engine has {slots} slots, and {limit} "
            f"requests of one client may wait for one. Send fewer prompts, or a smaller n.",
            param="n",
            code="client_limit",
        )
    raise _later(
        f"{waiting + asked} of your requests would wait for a slot; the limit of one client is "
        f"{limit}."
    )


def _check_tokens(limit: int, asked: int, held: int) -> None:
    if not limit or held + asked <= limit:
        return
    if asked > limit:
        raise ApiError(
            400,
            f"The call may come to {asked:,} tokens, prompts and output limits together; one "
            f"client may hold {limit:,}. Shorten the prompt or lower max_tokens.",
            param="max_tokens",
            code="client_limit",
        )
    raise _later(
        f"Your running and queued requests hold {held:,} tokens, prompts and output limits "
        f"together, and this one asks for {asked:,} more; the limit of one client is {limit:,}."
    )


def _later(sentence: str) -> ApiError:
    return ApiError(
        429,
        f"{sentence} Wait for one to end.",
        code="client_limit",
        retry_after=RETRY_SECONDS,
    )
