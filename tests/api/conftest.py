"""What the tests of the API share: one server with the usual settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.server import Server, served


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as running:
        yield running
