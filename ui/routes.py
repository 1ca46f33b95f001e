"""The routes beside Gradio's own, on the same port: live feed, scripts, plotly.js, health, restart.

They answer with numbers about everybody's requests and with the page's own files; no prompt, answer
or error text of a visitor passes here.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache

import brotli
import orjson
from plotly.offline import get_plotlyjs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from engine.contracts import ServiceStatus
from engine.service import EngineService
from engine.telemetry.export import request_detail
from ui import page
from ui.admin_key import HEADER, WRONG_KEY_SECONDS, AdminKey
from ui.export_routes import export_routes, find_request, unknown_request
from ui.feed import Feed
from ui.recording import make_recording
from ui.recording_routes import recording_routes
from ui.replay import ReplayFeed

_RESTARTABLE = (ServiceStatus.FAILED, ServiceStatus.STOPPED, ServiceStatus.STUCK)


class _Scripts(StaticFiles):
    """The page's scripts; the browser asks again each time, and mostly hears 304."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def routes(
    service: EngineService, feed: Feed | ReplayFeed, admin_key: AdminKey | None = None
) -> list[Route | Mount]:
    """Everything that the page's scripts and a load balancer ask for.

    With a key, a restart needs it in the header `X-Admin-Key`.
    """
    lock = admin_key or AdminKey()

    async def live_feed(request: Request) -> Response:
        query = request.query_params
        try:
            cursor = int(query.get("since", "-1"))
        except ValueError:
            return _error(400, "since must be a whole number: the cursor of the last answer.")
        epoch = query.get("epoch", "")
        if feed.is_near(cursor, epoch):
            # A few frames that are bytes already: neither a thread nor compressing is worth it.
            body, compress = feed.answer(cursor, epoch, compress=False), False
        else:
            compress = _accepts_brotli(request)
            body = await run_in_threadpool(feed.answer, cursor, epoch, compress=compress)
        if body is None:
            return Response(status_code=204, headers={"Cache-Control": "no-store"})
        return _json(body, compressed=compress)

    async def request_record(request: Request) -> Response:
        record = find_request(service, request)
        if record is None:
            return unknown_request(request)
        return _json(orjson.dumps(request_detail(record)))

    async def restart(request: Request) -> Response:
        given = request.headers.get(HEADER)
        if not lock.opens(given):
            if given:
                await asyncio.sleep(WRONG_KEY_SECONDS)
            return _error(401, f"This server's admin key is needed, in the header {HEADER}.")
        if service.state.status not in _RESTARTABLE:
            return _error(
                409, f"The engine is {service.state.status}; there is nothing to restart."
            )
        service.start()
        return _json(b'{"restarting":true}', status=202)

    async def health(request: Request) -> Response:
        healthy, reason = service.health()
        body = {"status": service.state.status, "healthy": healthy, "reason": reason}
        return _json(orjson.dumps(body), status=200 if healthy else 503)

    return [
        *recording_routes(lambda: make_recording(service)),
        Route(f"/{page.FEED_ROUTE}", live_feed),
        Route(f"/{page.REQUEST_ROUTE}R{{name}}.json", request_record),
        *export_routes(service),
        Route(f"/{page.RESTART_ROUTE}", restart, methods=["POST"]),
        Route(f"/{page.PLOTLY_ROUTE}", _plotly_script),
        Route("/health", health),
        Mount(f"/{page.SCRIPT_ROUTE.rstrip('/')}", _Scripts(directory=page.SCRIPT_FOLDER)),
    ]


async def _plotly_script(request: Request) -> Response:
    compressed = _accepts_brotli(request)
    body, tag = await run_in_threadpool(_plotly_bytes, compressed)
    headers = {"ETag": tag, "Cache-Control": "max-age=86400", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if compressed:
        headers["Content-Encoding"] = "br"
    return Response(body, media_type="text/javascript", headers=headers)


@cache
def _plotly_bytes(compressed: bool) -> tuple[bytes, str]:
    script = get_plotlyjs().encode()
    tag = f'"{hashlib.blake2b(script, digest_size=8).hexdigest()}"'
    return (brotli.compress(script, quality=5) if compressed else script), tag


def _accepts_brotli(request: Request) -> bool:
    offered = request.headers.get("accept-encoding", "")
    return "br" in (part.split(";")[0].strip() for part in offered.split(","))


def _json(body: bytes, *, status: int = 200, compressed: bool = False) -> Response:
    headers = {"Cache-Control": "no-store"} | ({"Content-Encoding": "br"} if compressed else {})
    return Response(body, status, headers, media_type="application/json")


def _error(status: int, message: str) -> Response:
    return _json(orjson.dumps({"error": {"message": message}}), status=status)
