"""When a request came is noted before work on those that came with it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request

from engine.api.guard import Arrivals, arrival

WORK_SECONDS = 0.05


def test_requests_that_come_together_are_noted_together() -> None:
    noted: list[float] = []

    async def work(scope: Any, receive: Any, send: Any) -> None:
        noted.append(arrival(Request(scope)))
        time.sleep(WORK_SECONDS)  # as parsing does: the others wait

    async def all_at_once() -> None:
        app = Arrivals(work, time.monotonic)
        await asyncio.gather(*(app({"type": "http"}, None, None) for _ in range(4)))  # type: ignore[arg-type]

    begin = time.monotonic()
    asyncio.run(all_at_once())
    assert time.monotonic() - begin >= 4 * WORK_SECONDS
    assert max(noted) - min(noted) < WORK_SECONDS


def test_what_is_no_request_is_passed_on() -> None:
    passed: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope)

    asyncio.run(Arrivals(app, time.monotonic)({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert passed == [{"type": "lifespan"}]
