"""Our numbers beside those that AIPerf measures from outside, request by request.

AIPerf sends a request id that our records keep, so its rows and ours are joined, not only their
averages. Its clock starts before it connects and ours when the request has arrived; what lies in
between is the difference that this prints. Run it as `make truth`.
"""

from __future__ import annotations

import argparse
import json
import os
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
from engine.model.cache import cache_folder
from engine.telemetry.metrics import percentile

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120
RELATIVE, ABSOLUTE_MS = 0.03, 5.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far one figure agrees over all joined requests; differences are outside minus ours."""

    figure: str
    outside_p50: float
    ours_p50: float
    difference_p50: float
    difference_max: float
    within: float


@dataclass(frozen=True, slots=True)
class Truth:
    """One run at one concurrency. Times are milliseconds, throughput output tokens a second."""

    concurrency: int
    sent: int
    joined: int
    equal_token_counts: int
    outside_throughput: float
    our_throughput: float
    agreements: tuple[Agreement, ...]


def main(arguments: Sequence[str]) -> int:
    """Run the comparison; 0 when 95 % of the requests agree within 3 % or 5 ms, else 1."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.truth", description=__doc__)
    parser.add_argument("--aiperf", required=True, help="AIPerf's executable")
    parser.add_argument("--url", help="a running server; default: start one")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    with _server(options.url) as url, tempfile.TemporaryDirectory() as folder:
        results = [
            _compare(options, url, Path(folder) / str(concurrency), concurrency)
            for concurrency in options.concurrency
        ]
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        _print_table(results)
    return 0 if all(_holds(result) for result in results) else 1


def _compare(options: argparse.Namespace, url: str, folder: Path, concurrency: int) -> Truth:
    """One run of AIPerf, joined with our records by request id."""
    _run_aiperf(options, url, folder, concurrency)
    outside = _outside_records(folder)
    ours = {r["label"]: r for r in httpx.get(f"{url}/live/requests.json", timeout=60).json()}
    pairs = [(record, ours[name]) for name, record in outside.items() if name in ours]
    if not pairs:
        raise PhaseScopeError("AIPerf's requests are not among our records; see its log.")
    return Truth(
        concurrency=concurrency,
        sent=len(outside),
        joined=len(pairs),
        equal_token_counts=sum(
            a["output_sequence_length"] == b["num_output_tokens"] for a, b in pairs
        ),
        outside_throughput=_outside_throughput(folder),
        our_throughput=_our_throughput([b for _, b in pairs]),
        agreements=(
            _agree("TTFT", [(a["time_to_first_token"], 1e3 * b["ttft_seconds"]) for a, b in pairs]),
            _agree(
                "TPOT (AIPerf's ITL)",
                [(a["inter_token_latency"], 1e3 * b["tpot_seconds"]) for a, b in pairs],
            ),
            _agree(
                "longest output gap",
                [
                    (max(a["inter_chunk_latency"]), 1e3 * max(b["output_gaps_seconds"]))
                    for a, b in pairs
                ],
            ),
        ),
    )


def _agree(figure: str, pairs: Sequence[tuple[float, float]]) -> Agreement:
    differences = [outside - ours for outside, ours in pairs]
    close = [abs(outside - ours) <= max(ABSOLUTE_MS, RELATIVE * outside) for outside, ours in pairs]
    return Agreement(
        figure=figure,
        outside_p50=_p50([outside for outside, _ in pairs]),
        ours_p50=_p50([ours for _, ours in pairs]),
        difference_p50=_p50(differences),
        difference_max=max(differences, key=abs),
        within=sum(close) / len(close),
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


def _holds(result: Truth) -> bool:
    rate = abs(result.our_throughput / result.outside_throughput - 1)
    return (
        result.joined == result.sent == result.equal_token_counts
        and rate <= RELATIVE
        and all(agreement.within >= 0.95 for agreement in result.agreements)
    )


def _run_aiperf(options: argparse.Namespace, url: str, folder: Path, concurrency: int) -> None:
    model = httpx.get(f"{url}/v1/models", timeout=30).json()["data"][0]["id"]
    folder.mkdir(parents=True)
    # With an offline switch set, AIPerf takes the tokenizer's folder for a hub id.
    switches = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    environ = {name: value for name, value in os.environ.items() if name not in switches}
    command = [options.aiperf, "profile", "-m", model, "-u", url, "--endpoint-type", "chat"]
    command += ["--streaming", "--use-server-token-count", "--tokenizer", str(_tokenizer_folder())]
    command += ["--concurrency", str(concurrency), "--request-count", str(options.requests)]
    # A high constant rate makes AIPerf sleep while it waits for a free slot: it would spin.
    command += ["--request-rate", "100", "--arrival-pattern", "constant"]
    command += ["--isl", str(options.input_tokens), "--isl-stddev", "0"]
    command += ["--osl", str(options.output_tokens), "--osl-stddev", "0"]
    # Another seed each time: else the prefix cache would answer.
    command += ["--random-seed", str(time.time_ns() % 2**31), "--export-level", "records"]
    command += ["--extra-inputs", '{"ignore_eos": true, "temperature": 0}']
    command += ["--no-gpu-telemetry", "--ui", "none", "--artifact-dir", str(folder)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        raise PhaseScopeError(f"AIPerf failed: {(done.stderr or done.stdout)[-800:]}")


def _outside_records(folder: Path) -> dict[str, dict[str, Any]]:
    """AIPerf's requests by their id: metric name -> value."""
    records = {}
    for line in (folder / "profile_export.jsonl").read_text().splitlines():
        row = json.loads(line)
        metrics = {name: metric["value"] for name, metric in row["metrics"].items()}
        records[row["metadata"]["x_request_id"]] = metrics
    return records


def _outside_throughput(folder: Path) -> float:
    summary = json.loads((folder / "profile_export_aiperf.json").read_text())
    return float(summary["output_token_throughput"]["avg"])


def _tokenizer_folder() -> Path:
    """The converted model's folder: AIPerf reads its tokenizer to write prompts of a length."""
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
    heading = f"{'p50, ms':>34}{'AIPerf':>10}{'ours':>10}{'differ by':>11}{'at most':>10}"
    print(f"{heading}{'within 3 % or 5 ms':>20}")
    for result in results:
        print(
            f"concurrency {result.concurrency}: {result.joined} of {result.sent} requests joined, "
            f"{result.equal_token_counts} with equal token counts; output tokens/s "
            f"{result.outside_throughput:.1f} outside, {result.our_throughput:.1f} ours"
        )
        for row in result.agreements:
            print(
                f"{row.figure:>34}{row.outside_p50:>10.1f}{row.ours_p50:>10.1f}"
                f"{row.difference_p50:>11.2f}{row.difference_max:>10.2f}{row.within:>19.0%}"
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
