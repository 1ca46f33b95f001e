"""Load generators that others wrote, and what each of them measured of every request.

Each runs in an environment of its own. They know nothing of our records: what they report is
brought into one form here, in milliseconds, under the request ids that they sent.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.core.errors import PhaseScopeError

TTFT, TPOT = "TTFT", "TPOT"
MEDIAN_GAP, LONGEST_GAP = "median output gap", "longest output gap"
TIMEOUT_SECONDS = 1200
_VLLM_BENCH = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
    "parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent: `requests` of them, `concurrency` at once, and how long they are in tokens."""

    url: str
    model: str
    tokenizer: Path
    concurrency: int
    requests: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One request from outside. Milliseconds; `gaps` lie between its events, first token on."""

    ttft: float
    tpot: float
    gaps: tuple[float, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """One run: every request by the id that was sent, and output tokens a second over all.

    judged: the figures that are to agree with ours; others are told beside them.
    """

    requests: dict[str, Measured]
    throughput: float
    judged: frozenset[str]


class Tool(Protocol):
    """A load generator."""

    name: str

    def run(self, load: Load, folder: Path) -> Outside:
        """Send the load; `folder` is empty and the tool's own. Raises PhaseScopeError if it fails.

        Prompts differ from run to run: else the prefix cache would answer.
        """
        ...


class AIPerf:
    """NVIDIA's AIPerf; its "ITL" is a request's mean, so our TPOT."""

    name = "AIPerf"

    def __init__(self, executable: str) -> None:
        self._executable = executable

    def run(self, load: Load, folder: Path) -> Outside:
        """See `Tool`."""
        # With an offline switch set, AIPerf takes the tokenizer's folder for a hub id.
        switches = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
        environ = {name: value for name, value in os.environ.items() if name not in switches}
        command = [self._executable, "profile", "-m", load.model, "-u", load.url]
        command += ["--endpoint-type", "chat", "--streaming", "--use-server-token-count"]
        command += ["--tokenizer", str(load.tokenizer)]
        command += ["--concurrency", str(load.concurrency), "--request-count", str(load.requests)]
        # A high constant rate makes AIPerf sleep while it waits for a free slot: it would spin.
        command += ["--request-rate", "100", "--arrival-pattern", "constant"]
        command += ["--isl", str(load.input_tokens), "--isl-stddev", "0"]
        command += ["--osl", str(load.output_tokens), "--osl-stddev", "0"]
        command += ["--random-seed", str(_new_seed()), "--export-level", "records"]
        command += ["--extra-inputs", '{"ignore_eos": true, "temperature": 0}']
        command += ["--no-gpu-telemetry", "--ui", "none", "--artifact-dir", str(folder)]
        _call(self.name, command, environ)
        summary = json.loads((folder / "profile_export_aiperf.json").read_text())
        rows = (folder / "profile_export.jsonl").read_text().splitlines()
        return Outside(
            requests=dict(_aiperf_request(json.loads(row)) for row in rows),
            throughput=float(summary["output_token_throughput"]["avg"]),
            # Its ITL is a request's mean; single gaps it takes when its own parsing is done.
            judged=frozenset({TTFT, TPOT}),
        )


class VllmBench:
    """`vllm bench serve`; its "ITL" are the gaps between events, its TPOT is ours."""

    name = "vllm bench"

    def __init__(self, python: str) -> None:
        self._python = python

    def run(self, load: Load, folder: Path) -> Outside:
        """See `Tool`."""
        switches = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        prefix = f"bench-{_new_seed()}-"
        command = [self._python, "-c", _VLLM_BENCH, "--backend", "openai-chat"]
        command += ["--base-url", load.url, "--endpoint", "/v1/chat/completions"]
        command += ["--model", load.model, "--tokenizer", str(load.tokenizer)]
        command += ["--dataset-name", "random", "--random-input-len", str(load.input_tokens)]
        command += ["--random-output-len", str(load.output_tokens), "--ignore-eos"]
        command += ["--num-prompts", str(load.requests)]
        command += ["--max-concurrency", str(load.concurrency), "--temperature", "0"]
        command += ["--seed", str(_new_seed()), "--request-id-prefix", prefix]
        command += ["--ready-check-timeout-sec", "0", "--disable-tqdm"]
        command += ["--save-result", "--save-detailed", "--result-dir", str(folder)]
        _call(self.name, [*command, "--result-filename", "result.json"], os.environ | switches)
        result = json.loads((folder / "result.json").read_text())
        if failed := [error for error in result["errors"] if error]:
            raise PhaseScopeError(f"{self.name} had a request fail: {failed[0][-400:]}")
        rows = zip(result["ttfts"], result["itls"], result["output_lens"], strict=True)
        return Outside(
            requests={
                # Ids are the prefix and the place among the prompts, in whose order results come.
                f"{prefix}{index}": _vllm_request(*row)
                for index, row in enumerate(rows)
            },
            throughput=float(result["output_throughput"]),
            # Its TTFT has in it that the clocks of a burst start before its first request is sent.
            judged=frozenset({TPOT, MEDIAN_GAP, LONGEST_GAP}),
        )


def _aiperf_request(row: dict[str, Any]) -> tuple[str, Measured]:
    metrics = {name: metric["value"] for name, metric in row["metrics"].items()}
    measured = Measured(
        ttft=metrics["time_to_first_token"],
        tpot=metrics["inter_token_latency"],
        gaps=tuple(metrics["inter_chunk_latency"]),
        output_tokens=int(metrics["output_sequence_length"]),
    )
    return row["metadata"]["x_request_id"], measured


def _vllm_request(ttft: float, gaps: list[float], output_tokens: int) -> Measured:
    return Measured(
        ttft=1e3 * ttft,
        tpot=1e3 * sum(gaps) / (output_tokens - 1),
        gaps=tuple(1e3 * gap for gap in gaps),
        output_tokens=output_tokens,
    )


def _new_seed() -> int:
    return time.time_ns() % 2**31


def _call(name: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PhaseScopeError(f"{name} could not be run: {error}") from None
    if done.returncode:
        raise PhaseScopeError(f"{name} failed: {(done.stderr or done.stdout)[-800:]}")
