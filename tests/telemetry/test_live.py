"""The headline numbers equal those worked out from scratch."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.records import RequestRecord
from engine.telemetry import metrics
from engine.telemetry.live import LiveSummary
from tests.telemetry.records import failed, record

times = st.lists(st.floats(0, 100), max_size=8).map(sorted)


def opened(closed: RequestRecord) -> RequestRecord:
    return dataclasses.replace(closed, finish_reason=None, finished=None, complete=False)


@settings(deadline=None)
@given(st.lists(times, max_size=6), st.lists(times, max_size=3))
def test_reading_piece_by_piece_equals_one_reading_of_all(
    closed_times: list[list[float]], live_times: list[list[float]]
) -> None:
    closed = [record(n, tokens=tokens) for n, tokens in enumerate(closed_times)]
    live = [opened(record(100 + n, tokens=tokens)) for n, tokens in enumerate(live_times)]
    summary = LiveSummary()
    for one in closed:
        summary.add([one])
    read = summary.read(live, now=100.0, window=40.0)
    everything = [*live, *closed]
    for ours, samples in (
        (read.ttft, metrics.ttft(everything)),
        (read.itl, metrics.itl(everything)),
    ):
        expected = metrics.describe(samples)
        assert (ours.count, ours.min, ours.max) == (expected.count, expected.min, expected.max)
        assert (ours.p50, ours.p95, ours.p99) == (expected.p50, expected.p95, expected.p99)
    assert read.throughput == metrics.throughput(everything, 60.0, 100.0)


def test_nothing_served_reads_as_nothing() -> None:
    read = LiveSummary().read([], now=10.0, window=5.0)
    assert read.ttft == read.itl == metrics.Distribution(0)
    assert read.throughput.tokens_per_second == 0.0


def test_idle_throughput_is_zero_while_latencies_stay() -> None:
    summary = LiveSummary()
    summary.add([record(tokens=[1.0, 2.0, 3.0])])
    assert summary.read([], now=3.0, window=5.0).throughput.tokens_per_second == 0.6
    idle = summary.read([], now=13.0, window=5.0)
    assert idle.throughput.tokens_per_second == 0.0
    assert idle.itl.count == 2


def test_failed_requests_are_in_no_latency() -> None:
    summary = LiveSummary()
    summary.add([failed(1, token_delivered=(5.0, 9.0)), record(2, tokens=[1.0])])
    read = summary.read([], now=10.0, window=10.0)
    assert (read.ttft.count, read.ttft.max, read.itl.count) == (1, 1.0, 0)
    assert (read.throughput.tokens, read.throughput.failed_tokens) == (1, 2)


def test_only_the_newest_requests_are_held() -> None:
    summary = LiveSummary(max_requests=2)
    summary.add([record(n, tokens=[float(n), n + 1.0]) for n in range(1, 6)])
    read = summary.read([], now=6.0, window=100.0)
    assert (read.ttft.min, read.ttft.max, read.itl.count) == (4.0, 5.0, 2)
    assert read.throughput.tokens == 4
