"""Experiments run in the simulation and on a stub engine: order, turns, presets, stopping."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from engine.core.config import EngineConfig
from engine.core.errors import InvalidRequest
from engine.core.plan import StepPlan
from engine.core.policies import POLICIES
from engine.core.request import SamplingParams
from engine.lab.backends import ServiceBackend
from engine.lab.experiment import (
    Experiment,
    ExperimentProgress,
    ExperimentStopped,
    config_with,
    interleaved,
    perform,
    perform_in_turn,
)
from engine.lab.presets import PRESETS
from engine.lab.results import Result
from engine.lab.verdict import VerdictKind
from engine.lab.workload import Part, Workload, WorkloadSpec, build
from engine.lab.workload_arrivals import Constant, Poisson
from engine.lab.workload_lengths import Fixed, Uniform
from engine.lab.workload_text import TokenSource
from tests.core.stubs import VOCABULARY
from tests.lab.experiments import BASE, LIMITS, SOURCE, Recorded, chat, compared
from tests.stub_service import ScriptedRunner, started


def test_runs_are_interleaved_and_a_pair_shares_its_traffic() -> None:
    backend = Recorded()
    experiment = Experiment(
        title="t",
        configs=(BASE, replace(BASE, policy="static")),
        workload=chat,
        num_pairs=3,
    )
    result = perform(experiment, backend)
    assert backend.policies == ["chunked", "static", "static", "chunked", "chunked", "static"]
    assert [(run.position, run.pair) for run in result.sides[0].runs] == [(0, 0), (3, 1), (4, 2)]
    assert backend.digests[0] == backend.digests[1] != backend.digests[2]
    assert interleaved(2, 1) == [(0, 0), (1, 0)]


def test_the_same_policy_on_both_sides_hits_alike_and_has_no_winner() -> None:
    part = Part(prompt=Fixed(512), output=Fixed(8))
    spec = WorkloadSpec(name="same", parts=(part,), num_requests=30, arrivals=Poisson(4.0))
    workload = build(spec.with_seed(1), SOURCE)
    experiment = Experiment(
        title="A/A", configs=(BASE, BASE), workload=lambda pair: workload, num_pairs=6
    )
    result = perform(experiment, Recorded())
    rates = {run.prefix_hit_rate for side in result.sides for run in side.runs}
    assert rates == {0.0}
    assert result.verdict is not None
    assert result.verdict.sentence == "A and B perform the same on this workload."
    assert result.differences == ()


def test_six_pairs_can_have_a_verdict_and_five_cannot() -> None:
    preset = PRESETS["long-prompt"]

    def verdict(num_pairs: int) -> Any:
        return perform(preset.experiment(BASE, SOURCE, num_pairs=num_pairs), Recorded()).verdict

    assert verdict(5).kind is VerdictKind.TOO_FEW
    six = verdict(6)
    assert six.kind is VerdictKind.MIXED
    assert six.sentence.startswith("Chunked prefill (B) cuts the longest pause in a stream from")
    assert "raises the 95th percentile of gaps between tokens" in six.sentence
    assert six.findings["ttft.max"].better is False
    finding = six.findings["longest_pause.max"]
    assert finding.a > 3 * finding.b


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_each_preset_runs_and_compares_two_different_sides(name: str) -> None:
    preset = PRESETS[name]
    result = perform(preset.experiment(BASE, SOURCE), Recorded())
    assert result.title == preset.title
    assert result.differences
    for side in result.sides:
        assert side.requests["finished"] == result.workload["requests"]


def test_presets_show_their_effects_in_the_simulation() -> None:
    def sides(name: str) -> Any:
        return perform(PRESETS[name].experiment(BASE, SOURCE), Recorded()).sides

    without, with_cache = sides("shared-document")
    assert without.prefix_hit_rate == 0.0
    assert with_cache.prefix_hit_rate > 0.7
    assert with_cache.latency["ttft"].p50 < 0.7 * without.latency["ttft"].p50
    two, sixteen = sides("slots")
    assert sixteen.latency["queueing"].p50 < two.latency["queueing"].p50
    assert sixteen.throughput > 2 * two.throughput
    static, continuous = sides("batching")
    assert continuous.throughput > 1.1 * static.throughput
    small, large = sides("budget")
    assert small.latency["longest_pause"].max < large.latency["longest_pause"].max


def test_an_experiment_out_of_time_keeps_whole_pairs_and_says_so() -> None:
    left = iter([1e9, -1.0])
    backend = Recorded(seconds_left=lambda: next(left))
    experiment = Experiment(
        title="t", configs=(BASE, replace(BASE, max_running=2)), workload=chat, num_pairs=6
    )
    result = perform(experiment, backend)
    assert [len(side.runs) for side in result.sides] == [2, 2]
    assert any("2 of 6 runs" in note for note in result.notes)
    assert result.verdict is not None
    assert result.verdict.kind is VerdictKind.TOO_FEW


def test_stopping_drops_half_a_pair_and_keeps_a_single_run() -> None:
    def stop_in_run(number: int, configs: tuple[EngineConfig, ...]) -> Result:
        stop = threading.Event()

        def report(progress: ExperimentProgress) -> None:
            if progress.run == number and progress.requests_done == 2:
                stop.set()

        experiment = Experiment(title="t", configs=configs, workload=chat, num_pairs=2)
        return perform(experiment, Recorded(), report=report, should_stop=stop.is_set)

    pair = (BASE, replace(BASE, max_running=2))
    assert [len(side.runs) for side in stop_in_run(3, pair).sides] == [1, 1]
    with pytest.raises(ExperimentStopped):
        stop_in_run(2, pair)
    alone = stop_in_run(1, (BASE,))
    assert len(alone.sides[0].runs) == 1
    assert "The run was stopped before its end." in alone.notes


def test_each_pair_is_drawn_when_its_turn_comes_and_none_after_a_stop() -> None:
    happened: list[str] = []
    stop = threading.Event()

    def draw(pair: int) -> Workload:
        happened.append(f"draw {pair}")
        if pair == 2:
            stop.set()
        return chat(pair)

    def report(progress: ExperimentProgress) -> None:
        if progress.requests_done == 0:
            happened.append(f"run {progress.run}")

    experiment = Experiment(title="t", configs=(BASE,), workload=draw, num_pairs=5)
    result = perform(experiment, Recorded(), report=report, should_stop=stop.is_set)
    assert happened == ["draw 0", "run 1", "draw 1", "run 2", "draw 2"]
    assert len(result.sides[0].runs) == 2
    assert any("2 of 5 runs" in note for note in result.notes)
    with pytest.raises(ExperimentStopped):
        perform(experiment, Recorded(), should_stop=lambda: True)


def test_the_first_pair_is_drawn_before_the_turn() -> None:
    service = started(ScriptedRunner())
    assert service.config is not None
    experiment = stub_experiment(service.config)
    waiting: list[int] = []

    def draw(pair: int) -> Workload:
        waiting.append(len(service.turns))
        return experiment.workload(pair)

    perform_in_turn(replace(experiment, workload=draw), service)
    assert waiting == [0]
    service.close()


def test_impossible_experiments_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="1 to 12 runs"):
        Experiment(title="t", configs=(BASE,), workload=chat, num_pairs=13)
    with pytest.raises(InvalidRequest, match="one configuration or two"):
        Experiment(title="t", configs=(), workload=chat)
    with pytest.raises(InvalidRequest, match="colour is not a setting"):
        config_with(BASE, {"colour": "red"})
    with pytest.raises(InvalidRequest, match="fingerprint is not a setting"):
        config_with(BASE, {"fingerprint": "x"})


def test_a_real_engine_runs_both_sides_from_an_empty_cache_and_serves_others_after() -> None:
    policies: list[str] = []

    def note(plan: StepPlan) -> None:
        config = service.config
        if config is not None and (not policies or policies[-1] != config.policy):
            policies.append(config.policy)

    service = started(ScriptedRunner(before=note))
    before = service.config
    assert before is not None
    source = TokenSource(VOCABULARY)
    part = Part(prompt=Uniform(40, 60), output=Fixed(4), shared_share=0.8)
    spec = WorkloadSpec(name="w", parts=(part,), num_requests=6, arrivals=Constant(200.0))
    experiment = Experiment(
        title="t",
        configs=(before, replace(before, policy="static")),
        workload=lambda pair: build(spec.with_seed(pair), source),
        num_pairs=2,
        limits=LIMITS,
    )
    with service.exclusive_turn("experiment") as turn:
        backend = ServiceBackend(service, turn)
        waiting = service.submit([65] * 5, SamplingParams(max_tokens=3, ignore_eos=True))
        result = perform(experiment, backend)
    assert len(list(waiting)) == 3
    service.close()
    # Warm-up of A and of B, then A B B A, then everybody else under the old settings.
    assert policies == ["chunked", "static", "chunked", "static", "chunked"]
    assert not result.simulated
    assert result.machine["model"] == "stub"
    for side in result.sides:
        assert side.requests["finished"] == 12
        assert side.latency["ttft"].count == 12
        for run in side.runs:
            # Five of six prompts can find two blocks of the beginning that they share.
            assert run.prefix_hit_rate is not None
            assert run.prefix_hit_rate < 0.7
            assert run.lateness.count == 6
        assert side.timeline.requests[0].label is None
        assert 0 <= side.timeline.requests[0].submitted < 0.1
        assert side.timeline.steps
    assert any("warm-up" in note for note in result.notes)


def stub_experiment(config: EngineConfig, requests: int = 3) -> Experiment:
    part = Part(prompt=Fixed(20), output=Fixed(4))
    spec = WorkloadSpec(name="w", parts=(part,), num_requests=requests, arrivals=Constant(100.0))
    workload = build(spec, TokenSource(VOCABULARY))
    return Experiment(title="mine", configs=(config,), workload=lambda pair: workload)


def test_experiments_queue_for_their_turn_and_learn_their_position() -> None:
    service = started(ScriptedRunner())
    assert service.config is not None
    first = service.turns.join("somebody else's")
    positions: list[int] = []
    given_up = threading.Event()

    def on_position(position: int) -> None:
        positions.append(position)
        first.leave()

    experiment = stub_experiment(service.config)
    result = perform_in_turn(experiment, service, on_position=on_position)
    assert result.sides[0].requests["finished"] == 3
    assert positions == [1]
    assert len(service.turns) == 0

    second = service.turns.join("somebody else's")
    given_up.set()
    with pytest.raises(ExperimentStopped, match="given up"):
        perform_in_turn(experiment, service, should_stop=given_up.is_set)
    assert len(service.turns) == 1
    second.leave()
    service.close()


def test_an_experiment_whose_time_is_up_gives_the_engine_back() -> None:
    service = started(ScriptedRunner(seconds=0.02))
    before = service.config
    assert before is not None
    experiment = replace(
        stub_experiment(before, 200), configs=(before, replace(before, policy="static"))
    )
    with pytest.raises(ExperimentStopped):
        perform_in_turn(experiment, service, max_seconds=0.8)
    stream = service.submit([65] * 5, SamplingParams(max_tokens=3, ignore_eos=True))
    assert len(list(stream)) == 3
    assert service.config == before
    service.close()


def test_every_policy_can_be_a_side() -> None:
    for policy in POLICIES:
        result = compared(1, policy=policy, max_running=4)
        assert result.sides[1].config["policy"] == policy
        assert result.sides[1].requests["finished"] == 8
