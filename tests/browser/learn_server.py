"""The page with its Learn tab over the real service, with a scripted model.

``python -m tests.browser.learn_server 7980 FOLDER`` serves it for a look by hand.
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
from ui.compare_desk import Desk
from ui.compare_routes import result_routes
from ui.feed import Feed
from ui.learn import build_learn, learn_routes


@contextmanager
def serve_learn(port: int, folder: Path) -> Iterator[EngineService]:
    """Serve the page on `port` until the end of the block; results go to `folder`."""
    service = lab_service(0.002, 0.00005)
    desk = Desk(service, ResultStore(folder))
    demo = page.build_page(sample_chat, build_tabs=[build_learn(desk)])
    more = [*result_routes(desk.store), *learn_routes()]
    with serving(demo, port, service, Feed(service), more=more):
        try:
            yield service
        finally:
            desk.close()


if __name__ == "__main__":
    with serve_learn(int(sys.argv[1]), Path(sys.argv[2])):
        input()
