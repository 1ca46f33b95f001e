"""Our numbers beside those that others' load generators measure from outside, request by request.

Each tool sends request ids that our records keep, so its rows and ours are joined, not only their
averages. Its clock starts before it connects and ours when the request has arrived; what lies in
between is the difference that this prints. Run it as `make truth`.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from engine.core.errors import PhaseScopeError
from engine.lab.truth_tools import (
    LONGEST_GAP,
    MEDIAN_GAP,
    TPOT,
    TTFT,
    AIPerf,
    Load,
    Measured,
    Outside,
    Tool,
    VllmBench,
)
from engine.model.cache import cache_folder
from engine.telemetry.metrics import percentile

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120
RELATIVE, ABSOLUTE_MS = 0.03, 5.0
"""How far a request's figure may lie from the outside one, and throughput by the first."""

SHARE = 0.95
"""Of the requests, how many must lie within that."""

_SETTLE_SECONDS = 5.0

Pair = tuple[Measured, dict[str, Any]]
"""A request from outside, and our own record of it as `/live/requests.json` tells it."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far one figure agrees over all joined requests; differences are outside minus ours.

    judged: whether it has to; else the tool measures something a little different.
    """

    figure: str
    outside_p50: float
    ours_p50: float
    difference_p50: float
    difference_max: float
    within: float
    judged: bool


@dataclass(frozen=True, slots=True)
class Truth:
    """One tool's run at one concurrency. Milliseconds, and output tokens a second."""

    tool: str
    concurrency: int
    sent: int
    joined: int
    equal_token_counts: int
    outside_throughput: float
    our_throughput: float
    agreements: tuple[Agreement, ...]

    @property
    def holds(self) -> bool:
        """Whether every request is joined with equal tokens, and all that is judged agrees."""
        rate = abs(self.our_throughput / self.outside_throughput - 1)
        return (
            self.joined == self.sent == self.equal_token_counts
            and rate <= RELATIVE
            and all(one.within >= SHARE for one in self.agreements if one.judged)
        )


def main(arguments: Sequence[str]) -> int:
    """Run the comparison; 0 when 95 % of the requests agree within 3 % or 5 ms, else 1."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.truth", description=__doc__)
    parser.add_argument("--aiperf", help="AIPerf's executable")
    parser.add_argument("--vllm-bench", help="Python of an environment with vllm")
    parser.add_argument("--url", help="a running server; default: start one")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    tools = _tools(options)
    if not tools:
        parser.error("name at least one load generator, with --aiperf or --vllm-bench")
    if options.output_tokens < 2:
        parser.error("--output-tokens must be at least 2: one token has no gap behind it")
    with _server(options.url) as url, tempfile.TemporaryDirectory() as folder:
        results = [
            _compare(tool, _load(options, url, concurrency), Path(folder))
            for concurrency in options.concurrency
            for tool in tools
        ]
    if options.json:
        print(json.dumps([asdict(r) | {"holds": r.holds} for r in results], indent=2))
    else:
        _print_table(results)
    return 0 if all(result.holds for result in results) else 1


def _tools(options: argparse.Namespace) -> list[Tool]:
    tools: list[Tool] = []
    if options.aiperf:
        tools.append(AIPerf(options.aiperf))
    if options.vllm_bench:
        tools.append(VllmBench(options.vllm_bench))
    return tools


def _load(options: argparse.Namespace, url: str, concurrency: int) -> Load:
    return Load(
        url=url,
        model=httpx.get(f"{url}/v1/models", timeout=30).json()["data"][0]["id"],
        tokenizer=_tokenizer_folder(),
        concurrency=concurrency,
        requests=options.requests,
        input_tokens=options.input_tokens,
        output_tokens=options.output_tokens,
    )


def _compare(tool: Tool, load: Load, parent: Path) -> Truth:
    """One run of a tool, joined with our records by request id."""
    outside = tool.run(load, Path(tempfile.mkdtemp(dir=parent)))
    pairs = _joined(load.url, outside)
    if not pairs:
        raise PhaseScopeError(f"{tool.name}'s requests are not among our records.")
    return compare(tool.name, load.concurrency, outside, pairs)


def compare(tool: str, concurrency: int, outside: Outside, pairs: Sequence[Pair]) -> Truth:
    """What a tool measured beside our records of the same requests."""
    figures = {
        TTFT: [(a.ttft, 1e3 * b["ttft_seconds"]) for a, b in pairs],
        TPOT: [(a.tpot, 1e3 * b["tpot_seconds"]) for a, b in pairs],
        MEDIAN_GAP: [(_p50(a.gaps), _p50(_our_gaps(b))) for a, b in pairs],
        LONGEST_GAP: [(max(a.gaps), max(_our_gaps(b))) for a, b in pairs],
    }
    agreements = [
        _agree(name, values, judged=name in outside.judged) for name, values in figures.items()
    ]
    return Truth(
        tool=tool,
        concurrency=concurrency,
        sent=len(outside.requests),
        joined=len(pairs),
        equal_token_counts=sum(a.output_tokens == b["num_output_tokens"] for a, b in pairs),
        outside_throughput=outside.throughput,
        our_throughput=_our_throughput([b for _, b in pairs]),
        agreements=tuple(agreements),
    )


def _joined(url: str, outside: Outside) -> list[Pair]:
    """The requests that our records know by the id the tool sent."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        answer = httpx.get(f"{url}/live/requests.json", timeout=60)
        ours = {record["label"]: record for record in answer.json()}
        pairs = [
            (measured, ours[name]) for name, measured in outside.requests.items() if name in ours
        ]
        # A record is closed a moment after its last token was sent.
        if len(pairs) == len(outside.requests) or time.monotonic() > deadline:
            return pairs
        time.sleep(0.2)


def _our_gaps(record: dict[str, Any]) -> list[float]:
    return [1e3 * gap for gap in record["output_gaps_seconds"]]


def _agree(figure: str, pairs: Sequence[tuple[float, float]], *, judged: bool) -> Agreement:
    differences = [outside - ours for outside, ours in pairs]
    close = [abs(outside - ours) <= max(ABSOLUTE_MS, RELATIVE * outside) for outside, ours in pairs]
    return Agreement(
        figure=figure,
        outside_p50=_p50([outside for outside, _ in pairs]),
        ours_p50=_p50([ours for _, ours in pairs]),
        difference_p50=_p50(differences),
        difference_max=max(differences, key=abs),
        within=sum(close) / len(close),
        judged=judged,
    )


def _p50(values: Sequence[float]) -> float:
    middle = percentile(values, 50)
    assert middle is not None, "percentiles are asked for joined requests only"
    return middle


def _our_throughput(records: Sequence[dict[str, Any]]) -> float:
    """Output tokens over the time from the first submission to the last token taken."""
    start = min(record["submitted_seconds"] for record in records)
    end = max(record["submitted_seconds"] + record["token_delivered"][-1] for record in records)
    return float(sum(record["num_output_tokens"] for record in records) / (end - start))


def _tokenizer_folder() -> Path:
    """The converted model's folder: tools read its tokenizer to write prompts of a length."""
    found = sorted(cache_folder().glob("*/tokenizer.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise PhaseScopeError("No converted model is in the cache; start app.py once.")
    return found[-1].parent


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    """The server that was named, or one of our own for the time of the comparison."""
    if url is not None:
        yield url.rstrip("/")
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.3)
    raise PhaseScopeError(f"The server at {url} did not become healthy.")


def _print_table(results: Sequence[Truth]) -> None:
    print(f"{'p50, ms':>34}{'outside':>10}{'ours':>10}{'differ by':>11}{'at most':>10}", end="")
    print(f"{'within 3 % or 5 ms':>20}")
    for result in results:
        rate = result.our_throughput / result.outside_throughput - 1
        print(
            f"{result.tool}, concurrency {result.concurrency}: {result.joined} of {result.sent} "
            f"requests joined, {result.equal_token_counts} with equal token counts; output "
            f"tokens/s {result.outside_throughput:.1f} outside, {result.our_throughput:.1f} ours "
            f"({rate:+.1%}): {'holds' if result.holds else 'DOES NOT HOLD'}"
        )
        for row in result.agreements:
            print(
                f"{row.figure:>34}{row.outside_p50:>10.1f}{row.ours_p50:>10.1f}"
                f"{row.difference_p50:>11.2f}{row.difference_max:>10.2f}{row.within:>19.0%}"
                f"{'' if row.judged else '  told only'}"
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
