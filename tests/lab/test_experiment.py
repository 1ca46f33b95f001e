"""Experiments on the simulation and on a stub engine, their results, files and tables."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from engine.core.capacity import Ceilings
from engine.core.config import EngineConfig
from engine.core.errors import InvalidRequest
from engine.core.plan import StepPlan
from engine.core.policies import POLICIES
from engine.core.request import FinishReason, SamplingParams
from engine.lab.backends import ServiceBackend, SimulatedBackend
from engine.lab.experiment import (
    Experiment,
    ExperimentProgress,
    ExperimentStopped,
    config_with,
    interleaved,
    perform,
    perform_in_turn,
)
from engine.lab.measures import Limits, cost
from engine.lab.presets import PRESETS
from engine.lab.reporting import change_label
from engine.lab.results import Result, ResultNotFound, ResultStore
from engine.lab.runs import Progress, Run
from engine.lab.simulation import SMOLLM2_135M, simulated_tokens
from engine.lab.verdict import VerdictKind
from engine.lab.workload import Part, Workload, WorkloadSpec, build
from engine.lab.workload_arrivals import Constant, Poisson
from engine.lab.workload_lengths import Fixed, Uniform
from engine.lab.workload_shapes import SHAPES
from engine.lab.workload_text import TokenSource
from tests.core.stubs import VOCABULARY
from tests.stub_service import ScriptedRunner, started
from tests.telemetry.records import record

CEILINGS = Ceilings(1e12, 25e9, 0.003)
SOURCE = simulated_tokens(SMOLLM2_135M)
BASE = EngineConfig(num_blocks=1_024, fingerprint="secret")
LIMITS = Limits(ttft_seconds=0.2, tpot_seconds=0.02)


class Recorded(SimulatedBackend):
    """The simulation, noting under which policy each run was made."""

    def __init__(self, seconds_left: Callable[[], float] | None = None) -> None:
        super().__init__("SmolLM2-135M", SMOLLM2_135M, CEILINGS)
        self.policies: list[str] = []
        self.digests: list[str] = []
        self._left = seconds_left

    def seconds_left(self) -> float | None:
        return None if self._left is None else self._left()

    def run(
        self,
        workload: Workload,
        config: EngineConfig,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> Run:
        self.policies.append(config.policy)
        self.digests.append(workload.digest())
        return super().run(workload, config, progress, should_stop)


def chat(pair: int) -> Workload:
    return build(replace(SHAPES["chat"].spec, num_requests=8).with_seed(pair), SOURCE)


def compared(num_pairs: int = 2, **changes: Any) -> Result:
    b = config_with(BASE, changes or {"policy": "static"})
    experiment = Experiment(
        title="=chat", configs=(BASE, b), workload=chat, num_pairs=num_pairs, limits=LIMITS
    )
    return perform(experiment, Recorded())


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


def test_a_result_survives_its_file_exactly() -> None:
    result = compared()
    text = result.to_json()
    assert Result.from_json(text) == result
    parsed = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert parsed["simulated"] is True
    assert "secret" not in text
    assert parsed["sides"][0]["config"]["policy"] == "chunked"
    assert len(parsed["workload"]["seeds"]) == 2


def test_a_run_in_which_nothing_finished_is_strict_json_too() -> None:
    experiment = Experiment(
        title="nothing fits",
        configs=(replace(BASE, max_model_len=8), replace(BASE, max_model_len=8, max_running=2)),
        workload=chat,
    )
    result = perform(experiment, Recorded())
    side = result.sides[0]
    assert side.requests["refused"] == 8
    assert side.requests["finished"] == 0
    assert side.latency["ttft"].count == 0
    text = result.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the JSON"))
    assert Result.from_json(text) == result


def test_the_table_has_counts_and_claims_nothing_of_few_runs() -> None:
    table = {row.metric: row for row in compared().difference_table()}
    assert list(table)[:5] == ["ttft", "itl", "longest_pause", "tpot", "e2e"]
    assert table["ttft"].counts == (16, 16)
    assert set(table["ttft"].cells) == {"p50", "p95", "p99"}
    cells = [cell for row in table.values() for cell in row.cells.values()]
    assert all(cell.better is None for cell in cells)
    assert any("lower" in cell.change or "higher" in cell.change for cell in cells)
    one_side = Experiment(title="t", configs=(BASE,), workload=chat)
    assert perform(one_side, Recorded()).difference_table() == []


def test_the_table_marks_what_six_pairs_show() -> None:
    result = perform(PRESETS["slots"].experiment(BASE, SOURCE, num_pairs=6), Recorded())
    table = {row.metric: row for row in result.difference_table()}
    assert table["throughput"].cells["all"].better is True
    assert table["queueing"].cells["p95"].better is True
    assert table["itl"].cells["p50"].better is False


def test_exports_open_in_pandas_and_carry_the_settings() -> None:
    result = compared()
    frame = pd.read_csv(io.StringIO("".join(result.csv_lines())))
    assert len(frame) == 4
    assert list(frame["side"]) == ["A", "A", "B", "B"]
    assert set(frame["config.policy"]) == {"chunked", "static"}
    assert frame["simulated"].all()
    assert frame["ttft.p50"].dtype == "float64"
    assert (frame["title"] == "'=chat").all()
    sends = pd.read_csv(io.StringIO("".join(result.send_lines())))
    assert len(sends) == 32
    assert (sends["actual"] >= sends["planned"]).all()


def test_text_that_a_spreadsheet_would_run_is_neutralised_and_numbers_are_not() -> None:
    for title in ("=1+1", "+A1", "-2+3", "@x"):
        result = replace(compared(1), title=title, machine={"offset": -4.5})
        rows = list(csv.DictReader(io.StringIO("".join(result.csv_lines()))))
        assert {row["title"] for row in rows} == {"'" + title}
        assert float(rows[0]["machine.offset"]) == -4.5


def test_good_requests_are_those_that_finished_within_both_limits() -> None:
    good = record(tokens=(0.1, 0.11, 0.12))
    late = record(tokens=(0.3, 0.31, 0.32))
    slow = record(tokens=(0.1, 0.2, 0.3))
    failed = replace(good, finish_reason=FinishReason.ERROR)
    one_token = record(tokens=(0.1,))
    assert [LIMITS.met_by(r) for r in (good, late, slow, failed, one_token)] == [
        True,
        False,
        False,
        False,
        True,
    ]
    silent = replace(good, streamed=False, token_delivered=())
    assert LIMITS.met_by(silent)
    assert not LIMITS.met_by(replace(silent, token_sampled=(0.5, 0.51, 0.52)))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_limits_that_limit_nothing_are_refused(value: float) -> None:
    with pytest.raises(InvalidRequest, match="TTFT limit"):
        Limits(ttft_seconds=value)


def test_goodput_and_cost_follow_from_counts_and_seconds() -> None:
    result = compared()
    for side in result.sides:
        assert side.goodput is not None
        assert side.good_share is not None
        assert side.goodput * side.seconds == pytest.approx(side.good_share * 16)
    priced = cost(3.6, seconds=1_000.0, output_tokens=500_000, good=10)
    assert priced.per_million_output_tokens == pytest.approx(2.0)
    assert priced.per_good_request == pytest.approx(0.1)
    nothing = cost(3.6, seconds=10.0, output_tokens=0, good=0)
    assert (nothing.per_million_output_tokens, nothing.per_good_request) == (None, None)
    with pytest.raises(InvalidRequest, match="price"):
        cost(-1.0, seconds=1.0, output_tokens=1, good=None)


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


def test_impossible_experiments_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="1 to 12 runs"):
        Experiment(title="t", configs=(BASE,), workload=chat, num_pairs=13)
    with pytest.raises(InvalidRequest, match="one configuration or two"):
        Experiment(title="t", configs=(), workload=chat)
    with pytest.raises(InvalidRequest, match="colour is not a setting"):
        config_with(BASE, {"colour": "red"})
    with pytest.raises(InvalidRequest, match="fingerprint is not a setting"):
        config_with(BASE, {"fingerprint": "x"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": "static"}, "static batching"),
        ({"prefix_caching": False}, "no prefix caching"),
        ({"max_batched_tokens": 64, "max_running": 2}, "a token budget of 64 and 2 slots"),
        ({"max_waiting": 9}, "max_waiting 9"),
        ({}, "the same configuration"),
    ],
)
def test_what_differs_is_named_in_words(changes: dict[str, Any], words: str) -> None:
    assert change_label(BASE, config_with(BASE, changes)) == words


def test_results_are_listed_reopened_and_deleted(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    assert store.list() == []
    result = compared()
    store.save(result)
    (entry,) = store.list()
    assert (entry.id, entry.title, entry.simulated) == (result.id, "=chat", True)
    assert store.load(result.id) == result
    (tmp_path / "results" / "broken.json").write_text("{")
    (tmp_path / "results" / "other.json").write_text("[1]")
    assert len(store.list()) == 1
    with pytest.raises(ResultNotFound, match="cannot be read"):
        store.load("broken")
    store.delete(result.id)
    store.delete(result.id)
    with pytest.raises(ResultNotFound, match="There is no result"):
        store.load(result.id)


@pytest.mark.parametrize("name", ["../secret", "", "a/b", "A", "x" * 65, ".."])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="not the name of a result"):
        ResultStore(tmp_path).load(name)


def test_the_folder_is_bounded_by_number_and_size(tmp_path: Path) -> None:
    result = compared(1)
    size = len(result.to_json().encode())
    by_number = ResultStore(tmp_path / "n", max_results=3)
    by_size = ResultStore(tmp_path / "s", max_bytes=int(2.5 * size))
    for number in range(5):
        made = replace(result, id=f"result-{number}", created=float(number))
        by_number.save(made)
        by_size.save(made)
    assert [entry.id for entry in by_number.list()] == ["result-4", "result-3", "result-2"]
    assert [entry.id for entry in by_size.list()] == ["result-4", "result-3"]
    tiny = ResultStore(tmp_path / "t", max_bytes=1)
    tiny.save(result)
    assert len(tiny.list()) == 1


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
