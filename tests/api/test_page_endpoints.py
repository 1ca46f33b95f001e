"""What Gradio's client for Python offers of the page: nothing, whatever is placed on it.

Programs have the API, with its keys and limits; an event of the page that became an endpoint by
accident would be offered without them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client

from engine.lab.result_store import ResultStore
from tests.stub_service import ScriptedRunner, started

EVENTS = ("send", "retry", "stop", "edit", "clear", "run", "ask", "agree", "predict")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    from ui.admin_key import AdminKey
    from ui.chat import build_chat
    from ui.compare import build_compare
    from ui.compare_desk import Desk
    from ui.page import build_page
    from ui.settings_panel import build_settings
    from ui.workload import build_workload

    service = started(ScriptedRunner())
    folder: Path = tmp_path_factory.mktemp("results")
    desk = Desk(service, ResultStore(folder))
    key = AdminKey(None)
    demo = build_page(
        lambda: build_chat(service),
        lambda: build_settings(service, key),
        [build_compare(desk, key), build_workload(desk, key)],
    )
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    demo.launch(server_port=port, prevent_thread_lock=True, quiet=True, ssr_mode=False)
    yield demo
    demo.close(verbose=False)
    desk.close()
    service.close()


def test_gradios_client_finds_no_endpoint(demo: Any) -> None:
    client = Client(demo.local_url, verbose=False)
    found = client.view_api(return_format="dict", print_info=False)
    assert found == {"named_endpoints": {}, "unnamed_endpoints": {}}
    for name in EVENTS:
        with pytest.raises(ValueError, match="Cannot find a function"):
            client.predict("hi", api_name=f"/{name}")


def test_every_event_is_private(demo: Any) -> None:
    events = list(demo.fns.values())
    assert {"send", "run", "ask"} <= {event.api_name for event in events}
    assert {event.api_visibility for event in events} == {"private"}
