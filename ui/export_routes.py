"""What was measured as files: requests, tokens and steps as CSV or JSON, and traces for Perfetto.

Each comes of everything that is kept, of a window of time, or of one request. The records are
copied before the first byte leaves, and written while the engine has its turns: neither a slow
reader nor a large file holds up anybody.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.core.records import RequestRecord, StepRecord
from engine.service import EngineService
from engine.telemetry.export import (
    csv_lines,
    json_pieces,
    step_csv_lines,
    step_json_pieces,
    token_csv_lines,
)
from engine.telemetry.perfetto import trace_pieces
from engine.telemetry.window import Window, request_end
from ui import page

TOKENS_ROUTE: Final = "live/tokens.csv"
STEPS_ROUTE: Final = "live/steps"

BATCH_CHARACTERS: Final = 16_384
BATCH_SECONDS: Final = 0.002
"""What is written at once, at most, before the engine gets its turn."""

REST: Final = 5.0
"""How many times as long as it has worked an export then rests, while the engine serves."""

Records = Sequence[RequestRecord]
Steps = Sequence[StepRecord]
Write = Callable[[Window], Iterator[str]]


class _WrongWindow(ValueError):
    """What the query asks for is no window, and why, in a sentence."""


def export_routes(service: EngineService) -> list[Route]:
    """The routes of one service's files.

    All but a request's own take `last=SECONDS`, or `from=` and `to=` in seconds of the service's
    clock, which is that of the files; without them they hold everything that is kept.
    """

    def requests(write: Callable[[Records], Iterator[str]]) -> Write:
        return lambda window: write(window.requests(service.store.records()))

    def steps(write: Callable[[Steps], Iterator[str]]) -> Write:
        return lambda window: write(window.steps(service.store.steps_since(0)))

    def trace(window: Window) -> Iterator[str]:
        return _trace(
            service,
            window.requests(service.store.records()),
            window.steps(service.store.steps_since(0)),
        )

    files: dict[str, Write] = {
        f"{page.EXPORT_ROUTE}.csv": requests(csv_lines),
        f"{page.EXPORT_ROUTE}.json": requests(json_pieces),
        TOKENS_ROUTE: requests(token_csv_lines),
        f"{STEPS_ROUTE}.csv": steps(step_csv_lines),
        f"{STEPS_ROUTE}.json": steps(step_json_pieces),
        page.TRACE_ROUTE: trace,
    }
    one = f"/{page.REQUEST_ROUTE}R{{name}}"
    return [
        *(Route(f"/{path}", _of_window(service, path, write)) for path, write in files.items()),
        Route(f"{one}.trace", _of_request(service, ".json", _request_trace)),
        Route(f"{one}.csv", _of_request(service, ".csv", lambda _, one: token_csv_lines([one]))),
    ]


def find_request(service: EngineService, request: Request) -> RequestRecord | None:
    """The request that a path names by its number, which somebody may have typed."""
    number = str(request.path_params["name"])
    return service.store.find(int(number)) if number.isdecimal() and len(number) < 16 else None


def unknown_request(request: Request) -> Response:
    """The answer where there is none."""
    return _error(404, f"R{request.path_params['name'][:16]} is not known, or no longer kept.")


def _of_window(service: EngineService, path: str, write: Write) -> Callable[[Request], Any]:
    name = path.removeprefix("live/")

    async def answer(request: Request) -> Response:
        try:
            window = _window(request, service.clock.now())
        except _WrongWindow as error:
            return _error(400, str(error))
        pieces = await run_in_threadpool(write, window)
        return _download(service, pieces, f"phasescope-{name}")

    return answer


def _of_request(
    service: EngineService,
    ending: str,
    write: Callable[[EngineService, RequestRecord], Iterator[str]],
) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        record = find_request(service, request)
        if record is None:
            return unknown_request(request)
        return _download(service, write(service, record), f"phasescope-{record.id}{ending}")

    return answer


def _request_trace(service: EngineService, record: RequestRecord) -> Iterator[str]:
    window = Window(record.submitted, request_end(record))
    return _trace(service, [record], window.steps(service.store.steps_since(0)))


def _trace(service: EngineService, records: Records, steps: Steps) -> Iterator[str]:
    info = service.info
    about = {
        "server": "PhaseScope",
        "model": info.name if info else None,
        "device": info.device if info else None,
        "dtype": info.dtype if info else None,
        "wall_clock_of_time_0": service.clock.wall_start,
    }
    return trace_pieces(records, steps, about)


def _window(request: Request, now: float) -> Window:
    last = _seconds(request, "last")
    start, end = _seconds(request, "from"), _seconds(request, "to")
    if last is not None:
        if last < 0 or (start, end) != (None, None):
            raise _WrongWindow("last must be seconds from 0 on, and goes without from and to.")
        return Window(now - last, now)
    window = Window(-math.inf if start is None else start, math.inf if end is None else end)
    if window.start > window.end:
        raise _WrongWindow("from must not be later than to.")
    return window


def _seconds(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _WrongWindow(f"{name} must be a number of seconds; got {text[:40]!r}.")
    return value


def _download(service: EngineService, pieces: Iterator[str], name: str) -> Response:
    kind = "text/csv" if name.endswith(".csv") else "application/json"
    headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_paced(service, pieces), headers=headers, media_type=kind)


async def _paced(service: EngineService, pieces: Iterator[str]) -> AsyncIterator[str]:
    """The pieces in larger ones, with rests between them while the engine serves somebody.

    Writing takes the interpreter's lock, for which a step would otherwise wait again and again.
    """
    while True:
        begin = time.perf_counter()
        batch = await run_in_threadpool(_batch, pieces)
        worked = time.perf_counter() - begin
        if not batch:
            return
        yield batch
        engine = service.engine
        if engine is not None and engine.scheduler.running:
            await asyncio.sleep(REST * worked)


def _batch(pieces: Iterator[str]) -> str:
    """The next pieces, at least one, up to the limits of a batch; empty at the end."""
    taken: list[str] = []
    size, deadline = 0, time.perf_counter() + BATCH_SECONDS
    for piece in pieces:
        taken.append(piece)
        size += len(piece)
        if size >= BATCH_CHARACTERS or time.perf_counter() > deadline:
            break
    return "".join(taken)


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status, {"Cache-Control": "no-store"})
