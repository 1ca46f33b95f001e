"""One small client for every server that is compared: plain completions over HTTP, streamed.

Its clock starts just before a request is sent, for all of a group at once. It knows no server by
name: what one needs beyond the common fields is handed in.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from engine.core.errors import PhaseScopeError

_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One streamed answer: when each event with text came, in seconds since it was asked for.

    output_tokens: as the server's usage counts them, else the number of events.
    """

    times: tuple[float, ...]
    output_tokens: int

    @property
    def ttft(self) -> float:
        """Seconds from the request to the first event with text."""
        return self.times[0]

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds between one event with text and the next."""
        return tuple(b - a for a, b in zip(self.times, self.times[1:], strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Requests that were sent at the same time, and the seconds until the last one was answered."""

    answers: tuple[Answer, ...]
    seconds: float

    @property
    def output_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(answer.output_tokens for answer in self.answers)


def ask_together(
    url: str,
    prompts: Sequence[str],
    *,
    model: str,
    output_tokens: int,
    extras: Mapping[str, Any],
    timeout: float,
) -> Group:
    """Send all prompts at once to `/v1/completions` and read every answer to its end, greedily.

    extras: further fields of the request's body. Raises PhaseScopeError, with what the server said,
    when one fails, has text in fewer than two events or is not complete after `timeout` seconds.
    """
    bodies = [
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "temperature": 0,
            "stream": True,
            **extras,
        }
        for prompt in prompts
    ]
    try:
        return asyncio.run(_ask_all(url, bodies, timeout))
    except TimeoutError:
        raise PhaseScopeError(
            f"Not every answer was complete after {timeout:g} s; --timeout allows more."
        ) from None
    except httpx.HTTPError as error:
        raise PhaseScopeError(f"The connection failed: {type(error).__name__} {error}.") from None


async def _ask_all(url: str, bodies: Sequence[dict[str, Any]], timeout: float) -> Group:
    limits = httpx.Limits(max_connections=None)
    waits = httpx.Timeout(timeout, connect=_CONNECT_SECONDS)
    async with httpx.AsyncClient(
        base_url=url, limits=limits, timeout=waits, trust_env=False
    ) as client:
        start = time.perf_counter()
        async with asyncio.timeout(timeout):
            answers = await asyncio.gather(*(_ask(client, body) for body in bodies))
        return Group(answers=tuple(answers), seconds=time.perf_counter() - start)


async def _ask(client: httpx.AsyncClient, body: dict[str, Any]) -> Answer:
    start = time.perf_counter()
    times: list[float] = []
    counted: int | None = None
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != httpx.codes.OK:
            text = (await response.aread()).decode(errors="replace")
            raise PhaseScopeError(f"The server answered {response.status_code}: {text[:400]}")
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            event = _read(data)
            if "error" in event:
                raise PhaseScopeError(f"The server ended an answer: {str(event['error'])[:400]}")
            if any(choice.get("text") for choice in event.get("choices", ())):
                times.append(time.perf_counter() - start)
            if usage := event.get("usage"):
                counted = usage["completion_tokens"]
    if len(times) < 2:
        raise PhaseScopeError(
            f"The server sent an answer with text in {len(times)} events; a gap lies between two."
        )
    return Answer(times=tuple(times), output_tokens=len(times) if counted is None else counted)


def _read(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise PhaseScopeError(f"The server sent an event that is no JSON object: {data[:400]}")
    return event
