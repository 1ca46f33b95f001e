"""What serving costs: streams over the API beside open pages, and the engine alone, in turns.

The clients are a process of their own, the pages a real browser's; page, API and engine share one
process, as in the application. Visitors bring machines of their own: browsers and clients run on
half of this machine's cores, and the engine, alone as well as with visitors, on the other half
(``--together``: all on all cores, as on a laptop with a browser). Not a test: a busy machine is
slow. Run it on Linux as ``python -m tests.browser.api_load --streams 64 --pages 4``; the status
says whether it was without an error and at least 0.9.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from engine import environment, host
from engine.contracts import Build, EngineParts, Report, ServiceStatus
from engine.core.errors import PhaseScopeError
from engine.core.request import SamplingParams
from engine.service import EngineService
from engine.settings import Settings
from tests.browser.conftest import FLAGS, find_chromium, free_port

if TYPE_CHECKING:
    from tests.browser.chat_server import ChatServer

LEAST_RATIO = 0.9
PROMPT_TOKENS = 64
SETTLE_MILLISECONDS = 2_000
_VOCABULARY = range(1000, 30_000)

FEED_TIMES = """() => [
  ...performance.getEntriesByType("resource").filter((entry) => entry.name.includes("/live/feed"))
    .map((entry) => entry.responseEnd),
  performance.now(),
]"""


class Answer(NamedTuple):
    """What one stream came to: tokens, and what was wrong with it (empty: nothing)."""

    tokens: int
    error: str


@dataclass
class Figures:
    """Output tokens a second of each round, what went wrong, and the pages' longest silences."""

    alone: list[float] = field(default_factory=list)
    served: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Served over alone, by their medians."""
        return statistics.median(self.served) / statistics.median(self.alone)


def main(arguments: Sequence[str]) -> int:
    """Measure, print the figures; 0 when they are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--pages", type=int, default=4, choices=range(1, 17), metavar="N")
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of alone and served")
    parser.add_argument("--together", action="store_true", help="everything on all cores")
    options = parser.parse_args(arguments)
    cores = host.affinity()
    ours, theirs = (set(cores), set(cores)) if options.together else halves(cores, siblings_of)
    context = multiprocessing.get_context("spawn")
    # Threads and processes run where the thread that starts them does.
    os.sched_setaffinity(0, theirs)
    with ProcessPoolExecutor(1, mp_context=context) as clients, sync_playwright() as playwright:
        clients.submit(os.getpid).result()
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        os.sched_setaffinity(0, ours)
        environment.prepare(0)
        # Gradio and torch are imported behind it, which read what was set.
        from tests.browser.chat_server import serve_chat

        with serve_chat(free_port(), wrap=lambda _: _real_engine(options.streams)) as server:
            figures = measure(server, browser, clients, options)
    _print(figures, options)
    return 0 if not figures.errors and figures.ratio >= LEAST_RATIO else 1


def halves(
    cores: Sequence[int], siblings: Callable[[int], tuple[int, ...]]
) -> tuple[set[int], set[int]]:
    """The engine's and the visitors' processors, none of them on the same core.

    Raises PhaseScopeError where there is one core for both.
    """
    together = sorted({siblings(core) for core in cores})
    if len(together) < 2:
        raise PhaseScopeError("two cores are needed: one for the engine, one for its visitors")
    half = len(together) // 2
    ours, theirs = set[int]().union(*together[:half]), set[int]().union(*together[half:])
    return ours & set(cores), theirs & set(cores)


def siblings_of(processor: int) -> tuple[int, ...]:
    """The processors that are threads of the same core, as far as the system tells."""
    path = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        ranges = [part.split("-") for part in path.read_text().strip().split(",")]
    except OSError:
        return (processor,)
    return tuple(i for ends in ranges for i in range(int(ends[0]), int(ends[-1]) + 1))


def measure(
    server: ChatServer, browser: Browser, clients: Executor, options: argparse.Namespace
) -> Figures:
    """Rounds of the engine alone and with visitors, in turns."""
    _wait_until_healthy(server.service)
    pages = [browser.new_page() for _ in range(options.pages)]
    figures = Figures()
    run_alone(server.service, _prompts(options.streams, 0), options.output_tokens)
    for number in range(1, 1 + options.rounds):
        turns = ("alone", "served") if number % 2 else ("served", "alone")
        for place, turn in enumerate(turns):
            prompts = _prompts(options.streams, 2 * number + place)
            if turn == "alone":
                figures.alone.append(run_alone(server.service, prompts, options.output_tokens))
            else:
                run_served(server.url, pages, clients, prompts, options.output_tokens, figures)
    return figures


def run_alone(service: EngineService, prompts: Sequence[Any], output_tokens: int) -> float:
    """Tokens a second of the engine with readers on threads, no page and no API."""
    params = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True)
    start = time.perf_counter()
    readers = [
        threading.Thread(target=list, args=(service.submit(prompt, params),)) for prompt in prompts
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return len(prompts) * output_tokens / (time.perf_counter() - start)


def run_served(
    url: str,
    pages: Sequence[Page],
    clients: Executor,
    prompts: Sequence[Any],
    output_tokens: int,
    figures: Figures,
) -> list[Answer]:
    """One round of streams with the pages open; adds what it measured to the figures."""
    for page in pages:
        page.goto(url)
        page.wait_for_function("window.phasescope?.trace.version > 0")
        page.evaluate("() => { performance.setResourceTimingBufferSize(10000); }")
    # Opening a page costs more than having it open, which is what is measured.
    pages[-1].wait_for_timeout(SETTLE_MILLISECONDS)
    begins = [float(page.evaluate("performance.now()")) for page in pages]
    start = time.perf_counter()
    answers = clients.submit(all_streams, url, prompts, output_tokens).result()
    seconds = time.perf_counter() - start
    figures.served.append(sum(answer.tokens for answer in answers) / seconds)
    figures.errors += [answer.error for answer in answers if answer.error]
    for page, begin in zip(pages, begins, strict=True):
        figures.silences.append(_longest_silence(page, begin))
        page.goto("about:blank")
    return answers


def all_streams(url: str, prompts: Sequence[Any], output_tokens: int) -> list[Answer]:
    """Every prompt as a stream of its own, all at once."""

    async def everybody() -> list[Answer]:
        return list(
            await asyncio.gather(*(_stream(url, prompt, output_tokens) for prompt in prompts))
        )

    return asyncio.run(everybody())


async def _stream(url: str, prompt: Any, output_tokens: int) -> Answer:
    """One stream on a plain socket: parsing its events would cost the machine more than serving."""
    fields = {"prompt": prompt, "max_tokens": output_tokens, "ignore_eos": True, "temperature": 0}
    body = json.dumps({**fields, "stream": True}).encode()
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    reply = await reader.read()
    writer.close()
    tokens = reply.count(b'data: {"id"')
    if not reply.startswith(b"HTTP/1.1 200") or b"event: error" in reply:
        return Answer(tokens, reply[-300:].decode("utf-8", "replace"))
    if b"data: [DONE]" not in reply or tokens != output_tokens:
        return Answer(tokens, f"a stream ended after {tokens} tokens")
    return Answer(tokens, "")


def _longest_silence(page: Page, begin: float) -> float:
    """Seconds without an answer of the live feed, at most, since `begin` of the page's clock."""
    times = [begin, *(time for time in page.evaluate(FEED_TIMES) if time >= begin)]
    return max(after - before for before, after in pairwise(times)) / 1e3


def _prompts(number: int, seed: int) -> list[list[int]]:
    """Token ids that no other round shares, so that nothing is found in the prefix cache."""
    chooser = random.Random(seed)
    return [chooser.choices(_VOCABULARY, k=PROMPT_TOKENS) for _ in range(number)]


def _real_engine(slots: int) -> Build:
    def build(report: Report) -> EngineParts:
        from engine.assembly import build_engine

        return build_engine(Settings(slots=slots, context=1024), report)

    return build


def _wait_until_healthy(service: EngineService) -> None:
    while not service.health()[0]:
        if service.state.status is ServiceStatus.FAILED:
            raise PhaseScopeError(service.state.reason)
        time.sleep(0.1)


def _print(figures: Figures, options: argparse.Namespace) -> None:
    print(
        f"{options.streams} streams beside {options.pages} pages, medians of {options.rounds}: "
        f"{statistics.median(figures.served):.1f} tok/s, {statistics.median(figures.alone):.1f} "
        f"of the engine alone: ratio {figures.ratio:.3f} (at least {LEAST_RATIO})"
    )
    print(f"errors: {len(figures.errors)} {figures.errors[:3] or ''}")
    print(f"longest time without news on a page: {max(figures.silences, default=0.0):.1f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
