"""The page with its settings panel and chat over the real service, with a scripted model.

``python -m tests.browser.settings_server 7930`` serves it for a look by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from engine.service import EngineService
from tests.browser.page_server import serving
from tests.stub_service import ScriptedRunner, started
from ui import page
from ui.admin_key import AdminKey
from ui.chat import build_chat
from ui.feed import Feed
from ui.sampling_defaults import SamplingDefaults
from ui.settings_panel import build_settings


@contextmanager
def serve_settings(
    port: int, *, admin_key: str | None = None, runner: ScriptedRunner | None = None
) -> Iterator[EngineService]:
    """Serve the page on `port` until the end of the block."""
    service = started(runner or ScriptedRunner(seconds=0.01), num_blocks=512)
    feed = Feed(service)
    key = AdminKey(admin_key)
    defaults = SamplingDefaults()
    demo = page.build_page(
        lambda: build_chat(service, epoch=feed.epoch, defaults=defaults),
        lambda: build_settings(service, key, defaults),
    )
    with serving(demo, port, service, feed, key):
        yield service


if __name__ == "__main__":
    with serve_settings(int(sys.argv[1]), admin_key=sys.argv[2] if sys.argv[2:] else None):
        input()
