"""Entry point: read the settings, serve page and routes, load the model, start the engine.

What libraries read from the environment at import time is set before they are imported.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from engine import environment
from engine.settings import Settings, names_in, parse

if TYPE_CHECKING:
    from engine.contracts import EngineParts, Report

# After each queued event Gradio would make a table of up to 10,000 earlier ones.
GRADIO_ENVIRONMENT = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "GRADIO_ANALYTICS_MAX_EVENTS": "1",
    "GRADIO_ANALYTICS_CACHE_FREQUENCY": "1000000000",
}
MAX_THREADS = 200


def prepare_environment(settings: Settings) -> None:
    """Set what libraries read when they are imported; what a person has set stays."""
    environment.prepare(settings.threads)
    for name, value in GRADIO_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def check_port(settings: Settings) -> None:
    """Exit with a sentence if the port cannot be had, before anything is loaded for it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            sys.exit(
                f"Port {settings.port} on {settings.host} cannot be used ({error.strerror}). Stop "
                f"what uses it, or choose another with --port."
            )


def results_folder() -> Path:
    """Where results of experiments are kept: beside the converted models."""
    from engine.core.errors import PhaseScopeError
    from engine.model.cache import cache_folder

    try:
        return cache_folder() / "results"
    except PhaseScopeError:
        # Loading the model meets the same error, and the page shows it there and offers a retry.
        return Path(tempfile.mkdtemp(prefix="phasescope-results-"))


def serve(settings: Settings) -> None:
    """Open the page, then load the model behind it; returns when the server is stopped."""
    # Imported only now, when the environment is set.
    from engine.api.access import Access
    from engine.api.app import api_routes, create_api
    from engine.api.metrics import EngineMetrics
    from engine.lab.results import ResultStore
    from engine.service import EngineService
    from ui.admin_key import AdminKey
    from ui.chat import build_chat
    from ui.compare import build_compare
    from ui.compare_desk import Desk
    from ui.compare_routes import result_routes
    from ui.feed import Feed
    from ui.page import THEME, build_page, css_text, head_html
    from ui.routes import routes
    from ui.settings_panel import build_settings
    from ui.workload import build_workload
    from ui.workload_form import MAX_UPLOAD_MEGABYTES

    def build(report: Report) -> EngineParts:
        # On the engine's thread: importing torch takes seconds, and the page is up meanwhile.
        from engine.assembly import build_engine

        return build_engine(settings, report)

    service = EngineService(build, stuck_after=settings.stuck_after)
    feed = Feed(service)
    metrics = EngineMetrics(service)
    access = Access(
        keys=names_in(settings.api_key),
        origins=names_in(settings.cors_origins),
        max_requests=settings.api_limit,
    )
    api = create_api(service, metrics, access)
    admin_key = AdminKey(settings.admin_key)
    desk = Desk(service, ResultStore(results_folder()))
    demo = build_page(
        lambda: build_chat(service, epoch=feed.epoch),
        lambda: build_settings(service, admin_key),
        [build_compare(desk, admin_key), build_workload(desk, admin_key)],
    )
    demo.queue(max_size=None, default_concurrency_limit=None)
    demo.launch(
        server_name=settings.host,
        server_port=settings.port,
        prevent_thread_lock=True,
        quiet=True,
        theme=THEME,
        css=css_text(),
        head=head_html(),
        app_kwargs={
            "routes": [
                *routes(service, feed, admin_key),
                *result_routes(desk.store),
                *api_routes(api),
            ]
        },
        ssr_mode=False,
        max_threads=MAX_THREADS,
        max_file_size=f"{MAX_UPLOAD_MEGABYTES}mb",
        state_session_capacity=200,
        run_history=False,
        footer_links=[],
    )
    feed.start()
    metrics.start()
    service.start()
    address = "127.0.0.1" if settings.host in ("0.0.0.0", "") else settings.host
    print(f"PhaseScope is at http://{address}:{settings.port}", flush=True)
    try:
        demo.block_thread()
    finally:
        desk.close()
        feed.close()
        metrics.close()
        service.close(wait=5)


def main() -> None:
    """Run the application with the flags of the command line."""
    settings = parse(sys.argv[1:])
    prepare_environment(settings)
    check_port(settings)
    serve(settings)


if __name__ == "__main__":
    main()
