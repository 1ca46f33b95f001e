"""The simulation: the scheduler's own steps, at the times that the cost model says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core.capacity import Ceilings
from engine.core.config import EngineConfig
from engine.core.request import FinishReason
from engine.lab.runs import Run
from engine.lab.simulation import SMOLLM2_135M, simulate, simulated_tokens
from engine.lab.workload import Part, WorkItem, Workload, WorkloadSpec, build
from engine.lab.workload_arrivals import ClosedLoop, Poisson, Start
from engine.lab.workload_lengths import Fixed, Uniform
from engine.lab.workload_shapes import SHAPES
from engine.telemetry.metrics import itl, request_metrics
from engine.telemetry.roofline import Bound, classify, ideal_seconds, step_work
from engine.telemetry.summary import summarise

CEILINGS = Ceilings(1e12, 25e9, 0.003)
CONFIG = EngineConfig(num_blocks=2_048, fingerprint="simulated")
SOURCE = simulated_tokens(SMOLLM2_135M)


def served(workload: Workload, **changes: object) -> Run:
    return simulate(workload, replace(CONFIG, **changes), SMOLLM2_135M, CEILINGS)  # type: ignore[arg-type]


def items(*rows: tuple[int, int, float]) -> Workload:
    """A workload of (prompt tokens, output tokens, time) with nothing shared."""
    made = [
        WorkItem(tuple(SOURCE.draw(f"{i}", prompt)), output, Start(time))
        for i, (prompt, output, time) in enumerate(rows)
    ]
    return Workload("by hand", tuple(made), "by hand")


def test_a_step_takes_its_ideal_time_and_the_fixed_seconds() -> None:
    run = served(items((100, 5, 0.0)))
    assert len(run.steps) == 5
    for step in run.steps:
        work = step_work(SMOLLM2_135M, step.rows, step.num_sampled)
        expected = ideal_seconds(work, CEILINGS) + CEILINGS.overhead_seconds
        assert step.duration == pytest.approx(expected)
    decode = run.steps[-1]
    work = step_work(SMOLLM2_135M, decode.rows, decode.num_sampled)
    assert classify(work, decode.duration, CEILINGS) is Bound.MEMORY


def test_every_request_is_sent_as_planned_and_answered_in_full() -> None:
    workload = build(SHAPES["mixed"].spec, SOURCE)
    run = served(workload)
    assert [sent.index for sent in run.sends] == list(range(len(workload.items)))
    assert run.lateness().max == 0.0
    for record, item, sent in zip(run.records, workload.items, run.sends, strict=True):
        assert record.submitted == item.start.time == sent.planned
        assert record.num_prompt_tokens == len(item.token_ids)
        assert record.num_output_tokens == item.num_output_tokens
        assert record.finish_reason is FinishReason.LENGTH
        parts = request_metrics(record)
        assert parts.delivery == 0.0
        assert parts.ttft == parts.queueing + parts.prefill  # type: ignore[operator]


def test_the_same_workload_gives_the_same_run() -> None:
    workload = build(SHAPES["agent"].spec, SOURCE)
    assert served(workload) == served(workload)


def test_idle_time_passes_at_once_and_is_counted() -> None:
    run = served(items((10, 2, 0.0), (10, 2, 5_000.0)))
    assert run.end > 5_000
    assert len(run.steps) == 4


def test_turns_wait_for_the_turn_before_and_reuse_it() -> None:
    spec = WorkloadSpec(
        name="turns",
        parts=(Part(prompt=Fixed(64), output=Fixed(8)),),
        num_requests=6,
        arrivals=Poisson(0.1),
        turns=3,
        think_seconds=0.25,
    )
    run = served(build(spec, SOURCE))
    records = {sent.index: record for sent, record in zip(run.sends, run.records, strict=True)}
    for first in (0, 3):
        for turn in (first + 1, first + 2):
            assert records[turn].submitted == pytest.approx(
                (records[turn - 1].finished or 0.0) + 0.25
            )
            assert records[turn].num_cached_tokens >= records[turn - 1].num_prompt_tokens - 16


def test_a_closed_loop_never_has_more_requests_than_users() -> None:
    spec = WorkloadSpec(
        name="loop",
        parts=(Part(prompt=Uniform(10, 200), output=Uniform(2, 30)),),
        num_requests=30,
        arrivals=ClosedLoop(3, 0.1),
    )
    run = served(build(spec, SOURCE))
    assert len(run.records) == 30
    assert summarise(run.records).peak_concurrency == 3


def test_a_prompt_that_never_fits_is_refused_and_the_rest_goes_on() -> None:
    run = served(items((100, 4, 0.0), (900, 4, 0.1), (50, 4, 0.2)), max_model_len=512)
    assert [record.num_prompt_tokens for record in run.records] == [100, 50]
    assert [sent.error is not None for sent in run.sends] == [False, True, False]
    assert "512" in str(run.sends[1].error) or "511" in str(run.sends[1].error)


def test_a_run_that_is_stopped_says_so() -> None:
    workload = build(SHAPES["chat"].spec, SOURCE)
    calls = iter(range(1_000))
    run = simulate(workload, CONFIG, SMOLLM2_135M, CEILINGS, should_stop=lambda: next(calls) >= 20)
    assert run.stopped
    assert len(run.steps) == 20
    assert not all(record.complete for record in run.records)


def test_progress_counts_every_request_once() -> None:
    seen: list[int] = []
    workload = build(SHAPES["chat"].spec, SOURCE)
    simulate(
        workload,
        CONFIG,
        SMOLLM2_135M,
        CEILINGS,
        progress=lambda done, total: seen.append(done),
    )
    assert seen == sorted(set(seen))
    assert seen[-1] == len(workload.items)


def test_policies_trade_the_longest_pause_for_the_long_prompts_first_token() -> None:
    rows = [(60, 150, 0.0)] * 3 + [(3_000, 8, 0.5)]
    pauses, first_tokens = {}, {}
    for policy in ("prefill-first", "chunked"):
        run = served(items(*rows), policy=policy)
        pauses[policy] = float(itl(run.records[:3]).max())
        first_tokens[policy] = request_metrics(run.records[3]).ttft or 0.0
    assert pauses["prefill-first"] > 3 * pauses["chunked"]
    assert first_tokens["chunked"] > first_tokens["prefill-first"]


def test_static_batches_cost_throughput_when_answers_differ_in_length() -> None:
    rows = [(50, 20 if i % 4 else 200, 0.0) for i in range(32)]
    ends = {policy: served(items(*rows), policy=policy).end for policy in ("static", "chunked")}
    assert ends["static"] > 1.5 * ends["chunked"]


def test_prefix_caching_spares_a_shared_document() -> None:
    workload = build(SHAPES["rag"].spec, SOURCE)
    on, off = (served(workload, prefix_caching=caching) for caching in (True, False))
    assert summarise(off.records).prefix_hit_rate == 0.0
    rate = summarise(on.records).prefix_hit_rate or 0.0
    assert rate == pytest.approx(workload.shared_share, abs=0.02)
    assert sum(s.prefill_tokens for s in on.steps) < 0.6 * sum(s.prefill_tokens for s in off.steps)


def test_random_prompts_hit_nothing_even_under_preemption() -> None:
    run = served(items(*[(60, 60, 0.0)] * 20), num_blocks=30)
    assert any(record.preemptions for record in run.records)
    assert summarise(run.records).prefix_hit_rate == 0.0
