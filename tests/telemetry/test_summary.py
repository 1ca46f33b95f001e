"""Many requests in one table: who counts for what, and what stands beside it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from engine.core.records import RequestRecord, StepRecord
from engine.core.request import FinishReason
from engine.telemetry.store import TraceStore
from engine.telemetry.summary import outcome, request_table, summarise
from tests.core.stubs import Harness
from tests.telemetry.records import failed, record


def served(harness: Harness) -> tuple[TraceStore, list[RequestRecord], list[StepRecord]]:
    """Run what was submitted; every token is taken the moment it is sampled."""
    store = TraceStore()
    requests = list(harness.engine.scheduler.waiting)
    for request in requests:
        store.open(request)
    for output in harness.run():
        if output.record:
            store.add_step(output.record)
        for item in output.outputs:
            timeline = item.request.timeline
            timeline.token_delivered.extend(timeline.token_sampled[len(timeline.token_delivered) :])
            if item.finish_reason:
                store.close(item.request)
    return store, store.records(), store.steps_since(0)


def test_a_row_a_request_with_nan_where_nothing_is_defined() -> None:
    table = request_table([record(1, tokens=[1.0, 1.5]), failed(2)])
    assert table["id"].tolist() == ["R1", "R2"]
    assert table["outcome"].tolist() == ["finished", "failed"]
    assert table["ttft"].tolist()[0] == 1.0
    assert table[["ttft", "tpot", "e2e"]].iloc[1].isna().all()
    parts = table[["input_preparation", "queueing", "prefill", "delivery"]].iloc[0]
    assert parts.sum() == table["ttft"].iloc[0]


def test_an_empty_table_has_all_columns() -> None:
    assert list(request_table([]).columns) == list(request_table([record(tokens=[1.0])]).columns)
    assert request_table([]).empty


def test_failed_requests_are_counted_and_not_averaged() -> None:
    good = [record(n, tokens=[0.1, 0.2]) for n in range(8)]
    refused = [failed(n, finished=0.005) for n in (8, 9)]
    summary = summarise([*good, *refused])
    assert summary.latency.loc["ttft", "mean"] == pytest.approx(0.1)
    assert summary.latency.loc["ttft", "p50"] == pytest.approx(0.1)
    assert summary.latency.loc["e2e", "count"] == 8
    assert summary.requests == {"finished": 8, "cancelled": 0, "failed": 2, "open": 0}


def test_a_failure_after_some_tokens_is_not_averaged_either() -> None:
    broken = failed(2, finished=9.0, token_sampled=(5.0, 9.0), token_delivered=(5.0, 9.0))
    summary = summarise([record(1, tokens=[0.1, 0.2]), broken])
    assert summary.latency.loc["ttft", "max"] == pytest.approx(0.1)
    assert summary.latency.loc["itl", "count"] == 1
    assert (summary.throughput.tokens, summary.throughput.failed_tokens) == (2, 2)


def test_short_requests_are_left_out_of_the_time_per_token_only() -> None:
    normal = [record(n, tokens=[0.1, 0.2, 0.3]) for n in range(8)]
    cancelled = record(8, finish_reason=FinishReason.CANCELLED, finished=0.05)
    single = record(9, tokens=[0.1])
    summary = summarise([*normal, cancelled, single])
    assert summary.latency.loc["tpot", "count"] == 8
    assert summary.latency.loc["itl", "count"] == 16
    assert summary.latency.loc["ttft", "count"] == 9
    assert sum(summary.requests.values()) == 10


def test_a_cancelled_request_counts_for_first_token_and_gaps_but_not_as_a_whole() -> None:
    cancelled = record(2, tokens=[0.5, 1.5], finish_reason=FinishReason.CANCELLED)
    still_open = record(3, tokens=[0.7], finish_reason=None, finished=None)
    latency = summarise([record(1, tokens=[0.1, 0.2]), cancelled, still_open]).latency
    assert latency.loc["ttft", "max"] == pytest.approx(0.7)
    assert latency.loc["itl", "max"] == pytest.approx(1.0)
    assert latency.loc[["tpot", "longest_pause", "e2e"], "count"].tolist() == [1, 1, 1]


def test_means_of_the_parts_add_up_to_the_mean_first_token_time() -> None:
    waiting = record(2, queued=3.0, scheduled=None, finish_reason=None, finished=None)
    answers = [record(n, scheduled=0.25 * n, tokens=[1.0 + n]) for n in range(3)]
    latency = summarise([*answers, waiting]).latency
    parts = latency.loc[["input_preparation", "queueing", "prefill", "delivery"], "mean"]
    assert parts.sum() == pytest.approx(latency.loc["ttft", "mean"])


def test_the_two_means_of_token_times_have_two_names() -> None:
    short = record(1, tokens=[1.0, 1.1])
    long = record(2, tokens=[1.0 + 0.01 * i for i in range(101)])
    latency = summarise([short, long]).latency
    assert latency.loc["tpot", "mean"] == pytest.approx(0.055)
    assert latency.loc["itl", "mean"] == pytest.approx(1.1 / 101)


def test_the_window_chooses_requests_by_their_submission() -> None:
    answers = [record(n, submitted=10.0 * n, tokens=[10.0 * n + 1]) for n in range(4)]
    summary = summarise(answers, start=10.0, end=25.0)
    assert summary.latency.loc["ttft", "count"] == 2
    assert (summary.start, summary.end) == (10.0, 25.0)
    assert summary.throughput.tokens_per_second == pytest.approx(2 / 15)
    whole = summarise(answers)
    assert (whole.start, whole.end, whole.throughput.tokens) == (0.0, 31.0, 4)


def test_lengths_and_concurrency_stand_beside_the_numbers() -> None:
    answers = [
        record(1, submitted=0.0, tokens=[1.0], finished=1.0, num_prompt_tokens=10),
        record(2, submitted=0.5, tokens=[1.5, 2.0], finished=2.0, num_prompt_tokens=90),
        record(3, submitted=2.0, tokens=[3.0], finished=3.0, num_prompt_tokens=40),
    ]
    summary = summarise(answers)
    assert summary.prompt_tokens == (10, 90)
    assert summary.output_tokens == (1, 2)
    assert summary.peak_concurrency == 2


def test_a_run_without_requests_or_without_length_is_strict_json() -> None:
    for records in ([], [record(tokens=[0.0], finished=0.0)]):
        text = json.dumps(summarise(records).to_json(), allow_nan=False)
        value = json.loads(text)
        assert value["throughput"]["tokens_per_second"] is None
        assert value["latency_seconds"]["tpot"]["count"] == 0
        assert value["latency_seconds"]["tpot"]["p50"] is None


def test_outcomes_are_told_apart() -> None:
    base = record(tokens=[1.0])
    reasons = [FinishReason.LENGTH, FinishReason.CANCELLED, FinishReason.ERROR, None]
    named = [outcome(dataclasses.replace(base, finish_reason=reason)) for reason in reasons]
    assert named == ["finished", "cancelled", "failed", "open"]


def test_recomputed_tokens_are_no_prefix_hits() -> None:
    harness = Harness(num_blocks=12, max_running=6, max_batched_tokens=64)
    for n in range(20):
        harness.submit([3 + n, *(3 + (i * i + 5 * n) % 47 for i in range(40))], max_tokens=30)
    _, records, steps = served(harness)
    assert any(step.preempted for step in steps)
    assert sum(record.num_recomputed_tokens for record in records) > 0
    assert summarise(records).prefix_hit_rate == 0.0


def test_a_shared_prefix_is_a_hit() -> None:
    harness = Harness(num_blocks=64)
    harness.submit(range(3, 45), max_tokens=2)
    harness.run()
    harness.submit(range(3, 45), max_tokens=2)
    _, records, _ = served(harness)
    assert summarise(records).prefix_hit_rate == pytest.approx(32 / 42)


def test_an_idle_pool_has_no_used_blocks_and_the_counts_add_up() -> None:
    harness = Harness(num_blocks=64)
    for n in range(50):
        harness.submit([3 + n % 47, n // 47, *range(3, 40)], max_tokens=2)
    served(harness)
    pool = harness.engine.scheduler.pool
    assert pool.num_used == 0
    assert pool.num_evictable > 0
    assert pool.num_used + pool.num_evictable + pool.num_free == 64


def test_output_tokens_are_the_ids_that_were_generated() -> None:
    harness = Harness()
    request = harness.submit(range(3, 20), max_tokens=9)
    store, records, _ = served(harness)
    assert records[0].num_output_tokens == len(request.output_token_ids) == 9
    assert summarise(records).throughput.tokens == store.totals().output_tokens == 9
    assert request_table(records)["tpot"].iloc[0] == pytest.approx(0.01)
