"""What watching costs: output tokens a second with viewers polling the live feed, over none.

Both take turns in one run, since machines are noisy. The viewers are a process of their own, as
browsers are; the server shares its process with the engine, as in the application. Run it as
`python -m ui.bench`; `--json` prints the figures for a program.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import multiprocessing
import random
import socket
import statistics
import sys
import threading
import time
import urllib.parse
from collections.abc import Sequence
from multiprocessing.synchronize import Event

import brotli
import orjson
import uvicorn
from starlette.applications import Starlette

from engine import environment
from engine.contracts import EngineParts, Report, ServiceStatus
from engine.core.errors import PhaseScopeError
from engine.core.request import SamplingParams
from engine.service import EngineService
from engine.settings import Settings
from ui.feed import Feed
from ui.page import FEED_ROUTE
from ui.routes import routes

_VOCABULARY = range(1000, 30_000)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark and print its figures; 0 when it ran."""
    parser = argparse.ArgumentParser(prog="python -m ui.bench", description=__doc__)
    parser.add_argument("--viewers", type=int, default=16)
    parser.add_argument("--hertz", type=float, default=2.0, help="polls a second of each viewer")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of with and without")
    parser.add_argument("--threads", type=int, default=0, help="as for app.py")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a line")
    options = parser.parse_args(arguments)
    environment.prepare(options.threads)
    settings = Settings(slots=options.streams, threads=options.threads)
    service = _serve(settings)
    feed = Feed(service)
    feed.start()
    url = _listen(service, feed)
    watching = _Watching(f"{url}/{FEED_ROUTE}", options.viewers, options.hertz)
    rates: dict[bool, list[float]] = {False: [], True: []}
    _tokens_per_second(service, options.streams, options.output_tokens, seed=0)
    for number in range(options.rounds):
        order = (False, True) if number % 2 == 0 else (True, False)
        for watched in order:
            watching.set(watched)
            rate = _tokens_per_second(
                service, options.streams, options.output_tokens, seed=1 + 2 * number + watched
            )
            rates[watched].append(rate)
    watching.close()
    feed.close()
    service.close(wait=10)
    alone, watched_rate = statistics.median(rates[False]), statistics.median(rates[True])
    figures = {
        "viewers": options.viewers,
        "polls_per_second": options.viewers * options.hertz,
        "tokens_per_second_alone": alone,
        "tokens_per_second_watched": watched_rate,
        "ratio": watched_rate / alone,
        "rounds": options.rounds,
    }
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(
            f"{alone:.1f} tok/s alone, {watched_rate:.1f} tok/s with {options.viewers} viewers: "
            f"ratio {figures['ratio']:.3f} (medians of {options.rounds} rounds)"
        )
    return 0


class _Watching:
    """Viewers in a process of their own, that poll while told to."""

    def __init__(self, url: str, viewers: int, hertz: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._on, self._closed = context.Event(), context.Event()
        self._process = context.Process(
            target=_watch, args=(url, viewers, hertz, self._on, self._closed), daemon=True
        )
        self._process.start()

    def set(self, watched: bool) -> None:
        """Start or stop polling; returns when it has had time to take hold."""
        if watched:
            self._on.set()
        else:
            self._on.clear()
        time.sleep(1.0)

    def close(self) -> None:
        self._closed.set()
        self._process.join(timeout=10)


def _watch(url: str, viewers: int, hertz: float, on: Event, closed: Event) -> None:
    """Poll as that many browsers would, each over a connection that it keeps.

    One plain loop, evenly spread: a client library that costs as much as the server would be
    measured with it, since both share this machine's cores.
    """
    parts = urllib.parse.urlsplit(url)
    connections = [http.client.HTTPConnection(parts.netloc, timeout=30) for _ in range(viewers)]
    positions: list[tuple[int, str]] = [(-1, "")] * viewers
    pause = 1 / (viewers * hertz)
    due = time.monotonic()
    for viewer in itertools.cycle(range(viewers)):
        if closed.is_set():
            return
        if not on.wait(timeout=0.1):
            # The server gives up connections that rest; a new round opens new ones.
            for connection in connections:
                connection.close()
            due = time.monotonic()
            continue
        due += pause
        time.sleep(max(0.0, due - time.monotonic()))
        positions[viewer] = _poll(connections[viewer], parts.path, positions[viewer])


def _poll(
    connection: http.client.HTTPConnection, path: str, position: tuple[int, str]
) -> tuple[int, str]:
    """One poll as a browser sends it; returns the cursor and epoch for the next."""
    query = urllib.parse.urlencode({"since": position[0], "epoch": position[1]})
    connection.request("GET", f"{path}?{query}", headers={"Accept-Encoding": "br"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        return position
    if answer.headers["Content-Encoding"] == "br":
        body = brotli.decompress(body)
    frame = orjson.loads(body)
    return frame["cursor"], frame["epoch"]


def _serve(settings: Settings) -> EngineService:
    def build(report: Report) -> EngineParts:
        from engine.assembly import build_engine  # imports torch, which needs the environment

        return build_engine(settings, report)

    service = EngineService(build)
    service.start()
    while not service.health()[0]:
        if service.state.status is ServiceStatus.FAILED:
            raise PhaseScopeError(service.state.reason)
        time.sleep(0.05)
    return service


def _listen(service: EngineService, feed: Feed) -> str:
    """Serve the page's routes on a free port, on a thread of this process."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(Starlette(routes=routes(service, feed)), log_level="warning")
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _tokens_per_second(
    service: EngineService, streams: int, output_tokens: int, *, seed: int
) -> float:
    """Rate of one round: all streams at once, with prompts that no earlier round shares."""
    chooser = random.Random(seed)
    params = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True)
    prompts = [chooser.choices(_VOCABULARY, k=64) for _ in range(streams)]
    start = time.perf_counter()
    readers = [
        threading.Thread(target=list, args=(service.submit(prompt, params),)) for prompt in prompts
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return streams * output_tokens / (time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
