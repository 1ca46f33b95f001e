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
    from engine.api.shares import Limits
    from engine.lab.result_store import ResultStore
    from engine.service import EngineService
    from ui.admin_key import AdminKey
    from ui.chat import build_chat
    from ui.compare import build_compare
    from ui.compare_desk import Desk
    from ui.compare_routes import result_routes
    from ui.feed import Feed
    from ui.learn import build_learn, learn_routes
    from ui.page import build_page
    from ui.routes import routes
    from ui.sampling_defaults import SamplingDefaults
    from ui.serving import serve_page
    from ui.settings_panel import build_settings
    from ui.workload import build_workload

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
        limits=Limits(
            requests=settings.api_limit,
            queued=settings.api_queue_limit,
            tokens=settings.api_token_limit,
        ),
    )
    api = create_api(service, metrics, access)
    admin_key, defaults = AdminKey(settings.admin_key), SamplingDefaults()
    desk = Desk(service, ResultStore(results_folder()))
    demo = build_page(
        lambda: build_chat(service, epoch=feed.epoch, defaults=defaults),
        lambda: build_settings(service, admin_key, defaults),
        [
            build_compare(desk, admin_key),
            build_workload(desk, admin_key),
            build_learn(desk, admin_key),
        ],
    )
    serve_page(
        demo,
        settings.host,
        settings.port,
        [
            *routes(service, feed, admin_key),
            *result_routes(desk.store),
            *learn_routes(),
            *api_routes(api),
        ],
    )
    feed.start()
    metrics.start()
    service.start()
    say_address(settings)
    try:
        demo.block_thread()
    finally:
        desk.close()
        feed.close()
        metrics.close()
        service.close(wait=5)


def serve_recording(settings: Settings, path: Path) -> None:
    """Show a recording and load no model; returns when the server is stopped."""
    from engine.core.errors import PhaseScopeError
    from ui.chat import build_chat
    from ui.page import build_page
    from ui.recording_routes import recording_routes
    from ui.replay import ReplayFeed, ReplayService, load_recording
    from ui.routes import routes
    from ui.serving import serve_page

    try:
        document = load_recording(path)
    except PhaseScopeError as error:
        sys.exit(str(error))
    service, feed = ReplayService(), ReplayFeed(document)
    demo = build_page(lambda: build_chat(service, epoch=feed.epoch))
    # The first route that matches answers: what is saved here is the recording itself.
    beside = [*recording_routes(lambda: document), *routes(service, feed)]
    serve_page(demo, settings.host, settings.port, beside)
    say_address(settings)
    demo.block_thread()


def say_address(settings: Settings) -> None:
    """Tell the person at the terminal where the page is."""
    address = "127.0.0.1" if settings.host in ("0.0.0.0", "") else settings.host
    print(f"PhaseScope is at http://{address}:{settings.port}", flush=True)


def main() -> None:
    """Run the application with the flags of the command line."""
    settings = parse(sys.argv[1:])
    prepare_environment(settings)
    check_port(settings)
    if settings.replay:
        serve_recording(settings, Path(settings.replay))
    else:
        serve(settings)


if __name__ == "__main__":
    main()
