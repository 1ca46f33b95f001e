"""Starts a page for the browser tests the way app.py starts the real one, and ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import gradio as gr
from starlette.routing import BaseRoute

from engine.service import EngineService
from ui.admin_key import AdminKey
from ui.feed import Feed
from ui.routes import routes
from ui.serving import serve_page


@contextmanager
def serving(
    demo: gr.Blocks,
    port: int,
    service: EngineService,
    feed: Feed,
    key: AdminKey | None = None,
    more: Sequence[BaseRoute] = (),
) -> Iterator[None]:
    """Serve `demo` over a real service and feed, and end all three with the block."""
    serve_page(demo, "127.0.0.1", port, [*routes(service, feed, key), *more])
    feed.start()
    try:
        yield
    finally:
        service.close()
        feed.close()
        demo.close(verbose=False)
