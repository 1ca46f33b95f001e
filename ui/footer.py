"""The line below an answer: how its request's time was spent, drawn from its record alone.

The footer is a button whose value is the request's number, so that the page's scripts can open the
details and know the request as this browser's own. This module computes no metric: it asks
engine.telemetry.metrics.
"""

from __future__ import annotations

from html import escape

from engine.core.records import RequestRecord
from engine.core.request import FinishReason
from engine.telemetry import metrics
from ui.formats import counted, duration, rate


def footer(
    record: RequestRecord,
    *,
    epoch: str = "",
    error: str | None = None,
    notes: tuple[str, ...] = (),
) -> str:
    """A request's footer as HTML, while it runs or after its end.

    epoch: the feed's epoch, since request numbers start anew with each server; error: why it
    failed, for the one who asked only; notes: further sentences.
    """
    lines = [f"<span>{part}</span>" for part in _line(record, error)]
    lines += [f'<span class="ps-foot-note">{escape(note)}</span>' for note in notes]
    # Gradio's sanitiser drops data attributes; assets/scripts/chat.js makes them from these two.
    return (
        f'<button type="button" class="ps-foot{_state_class(record, error)}" '
        f'value="{record.number}" name="{escape(epoch)}">'
        f'{_phase_bar(record)}<span class="ps-foot-line">{"".join(lines)}</span></button>'
    )


def _state_class(record: RequestRecord, error: str | None) -> str:
    if error is not None:
        return " ps-failed"
    return " ps-running" if record.finish_reason is None else ""


def _line(record: RequestRecord, error: str | None) -> list[str]:
    """The parts of the text line, as HTML."""
    parts = [f"<b>{record.id}</b>"]
    if error is not None:
        after = f" after {counted(_num_taken(record), 'token')}" if _num_taken(record) else ""
        return [f"<b>{record.id}</b> failed{after}: {escape(error)}"]
    values = metrics.request_metrics(record)
    if values.ttft is not None:
        parts.append(f"first token <b>{duration(values.ttft)}</b>")
    parts += [_tokens(record), *_pace(record, values)]
    if record.num_cached_tokens:
        parts.append(
            f"<b>{record.num_cached_tokens:,}</b> of {record.num_prompt_tokens:,} "
            f"prompt tokens reused"
        )
    parts.append(_share_of_message(record))
    if record.finish_reason is FinishReason.LENGTH:
        parts.append(f"reached the {record.max_output_tokens:,}-token limit")
    return [part for part in parts if part]


def _tokens(record: RequestRecord) -> str:
    taken = _num_taken(record)
    if record.finish_reason is FinishReason.CANCELLED:
        return f"stopped by you after <b>{taken:,}</b> {'token' if taken == 1 else 'tokens'}"
    if record.finish_reason is not None:
        return f"<b>{taken:,}</b> {'token' if taken == 1 else 'tokens'}"
    if taken:
        return f"<b>{taken:,}</b> {'token' if taken == 1 else 'tokens'} so far"
    if record.scheduled is None:
        return "waiting for a slot"
    computed = min(record.num_computed_tokens, record.num_prompt_tokens)
    return f"read <b>{computed:,}</b> of {record.num_prompt_tokens:,} prompt tokens"


def _share_of_message(record: RequestRecord) -> str:
    """How much of the prompt its author wrote just now; the rest came along with it."""
    tokens = dict(record.composition).get("message")
    if tokens is None or tokens == record.num_prompt_tokens:
        return ""
    verb = "is" if tokens == 1 else "are"
    return f"<b>{tokens:,}</b> of {record.num_prompt_tokens:,} tokens {verb} your message"


def _pace(record: RequestRecord, values: metrics.RequestMetrics) -> list[str]:
    """Gaps between tokens, as far as their number carries a median, and the rate they give."""
    gaps = metrics.itl([record])
    median = metrics.percentile(gaps, 50)
    parts = []
    if median is not None and values.longest_pause is not None:
        carried = "p50" in metrics.shown_percentiles(len(gaps))
        shown = f"gap p50 <b>{duration(median)}</b>, " if carried else ""
        parts.append(f"{shown}longest <b>{duration(values.longest_pause)}</b>")
    if values.tpot:
        parts.append(f"<b>{escape(rate(1 / values.tpot))}</b>")
    return parts


def _num_taken(record: RequestRecord) -> int:
    return len(record.token_delivered)


def _phase_bar(record: RequestRecord) -> str:
    """Waiting and preparation, prefill, decode as shares of the time up to the last token."""
    last = record.last_token_delivered
    first = record.first_token_sampled
    if record.scheduled is None or first is None or last is None:
        return '<span class="ps-phases"></span>'
    whole = last - record.submitted
    if whole <= 0:
        return '<span class="ps-phases"></span>'
    shares = (
        ("wait", (record.scheduled - record.submitted) / whole),
        ("prefill", (first - record.scheduled) / whole),
        ("decode", (last - first) / whole),
    )
    # Growth factors that add up to 100, so that they fill the bar beside each part's least width.
    bars = "".join(
        f'<i class="ps-phase-{name}" style="flex-grow:{100 * share:.2f}"></i>'
        for name, share in shares
    )
    return f'<span class="ps-phases">{bars}</span>'
