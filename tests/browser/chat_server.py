"""The whole page over the real service and feed, with a model that repeats what it is told.

``python -m tests.browser.chat_server 7910`` serves it for a look by hand.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.api.app import api_routes, create_api
from engine.api.metrics import EngineMetrics
from engine.contracts import Build, ServiceStatus
from engine.core.plan import Chunk, SampledToken
from engine.service import EngineService
from tests.browser.page_server import serving
from tests.stub_service import END, ScriptedRunner, stub_build, wait_until
from ui import page
from ui.answers import Answers
from ui.chat import build_chat
from ui.feed import Feed

DEFAULT = "A plain answer, said **again** and `again`. "


class Parrot(ScriptedRunner):
    """Says what follows `say ` in the last line of its prompt for ever, what follows `once ` once.

    A step takes `pace` seconds; a test may change it at any time.
    """

    def __init__(self, pace: float = 0.01) -> None:
        super().__init__(before=lambda _: None)
        self.pace = pace

    def run(self, plan):  # type: ignore[no-untyped-def]
        self._seconds = self.pace
        return super().run(plan)

    def _say(self, chunk: Chunk) -> SampledToken:
        request = chunk.request
        prompt = "".join(map(chr, request.prompt_token_ids))
        text = DEFAULT
        for word in ("say ", "once "):
            if word in prompt:
                text = prompt.rsplit(word, 1)[1]
        spoken = request.num_output_tokens
        logprob = math.log(0.5) if request.params.logprobs is not None else None
        if "once " in prompt and spoken == len(text):
            return SampledToken(END, logprob)
        return SampledToken(ord(text[spoken % len(text)]), logprob)


@dataclass(frozen=True)
class ChatServer:
    """A running page, and what is behind it."""

    url: str
    service: EngineService
    answers: Answers
    runner: Parrot


@contextmanager
def serve_chat(
    port: int, *, pace: float = 0.01, wrap: Callable[[Build], Build] | None = None, **settings: int
) -> Iterator[ChatServer]:
    """Serve the page on `port`; `wrap` may change how the engine's parts are made."""
    runner = Parrot(pace)
    build = stub_build(runner, **{"num_blocks": 2048, "max_model_len": 8192, **settings})
    service = EngineService(wrap(build) if wrap else build, recovery_pause=0.3)
    feed = Feed(service)
    made: list[Answers] = []
    demo = page.build_page(lambda: made.append(build_chat(service, epoch=feed.epoch)))
    api = api_routes(create_api(service, EngineMetrics(service)))
    with serving(demo, port, service, feed, more=api):
        service.start()
        if wrap is None:
            wait_until(lambda: service.state.status is ServiceStatus.READY)
        yield ChatServer(f"http://127.0.0.1:{port}/", service, made[0], runner)


if __name__ == "__main__":
    with serve_chat(int(sys.argv[1]), pace=0.03) as server:
        print(server.url, flush=True)
        input()
