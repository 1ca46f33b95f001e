"""From the runs of an experiment to its `Result`: both sides summed up, and what differs named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from engine.core.config import EngineConfig
from engine.core.records import RequestRecord, StepRecord
from engine.core.request import ChunkTime, Preemption
from engine.lab.codec import to_plain
from engine.lab.measures import (
    Limits,
    cost,
    distributions,
    gap_percentiles,
    num_good,
    summarise_run,
)
from engine.lab.results import Result, RunTimeline, Side
from engine.lab.runs import Run
from engine.lab.verdict import judge
from engine.lab.workload import Workload
from engine.telemetry.summary import summarise

MAX_TIMELINE_STEPS = 8_000
_DECIMALS = 6

# How a difference is called in the verdict's sentence; settings that are not here go by their name.
_POLICY_WORDS = {
    "chunked": "chunked prefill",
    "prefill-first": "prefill first",
    "static": "static batching",
}
_SETTING_WORDS = {
    "max_batched_tokens": "a token budget of {}",
    "max_running": "{} slots",
    "num_blocks": "a pool of {} blocks",
    "block_size": "blocks of {} tokens",
    "queue_order": "{} queue order",
    "long_prompt_threshold": "a long-prompt threshold of {}",
}


def make_result(
    *,
    result_id: str,
    title: str,
    created: float,
    simulated: bool,
    machine: dict[str, Any],
    workloads: Sequence[Workload],
    configs: Sequence[EngineConfig],
    runs: Sequence[Sequence[tuple[int, int, Run]]],
    limits: Limits,
    price_per_hour: float | None,
    notes: Sequence[str],
) -> Result:
    """The result of all counted runs; `runs` has (position, pair, run) of each side."""
    sides = tuple(
        _side("AB"[index], configs[index], made, limits, price_per_hour)
        for index, made in enumerate(runs)
    )
    verdict = None
    differences: tuple[tuple[str, str, str], ...] = ()
    if len(sides) == 2:
        differences = config_differences(configs[0], configs[1])
        a, b = ([run.measures for run in side.runs] for side in sides)
        verdict = judge(a, b, change_label(configs[0], configs[1]))
    workload = workloads[0].describe()
    workload["seeds"] = [w.seeds.to_json() if w.seeds else None for w in workloads]
    workload["digests"] = [w.digest() for w in workloads]
    del workload["digest"]
    return Result(
        id=result_id,
        title=title,
        created=created,
        simulated=simulated,
        machine=machine,
        workload=workload,
        limits=limits,
        sides=sides,
        differences=differences,
        verdict=verdict,
        notes=tuple(notes),
    )


def config_differences(a: EngineConfig, b: EngineConfig) -> tuple[tuple[str, str, str], ...]:
    """Settings that differ, as (name, value of A, value of B)."""
    return tuple(
        (item.name, str(getattr(a, item.name)), str(getattr(b, item.name)))
        for item in fields(EngineConfig)
        if getattr(a, item.name) != getattr(b, item.name)
    )


def change_label(a: EngineConfig, b: EngineConfig) -> str:
    """What B is beside A, in words such as `chunked prefill and a token budget of 64`."""
    words = []
    for name, _, value in config_differences(a, b):
        if name == "policy":
            words.append(_POLICY_WORDS.get(value, value))
        elif name == "prefix_caching":
            words.append("prefix caching" if b.prefix_caching else "no prefix caching")
        else:
            words.append(_setting_words(name, value))
    return " and ".join(words) if words else "the same configuration"


def _setting_words(name: str, value: str) -> str:
    words = _SETTING_WORDS.get(name, f"{name} {{}}").format(value)
    return words.removesuffix("s") if value == "1" else words  # every plural here ends in s


def _side(
    name: str,
    config: EngineConfig,
    made: Sequence[tuple[int, int, Run]],
    limits: Limits,
    price_per_hour: float | None,
) -> Side:
    summaries = tuple(
        summarise_run(run, limits, position=position, pair=pair) for position, pair, run in made
    )
    records = [record for _, _, run in made for record in run.records]
    pooled = summarise(records)
    each = [summarise(run.records, start=run.start, end=run.end) for _, _, run in made]
    seconds = sum(summary.seconds for summary in summaries)
    tokens = sum(summary.throughput.tokens for summary in each)
    num_sent = sum(len(run.sends) for _, _, run in made)
    good = num_good(records, limits)
    requests = {
        outcome: sum(summary.requests[outcome] for summary in summaries)
        for outcome in summaries[0].requests
    }
    settings = to_plain(config)
    del settings["fingerprint"]
    return Side(
        name=name,
        config=settings,
        runs=summaries,
        requests=requests,
        latency=distributions(pooled),
        gap_percentiles=gap_percentiles(records),
        throughput=tokens / seconds if seconds else None,
        goodput=good / seconds if good is not None and seconds else None,
        good_share=good / num_sent if good is not None and num_sent else None,
        prefix_hit_rate=pooled.prefix_hit_rate,
        peak_concurrency=max(summary.peak_concurrency for summary in each),
        seconds=seconds,
        cost=None if price_per_hour is None else cost(price_per_hour, seconds, tokens, good),
        timeline=_timeline(made[0][1], made[0][2]),
    )


def _timeline(pair: int, run: Run) -> RunTimeline:
    return RunTimeline(
        pair=pair,
        requests=tuple(_since(record, run.start) for record in run.records),
        steps=tuple(_step_since(step, run.start) for step in run.steps[:MAX_TIMELINE_STEPS]),
    )


def _since(record: RequestRecord, start: float) -> RequestRecord:
    """The record with times since `start`, rounded to microseconds, and without log-probabilities.

    Its label is left out: it may be a name given from outside.
    """

    def at(time: float | None) -> float | None:
        return None if time is None else round(time - start, _DECIMALS)

    def each(times: Sequence[float]) -> tuple[float, ...]:
        return tuple(round(time - start, _DECIMALS) for time in times)

    return replace(
        record,
        label=None,
        submitted=round(record.submitted - start, _DECIMALS),
        queued=at(record.queued),
        scheduled=at(record.scheduled),
        finished=at(record.finished),
        token_sampled=each(record.token_sampled),
        token_delivered=each(record.token_delivered),
        chunks=tuple(
            ChunkTime(
                round(c.start - start, _DECIMALS), round(c.duration, _DECIMALS), c.tokens, c.phase
            )
            for c in record.chunks
        ),
        preemptions=tuple(
            Preemption(round(p.time - start, _DECIMALS), p.num_computed_tokens)
            for p in record.preemptions
        ),
        logprobs=(),
    )


def _step_since(step: StepRecord, start: float) -> StepRecord:
    return replace(
        step,
        start=round(step.start - start, _DECIMALS),
        duration=round(step.duration, _DECIMALS),
        model_seconds=round(step.model_seconds, _DECIMALS),
    )
