"""Starts the web server that has the page at `/`, and other routes beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import gradio as gr
from starlette.routing import BaseRoute

from ui.early_script import indicator_middleware
from ui.page import THEME, css_text, head_html, queue_calmly
from ui.workload_form import MAX_UPLOAD_MEGABYTES

MAX_THREADS: Final = 200


def serve_page(demo: gr.Blocks, host: str, port: int, routes: Sequence[BaseRoute]) -> None:
    """Serve the page and the routes on one port, from another thread; the caller closes it."""
    queue_calmly(demo)
    demo.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        theme=THEME,
        css=css_text(),
        head=head_html(),
        app_kwargs={"routes": list(routes), "middleware": [indicator_middleware()]},
        ssr_mode=False,
        max_threads=MAX_THREADS,
        max_file_size=f"{MAX_UPLOAD_MEGABYTES}mb",
        state_session_capacity=200,
        run_history=False,
        footer_links=[],
    )
