"""The form of a comparison as data: what its fields hold, and the experiment that they ask for.

It knows no component: `ui.compare` shows the fields in this order and hands their values back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.core.config import EngineConfig
from engine.core.errors import InvalidRequest
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS
from engine.lab.experiment import Experiment, config_with
from engine.lab.measures import Limits
from engine.lab.presets import PRESETS
from engine.lab.verdict import MAX_PAIRS
from ui.compare_places import Place
from ui.words_compare import COMPARE, SIDE_LABELS

SIDE_FIELDS: Final = tuple(SIDE_LABELS)
"""Names of the settings that each side has, in the order of its fields."""

CHOICES: Final = {"policy": tuple(sorted(POLICIES)), "queue_order": tuple(sorted(QUEUE_ORDERS))}
_LIMITS: Final = {
    "max_batched_tokens": (1, 8_192),
    "max_running": (1, 256),
    "long_prompt_threshold": (0, 8_192),
}
_MAX_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the form asks for besides both sides; limits are milliseconds, 0 for none."""

    preset: str
    num_pairs: Any
    seed: Any
    ttft_limit: Any = None
    tpot_limit: Any = None


def side_values(preset: str, side: str, base: EngineConfig) -> list[Any]:
    """What the fields of side `a` or `b` show when a preset is chosen."""
    config = config_with(base, getattr(PRESETS[preset], side))
    return [getattr(config, name) for name in SIDE_FIELDS]


def make_experiment(place: Place, wanted: Wanted, a: Sequence[Any], b: Sequence[Any]) -> Experiment:
    """The experiment of a filled form; raises InvalidRequest naming the field that is wrong."""
    preset = PRESETS.get(wanted.preset)
    if preset is None:
        known = ", ".join(PRESETS)
        raise InvalidRequest(f"{wanted.preset!r} is not an effect; these are: {known}.")
    configs = (_config(place, a, "A"), _config(place, b, "B"))
    if configs[0] == configs[1]:
        raise InvalidRequest(COMPARE["same_sides"])
    seed = whole(COMPARE["seed"], wanted.seed, 0, _MAX_SEED)
    context = place.config.max_model_len
    return Experiment(
        title=preset.title,
        configs=configs,
        workload=lambda pair: preset.draw(seed + pair, place.source).clipped(context),
        num_pairs=whole(COMPARE["repeats"], wanted.num_pairs, 1, MAX_PAIRS),
        limits=Limits(
            ttft_seconds=limit_seconds(COMPARE["ttft_limit"], wanted.ttft_limit),
            tpot_seconds=limit_seconds(COMPARE["tpot_limit"], wanted.tpot_limit),
        ),
    )


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


def whole(label: str, value: Any, low: int, high: int) -> int:
    """A whole number within its limits; raises InvalidRequest naming the field."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidRequest(COMPARE["ask_whole"].format(label=label, value=_said(value)))
    if value != int(value):
        raise InvalidRequest(COMPARE["ask_whole"].format(label=label, value=_said(value)))
    if not low <= value <= high:
        raise InvalidRequest(
            COMPARE["ask_range"].format(
                label=label, low=f"{low:,}", high=f"{high:,}", value=f"{value:,.0f}"
            )
        )
    return int(value)


def limit_seconds(label: str, milliseconds: Any) -> float | None:
    """A limit in seconds, None for none; raises InvalidRequest naming the field."""
    if not milliseconds:
        return None
    if not isinstance(milliseconds, int | float) or not 0 < milliseconds <= 1e7:
        raise InvalidRequest(
            COMPARE["ask_range"].format(
                label=label, low="0", high="10,000,000", value=_said(milliseconds)
            )
        )
    return milliseconds / 1e3


def _said(value: Any) -> str:
    return "nothing" if value is None or value == "" else str(value)[:40]
