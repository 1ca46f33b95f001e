"""Checks on a machine with a GPU what no other can show, in under eight minutes, as one table.

Parity with `model.generate`, no waiting for the device within a step, memory that does not grow,
and the benchmark beside `generate`. Run it as `python -m engine.lab.gpu_check`; exit status 0 says
that all is as it should be, 1 that something is not, 2 that there is no GPU to check.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine import environment

if TYPE_CHECKING:
    import torch

_SECONDS = 470.0
_CONCURRENCY = (1, 8, 32, 64)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found: its name, the finding in words, and whether that is as it should be."""

    name: str
    finding: str
    passed: bool


def main(arguments: Sequence[str]) -> int:
    """Run every check and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.gpu_check", description=__doc__)
    parser.add_argument("--no-bench", action="store_true", help="leave the benchmark out")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    environment.prepare(0)
    # torch is imported only here, when the environment is set.
    import torch

    from engine.model.devices import describe_device

    if not torch.cuda.is_available():
        print("There is no CUDA device here, so nothing was checked; run this where there is one.")
        return 2
    device = torch.device("cuda", 0)
    print(f"{describe_device(device)}, torch {torch.__version__}")
    outcomes: list[Outcome] = []
    for outcome in _trials(device):
        outcomes.append(outcome)
        print(f"  {outcome.name}", file=sys.stderr)
    if not options.no_bench:
        outcomes += bench(_SECONDS - (time.monotonic() - start), _CONCURRENCY)
    print(table(outcomes))
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def bench(seconds: float, concurrency: Sequence[int], extra: Sequence[str] = ()) -> list[Outcome]:
    """The benchmark in a process of its own: one outcome for each concurrency.

    seconds: how long it may take; extra: further arguments for `engine.lab.bench`.
    """
    name = "bench beside generate"
    command = [
        *(sys.executable, "-m", "engine.lab.bench", "--json", "--rounds", "1"),
        *("--dtype", "bfloat16", "--concurrency", *map(str, concurrency), *extra),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return [Outcome(name, f"was not done within {seconds:.0f} s", False)]
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return [Outcome(name, f"did not run: {last}", False)]
    # Whatever a library prints comes before the figures.
    report = json.loads(done.stdout[done.stdout.index("{\n") :])
    return [_ratio(report, result) for result in report["results"]]


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a table in Markdown."""
    lines = ["| check | finding | |", "| --- | --- | --- |"]
    lines += [f"| {o.name} | {o.finding} | {'ok' if o.passed else 'FAILED'} |" for o in outcomes]
    return "\n".join(lines)


def _trials(device: torch.device) -> Iterator[Outcome]:
    import torch

    from engine.lab import gpu_trials as trials

    bfloat16 = torch.bfloat16

    def in_use() -> int:
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device)

    for name, config in trials.tiny_configs().items():
        model = trials.random_model(config, device)
        for dtype in (torch.float32, bfloat16):
            yield trials.parity(name, model, dtype)
    model = trials.random_model(trials.tiny_configs()["Llama"], device)
    yield trials.waiting(model, bfloat16, trials.cuda_waits_forbidden)
    yield trials.memory(model, bfloat16, in_use)
    yield from _bundled(device)


def _bundled(device: torch.device) -> Iterator[Outcome]:
    """Parity of the model that is installed with the application, if it is."""
    import torch

    from engine.lab import gpu_trials as trials
    from engine.model.loading import load
    from engine.model.sources import bundled_gguf, find_source

    if bundled_gguf() is None:
        return
    loaded = load(find_source(), device, torch.float32, lambda _: None)
    for dtype in (torch.float32, torch.bfloat16):
        yield trials.parity(loaded.name, loaded.model, dtype)


def _ratio(report: dict[str, Any], result: dict[str, Any]) -> Outcome:
    engine, generate = result["engine"], result["generate"]
    finding = (
        f"{engine['tokens_per_second']:,.0f} tok/s over {generate['tokens_per_second']:,.0f}: "
        f"{result['throughput_ratio']:.2f}; ITL p50 {engine['itl_p50']:.1f} ms over "
        f"{generate['itl_p50']:.1f}: {result['itl_p50_ratio']:.2f}"
    )
    name = f"{report['model']}, {result['concurrency']} at once, {report['dtype']}"
    return Outcome(name, finding, True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
