"""An answer token by token, each shaded by how long its reader waited for it.

The text stays the same, character by character; only spans are added. Their attributes carry the
numbers which assets/scripts/chat_waits.js shows on hover and focus. Gaps are those of
engine.telemetry.metrics; this module knows no page and no engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from engine.core.records import RequestRecord
from engine.core.request import SampledLogprob
from engine.telemetry import metrics
from ui import markup
from ui.formats import duration

NUM_SHADES = 5

LEAST_SPAN = 8.0
"""Least ratio of the scale's ends: so gaps that are much alike stay pale and look alike."""


class Scale(NamedTuple):
    """Shades of gaps in steps of equal ratio, from the usual gap `low` to `high`, in seconds."""

    low: float
    high: float

    @classmethod
    def of(cls, gaps: Sequence[float]) -> Scale | None:
        """The scale of one answer, from its median gap; None when no token was waited for."""
        median = metrics.percentile([gap for gap in gaps if gap > 0], 50)
        return None if median is None else cls(median, max(*gaps, LEAST_SPAN * median))

    def shade(self, gap: float) -> int:
        """0 for usual gaps, and shorter ones, up to `NUM_SHADES - 1` for the longest."""
        if gap <= self.low:
            return 0
        share = math.log(gap / self.low) / math.log(self.high / self.low)
        return min(NUM_SHADES - 1, int(NUM_SHADES * share))

    def start(self, shade: int) -> float:
        """The shortest gap of a shade, in seconds."""
        return self.low * math.pow(self.high / self.low, shade / NUM_SHADES)


class Coloured(NamedTuple):
    """An answer's text as shaded HTML, and the legend that says what the shades mean."""

    text: str
    legend: str


def coloured(
    record: RequestRecord, texts: Sequence[str], text: str, decode: Callable[[int], str]
) -> Coloured | None:
    """`text` with a span for each of its tokens; None where the tokens are not those of the text.

    texts: what each token made certain; one without text (part of a character) is shown with the
    next one that has some. decode: the text of one token id, for recorded alternatives.
    """
    said = "".join(texts)
    if not text.startswith(said) or len(record.token_delivered) < len(texts):
        return None
    gaps = [float(gap) for gap in metrics.itl_by_request([record])[0][: max(0, len(texts) - 1)]]
    scale = Scale.of(gaps)
    spans = (
        _span(record, gaps, scale, first, last, texts[last], decode)
        for first, last in _groups(texts)
    )
    return Coloured("".join(spans) + markup.verbatim(text[len(said) :]), _legend(scale))


def _groups(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last token of each piece of text."""
    first = 0
    for i, text in enumerate(texts):
        if text:
            yield first, i
            first = i + 1


def _span(
    record: RequestRecord,
    gaps: Sequence[float],
    scale: Scale | None,
    first: int,
    last: int,
    text: str,
    decode: Callable[[int], str],
) -> str:
    """One piece of text; its value: tokens, gap, time since submission and probability."""
    waited = max(gaps[max(0, first - 1) : last], default=None)
    shade = "" if waited is None or scale is None else f" ps-w{scale.shade(waited)}"
    numbers = [
        str(first + 1) if first == last else f"{first + 1}-{last + 1}",
        "" if waited is None else duration(waited),
        duration(record.token_delivered[last] - record.submitted),
    ]
    label = ""
    if last < len(record.logprobs):
        sampled = record.logprobs[last]
        numbers.append(_percent(sampled.logprob))
        label = _alternatives(sampled, decode)
    attributes = f"class='ps-w{shade}' value='{'|'.join(numbers)}'{label}"
    return f"<span {attributes}>{markup.verbatim(text)}</span>"


def _alternatives(sampled: SampledLogprob, decode: Callable[[int], str]) -> str:
    if not sampled.top:
        return ""
    listed = ", ".join(
        f"“{' '.join(decode(token_id).splitlines())}” {_percent(logprob)}"
        for token_id, logprob in sampled.top
    )
    return f" label='{escape(listed)}'"


def _percent(logprob: float) -> str:
    share = 100 * math.exp(logprob)
    if share < 0.01:
        return "below 0.01 %"
    return f"{share:.0f} %" if share >= 9.95 else f"{share:.2g} %"


def _legend(scale: Scale | None) -> str:
    if scale is None:
        return "<span class='ps-wait-legend'>no gaps between tokens</span>"
    starts = [duration(scale.start(shade)) for shade in range(1, NUM_SHADES)]
    steps = "".join(
        f"<span><i class='ps-w{shade}'></i>{words}</span>"
        for shade, words in enumerate([f"under {starts[0]}", *starts])
    )
    return f"<span class='ps-wait-legend'><span>gap before a token</span>{steps}</span>"
