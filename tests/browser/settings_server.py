"""The page with its settings panel over the real service and feed, with a scripted model.

``python -m tests.browser.settings_server 7930`` serves it for a look by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from engine.service import EngineService
from tests.browser.fake_app import sample_chat
from tests.stub_service import ScriptedRunner, started
from ui import page
from ui.admin_key import AdminKey
from ui.feed import Feed
from ui.routes import routes
from ui.settings_panel import build_settings


@contextmanager
def serve_settings(
    port: int, *, admin_key: str | None = None, runner: ScriptedRunner | None = None
) -> Iterator[EngineService]:
    """Serve the page on `port` until the end of the block."""
    service = started(runner or ScriptedRunner(seconds=0.01), num_blocks=512)
    feed = Feed(service)
    key = AdminKey(admin_key)
    demo = page.build_page(sample_chat, lambda: build_settings(service, key))
    demo.queue(default_concurrency_limit=None)
    demo.launch(
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        theme=page.THEME,
        css=page.css_text(),
        head=page.head_html(),
        app_kwargs={"routes": routes(service, feed, key)},
        ssr_mode=False,
        footer_links=[],
    )
    feed.start()
    try:
        yield service
    finally:
        service.close()
        feed.close()
        demo.close(verbose=False)


if __name__ == "__main__":
    with serve_settings(int(sys.argv[1]), admin_key=sys.argv[2] if sys.argv[2:] else None):
        input()
