"""What is refused, with which status, and in whose words."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from engine.api.guard import MAX_BODY_BYTES
from engine.api.strict_json import parse_object
from engine.core.errors import InvalidRequest
from tests.api.server import ApiRunner, Server, served
from tests.model.tiny_tokenizers import CHATML, byte_level
from tests.stub_service import wait_until

NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role is not supported.') }}{% endif %}" + CHATML
)


def error_of(reply: Any, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    error: dict[str, Any] = reply.json()["error"]
    assert set(reply.json()) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"].endswith(".")
    return error


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"n": 0}, "n"),
        ({"n": 9}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens"),
        ({"stop": ""}, "stop"),
        ({"stop": ["", "Z"]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": 1}, "stop"),
        ({"logprobs": 21}, "logprobs"),
        ({"echo": True, "logprobs": 1}, "logprobs"),
        ({"seed": 2**70}, "seed"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [""]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": {"text": "a"}}, "prompt"),
        ({"prompt": [1_000_000]}, "prompt"),
        ({"prompt": [-1], "echo": True, "max_tokens": 0}, "prompt"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"prompt": ["a"] * 1000}, "prompt"),
        ({"cache_salt": "s" * 257}, "cache_salt"),
    ],
)
def test_a_wrong_field_is_named(server: Server, fields: dict[str, Any], param: str) -> None:
    body = json.dumps({"prompt": "hi", **fields})
    reply = server.http.post(
        "/v1/completions", content=body, headers={"Content-Type": "application/json"}
    )
    assert error_of(reply)["param"] == param


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0]"),
        ([{"role": "robot", "content": "a"}], "messages[0].role"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
    ],
)
def test_a_wrong_message_is_named(server: Server, messages: Any, param: str) -> None:
    assert error_of(server.chat(messages=messages))["param"] == param
    assert server.chat(max_tokens=1).status_code == 200


def test_alternatives_need_logprobs(server: Server) -> None:
    assert error_of(server.chat(top_logprobs=2))["param"] == "top_logprobs"
    assert error_of(server.chat(logprobs=True, top_logprobs=21))["param"] == "top_logprobs"


def test_the_templates_refusal_is_told() -> None:
    with served(tokenizer=byte_level(chat_template=NO_SYSTEM)) as server:
        messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
        error = error_of(server.chat(messages=messages))
        assert "System role is not supported." in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('{"prompt": "a", "temperature": NaN}', "temperature"),
        ('{"prompt": "a", "top_p": -Infinity}', "top_p"),
        ('{"prompt": "a", "min_p": 1e999}', "min_p"),
        ('{"prompt": "a", "unheard_of": {"x": [0, Infinity]}}', "unheard_of.x[1]"),
        ('{"prompt": "a"', None),
        ('["prompt"]', None),
        ("", None),
        ("NaN", None),
        ('{"prompt": "a", "seed": ' + "1" * 5000 + "}", None),
        ("[" * 100_000, None),
    ],
)
def test_what_is_not_strict_json_is_refused(server: Server, body: str, param: str | None) -> None:
    reply = server.http.post(
        "/v1/completions", content=body, headers={"Content-Type": "application/json"}
    )
    assert error_of(reply)["param"] == param


@pytest.mark.parametrize(
    "body", [b"\xff\xfe{", '{"prompt": "a"}'.encode("utf-16"), b'{"a": "\xe9"}']
)
def test_what_is_not_utf8_is_refused(server: Server, body: bytes) -> None:
    reply = server.http.post(
        "/v1/completions", content=body, headers={"Content-Type": "application/json"}
    )
    assert "not UTF-8" in error_of(reply)["message"]


def test_a_field_that_replaces_a_wrong_one_does_not_hide_it() -> None:
    with pytest.raises(InvalidRequest, match="NaN"):
        parse_object(b'{"a": NaN, "a": 1}')


def test_half_a_surrogate_pair_in_a_name_is_answered(server: Server) -> None:
    body = b'{"prompt": "a", "\\ud800": NaN}'
    reply = server.http.post(
        "/v1/completions", content=body, headers={"Content-Type": "application/json"}
    )
    assert error_of(reply)["param"] == "?"


def test_a_body_that_is_not_json_by_its_type(server: Server) -> None:
    reply = server.http.post("/v1/completions", data={"prompt": "a"})
    assert "Content-Type: application/json" in error_of(reply)["message"]


def test_another_model_is_not_found(server: Server) -> None:
    error = error_of(server.chat(model="nope"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")


def test_unknown_paths_and_methods_are_refused_in_the_same_shape(server: Server) -> None:
    unknown = error_of(server.http.get("/v1/nothing"), 404)
    assert "nothing at GET /v1/nothing" in unknown["message"]
    wrong_method = error_of(server.http.get("/v1/completions"), 405)
    assert "GET /v1/completions is not offered" in wrong_method["message"]


def test_a_large_body_is_refused_before_it_is_read(server: Server) -> None:
    url = server.http.base_url
    assert url.port is not None
    with socket.create_connection((url.host, url.port), timeout=10) as raw:
        raw.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n{" % (MAX_BODY_BYTES + 1)
        )
        assert raw.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_large_body_of_unknown_length_is_refused(server: Server) -> None:
    pieces = (b" " * 65536 for _ in range(MAX_BODY_BYTES // 65536 + 2))
    reply = server.http.post(
        "/v1/completions", content=pieces, headers={"Content-Type": "application/json"}
    )
    assert error_of(reply, 413)["code"] == "request_too_large"


def test_a_full_queue_says_when_to_come_again() -> None:
    with served(ApiRunner(seconds=0.05), max_running=1, max_waiting=1) as server:
        reply = server.complete(prompt=["a", "b"], n=2)
        assert "at most 2 requests" in error_of(reply)["message"]
        with server.http.stream(
            "POST", "/v1/completions", json={"prompt": "a", "max_tokens": 500, "stream": True}
        ):
            reply = server.complete(prompt=["a", "b"])
            assert error_of(reply, 429)["code"] == "queue_full"
            assert int(reply.headers["retry-after"]) >= 1
            # The prompt that had found a place gave it back.
            wait_until(lambda: len(server.service.store.live()) == 1)
        server.idle()


def test_no_engine_is_a_503_that_says_when_to_come_again() -> None:
    with served() as server:
        server.service.close()
        for reply in (server.chat(), server.complete(), server.http.get("/v1/models")):
            assert error_of(reply, 503)["code"] == "engine_unavailable"
            assert int(reply.headers["retry-after"]) >= 1


def test_a_fault_of_ours_tells_nothing(server: Server) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("a secret of the server")

    submit = server.service.submit_request
    server.service.submit_request = broken  # type: ignore[method-assign]
    try:
        reply = server.complete()
    finally:
        server.service.submit_request = submit  # type: ignore[method-assign]
    assert "secret" not in reply.text
    assert error_of(reply, 500)["code"] == "internal_error"
