"""The line and the phase bar below an answer."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.core.records import RequestRecord
from engine.core.request import FinishReason, RequestStatus
from ui.footer import footer
from ui.formats import duration, rate


def _record(**values: Any) -> RequestRecord:
    defaults: dict[str, Any] = {
        "number": 14,
        "label": None,
        "streamed": True,
        "status": RequestStatus.FINISHED,
        "finish_reason": FinishReason.STOP,
        "complete": True,
        "num_prompt_tokens": 312,
        "num_cached_tokens": 0,
        "num_computed_tokens": 312,
        "num_output_tokens": 4,
        "num_recomputed_tokens": 0,
        "max_output_tokens": 400,
        "submitted": 10.0,
        "queued": 10.010,
        "scheduled": 10.020,
        "finished": 10.5,
        "token_sampled": (10.098, 10.131, 10.164, 10.466),
        "token_delivered": (10.099, 10.132, 10.165, 10.467),
        "chunks": (),
        "preemptions": (),
    }
    return RequestRecord(**{**defaults, **values})


def _running(**values: Any) -> RequestRecord:
    open_values = {"finish_reason": None, "status": RequestStatus.RUNNING, "complete": False}
    return _record(**{**open_values, "finished": None, **values})


def _line(html: str) -> str:
    inner = re.search(r'<span class="ps-foot-line">(.*)</span></button>', html)
    assert inner is not None
    parts = re.findall(r"<span[^>]*>(.*?)</span>", inner[1])
    return " · ".join(re.sub("<[^>]+>", "", part) for part in parts)


def _shares(html: str) -> list[float]:
    return [float(share) for share in re.findall(r"flex-grow:([\d.]+)", html)]


def test_a_finished_answer() -> None:
    html = footer(_record(), epoch="9f3c")
    assert _line(html) == (
        "R14 · first token 99 ms · 4 tokens · gap p50 33 ms, longest 302 ms · 8.2 tok/s"
    )
    assert html.startswith('<button type="button" class="ps-foot" value="14" name="9f3c">')


def test_the_bar_shows_waiting_prefill_and_decode_as_shares_of_the_whole() -> None:
    shares = _shares(footer(_record()))
    assert shares == pytest.approx(
        [100 * 0.020 / 0.467, 100 * 0.078 / 0.467, 100 * 0.369 / 0.467], abs=0.01
    )
    assert sum(shares) == pytest.approx(100, abs=0.05)


def test_an_answer_on_its_way() -> None:
    html = footer(_running())
    assert "4 tokens so far" in _line(html)
    assert 'class="ps-foot ps-running"' in html
    assert "so far" not in _line(footer(_record()))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (
            _running(scheduled=None, token_sampled=(), token_delivered=()),
            "R14 · waiting for a slot",
        ),
        (
            _running(num_computed_tokens=128, token_sampled=(), token_delivered=()),
            "R14 · read 128 of 312 prompt tokens",
        ),
        (
            _running(token_sampled=(10.098,), token_delivered=(10.099,)),
            "R14 · first token 99 ms · 1 token so far",
        ),
    ],
)
def test_what_it_says_before_there_is_much_to_say(record: RequestRecord, words: str) -> None:
    html = footer(record)
    assert _line(html) == words


def test_one_gap_has_no_median_but_is_a_longest_pause() -> None:
    line = _line(footer(_record(token_delivered=(10.099, 10.401), token_sampled=(10.098, 10.4))))
    assert "p50" not in line
    assert "longest 302 ms" in line


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"finish_reason": FinishReason.CANCELLED}, "stopped by you after 4 tokens"),
        ({"finish_reason": FinishReason.LENGTH}, "reached the 400-token limit"),
        ({"num_cached_tokens": 288}, "288 of 312 prompt tokens reused"),
    ],
)
def test_how_it_ended_and_what_was_reused(values: dict[str, Any], words: str) -> None:
    assert words in _line(footer(_record(**values)))
    assert words not in _line(footer(_record()))


@pytest.mark.parametrize(
    ("composition", "words"),
    [
        (
            (("history", 259), ("message", 41), ("template", 12)),
            "41 of 312 tokens are your message",
        ),
        ((("history", 311), ("message", 1)), "1 of 312 tokens is your message"),
        ((("message", 312),), ""),
        ((), ""),
    ],
)
def test_how_much_of_the_prompt_is_the_message(
    composition: tuple[tuple[str, int], ...], words: str
) -> None:
    line = _line(footer(_record(composition=composition)))
    assert words in line
    assert bool(words) == ("your message" in line)


def test_a_failed_answer_says_why_and_nothing_becomes_markup() -> None:
    record = _record(finish_reason=FinishReason.ERROR)
    html = footer(record, error="a row of <NaN>", epoch='"><img src=x>')
    assert _line(html) == "R14 failed after 4 tokens: a row of &lt;NaN&gt;"
    assert 'class="ps-foot ps-failed"' in html
    assert "<img" not in html
    assert "<NaN>" not in html


def test_notes_stand_behind_the_numbers() -> None:
    assert _line(footer(_record(), notes=("One turn was left out.",))).endswith(
        "One turn was left out."
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0042, "4.2 ms"),
        (0.134, "134 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (2.04, "2.04 s"),
        (9.996, "10.0 s"),
        (15.72, "15.7 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(18.64, "18.6 tok/s"), (49.96, "50 tok/s"), (1350.4, "1,350 tok/s")]
)
def test_rates(value: float, text: str) -> None:
    assert rate(value) == text
