"""The fields of a comparison: an effect or one's own traffic, both sides, and how often it is run.

It places components and reads their values back; what they mean is in ui/compare_form.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

import gradio as gr

from engine.lab.presets import PRESETS
from engine.lab.verdict import MAX_PAIRS, MIN_PAIRS
from engine.service import EngineService
from engine.turns import MAX_TURN_SECONDS
from ui.admin_key import AdminKey
from ui.compare_form import CHOICES, OWN, SIDE_FIELDS, Wanted, side_values, side_words
from ui.compare_places import starting_config
from ui.events import QUIET
from ui.words_compare import COMPARE, SIDE_LABELS
from ui.workload_fields import TrafficFields

FIRST_PRESET: Final = next(iter(PRESETS))
_NUMBERS: Final = {"repeats": MIN_PAIRS, "seed": 0, "ttft_limit": 0, "tpot_limit": 0}
_HINTS: Final = {
    "repeats": COMPARE["repeats_hint"].format(least=MIN_PAIRS),
    "seed": COMPARE["seed_hint"],
}
_EXPLAINED: Final = [SIDE_FIELDS.index(name) for name in ("policy", "queue_order")]


class CompareFields:
    """The components of the form; `filled` are those that an effect fills."""

    def __init__(self, service: EngineService, key: AdminKey) -> None:
        self._service = service
        with gr.Column(elem_id="ps-compare-form", elem_classes=["ps-card", "ps-form"]):
            self._build_choice()
            with gr.Column(visible=False, elem_id="ps-compare-own") as self._own:
                self._traffic = TrafficFields("ps-compare-traffic")
            self._build_numbers(key)
            base = starting_config(service)
            with gr.Row(elem_classes="ps-form-sides"):
                self._a, self._b = (
                    _Side(side, side_values(FIRST_PRESET, side, base)) for side in "ab"
                )
        self.filled = [self._look_at, self._own, *self._a.filled, *self._b.filled]

    def _build_choice(self) -> None:
        with gr.Row(elem_classes="ps-form-row"):
            effects = [(preset.title, name) for name, preset in PRESETS.items()]
            self.preset = gr.Dropdown(
                [*effects, (COMPARE["own"], OWN)],
                value=FIRST_PRESET,
                label=COMPARE["effect"],
                scale=3,
                elem_id="ps-compare-preset",
            )
            self._place = gr.Radio(
                [(COMPARE["real"], "real"), (COMPARE["simulated"], "simulated")],
                value="real",
                label=COMPARE["where"],
                info=COMPARE["real_hint"].format(seconds=MAX_TURN_SECONDS),
                scale=4,
                elem_id="ps-compare-place",
            )
        self._look_at = gr.HTML(
            _look_at(FIRST_PRESET), apply_default_css=False, elem_classes="ps-panel"
        )

    def _build_numbers(self, key: AdminKey) -> None:
        with gr.Row(elem_classes="ps-form-row"):
            self._numbers = [
                gr.Number(
                    value,
                    label=COMPARE[name],
                    info=_HINTS.get(name, COMPARE["limit_hint"]),
                    maximum=MAX_PAIRS if name == "repeats" else None,
                    min_width=150,
                    elem_id=f"ps-compare-{name.replace('_', '-')}",
                )
                for name, value in _NUMBERS.items()
            ]
            self.key = gr.Textbox(
                label=COMPARE["key"],
                info=COMPARE["key_hint"],
                type="password",
                visible=key.required,
                elem_id="ps-compare-key",
            )

    @property
    def inputs(self) -> list[gr.components.Component]:
        """Every field but the key, in the order in which `read` takes their values."""
        sides = [*self._a.fields, *self._b.fields]
        return [self._place, self.preset, *self._numbers, *sides, *self._traffic.inputs]

    def read(self, values: Sequence[Any]) -> tuple[bool, Wanted, Sequence[Any], Sequence[Any]]:
        """Whether it is to be simulated, what is wanted, and both sides' values."""
        place, preset, pairs, seed, ttft, tpot, *rest = values
        size = len(SIDE_FIELDS)
        wanted = Wanted(
            preset=preset,
            num_pairs=pairs,
            seed=seed,
            ttft_limit=ttft,
            tpot_limit=tpot,
            traffic=self._traffic.traffic(rest[2 * size :]),
        )
        return place == "simulated", wanted, rest[:size], rest[size : 2 * size]

    def connect(self) -> None:
        """Connect the events of the fields; inside the page's Blocks."""
        self.preset.change(self.fill, self.preset, self.filled, queue=False, **QUIET)
        self._traffic.connect()
        self._a.connect()
        self._b.connect()

    def fill(self, preset: str) -> list[Any]:
        """Fill `filled` for an effect, upon the engine's settings of this moment."""
        base = starting_config(self._service)
        both: list[Any] = []
        for side in "ab":
            values = side_values(preset, side, base)
            both += [*values, _explained(values)]
        return [_look_at(preset), gr.Column(visible=preset == OWN), *both]


class _Side:
    """The settings of A or B, and what its policy and queue order do."""

    def __init__(self, side: str, values: Sequence[Any]) -> None:
        with gr.Column(elem_classes="ps-form-side", min_width=240):
            name = side.upper()
            gr.HTML(
                f'<h3><i class="ps-badge" data-badge="{name}">{name}</i></h3>',
                apply_default_css=False,
            )
            self.fields = [
                _setting(side, setting, value)
                for setting, value in zip(SIDE_FIELDS, values, strict=True)
            ]
            self._words = gr.HTML(
                _explained(values),
                apply_default_css=False,
                elem_id=f"ps-{side}-words",
                elem_classes="ps-panel",
            )
        self.filled = [*self.fields, self._words]

    def connect(self) -> None:
        chosen = [self.fields[index] for index in _EXPLAINED]
        for field in chosen:
            field.change(_explanation, chosen, self._words, queue=False, **QUIET)  # type: ignore[attr-defined]


def _setting(side: str, setting: str, value: Any) -> gr.components.Component:
    label, hint = SIDE_LABELS[setting]
    here: dict[str, Any] = {
        "label": label,
        "info": hint,
        "elem_id": f"ps-{side}-{setting.replace('_', '-')}",
    }
    if setting in CHOICES:
        return gr.Dropdown(list(CHOICES[setting]), value=value, **here)
    if setting == "prefix_caching":
        return gr.Checkbox(value, **here)
    return gr.Number(value, step=1, **here)


def _explained(values: Sequence[Any]) -> str:
    return _explanation(*(values[index] for index in _EXPLAINED))


def _explanation(policy: str, queue_order: str) -> str:
    sentences = "".join(f"<p>{escape(text)}</p>" for text in side_words(policy, queue_order))
    return f'<div class="ps-side-words" role="status">{sentences}</div>'


def _look_at(preset: str) -> str:
    words = COMPARE["own_hint"]
    if preset != OWN:
        words = COMPARE["look_at"].format(text=PRESETS[preset].look_at)
    return f'<p class="ps-look-at">{escape(words)}</p>'
