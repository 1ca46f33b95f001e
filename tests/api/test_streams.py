"""Streams byte by byte: what clients rely on, for chat and for plain completions."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from engine.core.errors import PhaseScopeError
from engine.core.plan import StepPlan
from engine.core.request import FinishReason
from tests.api.server import ENDING, ApiRunner, Server, served
from tests.stub_service import wait_until

ROUTES = ("/v1/chat/completions", "/v1/completions")


def text_of(choice: dict[str, Any]) -> str:
    return choice["delta"].get("content", "") if "delta" in choice else choice["text"]


def reasons(events: list[dict[str, Any]]) -> list[str]:
    choices = [choice for event in events for choice in event["choices"]]
    return [c["finish_reason"] for c in choices if c["finish_reason"] is not None]


def test_a_chat_stream_byte_by_byte(server: Server) -> None:
    body = json.dumps(
        {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 2}
    )
    with socket.create_connection(_address(server)) as raw:
        raw.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        received = b"".join(iter(lambda: raw.recv(65536), b""))
    head, _, chunked = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-type: text/event-stream" in head.lower()
    messages = _dechunk(chunked)
    assert messages[-1] == b"data: [DONE]\n\n"
    # One event a message, so that each leaves at once.
    assert all(message.count(b"data: ") == 1 for message in messages)
    assert all(message.endswith(b"\n\n") for message in messages)
    first, *tokens = [json.loads(message[6:]) for message in messages[:-1]]
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}]
    assert [token["choices"][0]["delta"] for token in tokens] == [
        {"content": "w"},
        {"content": "o"},
    ]
    assert [token["choices"][0]["finish_reason"] for token in tokens] == [None, "length"]
    assert len({message["id"] for message in (first, *tokens)}) == 1
    assert all(message["object"] == "chat.completion.chunk" for message in (first, *tokens))


def _address(server: Server) -> tuple[str, int]:
    url = server.http.base_url
    assert url.port is not None
    return url.host, url.port


def _dechunk(data: bytes) -> list[bytes]:
    """The messages of a chunked HTTP body; uvicorn writes each of ours as one chunk."""
    messages = []
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            break
        messages.append(rest[:length])
        data = rest[length + 2 :]
    return messages


def test_tokens_leave_when_they_are_made() -> None:
    with served(ApiRunner(seconds=0.1)) as server:
        times = []
        body = {"prompt": "hi", "max_tokens": 5, "stream": True}
        with server.http.stream("POST", "/v1/completions", json=body) as reply:
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    times.append(time.monotonic())
    assert len(times) == 5
    # Four steps lie between the first and the last.
    assert times[-1] - times[0] > 0.3


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}])
def test_no_usage_chunk_unless_it_is_asked_for(
    server: Server, path: str, options: dict[str, Any]
) -> None:
    events = server.events(path, max_tokens=4, **options)
    assert all(event["choices"] for event in events)
    assert not any(event.get("usage") for event in events)


@pytest.mark.parametrize("path", ROUTES)
def test_the_last_chunk_holds_the_usage_where_it_is_asked_for(server: Server, path: str) -> None:
    fields = {"max_tokens": 6, "temperature": 0}
    *before, last = server.events(path, **fields, stream_options={"include_usage": True})
    whole = server.chat(**fields) if "chat" in path else server.complete(**fields)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6
    totals = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [last["usage"][name] for name in totals] == [
        whole.json()["usage"][name] for name in totals
    ]
    assert all(event["choices"] and event["usage"] is None for event in before)


def test_usage_can_be_counted_along(server: Server) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = server.events("/v1/completions", max_tokens=3, stream_options=options)
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 3, 3]
    assert all(event["usage"]["prompt_tokens"] == 2 for event in events)


@pytest.mark.parametrize("path", ROUTES)
def test_every_end_has_one_finish_reason(path: str) -> None:
    with served(ApiRunner(f"abc{ENDING}")) as server:
        assert reasons(server.events(path, max_tokens=20)) == ["stop"]
        assert reasons(server.events(path, max_tokens=20, stop="c")) == ["stop"]
        assert reasons(server.events(path, max_tokens=2)) == ["length"]


@pytest.mark.parametrize("path", ROUTES)
def test_a_request_that_the_server_stops_ends_as_cancelled(path: str) -> None:
    with served(ApiRunner(seconds=0.02)) as server:
        streams: list[Any] = []
        submit = server.service.submit_request

        def remembered(*args: Any, **options: Any) -> Any:
            result = submit(*args, **options)
            streams.append(result[0])
            return result

        server.service.submit_request = remembered  # type: ignore[method-assign]
        body = {"prompt": "hi", "messages": [{"role": "user", "content": "hi"}]}
        request = {**body, "stream": True, "max_tokens": 500}
        with server.http.stream("POST", path, json=request) as reply:
            lines = reply.iter_lines()
            next(lines)
            streams[0].cancel()
            rest = [line for line in lines if line.startswith("data: {")]
        found = reasons([json.loads(line[6:]) for line in rest])
        assert found == [FinishReason.CANCELLED]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("n", [1, 2])
def test_a_failure_in_mid_stream_is_an_error_event_and_the_last_one(path: str, n: int) -> None:
    def fail(plan: StepPlan) -> None:
        if any(chunk.request.num_output_tokens == 3 for chunk in plan.chunks):
            raise PhaseScopeError("The stub was told to fail.")

    with served(ApiRunner(before=fail)) as server:
        body = {"prompt": "hi", "messages": [{"role": "user", "content": "hi"}], "n": n}
        started = time.monotonic()
        reply = server.http.post(path, json={**body, "stream": True, "max_tokens": 20})
        assert time.monotonic() - started < 2.0
        events = reply.text.removesuffix("\n\n").split("\n\n")
        assert all(event.startswith("data: {") for event in events[:-1])
        name, data = events[-1].split("\n")
        assert name == "event: error"
        error = json.loads(data.removeprefix("data: "))["error"]
        assert error["message"] == "The engine failed: The stub was told to fail."
        assert error["type"] == "server_error"
        assert "[DONE]" not in reply.text
        assert reasons([json.loads(event[6:]) for event in events[:-1]]) == []
        wait_until(lambda: len(server.service.store.records()) == n)
        records = server.service.store.records()
        assert {record.finish_reason for record in records} == {FinishReason.ERROR}


def test_choices_keep_their_own_index(server: Server) -> None:
    *events, last = server.events(
        n=3, seed=0, max_tokens=12, stream_options={"include_usage": True}
    )
    texts = {0: "", 1: "", 2: ""}
    for event in events:
        for choice in event["choices"]:
            texts[choice["index"]] += text_of(choice)
    # The stub starts one byte later for each seed: seed + index.
    assert texts == {0: "words words ", 1: "ords words w", 2: "rds words wo"}
    assert sorted(reasons(events)) == ["length"] * 3
    one = server.chat(max_tokens=1).json()["usage"]["prompt_tokens"]
    assert last["usage"]["prompt_tokens"] == one
    assert last["usage"]["completion_tokens"] == 36


def test_a_stop_string_is_never_sent_even_in_part(server: Server) -> None:
    events = server.events("/v1/completions", max_tokens=20, stop=["rds w"])
    assert "".join(choice["text"] for e in events for choice in e["choices"]) == "wo"
    # Tokens that are held back still have an event each.
    assert len(events) == len("words w")


def test_the_echo_comes_before_the_first_token(server: Server) -> None:
    events = server.events("/v1/completions", prompt="Say ", echo=True, max_tokens=2)
    assert [event["choices"][0]["text"] for event in events] == ["Say ", "w", "o"]


def test_an_echo_alone_can_be_streamed(server: Server) -> None:
    options = {"include_usage": True}
    text, usage = server.events(
        "/v1/completions", prompt="Say ", echo=True, max_tokens=0, stream_options=options
    )
    assert text["choices"][0]["text"] == "Say "
    assert text["choices"][0]["finish_reason"] == "length"
    assert usage["usage"]["completion_tokens"] == 0


def test_logprobs_of_a_stream_come_with_their_tokens(server: Server) -> None:
    chat = server.events(logprobs=True, top_logprobs=1, max_tokens=2)
    entries = [e["choices"][0]["logprobs"]["content"] for e in chat[1:]]
    assert [[item["token"] for item in entry] for entry in entries] == [["w"], ["o"]]
    plain = server.events("/v1/completions", logprobs=1, max_tokens=2)
    assert [e["choices"][0]["logprobs"]["text_offset"] for e in plain] == [[0], [1]]


def test_timings_come_in_a_chunk_without_choices(server: Server) -> None:
    *_, last = server.events(max_tokens=3, return_timings=True)
    assert last["choices"] == []
    assert "usage" not in last
    (entry,) = last["timings"]
    assert entry["num_output_tokens"] == 3
    assert entry["ttft_seconds"] == pytest.approx(sum(entry["ttft_parts"].values()))
    assert entry["num_steps"] == 3
