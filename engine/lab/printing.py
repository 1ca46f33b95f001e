"""An experiment's progress and result as text on a terminal. It prints and decides nothing."""

from __future__ import annotations

import sys
from typing import Any

from engine.lab.experiment import ExperimentProgress
from engine.lab.measures import ENGINE_LATENCIES
from engine.lab.results import Result, Side
from engine.lab.verdict import duration_words
from engine.telemetry.metrics import shown_percentiles

_BAR_WIDTH = 24
_CEILINGS = (
    ("flops_per_second", 1e-12, "TFLOP/s"),
    ("bytes_per_second", 1e-9, "GB/s"),
    ("overhead_seconds", 1e3, "ms a step"),
)


def show_progress(progress: ExperimentProgress) -> None:
    """A bar on a terminal's error output, elsewhere a line for each finished run."""
    if not sys.stderr.isatty():
        if progress.requests_done == progress.num_requests:
            print(f"run {progress.run} of {progress.num_runs} is done", file=sys.stderr)
        return
    done = progress.requests_done / progress.num_requests
    bar = "#" * round(done * _BAR_WIDTH)
    print(
        f"\rrun {progress.run} of {progress.num_runs} ({progress.side}) "
        f"[{bar:{_BAR_WIDTH}}] {progress.requests_done} of {progress.num_requests} requests ",
        end="",
        file=sys.stderr,
        flush=True,
    )


def print_result(result: Result) -> None:
    """The conditions, both sides' numbers with their counts, what differs, and the verdict."""
    workload, machine = result.workload, result.machine
    label = "simulated" if result.simulated else "measured"
    prompts, outputs = workload["prompt_tokens"], workload["output_tokens"]
    print(
        f"{workload['name']}: {workload['requests']} requests, prompts {prompts[0]:,} to "
        f"{prompts[1]:,} and answers {outputs[0]:,} to {outputs[1]:,} tokens, "
        f"{workload['arrivals']}, {'streamed' if workload['streamed'] else 'not streamed'}"
    )
    print(f"{label} on {_machine_words(machine)}")
    for side in result.sides:
        _print_side(side)
    for setting, a, b in result.differences:
        print(f"{setting}: A {a}, B {b}")
    for note in (*workload["notes"], *result.notes):
        print(note)
    if result.verdict is not None:
        print(result.verdict.sentence)


def print_limits(result: Result, least_share: float) -> bool:
    """Whether every side met the limits; on error output, where limits were given, by how much."""
    shares = {side.name: side.good_share for side in result.sides}
    given = {name: share for name, share in shares.items() if share is not None}
    met = all(share >= least_share for share in given.values())
    if given:
        kept = ", ".join(f"{name} {share * 100:.1f} %" for name, share in given.items())
        print(
            f"Limits {'met' if met else 'not met'}: {kept} of the requests kept them, and "
            f"{least_share * 100:g} % must.",
            file=sys.stderr,
        )
    return met


def _machine_words(machine: dict[str, Any]) -> str:
    """Model, dtype and device, and the ceilings in units that people use."""
    words = [str(machine[name]) for name in ("model", "dtype", "device") if name in machine]
    for name, scale, unit in _CEILINGS:
        if name in machine:
            words.append(f"{machine[name] * scale:,.3g} {unit}")
    return ", ".join(words)


def _runs(side: Side) -> str:
    return "1 run" if len(side.runs) == 1 else f"{len(side.runs)} runs"


def _print_side(side: Side) -> None:
    rate = "-" if side.throughput is None else f"{side.throughput:.1f}"
    hits = "-" if side.prefix_hit_rate is None else f"{side.prefix_hit_rate * 100:.0f} %"
    print(
        f"{side.name}: {_runs(side)} of {side.seconds / len(side.runs):.1f} s, "
        f"{side.requests['finished']} finished, {side.requests['failed']} failed, "
        f"{side.requests['refused']} refused; {rate} output tok/s; prefix hits {hits}; "
        f"up to {side.peak_concurrency} at once"
    )
    # The engine's own times differ from the reader's only where a reader is slow; without one they
    # are all there is.
    streamed = side.latency["ttft"].count > 0
    for name, row in side.latency.items():
        if streamed and name in ENGINE_LATENCIES:
            continue
        values = {column: getattr(row, column) for column in shown_percentiles(row.count)}
        if values:
            words = ", ".join(f"{c} {duration_words(v, v)[0]}" for c, v in values.items())
            print(f"  {name.replace('_', ' '):18} {words}  (n = {row.count:,})")
    if side.good_share is not None:
        share, goodput = side.good_share * 100, side.goodput or 0.0
        print(f"  within the limits  {share:.1f} %, goodput {goodput:.2f} req/s")
    if side.cost is not None:
        for value, noun in (
            (side.cost.per_million_output_tokens, "million output tokens"),
            (side.cost.per_good_request, "request within the limits"),
        ):
            if value is not None:
                print(f"  {'cost':18} {value:,.4g} for each {noun}")
