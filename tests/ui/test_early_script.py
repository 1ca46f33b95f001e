"""A script that the page has before Gradio's own; everything else is passed on as it is."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from ui.early_script import EarlyScript

PAGE = "<!doctype html><html><head><meta charset='utf-8'></head><body><head></body></html>"
WITH_SCRIPT = PAGE.replace("<head>", "<head><script>run();</script>", 1)


def client(page: Response) -> TestClient:
    async def answer(_: Request) -> Response:
        return page

    return TestClient(
        Starlette(
            routes=[Route("/", answer, methods=["GET", "POST"]), Route("/docs", answer)],
            middleware=[Middleware(EarlyScript, script="run();")],
        )
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
