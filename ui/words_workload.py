"""What the Workload tab says."""

from __future__ import annotations

from typing import Final

WORKLOAD: Final[dict[str, str]] = {
    "tab": "Workload",
    "empty": "Choose a shape and press Run.",
    "run": "Run",
    "stop": "Stop",
    "shape": "Shape",
    "trace": "From a trace file",
    "requests": "Requests",
    "seed": "Seed",
    "streamed": "Streamed",
    "streamed_hint": "Off: answers come whole, and there is no TTFT and no ITL.",
    "price": "Price of an hour",
    "price_hint": "In any currency; 0: none.",
    "lengths": "Lengths",
    "prompt": "Prompt",
    "output": "Answer",
    "kind": "{part} lengths",
    "own": "of the shape",
    "typical": "Mean, median or length",
    "spread": "Spread or sigma",
    "low": "Shortest",
    "high": "Longest",
    "arrivals": "Arrivals",
    "rate": "Requests a second",
    "burstiness": "Burstiness",
    "burstiness_hint": "Below 1 burstier than Poisson, above 1 more even.",
    "burst": "Requests a burst",
    "users": "Users",
    "think": "Think time, s",
    "file": "Trace file",
    "file_hint": (
        "ShareGPT, Mooncake, Azure LLM inference, BurstGPT, vLLM custom, AIPerf, plain CSV or "
        "JSONL, or our own export; at most {megabytes} MB."
    ),
    "speed": "Speed factor",
    "speed_hint": "How many times as fast the trace is played.",
    "no_file": "Choose a trace file first, or another shape.",
    "too_large": "The file has {size:.1f} MB; at most {most} MB can be loaded.",
    "line": "Line {line}: {reason}",
    "more_lines": "and {n} more.",
    "live": "Requests now",
    "live_cap": "Everybody's, live; a simulated run is drawn when it has ended.",
    "result": "Result",
    "shared": "{share} of the prompt tokens begin as an earlier prompt does",
}

LENGTH_KINDS: Final = ("own", "fixed", "uniform", "normal", "log-normal")
ARRIVAL_KINDS: Final = (
    "own",
    "Poisson",
    "gamma",
    "constant",
    "burst",
    "closed loop",
    "all at once",
)
