"""Clients that go away, in every phase of a request: what they held is free within two steps."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine.core.engine import Engine
from engine.core.request import FinishReason, RequestStatus
from tests.api.server import ApiRunner, Server, served
from tests.stub_service import wait_until

STEP = 0.1
PROMPT = "x" * 320
KINDS = pytest.mark.parametrize("streamed", [True, False])
NUMBERS = pytest.mark.parametrize("n", [1, 3])


@contextmanager
def asked(server: Server, **fields: Any) -> Iterator[socket.socket]:
    """A completion asked for on a raw socket, whose client never reads and then goes."""
    body = json.dumps({"prompt": PROMPT, "max_tokens": 1000, **fields}).encode()
    url = server.http.base_url
    assert url.port is not None
    with socket.create_connection((url.host, url.port), timeout=10) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        yield raw


def engine_of(server: Server) -> Engine:
    engine = server.service.engine
    assert engine is not None
    return engine


def steps_until(server: Server, condition: Callable[[], bool]) -> int:
    before = engine_of(server).num_steps
    wait_until(condition)
    return engine_of(server).num_steps - before


def all_cancelled(server: Server, count: int) -> None:
    wait_until(lambda: len(server.service.store.records()) == count)
    reasons = {record.finish_reason for record in server.service.store.records()}
    assert reasons == {FinishReason.CANCELLED}


@KINDS
@NUMBERS
def test_a_client_that_goes_while_its_prompt_is_read(streamed: bool, n: int) -> None:
    with served(ApiRunner(seconds=STEP), max_batched_tokens=16) as server:
        engine = engine_of(server)
        with asked(server, stream=streamed, n=n):
            wait_until(lambda: engine.num_steps >= 3)
            assert all(not record.token_sampled for record in server.service.store.live())
            assert engine.scheduler.pool.num_used > 0
        assert steps_until(server, lambda: engine.scheduler.pool.num_used == 0) <= 2
        all_cancelled(server, n)


@KINDS
@NUMBERS
def test_a_client_that_goes_while_tokens_come(streamed: bool, n: int) -> None:
    with served(ApiRunner(seconds=STEP), max_batched_tokens=2048) as server:
        engine = engine_of(server)
        with asked(server, stream=streamed, n=n):
            wait_until(
                lambda: sum(r.num_output_tokens > 2 for r in server.service.store.live()) == n
            )
        assert steps_until(server, lambda: engine.scheduler.pool.num_used == 0) <= 2
        all_cancelled(server, n)


@KINDS
def test_a_client_that_goes_while_it_waits(streamed: bool) -> None:
    with served(ApiRunner(seconds=STEP), max_running=1) as server, asked(server):
        engine = engine_of(server)
        wait_until(lambda: len(engine.scheduler.running) == 1)
        with asked(server, stream=streamed):
            wait_until(lambda: len(engine.scheduler.waiting) == 1)
        assert steps_until(server, lambda: not engine.scheduler.waiting) <= 2
        all_cancelled(server, 1)
        # The one that runs is not disturbed.
        (other,) = server.service.store.live()
        assert other.status is RequestStatus.RUNNING
        before = other.num_output_tokens
        wait_until(lambda: server.service.store.live()[0].num_output_tokens > before)


def test_a_client_that_never_reads_holds_up_nobody() -> None:
    with served(ApiRunner(seconds=0.001)) as server, asked(server, stream=True, max_tokens=1500):
        started = time.monotonic()
        assert server.complete(max_tokens=50).status_code == 200
        assert time.monotonic() - started < 2.0


def test_a_hundred_clients_that_go_leave_nothing_behind() -> None:
    with served(ApiRunner(seconds=0.002), max_waiting=200) as server:
        for index in range(100):
            with asked(server, stream=index % 2 == 0):
                time.sleep(0.001 * (index % 5))
        server.idle()
        assert server.complete(max_tokens=1).status_code == 200
        engine_of(server).scheduler.check()
