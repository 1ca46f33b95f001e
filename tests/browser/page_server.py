"""Starts a page for the browser tests the way app.py starts the real one, and ends it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "1")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "1000000000")

import gradio as gr
from starlette.routing import BaseRoute

from engine.service import EngineService
from ui import page
from ui.admin_key import AdminKey
from ui.early_script import indicator_middleware
from ui.feed import Feed
from ui.routes import routes


def launch(demo: gr.Blocks, port: int, routes: Sequence[BaseRoute]) -> None:
    """Serve `demo` with its routes from another thread; the caller closes it."""
    page.queue_calmly(demo)
    demo.launch(
        server_name="127.0.0.1",
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        theme=page.THEME,
        css=page.css_text(),
        head=page.head_html(),
        app_kwargs={"routes": list(routes), "middleware": [indicator_middleware()]},
        ssr_mode=False,
        max_threads=100,
        run_history=False,
        footer_links=[],
    )


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
    launch(demo, port, [*routes(service, feed, key), *more])
    feed.start()
    try:
        yield
    finally:
        service.close()
        feed.close()
        demo.close(verbose=False)
