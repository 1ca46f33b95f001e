"""Numbers as the page writes them: durations, rates and counts, each with its unit.

The browser's scripts follow the same rules in assets/scripts/formats.js.
"""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`4.2 ms`, `134 ms` from ten on, `2.04 s` from a second on, `15.7 s` from ten on."""
    if 0 < seconds < 0.00995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:,.1f} s"


def rate(tokens_per_second: float) -> str:
    """`135 tok/s`, with one decimal below 50."""
    digits = 1 if tokens_per_second < 49.95 else 0
    return f"{tokens_per_second:,.{digits}f} tok/s"


def counted(count: int, singular: str) -> str:
    """`1 token`, `1,024 tokens`."""
    return f"{count:,} {singular}{'' if count == 1 else 's'}"
