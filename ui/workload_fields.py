"""The fields that describe traffic, as Compare and Workload both show them: a shape and its lengths
and arrivals, or a trace file, with a card that says what they come to.

It places components and reads their values back; what they mean is in ui/workload_form.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.lab.workload_shapes import SHAPES
from ui import workload_cards
from ui.compare_progress import message
from ui.events import QUIET
from ui.words_workload import ARRIVAL_KINDS, ARRIVAL_USES, LENGTH_KINDS, LENGTH_USES, WORKLOAD
from ui.workload_form import (
    MAX_UPLOAD_MEGABYTES,
    TRACE,
    ArrivalFields,
    LengthFields,
    Traffic,
    load_trace,
)

FIRST_SHAPE: Final = next(iter(SHAPES))
_LENGTH_FIELDS: Final = ("typical", "spread", "low", "high", "seen")
_ARRIVAL_FIELDS: Final = ("rate", "burstiness", "burst", "users", "think")
# The cards are plain radio buttons: the choice becomes the value of the component they stand in.
_CHOICE = """
element.addEventListener("change", (event) => {
  if (event.target.type !== "radio") return;
  props.value = event.target.value;  // which is a change event
});
"""


class TrafficFields:
    """The components of one description of traffic; `name` begins the ids of its elements."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shape = gr.HTML(
            FIRST_SHAPE,
            html_template=workload_cards.shape_cards(f"{name}-shape", FIRST_SHAPE),
            js_on_load=_CHOICE,
            apply_default_css=False,
            elem_id=f"{name}-shape",
            elem_classes="ps-panel",
        )
        self._file = gr.File(
            label=f"{WORKLOAD['file']}: {WORKLOAD['file_hint']}".format(
                megabytes=MAX_UPLOAD_MEGABYTES
            ),
            visible=False,
            height=140,
            elem_id=f"{name}-file",
        )
        self._card = gr.HTML(
            workload_cards.traffic_card(Traffic(shape=FIRST_SHAPE)),
            apply_default_css=False,
            elem_id=f"{name}-card",
            elem_classes=["ps-panel", "ps-shape-card"],
        )
        self._trace_card = gr.HTML(
            apply_default_css=False,
            elem_id=f"{name}-trace-card",
            elem_classes=["ps-panel", "ps-trace-card"],
        )
        self._build_numbers()
        self._prompt = self._build_lengths("prompt")
        self._output = self._build_lengths("output")
        self._arrivals = self._build_arrivals()

    def _build_numbers(self) -> None:
        with gr.Row():
            self._requests = self._number("requests", SHAPES[FIRST_SHAPE].spec.num_requests)
            self._speed = self._number("speed", 1, visible=False)
            self._streamed = gr.Checkbox(
                True,
                label=WORKLOAD["streamed"],
                info=WORKLOAD["streamed_hint"],
                min_width=150,
                elem_id=f"{self._name}-streamed",
            )

    def _build_lengths(self, part: str) -> list[gr.components.Component]:
        defaults, used = LengthFields(), LENGTH_USES[LENGTH_KINDS[0]]
        with gr.Accordion(WORKLOAD["kind"].format(part=WORKLOAD[part]), open=False):
            kind = _kinds(LENGTH_KINDS, WORKLOAD["lengths"], f"{self._name}-{part}-lengths")
            with gr.Row():
                numbers = [
                    gr.Number(
                        getattr(defaults, field),
                        label=WORKLOAD[field],
                        min_width=110,
                        visible=field in used,
                        elem_id=f"{self._name}-{part}-{field}",
                    )
                    for field in _LENGTH_FIELDS[:-1]
                ]
            seen = gr.Textbox(
                label=WORKLOAD["seen"],
                info=WORKLOAD["seen_hint"],
                visible="seen" in used,
                elem_id=f"{self._name}-{part}-seen",
            )
        return [kind, *numbers, seen]

    def _build_arrivals(self) -> list[gr.components.Component]:
        defaults, used = ArrivalFields(), ARRIVAL_USES[ARRIVAL_KINDS[0]]
        with gr.Accordion(WORKLOAD["arrivals"], open=False):
            kind = _kinds(ARRIVAL_KINDS, WORKLOAD["arrivals"], f"{self._name}-arrivals")
            with gr.Row():
                numbers = [
                    self._number(field, getattr(defaults, field), visible=field in used)
                    for field in _ARRIVAL_FIELDS
                ]
        return [kind, *numbers]

    def _number(self, name: str, value: float, *, visible: bool = True) -> gr.Number:
        return gr.Number(
            value,
            label=WORKLOAD[name],
            info=WORKLOAD.get(f"{name}_hint"),
            min_width=110,
            visible=visible,
            elem_id=f"{self._name}-{name}",
        )

    @property
    def inputs(self) -> list[gr.components.Component]:
        """Every field, in the order in which `traffic` takes their values."""
        single = [self._shape, self._file, self._streamed, self._requests, self._speed]
        return [*single, *self._prompt, *self._output, *self._arrivals]

    def traffic(self, values: Sequence[Any]) -> Traffic:
        """What the fields' values describe."""
        shape, file, streamed, requests, speed, *rest = values
        size = len(self._prompt)
        of_lengths = ("kind", *_LENGTH_FIELDS)
        prompt, output, arrivals = rest[:size], rest[size : 2 * size], rest[2 * size :]
        return Traffic(
            shape=shape,
            file=file,
            streamed=streamed,
            requests=requests,
            speed=speed,
            prompt=LengthFields(**dict(zip(of_lengths, prompt, strict=True))),
            output=LengthFields(**dict(zip(of_lengths, output, strict=True))),
            arrivals=ArrivalFields(**dict(zip(("kind", *_ARRIVAL_FIELDS), arrivals, strict=True))),
        )

    def connect(self) -> None:
        """Keep card and fields in step with what is chosen; inside the page's Blocks."""
        starts = [self._streamed, self._requests, self._file, self._speed]
        self._shape.change(_start_values, self._shape, starts, queue=False, **QUIET)
        for fields, uses in (
            (self._prompt, LENGTH_USES),
            (self._output, LENGTH_USES),
            (self._arrivals, ARRIVAL_USES),
        ):
            names = _ARRIVAL_FIELDS if uses is ARRIVAL_USES else _LENGTH_FIELDS
            fields[0].change(_shower(names, uses), fields[0], fields[1:], queue=False, **QUIET)  # type: ignore[attr-defined]
        # A file may take seconds to read: one at a time, and only where it or the shape changes.
        # It has a card of its own, so that one that is late does not overwrite a shape's; which of
        # the two is seen, the chosen radio button decides (assets/workload.css).
        gr.on(
            [self._shape.change, self._file.change],
            _describe_trace,
            [self._shape, self._file],
            self._trace_card,
            **{**QUIET, "concurrency_limit": 1},
        )
        for field in self.inputs:
            if field not in (self._file, self._speed):
                field.change(self._describe, self.inputs, self._card, queue=False, **QUIET)  # type: ignore[attr-defined]

    def _describe(self, *values: Any) -> Any:
        """What the chosen shape is as it was edited; nothing where a trace is chosen."""
        traffic = self.traffic(values)
        return gr.skip() if traffic.shape == TRACE else workload_cards.traffic_card(traffic)


def _describe_trace(shape: str, file: str | None) -> Any:
    """What is in the file, where a trace is chosen."""
    if shape != TRACE:
        return gr.skip()
    try:
        return workload_cards.trace_card(load_trace(file)) if file else ""
    except PhaseScopeError as error:
        return message(str(error), "err")


def _kinds(kinds: Sequence[str], label: str, elem_id: str) -> gr.Dropdown:
    choices = [(WORKLOAD["own"] if kind == kinds[0] else kind, kind) for kind in kinds]
    return gr.Dropdown(choices, value=kinds[0], label=label, min_width=110, elem_id=elem_id)


def _start_values(shape: str) -> list[Any]:
    """Streamed or not and how many requests, as a shape begins with; a trace asks for its file."""
    of_file = [gr.File(visible=shape == TRACE), gr.Number(visible=shape == TRACE)]
    if shape not in SHAPES:
        return [gr.skip(), gr.skip(), *of_file]
    spec = SHAPES[shape].spec
    return [spec.streamed, spec.num_requests, *of_file]


def _shower(names: Sequence[str], uses: dict[str, dict[str, str]]) -> Any:
    """A handler that shows the fields a kind has a use for, each by what it is to that kind."""

    def shown(kind: str) -> list[Any]:
        used = uses.get(kind, {})
        return [
            gr.update(visible=name in used, label=used.get(name, WORKLOAD[name])) for name in names
        ]

    return shown
