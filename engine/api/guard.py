"""What every route does before its own work: origin, key, and a bounded body of strict JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.api.access import Access
from engine.api.errors import ApiError
from engine.api.strict_json import parse_object

MAX_BODY_BYTES = 4 * 1024 * 1024

CLIENT_GONE = 499
"""The status, nginx's, of a reply that nobody reads; it only shows in the server's log."""


class Arrivals:
    """Notes when each request came, by the clock `now`; see `arrival`.

    Requests that came together are all noted before work on the first begins: the others' wait for
    it belongs to their time to first token, as their clients see it.
    """

    def __init__(self, app: ASGIApp, now: Callable[[], float]) -> None:
        self._app = app
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI prescribes."""
        if scope["type"] == "http":
            scope.setdefault("state", {})["arrival"] = self._now()
            await asyncio.sleep(0)
        await self._app(scope, receive, send)


class _JsonRequest(Request):
    """A request whose body has been read and parsed."""

    def __init__(self, request: Request, value: dict[str, Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._value = value

    async def body(self) -> bytes:
        # FastAPI only asks whether there is one.
        return b"{}"

    async def json(self) -> dict[str, Any]:
        return self._value


def guarded_route(access: Access) -> type[APIRoute]:
    """A class of routes that ask `access` first and hand on bodies that are strict JSON."""

    class GuardedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()
            has_body = self.body_field is not None

            async def guarded(request: Request) -> Response:
                access.check_origin(request)
                access.check_key(request)
                if not has_body:
                    return await handle(request)
                try:
                    body = await _read_body(request)
                except ClientDisconnect:
                    return Response(status_code=CLIENT_GONE)
                return await handle(_JsonRequest(request, parse_object(body)))

            return guarded

    return GuardedRoute


def arrival(request: Request) -> float:
    """When the request came, before its body was read; `Arrivals` notes it."""
    time: float = request.state.arrival
    return time


async def _read_body(request: Request) -> bytes:
    """The body; raises ApiError 413 as soon as it is known to be too large."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if not (kind.lower() == "application/json" or kind.lower().endswith("+json")):
        raise ApiError(400, "The body must be JSON; send Content-Type: application/json.")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > MAX_BODY_BYTES:
        raise _too_large()
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MAX_BODY_BYTES:
            raise _too_large()
    return bytes(parts)


def _too_large() -> ApiError:
    return ApiError(
        413,
        f"The body is larger than {MAX_BODY_BYTES:,} bytes; send less in one request.",
        code="request_too_large",
    )
