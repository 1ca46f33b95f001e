"""A script that the page has before Gradio's own; everything else is passed on as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.templating import Jinja2Templates
from starlette.testclient import TestClient

from ui.early_script import EarlyScript

PAGE = "<!doctype html><html><head><meta charset='utf-8'></head><body><head></body></html>"
WITH_SCRIPT = PAGE.replace("<head>", "<head><script>run();</script>", 1)


def client(page: Response, root_path: str = "") -> TestClient:
    async def answer(_: Request) -> Response:
        return page

    return TestClient(
        Starlette(
            routes=[Route("/", answer, methods=["GET", "POST"]), Route("/docs", answer)],
            middleware=[Middleware(EarlyScript, script="run();")],
        ),
        root_path=root_path,
    )


def test_the_script_comes_first_in_the_head() -> None:
    answer = client(HTMLResponse(PAGE, headers={"x-more": "1"})).get("/")
    assert answer.text == WITH_SCRIPT
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert answer.headers["x-more"] == "1"


def test_a_page_that_comes_in_pieces() -> None:
    pieces = [PAGE[:22], PAGE[22:]]  # the first ends within <head>
    assert client(StreamingResponse(iter(pieces), media_type="text/html")).get("/").text == (
        WITH_SCRIPT
    )


@pytest.mark.parametrize(("method", "path"), [("HEAD", "/"), ("POST", "/"), ("GET", "/docs")])
def test_what_is_not_the_page_is_passed_on(method: str, path: str) -> None:
    answer = client(HTMLResponse(PAGE)).request(method, path)
    assert answer.text == ("" if method == "HEAD" else PAGE)
    assert int(answer.headers["content-length"]) == len(PAGE)


def test_a_page_without_a_head() -> None:
    assert client(HTMLResponse("plain", status_code=503)).get("/").text == "plain"


def test_a_page_below_a_proxys_path() -> None:
    below = client(HTMLResponse(PAGE), root_path="/app")
    assert below.get("/").text == WITH_SCRIPT
    assert below.get("/app/").text == WITH_SCRIPT
    assert below.get("/app/docs").text == PAGE


def test_a_page_made_from_a_template_as_gradios_is(tmp_path: Path) -> None:
    """Other messages may come before the page's own."""
    (tmp_path / "page.html").write_text(PAGE)

    async def answer(request: Request) -> Response:
        return Jinja2Templates(tmp_path).TemplateResponse(request, "page.html")

    middleware = [Middleware(EarlyScript, script="run();")]
    app = Starlette(routes=[Route("/", answer)], middleware=middleware)
    assert TestClient(app).get("/").text == WITH_SCRIPT
