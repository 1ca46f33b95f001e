"""The API on a real socket in front of a scripted engine with a real tokenizer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

from engine.api.access import Access
from engine.api.app import api_routes, create_api
from engine.api.metrics import EngineMetrics
from engine.contracts import EngineParts, ModelInfo, Report, ServiceStatus
from engine.core.config import EngineConfig
from engine.core.plan import Chunk, SampledToken, StepPlan
from engine.model.text import Tokenizer
from engine.service import EngineService
from tests.model.tiny_tokenizers import byte_level
from tests.stub_service import ScriptedRunner, wait_until

MODEL = "stub"
BYTES = byte_level()
"""A token for each byte, whose id is the byte; ChatML turns."""

END = BYTES.convert_tokens_to_ids("<|im_end|>")
START = BYTES.convert_tokens_to_ids("<|im_start|>")
ENDING = "\0"
"""Stands for the end token in a script."""


class ApiRunner(ScriptedRunner):
    """Says a script byte by byte, one byte further on for each seed, with log-probabilities."""

    def __init__(
        self,
        script: str = "words ",
        seconds: float = 0.0,
        before: Callable[[StepPlan], None] | None = None,
    ) -> None:
        super().__init__(script, seconds, before)
        self._bytes = script.encode()

    def _say(self, chunk: Chunk) -> SampledToken:
        request = chunk.request
        offset = request.params.seed or 0
        byte = self._bytes[(request.num_output_tokens + offset) % len(self._bytes)]
        token_id = END if byte == ord(ENDING) else byte
        if request.params.logprobs is None:
            return SampledToken(token_id)
        filtered = [(ord("z"), float("-inf")), (ord("y"), -3.0)]
        top = [(token_id, -0.25), *filtered][: request.params.logprobs]
        return SampledToken(token_id, -0.25, tuple(top))


@dataclass
class Server:
    """A served API: its address, its service, and a client of its own."""

    url: str
    service: EngineService
    metrics: EngineMetrics
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, timeout=20, trust_env=False)

    def chat(self, **fields: Any) -> httpx.Response:
        """POST a chat with one short message unless told otherwise."""
        body = {"messages": [{"role": "user", "content": "hi"}], **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def complete(self, **fields: Any) -> httpx.Response:
        """POST a completion of a short prompt unless told otherwise."""
        return self.http.post("/v1/completions", json={"prompt": "hi", **fields})

    def events(self, path: str = "/v1/chat/completions", **fields: Any) -> list[dict[str, Any]]:
        """The JSON of every event of a stream, which must end with [DONE]."""
        if "completions" in path and "prompt" not in fields and "messages" not in fields:
            hello = {"messages": [{"role": "user", "content": "hi"}]}
            fields |= hello if "chat" in path else {"prompt": "hi"}
        reply = self.http.post(path, json={"stream": True, **fields})
        assert reply.status_code == 200, reply.text
        *events, done = reply.text.removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def idle(self) -> None:
        """Wait until no request is open and no block is held."""
        wait_until(lambda: not self.service.store.live())
        engine = self.service.engine
        assert engine is not None
        wait_until(lambda: engine.scheduler.pool.num_used == 0)


@contextmanager
def served(
    runner: ScriptedRunner | None = None,
    *,
    tokenizer: Any = BYTES,
    access: Access | None = None,
    stuck_after: float = 60.0,
    **config: Any,
) -> Iterator[Server]:
    """Serve a scripted engine until the block is left."""
    runner = runner or ApiRunner()

    def build(report: Report) -> EngineParts:
        return EngineParts(
            config=EngineConfig(**{"num_blocks": 256, "max_model_len": 2048, **config}),
            runner=runner,
            tokenizer=Tokenizer(tokenizer),
            info=ModelInfo(name=MODEL, dtype="none", device="none", kv_bytes_per_token=64),
        )

    service = EngineService(build, stuck_after=stuck_after, recovery_pause=0.3)
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    metrics = EngineMetrics(service)
    app = Starlette(routes=api_routes(create_api(service, metrics, access)))
    try:
        with listening(app) as url:
            server = Server(url, service, metrics)
            yield server
            server.http.close()
    finally:
        service.close()


@contextmanager
def listening(app: Starlette) -> Iterator[str]:
    """Serve an app on a port of its own until the block is left; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()
