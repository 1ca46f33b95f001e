"""When our numbers and those of a load generator from outside count as the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import PhaseScopeError
from engine.lab.truth import Truth, compare, main
from engine.lab.truth_tools import (
    LONGEST_GAP,
    MEDIAN_GAP,
    TPOT,
    TTFT,
    AIPerf,
    Load,
    Measured,
    Outside,
)

GAPS = (20.0, 30.0, 25.0)


def ours(start: float) -> dict[str, Any]:
    """A record as /live/requests.json tells it, submitted at `start` seconds."""
    gaps = [gap / 1e3 for gap in GAPS]
    times = [0.2, *(0.2 + sum(gaps[: i + 1]) for i in range(3))]
    return {
        "submitted_seconds": start,
        "num_output_tokens": 4,
        "ttft_seconds": 0.2,
        "tpot_seconds": sum(gaps) / 3,
        "output_gaps_seconds": gaps,
        "token_delivered": times,
    }


ALL = frozenset({TTFT, TPOT, MEDIAN_GAP, LONGEST_GAP})


def run(
    *, changed: int = 1, judged: frozenset[str] = ALL, missing: int = 0, **changes: Any
) -> Truth:
    """Twenty requests, the first of them changed."""
    same = Measured(ttft=201.0, tpot=25.0, gaps=GAPS, output_tokens=4)
    measured = [*[replace(same, **changes)] * changed, *[same] * (20 - changed)]
    pairs = [(one, ours(0.3 * number)) for number, one in enumerate(measured)]
    rate = 80 / (0.3 * 19 + 0.275)
    outside = Outside(
        requests={str(number): one for number, one in enumerate(measured)},
        throughput=rate,
        judged=judged,
    )
    return compare("a tool", 1, outside, pairs[missing:])


def test_figures_within_three_per_cent_or_five_milliseconds_agree() -> None:
    assert run().holds
    assert run(ttft=195.5, tpot=29.5).holds
    assert run(ttft=205.9, gaps=(24.0, 26.0, 30.0)).holds


@pytest.mark.parametrize("figure", ["ttft", "tpot", "gaps"])
def test_one_request_in_twenty_may_differ_and_no_more(figure: str) -> None:
    far: Any = (80.0, 80.0, 80.0) if figure == "gaps" else 400.0
    assert run(**{figure: far}).holds
    assert not run(changed=2, **{figure: far}).holds


def test_the_share_that_agrees_is_told() -> None:
    found = {agreement.figure: agreement for agreement in run(ttft=400.0).agreements}
    assert found["TTFT"].within == 0.95
    assert found["TTFT"].difference_max == pytest.approx(200.0)
    assert found["TTFT"].difference_p50 == pytest.approx(1.0)
    assert found["median output gap"].within == 1.0


def test_what_a_tool_measures_otherwise_is_told_and_not_judged() -> None:
    far = run(changed=20, judged=frozenset({TPOT}), ttft=400.0)
    assert far.holds
    told = {one.figure: one for one in far.agreements if not one.judged}
    assert set(told) == {TTFT, MEDIAN_GAP, LONGEST_GAP}
    assert told[TTFT].within == 0.0
    assert not run(changed=20, judged=frozenset({TPOT}), tpot=400.0).holds


def test_every_request_must_be_joined_with_equal_token_counts() -> None:
    assert not run(missing=1).holds
    assert not run(output_tokens=3).holds


def test_throughput_must_agree() -> None:
    truth = run()
    assert replace(truth, our_throughput=1.02 * truth.outside_throughput).holds
    assert not replace(truth, our_throughput=1.04 * truth.outside_throughput).holds


def test_a_tool_that_is_not_there_is_named(tmp_path: Path) -> None:
    load = Load(
        url="http://127.0.0.1:1",
        model="stub",
        tokenizer=tmp_path,
        concurrency=1,
        requests=1,
        input_tokens=1,
        output_tokens=2,
    )
    with pytest.raises(PhaseScopeError, match="AIPerf could not be run"):
        AIPerf(str(tmp_path / "aiperf")).run(load, tmp_path)


def test_without_a_tool_there_is_nothing_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "name at least one load generator" in capsys.readouterr().err
