"""The page with its Compare and Workload tabs over the real service, with a scripted model.

``python -m tests.browser.compare_server 7960 FOLDER`` serves it for a look by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.lab.result_store import ResultStore
from engine.service import EngineService
from tests.browser.fake_app import sample_chat
from tests.browser.page_server import serving
from tests.stub_lab import lab_service
from ui import page
from ui.admin_key import AdminKey
from ui.compare import build_compare
from ui.compare_desk import Desk
from ui.compare_routes import result_routes
from ui.feed import Feed
from ui.workload import build_workload


@contextmanager
def serve_compare(
    port: int, folder: Path, *, admin_key: str | None = None, seconds: float = 0.004
) -> Iterator[tuple[EngineService, Desk]]:
    """Serve the page on `port` until the end of the block; results go to `folder`."""
    service = lab_service(seconds)
    desk = Desk(service, ResultStore(folder))
    feed = Feed(service)
    key = AdminKey(admin_key)
    tabs = [build_compare(desk, key), build_workload(desk, key)]
    demo = page.build_page(sample_chat, build_tabs=tabs)
    with serving(demo, port, service, feed, key, result_routes(desk.store)):
        try:
            yield service, desk
        finally:
            desk.close()


if __name__ == "__main__":
    with serve_compare(int(sys.argv[1]), Path(sys.argv[2]), seconds=0.01):
        input()
