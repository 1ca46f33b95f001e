"""The form of the Compare tab: what its fields ask for, and what is wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import EngineStopped, InvalidRequest
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS
from engine.lab.experiment import perform
from engine.lab.presets import PRESETS
from engine.lab.workload import Seeds
from engine.lab.workload_shapes import SHAPES
from engine.service import EngineService
from tests.stub_lab import lab_service
from tests.stub_service import ScriptedRunner, started
from tests.ui.comparisons import WANTED, filled, simulated
from ui.compare_form import OWN, SIDE_FIELDS, make_experiment, side_values, side_words
from ui.compare_places import SIMULATED_CONFIG, Place, find_place
from ui.words_compare import COMPARE
from ui.workload_form import TRACE, Traffic


@pytest.fixture(scope="module")
def idle() -> Iterator[EngineService]:
    """An engine that no test gives anything to do."""
    service = lab_service()
    yield service
    service.close()


@pytest.fixture(scope="module")
def simulation() -> Place:
    return simulated()


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_fills_a_form_that_can_be_run(simulation: Place, preset: str) -> None:
    experiment = filled(simulation, replace(WANTED, preset=preset))
    a, b = experiment.configs
    changed = {name for name in SIDE_FIELDS if getattr(a, name) != getattr(b, name)}
    assert changed == set(PRESETS[preset].a) | set(PRESETS[preset].b)
    assert experiment.workload(0).items


def test_limits_are_milliseconds_and_none_without_a_number(simulation: Place) -> None:
    limits = filled(simulation, replace(WANTED, ttft_limit=250, tpot_limit=0)).limits
    assert (limits.ttft_seconds, limits.tpot_seconds) == (0.25, None)


@pytest.mark.parametrize(
    ("of_b", "says"),
    [
        ({"max_running": None}, "Slots of B must be a whole number; got nothing."),
        ({"max_running": 2.5}, "Slots of B must be a whole number; got 2.5."),
        ({"max_running": float("nan")}, "Slots of B must be a whole number; got nan."),
        ({"max_batched_tokens": 0}, "Token budget of B must be from 1 to 8,192; got 0."),
        ({"max_batched_tokens": 4}, "max_running (8) must not exceed max_batched_tokens (4)."),
        ({"num_blocks": 10**9}, "KV blocks of B must be from 1 to 256; got 1,000,000,000."),
        ({"policy": "lucky"}, "policy must be one of"),
        ({"policy": "prefill-first"}, COMPARE["same_sides"]),
    ],
)
def test_a_wrong_field_is_named_with_its_limit(
    idle: EngineService, of_b: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(says)):
        filled(find_place(idle, simulated=False), **of_b)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"num_pairs": 13}, "Runs of each side must be from 1 to 12; got 13."),
        ({"num_pairs": "many"}, "Runs of each side must be a whole number; got many."),
        ({"seed": -1}, "Seed must be from 0"),
        ({"ttft_limit": -5}, "TTFT limit, ms must be from 0 to 10,000,000; got -5."),
        ({"preset": "magic"}, "'magic' is not an effect"),
    ],
)
def test_a_wrong_number_of_the_experiment_is_named(
    simulation: Place, wrong: dict[str, Any], says: str
) -> None:
    a, b = (side_values("long-prompt", side, simulation.config) for side in "ab")
    with pytest.raises(InvalidRequest, match=re.escape(says)):
        make_experiment(simulation, replace(WANTED, **wrong), a, b)


def test_without_an_engine_there_is_the_simulation() -> None:
    service = EngineService(lambda report: pytest.fail("it is not started"))
    with pytest.raises(EngineStopped):
        find_place(service, simulated=False)
    assert find_place(service, simulated=True).config == SIMULATED_CONFIG


def test_a_tokenizer_that_does_not_tell_its_tokens_is_named() -> None:
    service = started(ScriptedRunner())
    with pytest.raises(InvalidRequest, match="use the simulation"):
        find_place(service, simulated=False)
    service.close()


@pytest.mark.parametrize("shape", ["agent", "batch"])
def test_any_shape_can_be_sent_to_both_sides(simulation: Place, shape: str) -> None:
    traffic = Traffic(shape=shape, requests=5, streamed=shape != "batch")
    wanted = replace(WANTED, preset=OWN, seed=7, traffic=traffic)
    experiment = filled(simulation, wanted)
    assert experiment.title == SHAPES[shape].title
    assert [config.policy for config in experiment.configs] == ["prefill-first", "chunked"]
    first, second = experiment.workload(0), experiment.workload(1)
    assert first.seeds == Seeds.all(7)
    assert second.seeds == Seeds.all(8)
    assert first.digest() == experiment.workload(0).digest() != second.digest()


def test_a_trace_can_be_sent_to_both_sides(simulation: Place, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [
        {"timestamp": 0, "input_length": 700, "output_length": 4, "hash_ids": [1, 2]},
        {"timestamp": 250, "input_length": 600, "output_length": 6, "hash_ids": [1, 3]},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    wanted = replace(WANTED, preset=OWN, traffic=Traffic(shape=TRACE, file=str(path), speed=2))
    experiment = filled(simulation, wanted)
    assert experiment.title == "A trace file"
    pairs = [experiment.workload(pair) for pair in range(2)]
    for pair in pairs:
        assert [len(item.token_ids) for item in pair.items] == [700, 600]
        assert [item.start.time for item in pair.items] == [0, 0.125]
    assert pairs[0].items[0].token_ids != pairs[1].items[0].token_ids
    assert simulation.backend is not None
    result = perform(experiment, simulation.backend)
    assert all(side.requests["finished"] == 2 for side in result.sides)
    # Everybody can open the result; the file's name is its owner's.
    assert "mine" not in result.to_json()


def test_own_traffic_without_its_file_is_asked_for(simulation: Place) -> None:
    wanted = replace(WANTED, preset=OWN, traffic=Traffic(shape=TRACE))
    with pytest.raises(InvalidRequest, match="Choose a trace file first"):
        filled(simulation, wanted)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("order", sorted(QUEUE_ORDERS))
def test_policy_and_queue_order_are_explained_in_a_sentence_each(policy: str, order: str) -> None:
    assert len(set(side_words(policy, order))) == 2
    assert all(sentence.endswith(".") for sentence in side_words(policy, order))
