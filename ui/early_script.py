"""Puts a script at the very beginning of the page.

What Gradio is given for the head it adds only once its own scripts run, which is too late for what
these must find there.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.page import ASSETS

_HEAD: Final = b"<head>"


def indicator_middleware() -> Middleware:
    """For ``launch(app_kwargs={"middleware": ...})``: the page with `assets/indicator.js`."""
    return Middleware(EarlyScript, script=(ASSETS / "indicator.js").read_text(encoding="utf-8"))


class EarlyScript:
    """Answers for the page at `/` get `script` at the beginning of their head."""

    def __init__(self, app: ASGIApp, script: str) -> None:
        self._app = app
        self._tag = f"<script>{script}</script>".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI prescribes."""
        if not _is_page(scope):
            return await self._app(scope, receive, send)
        start: Message = {}
        body = bytearray()

        async def keep(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if message["type"] != "http.response.body":
                return await send(message)
            body.extend(message.get("body", b""))
            if message.get("more_body", False):
                return
            whole = bytes(body).replace(_HEAD, _HEAD + self._tag, 1)
            MutableHeaders(scope=start)["content-length"] = str(len(whole))
            await send(start)
            await send({"type": "http.response.body", "body": whole})

        await self._app(scope, receive, keep)


def _is_page(scope: Scope) -> bool:
    """A proxy may hand on the path below which it serves the page, or take it away."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return False
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "")) == "/"
