"""An experiment's progress and result as text on a terminal. It prints and decides nothing."""

from __future__ import annotations

import sys

from engine.lab.experiment import ExperimentProgress
from engine.lab.results import Result, Side
from engine.lab.verdict import duration_words
from engine.telemetry.metrics import shown_percentiles

_BAR_WIDTH = 24


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
    print(f"{label} on {', '.join(f'{name} {value}' for name, value in machine.items())}")
    for side in result.sides:
        _print_side(side)
    for setting, a, b in result.differences:
        print(f"{setting}: A {a}, B {b}")
    for note in (*workload["notes"], *result.notes):
        print(note)
    if result.verdict is not None:
        print(result.verdict.sentence)


def _print_side(side: Side) -> None:
    rate = "-" if side.throughput is None else f"{side.throughput:.1f}"
    hits = "-" if side.prefix_hit_rate is None else f"{side.prefix_hit_rate:.0%}"
    print(
        f"{side.name}: {len(side.runs)} runs of {side.seconds / len(side.runs):.1f} s, "
        f"{side.requests['finished']} finished, {side.requests['failed']} failed, "
        f"{side.requests['refused']} refused; {rate} output tok/s; prefix hits {hits}; "
        f"up to {side.peak_concurrency} at once"
    )
    for name, row in side.latency.items():
        values = {column: getattr(row, column) for column in shown_percentiles(row.count)}
        if values:
            words = ", ".join(f"{c} {duration_words(v, v)[0]}" for c, v in values.items())
            print(f"  {name.replace('_', ' '):18} {words}  (n = {row.count:,})")
    if side.good_share is not None:
        print(f"  within the limits  {side.good_share:.1%}, goodput {side.goodput or 0:.2f} req/s")
    if side.cost is not None and side.cost.per_million_output_tokens is not None:
        print(f"  cost               {side.cost.per_million_output_tokens:.2f} a million tokens")
