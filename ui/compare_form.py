"""The form of a comparison as data: what its fields hold, and the experiment that they ask for.

It knows no component: `ui.compare` shows the fields in this order and hands their values back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.core.config import EngineConfig
from engine.core.errors import InvalidRequest
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS
from engine.lab.experiment import Experiment, config_with
from engine.lab.presets import PRESETS
from engine.lab.verdict import MAX_PAIRS
from engine.lab.workload import Workload
from ui.compare_places import Place
from ui.words_compare import COMPARE, SIDE_LABELS
from ui.workload_form import Traffic, traffic_of_pairs, traffic_title
from ui.workload_numbers import limits, seed_number, whole

OWN: Final = "own"
"""In a preset's place: traffic that the form describes."""

SIDE_FIELDS: Final = tuple(SIDE_LABELS)
"""Names of the settings that each side has, in the order of its fields."""

CHOICES: Final = {"policy": tuple(sorted(POLICIES)), "queue_order": tuple(sorted(QUEUE_ORDERS))}
_LIMITS: Final = {
    "max_batched_tokens": (1, 8_192),
    "max_running": (1, 256),
    "long_prompt_threshold": (0, 8_192),
}
_OWN_SIDES: Final[dict[str, dict[str, Any]]] = {
    "a": {"policy": "prefill-first"},
    "b": {"policy": "chunked"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the form asks for besides both sides; limits are milliseconds, 0 for none.

    traffic: what is sent where `preset` is `OWN`; its seed is the experiment's.
    """

    preset: str
    num_pairs: Any
    seed: Any
    ttft_limit: Any = None
    tpot_limit: Any = None
    traffic: Traffic | None = None


def side_values(preset: str, side: str, base: EngineConfig) -> list[Any]:
    """What the fields of side `a` or `b` show when a preset is chosen."""
    changes = _OWN_SIDES[side] if preset == OWN else getattr(PRESETS[preset], side)
    config = config_with(base, changes)
    return [getattr(config, name) for name in SIDE_FIELDS]


def side_words(policy: str, queue_order: str) -> list[str]:
    """What a side's policy and queue order do, a sentence each."""
    return [
        table[name].explanation
        for table, name in ((POLICIES, policy), (QUEUE_ORDERS, queue_order))
        if name in table
    ]


def make_experiment(place: Place, wanted: Wanted, a: Sequence[Any], b: Sequence[Any]) -> Experiment:
    """The experiment of a filled form; raises InvalidRequest naming the field that is wrong."""
    configs = (_config(place, a, "A"), _config(place, b, "B"))
    if configs[0] == configs[1]:
        raise InvalidRequest(COMPARE["same_sides"])
    title, workload = _traffic(place, wanted)
    return Experiment(
        title=title,
        configs=configs,
        workload=workload,
        num_pairs=whole(COMPARE["repeats"], wanted.num_pairs, 1, MAX_PAIRS),
        limits=limits(wanted.ttft_limit, wanted.tpot_limit),
    )


def _traffic(place: Place, wanted: Wanted) -> tuple[str, Callable[[int], Workload]]:
    """What the traffic is called, and the workload of each pair of runs."""
    seed = seed_number(wanted.seed)
    if wanted.preset == OWN and wanted.traffic is not None:
        traffic = replace(wanted.traffic, seed=seed)
        return traffic_title(traffic), traffic_of_pairs(place, traffic)
    preset = PRESETS.get(wanted.preset)
    if preset is None:
        known = ", ".join((*PRESETS, OWN))
        raise InvalidRequest(f"{wanted.preset!r} is not an effect; these are: {known}.")
    context = place.config.max_model_len
    return preset.title, lambda pair: preset.draw(seed + pair, place.source).clipped(context)


def _config(place: Place, values: Sequence[Any], side: str) -> EngineConfig:
    changes: dict[str, Any] = {}
    for name, value in zip(SIDE_FIELDS, values, strict=True):
        label = f"{SIDE_LABELS[name][0]} of {side}"
        if name in CHOICES:
            changes[name] = value  # EngineConfig knows its policies and orders
        elif name == "prefix_caching":
            changes[name] = bool(value)
        else:
            low, high = _LIMITS.get(name, (1, place.most_blocks))
            changes[name] = whole(label, value, low, high)
    return config_with(place.config, changes)
