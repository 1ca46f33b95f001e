"""The settings of a chat: system prompt, sampling, limits. Its fields, and what they mean.

An empty number field stands for its default. Limits are the engine's own: a bad value reaches
`SamplingParams`, which answers with a sentence naming the field and its range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import gradio as gr

from engine.core.errors import InvalidRequest
from engine.core.request import SamplingParams


class Number(NamedTuple):
    """A number field: its name in SamplingParams, label, default, step and one line about it."""

    name: str
    label: str
    default: float
    step: float
    info: str


NUMBERS = (
    Number("temperature", "Temperature", 0.7, 0.1, "0 takes the likeliest token"),
    Number("max_tokens", "Max tokens out", 400, 50, "length of the answer"),
    Number("top_p", "Top-p", 0.95, 0.05, "share of probability kept"),
    Number("top_k", "Top-k", 0, 10, "tokens kept; 0 keeps all"),
    Number("min_p", "Min-p", 0.0, 0.05, "least share of the likeliest"),
    Number("repetition_penalty", "Repetition penalty", 1.0, 0.1, "1 is off"),
    Number("presence_penalty", "Presence penalty", 0.0, 0.1, "0 is off"),
    Number("frequency_penalty", "Frequency penalty", 0.0, 0.1, "0 is off"),
)
DEFAULTS = {number.name: number.default for number in NUMBERS}
MAX_ALTERNATIVES = 5
"""Alternatives that can be recorded for each token: what fits into a line about it."""

_WHOLE = ("max_tokens", "top_k")


def build_form() -> dict[str, gr.components.Component]:
    """Add the fields here; returns them by name, in the order in which they are shown."""
    fields: dict[str, gr.components.Component] = {
        "system": gr.Textbox(
            label="System prompt",
            info="Said to the model before the conversation",
            lines=2,
            max_lines=4,
            elem_id="ps-system",
        )
    }
    with gr.Row(elem_classes="ps-fields"):
        for number in NUMBERS:
            fields[number.name] = gr.Number(
                number.default,
                label=number.label,
                info=number.info,
                step=number.step,
                min_width=90,
                elem_id=f"ps-{number.name.replace('_', '-')}",
            )
        # A number field would show an empty value as 0.
        fields["seed"] = gr.Textbox(
            label="Seed", info="a whole number; empty draws one", min_width=90, elem_id="ps-seed"
        )
        fields["logprobs"] = gr.Textbox(
            label="Record logprobs",
            info=f"0 to {MAX_ALTERNATIVES} alternatives a token; empty: off",
            min_width=90,
            elem_id="ps-logprobs",
        )
    fields["stop"] = gr.Textbox(
        label="Stop strings",
        info="One a line; the answer ends before them",
        lines=1,
        max_lines=4,
        elem_id="ps-stop-strings",
    )
    return fields


def sampling_params(values: Mapping[str, object]) -> SamplingParams:
    """The form's values as parameters; raises InvalidRequest naming the field and its limits."""
    chosen: dict[str, object] = {}
    for number in NUMBERS:
        value = values.get(number.name)
        if value is None:
            value = number.default
        if number.name in _WHOLE and isinstance(value, float) and value.is_integer():
            value = int(value)
        chosen[number.name] = value
    chosen["seed"] = _whole("seed", values.get("seed"), "or empty to draw one")
    chosen["logprobs"] = _logprobs(values.get("logprobs"))
    stop = values.get("stop") or ""
    if not isinstance(stop, str):
        raise InvalidRequest("stop must be text, one stop string a line.", field="stop")
    chosen["stop"] = tuple(line for line in stop.splitlines() if line)
    return SamplingParams(**chosen)  # type: ignore[arg-type]


def _logprobs(value: object) -> int | None:
    advice = f"from 0 to {MAX_ALTERNATIVES}, or empty to record none"
    number = _whole("logprobs", value, advice)
    if number is not None and not 0 <= number <= MAX_ALTERNATIVES:
        raise InvalidRequest(
            f"logprobs must be a whole number {advice}; got {number}.", field="logprobs"
        )
    return number


def _whole(name: str, value: object, advice: str) -> int | None:
    """The number in a text field, None when it is empty."""
    text = "" if value is None else str(value).strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(
            f"{name} must be a whole number, {advice}; got {text[:40]!r}.", field=name
        ) from None
