"""The routes of experiments' results: what the page draws, and the files to take away."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import brotli
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.core.errors import InvalidRequest
from engine.lab.result_store import ResultNotFound, ResultStore
from engine.lab.results import Result
from engine.lab.tracing import perfetto_trace
from ui.compare_report import RESULT_ROUTE
from ui.compare_view import page_bytes

_NO_STORE = {"Cache-Control": "no-store"}


def result_routes(store: ResultStore) -> list[Route]:
    """`live/result/<id>.json` for the page, and the same result as files."""

    async def view(request: Request) -> Response:
        compress = "br" in request.headers.get("accept-encoding", "")
        return await _answer(store, request, lambda result: _page(result, compress=compress))

    async def full(request: Request) -> Response:
        return await _answer(store, request, _full)

    async def runs(request: Request) -> Response:
        return await _answer(
            store, request, lambda result: _lines(result.csv_lines(), result, "runs")
        )

    async def sends(request: Request) -> Response:
        return await _answer(
            store, request, lambda result: _lines(result.send_lines(), result, "sends")
        )

    async def trace(request: Request) -> Response:
        return await _answer(store, request, _trace)

    base = f"/{RESULT_ROUTE}{{name}}"
    return [
        Route(f"{base}.json", view),
        Route(f"{base}/full.json", full),
        Route(f"{base}/runs.csv", runs),
        Route(f"{base}/sends.csv", sends),
        Route(f"{base}/trace.json", trace),
    ]


async def _answer(
    store: ResultStore, request: Request, make: Callable[[Result], Response]
) -> Response:
    def load() -> Response:
        return make(store.load(str(request.path_params["name"])))

    try:
        # Reading, building and compressing take a noticeable time for a large result.
        return await run_in_threadpool(load)
    except (ResultNotFound, InvalidRequest) as error:
        return JSONResponse({"error": {"message": str(error)}}, 404, _NO_STORE)


def _page(result: Result, *, compress: bool) -> Response:
    body, headers = page_bytes(result), dict(_NO_STORE)
    if compress:
        body, headers["Content-Encoding"] = brotli.compress(body, quality=5), "br"
    return Response(body, headers=headers, media_type="application/json")


def _full(result: Result) -> Response:
    headers = _NO_STORE | _attachment(result, "full.json")
    return Response(result.to_json(), headers=headers, media_type="application/json")


def _trace(result: Result) -> Response:
    headers = _NO_STORE | _attachment(result, "trace.json")
    return Response(perfetto_trace(result), headers=headers, media_type="application/json")


def _lines(lines: Iterator[str], result: Result, kind: str) -> Response:
    headers = _NO_STORE | _attachment(result, f"{kind}.csv")
    return StreamingResponse(lines, headers=headers, media_type="text/csv")


def _attachment(result: Result, name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="phasescope-{result.id}-{name}"'}
