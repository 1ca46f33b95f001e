"""Numbers as a person types them into the forms of Compare and Workload, checked one by one.

Each function returns a number that can be used or raises InvalidRequest with a sentence that names
the field, the limit and what was given. Nothing here knows a component or an experiment.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from engine.core.errors import InvalidRequest
from engine.lab.measures import Limits
from engine.lab.workload_lengths import MAX_LENGTH
from ui.words_compare import COMPARE

MAX_SEED: Final = 2**31 - 1
MAX_SEEN: Final = 5_000
"""Lengths that may be listed by hand."""

_MOST_MILLISECONDS = 1e7


def whole(label: str, value: Any, low: int, high: int) -> int:
    """A whole number within its limits; raises InvalidRequest naming the field."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(COMPARE["ask_whole"].format(label=label, value=_said(value)))
    if value != int(value):
        raise InvalidRequest(COMPARE["ask_whole"].format(label=label, value=_said(value)))
    if not low <= value <= high:
        raise InvalidRequest(_out_of_range(label, f"{low:,}", f"{high:,}", f"{value:,.0f}"))
    return int(value)


def number(label: str, value: Any) -> float:
    """A finite number from 0 on; raises InvalidRequest naming the field."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{label} must be a number; got {_said(value)}.")
    if not 0 <= value < 1e9:
        raise InvalidRequest(_out_of_range(label, "0", "1,000,000,000", f"{value:g}"))
    return float(value)


def seed_number(value: Any) -> int:
    """A seed; raises InvalidRequest."""
    return whole(COMPARE["seed"], value, 0, MAX_SEED)


def limits(ttft: Any, tpot: Any) -> Limits:
    """Both limits from milliseconds, 0 or nothing for none; raises InvalidRequest."""
    return Limits(
        ttft_seconds=_limit_seconds(COMPARE["ttft_limit"], ttft),
        tpot_seconds=_limit_seconds(COMPARE["tpot_limit"], tpot),
    )


def listed_lengths(label: str, text: Any) -> tuple[int, ...]:
    """Lengths from a text such as `12, 40, 55`; raises InvalidRequest naming what is no length."""
    words = [word for word in re.split(r"[\s,;]+", str(text or "")) if word]
    if not words:
        raise InvalidRequest(COMPARE["ask_lengths"].format(label=label))
    if len(words) > MAX_SEEN:
        raise InvalidRequest(
            _out_of_range(f"{label}: how many are listed", "1", f"{MAX_SEEN:,}", f"{len(words):,}")
        )
    return tuple(_listed(label, word) for word in words)


def _listed(label: str, word: str) -> int:
    if not (word.isascii() and word.isdigit()) or len(word) > 9:
        raise InvalidRequest(COMPARE["ask_whole"].format(label=label, value=_said(word)))
    return whole(label, int(word), 1, MAX_LENGTH)


def _limit_seconds(label: str, milliseconds: Any) -> float | None:
    if not milliseconds:
        return None
    if not isinstance(milliseconds, int | float) or not 0 < milliseconds <= _MOST_MILLISECONDS:
        raise InvalidRequest(_out_of_range(label, "0", "10,000,000", _said(milliseconds)))
    return milliseconds / 1e3


def _out_of_range(label: str, low: str, high: str, value: str) -> str:
    return COMPARE["ask_range"].format(label=label, low=low, high=high, value=value)


def _said(value: Any) -> str:
    return "nothing" if value is None or value == "" else str(value)[:40]
