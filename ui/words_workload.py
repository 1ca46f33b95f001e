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
    "trace_title": "A trace file",
    "trace_card": "A production trace or a data set, at its own times or as you choose.",
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
    "seen": "Lengths seen, in tokens",
    "seen_hint": "As many as you like, separated by commas or spaces; each as often as it stands.",
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
    "result": "Results",
    "result_cap": "The newest {most} runs. A shape opens its run; a column sorts by it.",
    "all_numbers": "All numbers of this run",
    "runs": "Earlier runs",
    "gaps": "Gap between tokens, from typical to worst",
    "gaps_cap": "All gaps of the run: {samples}.",
    "first_tokens": "Time to first token",
    "first_tokens_cap": "One dot per request, at the moment it was submitted.",
    "ttft_limit_line": "limit {time}",
    "goodput": "Finished requests",
    "goodput_limited": "Filled: within {limits}. Hollow: finished, but later than that.",
    "goodput_free": "No limits are given, so every finished request is as good as another.",
    "no_gaps": "No answer was streamed, so no gap between tokens was seen.",
    "shared": "{share} of the prompt tokens begin as an earlier prompt does",
}

LENGTH_USES: Final[dict[str, dict[str, str]]] = {
    "own": {},
    "fixed": {"typical": "Length"},
    "uniform": {"low": "Shortest", "high": "Longest"},
    "normal": {"typical": "Mean", "spread": "Spread", "low": "Shortest", "high": "Longest"},
    "log-normal": {"typical": "Median", "spread": "Sigma", "low": "Shortest", "high": "Longest"},
    "empirical": {"seen": "Lengths seen, in tokens"},
}
"""The fields that each kind of length distribution has a use for, by what they are to it."""

ARRIVAL_USES: Final[dict[str, dict[str, str]]] = {
    "own": {},
    "Poisson": {"rate": "Requests a second"},
    "gamma": {"rate": "Requests a second", "burstiness": "Burstiness"},
    "constant": {"rate": "Requests a second"},
    "burst": {"rate": "Requests a second", "burst": "Requests a burst"},
    "closed loop": {"users": "Users", "think": "Think time, s"},
    "all at once": {},
}
"""Likewise for the ways to arrive."""

LENGTH_KINDS: Final = tuple(LENGTH_USES)
ARRIVAL_KINDS: Final = tuple(ARRIVAL_USES)
