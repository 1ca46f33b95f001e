"""The API as others see it: OpenAI's own client, and requests made up from its document."""

from __future__ import annotations

from typing import Any

import openai
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engine.api.replies import ChatReply, CompletionReply
from tests.api.server import MODEL, Server, served

HELLO: Any = [{"role": "user", "content": "Say hi"}]
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.fixture
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=20)


def test_openais_client_chats(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list().data] == [MODEL]
    assert client.models.retrieve(MODEL) == client.models.list().data[0]
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        client.models.retrieve("some/other")
    reply = client.chat.completions.create(
        model=MODEL, messages=HELLO, n=2, max_tokens=8, logprobs=True, top_logprobs=1
    )
    assert [choice.message.content for choice in reply.choices] == ["words wo", "words wo"]
    assert reply.choices[0].logprobs is not None
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 16


def test_openais_client_streams(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": True},
        max_completion_tokens=6,
        extra_body={"ignore_eos": True, "return_timings": True},
    )
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "words "
    assert last.usage is not None
    assert last.usage.completion_tokens == 6
    assert last.model_extra is not None
    assert last.model_extra["timings"][0]["num_output_tokens"] == 6


def test_openais_client_completes(client: openai.OpenAI) -> None:
    for prompt in ("hello", [104, 105], ["a", "b"]):
        reply = client.completions.create(model=MODEL, prompt=prompt, max_tokens=4)
        assert reply.choices[0].text == "word"


def test_openais_client_raises_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nope", messages=HELLO)
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=0)
    with pytest.raises(openai.BadRequestError, match="Shorten the prompt"):
        client.completions.create(model=MODEL, prompt="hello " * 5000)


def test_replies_have_the_shapes_that_the_document_states(server: Server) -> None:
    fields = {"max_tokens": 3, "return_timings": True}
    ChatReply.model_validate(server.chat(**fields, logprobs=True).json())
    CompletionReply.model_validate(server.complete(**fields, logprobs=1).json())


def test_the_document_is_served_and_no_page_from_elsewhere(server: Server) -> None:
    document = server.http.get("/v1/openapi.json").json()
    assert {
        "/v1/models",
        "/v1/models/{model}",
        "/v1/chat/completions",
        "/v1/completions",
        "/tokenize",
        "/metrics",
    } == set(document["paths"])
    for path in ("/v1/docs", "/v1/redoc", "/docs"):
        assert server.http.get(path).status_code == 404


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_requests_made_up_from_the_document_never_break_the_server(mode: GenerationMode) -> None:
    with served(max_model_len=64) as server:
        document = server.http.get("/v1/openapi.json").json()
        schema = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=server.url)
        for operation in schema.get_all_operations():
            found = operation.ok()
            if mode is GenerationMode.NEGATIVE and found.method == "get":
                continue  # without parameters nothing can be wrong

            @given(case=found.as_strategy(generation_mode=mode))
            @settings(
                max_examples=15,
                deadline=None,
                database=None,
                derandomize=True,
                phases=(Phase.explicit, Phase.generate),
                suppress_health_check=list(HealthCheck),
            )
            def check(case: Any) -> None:
                case.call_and_validate(checks=CHECKS)

            check()
        server.idle()
        assert server.complete(max_tokens=1).status_code == 200
