"""The routes of recordings: what is kept now as a file, and the recordings that come with the page.

Opening one needs no route: the browser reads the file, and it leaves the visitor's machine for
nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ui.page import ASSETS
from ui.recording import Document, NothingToRecord
from ui.recording_panels import SAVE_ROUTE

RECORDINGS_ROUTE: Final = "live/recordings"
RECORDINGS_FOLDER: Final = ASSETS / "recordings"
_NO_STORE: Final = {"Cache-Control": "no-store"}


def recording_routes(record: Callable[[], Document]) -> list[Route | Mount]:
    """`live/recording.json`, made by `record` when it is asked for, and the bundled files."""

    async def save(request: Request) -> Response:
        try:
            document = await run_in_threadpool(record)
        except NothingToRecord as error:
            return JSONResponse({"error": {"message": str(error)}}, 409, _NO_STORE)
        name = f"phasescope-{document['recorded'][:19].replace(':', '')}.json"
        headers = _NO_STORE | {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(orjson.dumps(document), headers=headers, media_type="application/json")

    return [
        Route(f"/{SAVE_ROUTE}", save),
        Mount(f"/{RECORDINGS_ROUTE}", StaticFiles(directory=RECORDINGS_FOLDER)),
    ]
