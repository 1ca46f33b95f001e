"""Keys, other pages' scripts, a client's share, and the names that requests are known by."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api.access import Access
from engine.api.shares import Limits
from tests.api.server import ApiRunner, Server, served
from tests.stub_service import wait_until


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_a_key_opens_the_api() -> None:
    with served(access=Access(keys=("one", "two"))) as server:
        body = {"prompt": "a", "max_tokens": 1}
        for headers in ({}, bearer("three"), {"Authorization": "Bearer"}, {"Authorization": "one"}):
            for path in ("/v1/completions", "/v1/chat/completions", "/tokenize"):
                refused = server.http.post(path, json=body, headers=headers)
                assert refused.status_code == 401
                assert refused.json()["error"]["code"] == "invalid_api_key"
            assert server.http.get("/v1/models", headers=headers).status_code == 401
        for key in ("one", "two"):
            reply = server.http.post("/v1/completions", json=body, headers=bearer(key))
            assert reply.status_code == 200
        # What holds no text of anybody stays open.
        assert server.http.get("/metrics").status_code == 200


def test_a_wrong_key_is_heard_of_before_the_body_is_read() -> None:
    with served(access=Access(keys=("one",))) as server:
        reply = server.http.post("/v1/completions", content=b"no json")
        assert reply.status_code == 401


def test_without_keys_any_key_will_do(server: Server) -> None:
    reply = server.http.get("/v1/models", headers=bearer("whatever a client insists on"))
    assert reply.status_code == 200


def test_a_client_has_a_share_and_others_have_theirs() -> None:
    access = Access(keys=("one", "two"), limits=Limits(requests=2))
    with served(ApiRunner(seconds=0.02), access=access) as server:
        ask: dict[str, Any] = {"prompt": "a", "max_tokens": 1, "n": 2}
        held = {"prompt": "a", "max_tokens": 500, "stream": True}
        with server.http.stream("POST", "/v1/completions", json=held, headers=bearer("one")):
            refused = server.http.post("/v1/completions", json=ask, headers=bearer("one"))
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "client_limit"
            assert int(refused.headers["retry-after"]) >= 1
            other = server.http.post("/v1/completions", json=ask, headers=bearer("two"))
            assert other.status_code == 200
        server.idle()
        wait_until(
            lambda: (
                server.http.post("/v1/completions", json=ask, headers=bearer("one")).status_code
                == 200
            )
        )


def test_refused_requests_leave_the_share_as_it_was() -> None:
    with served(access=Access(limits=Limits(requests=1))) as server:
        for _ in range(3):
            assert server.complete(prompt="").status_code == 400
            assert server.complete(prompt="a" * 5000).status_code == 400
        assert server.complete(max_tokens=1).status_code == 200
        assert server.chat(max_tokens=1, stream=True).status_code == 200
        wait_until(lambda: server.complete(max_tokens=1).status_code == 200)


def refusal(reply: Any, status: int) -> str:
    assert reply.status_code == status, reply.text
    assert (status == 429) == ("retry-after" in reply.headers)
    error = reply.json()["error"]
    assert error["code"] == "client_limit"
    message: str = error["message"]
    return message


def test_a_clients_queue_is_bounded_apart_from_its_slots() -> None:
    access = Access(keys=("one", "two"), limits=Limits(queued=1))
    running = {"prompt": "a", "max_tokens": 500, "stream": True, "n": 2}
    with served(ApiRunner(seconds=0.02), access=access, max_running=2) as server:

        def complete(key: str, n: int) -> Any:
            body = {"prompt": "a", "max_tokens": 1, "n": n}
            return server.http.post("/v1/completions", json=body, headers=bearer(key))

        # Free slots are not waited for, so two may come at once.
        assert complete("one", n=2).status_code == 200
        with server.http.stream("POST", "/v1/completions", json=running, headers=bearer("two")):
            engine = server.service.engine
            assert engine is not None
            wait_until(lambda: len(engine.scheduler.running) == 2)
            message = refusal(complete("one", n=2), 429)
            assert "2 of your requests would wait" in message
            assert "the limit of one client is 1" in message
            assert "the engine has 2 slots" in refusal(complete("one", n=4), 400)
            waiting = {**running, "n": 1}
            with server.http.stream("POST", "/v1/completions", json=waiting, headers=bearer("one")):
                refusal(complete("one", n=1), 429)
        server.idle()
        wait_until(lambda: complete("one", n=2).status_code == 200)


def test_a_clients_tokens_are_bounded() -> None:
    with served(ApiRunner(seconds=0.02), access=Access(limits=Limits(tokens=600))) as server:
        held = {"prompt": "a" * 100, "max_tokens": 400, "stream": True}
        with server.http.stream("POST", "/v1/completions", json=held):
            message = refusal(server.complete(prompt="a" * 50, max_tokens=51), 429)
            assert "hold 500 tokens" in message
            assert "asks for 101 more; the limit of one client is 600" in message
            assert server.complete(prompt="a" * 50, max_tokens=50).status_code == 200
        server.idle()
        wait_until(lambda: server.complete(prompt="a" * 50, max_tokens=550).status_code == 200)


def test_an_output_limit_beyond_the_context_holds_the_context() -> None:
    with served(access=Access(limits=Limits(tokens=128)), max_model_len=64) as server:
        assert server.complete(prompt="a", max_tokens=5000, n=2).status_code == 200


@pytest.mark.parametrize(
    ("limits", "words"),
    [(Limits(requests=2), "asks for 3 answers"), (Limits(tokens=50), "may come to 54 tokens")],
)
def test_what_a_client_can_never_have_is_not_to_be_waited_for(limits: Limits, words: str) -> None:
    with served(access=Access(limits=limits)) as server:
        assert words in refusal(server.complete(n=3), 400)
        assert server.complete().status_code == 200


@pytest.mark.parametrize(
    ("origins", "origin", "status"),
    [
        ((), "https://elsewhere.example", 403),
        ((), "null", 403),
        (("https://other.example",), "https://elsewhere.example", 403),
        (("https://elsewhere.example/",), "https://elsewhere.example", 200),
        (("*",), "https://elsewhere.example", 200),
    ],
)
def test_scripts_of_other_pages_need_leave(
    origins: tuple[str, ...], origin: str, status: int
) -> None:
    with served(access=Access(origins=origins)) as server:
        body = {"prompt": "a", "max_tokens": 1}
        reply = server.http.post("/v1/completions", json=body, headers={"Origin": origin})
        assert reply.status_code == status
        allowed = reply.headers.get("access-control-allow-origin")
        assert allowed == (None if status == 403 else "*" if "*" in origins else origin)
        own = server.http.post("/v1/completions", json=body, headers={"Origin": server.url})
        assert own.status_code == 200


def test_browsers_are_told_what_scripts_may_send() -> None:
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    with served(access=Access(origins=("https://a.example",))) as server:
        assert server.http.options("/v1/completions", headers=asked).status_code == 200
    with served() as server:
        reply = server.http.options("/v1/completions", headers=asked)
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b"req-1", "req-1"),
        (b"a b\xe9\tc", "abc"),
        (b"x" * 500, "x" * 128),
    ],
)
def test_the_clients_request_id_is_kept_and_given_back(
    server: Server, sent: bytes, kept: str
) -> None:
    for body in ({"stream": True}, {"stream": False}):
        reply = server.http.post(
            "/v1/completions",
            json={"prompt": "a", "max_tokens": 1, "return_timings": True, **body},
            headers={b"X-Request-ID": sent},
        )
        assert reply.headers["x-request-id"] == kept
        assert [record.label for record in server.service.store.records()][-1] == kept
    refused = server.http.post("/v1/completions", json={}, headers={b"X-Request-ID": sent})
    assert refused.headers["x-request-id"] == kept


def test_without_one_the_replys_id_names_the_request(server: Server) -> None:
    reply = server.complete(max_tokens=1, return_timings=True)
    assert reply.headers["x-request-id"] == reply.json()["id"]
    assert server.service.store.records()[-1].label == reply.json()["id"]
