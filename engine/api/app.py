"""The API as one FastAPI app, and the routes that hang it beside the page on the page's port.

Its OpenAPI document is served; a page to read it with is not, since the usual ones load their
scripts from elsewhere.
"""

from __future__ import annotations

from fastapi import FastAPI, Response
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from engine.api.access import Access
from engine.api.errors import add_error_handlers
from engine.api.guard import Arrivals
from engine.api.metrics import CONTENT_TYPE, EngineMetrics
from engine.api.routes import router
from engine.service import EngineService

_DESCRIPTION = """\
An OpenAI-compatible API. Fields that are not described are ignored, among them `tools`,
`response_format`, `logit_bias`, `suffix` and `best_of`; null means absent.

Output limits are clipped to what context and KV cache have room for (`finish_reason` is then
`length`); a prompt that leaves no room for one token is refused. `finish_reason` is `cancelled`
where the server stopped a request. Usage counts token ids, the end token included.

A stream has one event a token, which may be empty while a character is unfinished. With
`stream_options.include_usage` or `return_timings` a chunk without choices comes last. A failure in
mid-stream is an event named `error` with nothing after it; otherwise the stream ends with `[DONE]`.

`X-Request-ID` (128 printable ASCII characters at most) names the request in the server's records
and comes back in the reply's header; without one the reply's id does.
"""
_PATHS = ("/v1/{rest:path}", "/tokenize", "/metrics")


def create_api(
    service: EngineService, metrics: EngineMetrics, access: Access | None = None
) -> FastAPI:
    """The API of one service. Without `access` it is open to everybody, other pages excepted.

    The metrics are open to everybody, as the page's own feed is: they hold nobody's text.
    """
    app = FastAPI(
        title="PhaseScope",
        version="1",
        description=_DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    access = access or Access()
    add_error_handlers(app)
    app.include_router(router(service, access))
    if access.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(access.origins),
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=("X-Request-ID", "Retry-After"),
        )

    app.add_middleware(Arrivals, now=service.clock.now)  # the last one added is the outermost

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def read_metrics() -> Response:
        """The engine's numbers in Prometheus' text format."""
        body = await run_in_threadpool(metrics.text)
        return Response(body, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})

    return app


def api_routes(app: FastAPI) -> list[Route]:
    """Routes for the server of the page; each hands the request on as it is, path included."""
    return [Route(path, app) for path in _PATHS]
