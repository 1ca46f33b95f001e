"""The Workload tab: one kind of traffic, described or imported, run once and measured.

It places the components and connects them. What the form asks for is in ui/workload_form.py, what
runs it in ui/compare_desk.py, and what a run looks like in ui/workload_report.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.lab.workload_shapes import SHAPES
from engine.turns import MAX_TURN_SECONDS
from ui import compare_panels, compare_report, workload_report
from ui.admin_key import AdminKey
from ui.compare_desk import Desk, Job
from ui.compare_places import find_place
from ui.compare_progress import follow, message, unlock
from ui.page import Builder, panel
from ui.words_compare import COMPARE
from ui.words_workload import ARRIVAL_KINDS, LENGTH_KINDS, WORKLOAD
from ui.workload_form import (
    MAX_UPLOAD_MEGABYTES,
    TRACE,
    ArrivalFields,
    LengthFields,
    Traffic,
    load_trace,
    workload_experiment,
)

FIRST_SHAPE: Final = next(iter(SHAPES))
_QUIET: Final[dict[str, Any]] = {"show_progress": "hidden", "api_visibility": "private"}
_ARRIVAL_NUMBERS: Final = ("rate", "burstiness", "burst", "users", "think")
_LENGTH_NUMBERS: Final = ("typical", "spread", "low", "high")


def build_workload(desk: Desk, key: AdminKey | None = None) -> Builder:
    """What adds the tab to the page; a key locks starting runs."""

    def build(page: gr.Blocks, tabs: gr.Tabs) -> None:
        with (
            gr.Tab(WORKLOAD["tab"], id="workload", elem_id="ps-tab-workload"),
            gr.Row(elem_id="ps-workload", elem_classes="ps-scope", equal_height=False),
        ):
            tab = _Tab(desk, key or AdminKey())
        tab.connect(page, tabs)

    return build


class _Tab:
    """The components of the tab and what their events do."""

    def __init__(self, desk: Desk, key: AdminKey) -> None:
        self._desk = desk
        self._key = key
        with gr.Column(elem_id="ps-workload-form", elem_classes=["ps-card", "ps-form"], scale=1):
            self._build_form()
        with gr.Column(elem_id="ps-workload-run", scale=3):
            self._build_results()

    # -- components -------------------------------------------------------------------------------

    def _build_form(self) -> None:
        shapes = [(shape.title, name) for name, shape in SHAPES.items()]
        self._shape = gr.Radio(
            [*shapes, (WORKLOAD["trace"], TRACE)],
            value=FIRST_SHAPE,
            label=WORKLOAD["shape"],
            elem_id="ps-workload-shape",
        )
        self._file = gr.File(
            label=f"{WORKLOAD['file']}: {WORKLOAD['file_hint']}".format(
                megabytes=MAX_UPLOAD_MEGABYTES
            ),
            visible=False,
            height=140,
            elem_id="ps-workload-file",
        )
        self._card = gr.HTML(
            workload_report.traffic_card(Traffic(shape=FIRST_SHAPE)),
            apply_default_css=False,
            elem_id="ps-workload-card",
            elem_classes="ps-panel",
        )
        self._place = gr.Radio(
            [(COMPARE["real"], "real"), (COMPARE["simulated"], "simulated")],
            value="real",
            label=COMPARE["where"],
            info=COMPARE["real_hint"].format(seconds=MAX_TURN_SECONDS),
            elem_id="ps-workload-place",
        )
        self._numbers = self._build_numbers()
        self._lengths = [*_length_fields("prompt"), *_length_fields("output")]
        self._arrivals = _arrival_fields()
        self._secret = gr.Textbox(
            label=COMPARE["key"],
            info=COMPARE["key_hint"],
            type="password",
            visible=self._key.required,
            elem_id="ps-workload-key",
        )
        with gr.Row(elem_classes="ps-form-buttons"):
            self._run = gr.Button(WORKLOAD["run"], variant="primary", elem_id="ps-workload-start")
            self._stop = gr.Button(WORKLOAD["stop"], visible=False, elem_id="ps-workload-stop")

    def _build_numbers(self) -> list[gr.components.Component]:
        streamed = gr.Checkbox(
            True, label=WORKLOAD["streamed"], info=WORKLOAD["streamed_hint"], min_width=150
        )
        with gr.Row():
            numbers = [
                _number("requests", SHAPES[FIRST_SHAPE].spec.num_requests),
                _number("seed", 0),
                _number("speed", 1),
                gr.Number(
                    0, label=COMPARE["ttft_limit"], info=COMPARE["limit_hint"], min_width=110
                ),
                gr.Number(
                    0, label=COMPARE["tpot_limit"], info=COMPARE["limit_hint"], min_width=110
                ),
                _number("price", 0),
            ]
        return [streamed, *numbers]

    def _build_results(self) -> None:
        self._status = gr.HTML(apply_default_css=False, elem_id="ps-workload-status")
        panel("lanes", compare_panels.live_lanes())
        with gr.Row(elem_id="ps-workload-bar", elem_classes="ps-card"):
            self._line = gr.HTML(
                f'<p class="ps-workload-line">{WORKLOAD["empty"]}</p>',
                apply_default_css=False,
                elem_classes="ps-panel",
            )
            self._exports = gr.HTML(
                apply_default_css=False, elem_id="ps-workload-export", elem_classes="ps-panel"
            )
        self._report = gr.HTML(apply_default_css=False, elem_classes="ps-panel")
        panel("run", compare_panels.single_timeline())
        with gr.Column(elem_id="ps-workload-result", elem_classes="ps-card"):
            gr.HTML(
                f"<h2>{WORKLOAD['result']}</h2>", apply_default_css=False, elem_classes="ps-panel"
            )
            self._table = gr.DataFrame(
                headers=workload_report.HEADERS,
                value=[],
                interactive=False,
                elem_id="ps-workload-table",
            )

    # -- events -----------------------------------------------------------------------------------

    def connect(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect the events; inside the page's Blocks."""
        self._tabs = tabs
        fields = [
            *(self._shape, self._file, *self._numbers),
            *(*self._lengths, *self._arrivals),
        ]
        shown = [
            *(self._line, self._exports, self._report, self._table, self._status),
            *(self._run, self._stop),
        ]
        self._run.click(
            self.run,
            [self._secret, self._place, *fields],
            shown,
            concurrency_limit=None,
            **_QUIET,
        )
        self._stop.click(self.stop, None, self._status, queue=False, **_QUIET)
        described = [self._card, self._file]
        of_shape = [self._numbers[0], self._numbers[1]]
        self._shape.change(_start_values, self._shape, of_shape, queue=False, **_QUIET)
        edits = [self._shape, self._numbers[0], self._numbers[1], *self._lengths, *self._arrivals]
        for field in (*edits, self._file):
            field.change(self.describe, fields, described, queue=False, **_QUIET)  # type: ignore[attr-defined]
        page.load(self.open, None, [tabs, *shown], queue=False, **_QUIET)

    async def run(
        self, request: gr.Request, key: str, place: str, *values: Any
    ) -> AsyncIterator[dict[Any, Any]]:
        """Start the run, tell how far it is, and show its result."""
        try:
            await unlock(self._key, key)
            job = await asyncio.to_thread(self._start, request, place, values)
        except PhaseScopeError as error:
            yield {self._status: message(str(error), "err")}
            return
        try:
            yield {self._run: gr.Button(visible=False), self._stop: gr.Button(visible=True)}
            async for told in follow(job):
                yield {self._status: gr.skip() if told is None else told}
        finally:
            job.stop()
        yield await asyncio.to_thread(self._ended, job)

    def stop(self, request: gr.Request) -> str:
        """End the visitor's own run."""
        self._desk.stop(str(request.session_hash))
        return message(COMPARE["stopping"], "busy")

    def describe(self, *values: Any) -> list[Any]:
        """What the chosen shape is as it was edited, or what is in the file."""
        traffic = _traffic(values)
        asks = traffic.shape == TRACE
        if not asks or not traffic.file:
            return [workload_report.traffic_card(traffic), gr.File(visible=asks)]
        try:
            card = workload_report.trace_card(load_trace(traffic.file))
        except PhaseScopeError as error:
            card = message(str(error), "err")
        return [card, gr.File(visible=True)]

    def open(self, request: gr.Request) -> dict[Any, Any]:
        """Show the run that the page's address names."""
        name = request.query_params.get("result")
        try:
            if not name or len(self._desk.store.load(name).sides) != 1:
                return {self._status: ""}
        except PhaseScopeError:
            return {self._status: ""}  # the Compare tab says so
        return {**self._show(name), self._tabs: gr.Tabs(selected="workload")}

    # -- what they are made of --------------------------------------------------------------------

    def _start(self, request: gr.Request, place: str, values: tuple[Any, ...]) -> Job:
        where = find_place(self._desk.service, simulated=place == "simulated")
        experiment = workload_experiment(where, _traffic(values), self._desk.service)
        return self._desk.start(str(request.session_hash), experiment, where)

    def _ended(self, job: Job) -> dict[Any, Any]:
        buttons = {self._run: gr.Button(visible=True), self._stop: gr.Button(visible=False)}
        if job.state.result_id is None:
            return {**buttons, self._status: message(job.state.error or "", "err")}
        return {**self._show(job.state.result_id), **buttons}

    def _show(self, name: str) -> dict[Any, Any]:
        result = self._desk.store.load(name)
        return {
            self._line: compare_report.workload_line(result),
            self._exports: compare_report.exports(result),
            self._report: workload_report.run_report(result),
            self._table: workload_report.result_rows(result),
            self._status: "",
        }


def _start_values(shape: str) -> list[Any]:
    """Streamed or not, and how many requests, as a shape begins with."""
    if shape not in SHAPES:
        return [gr.skip(), gr.skip()]
    spec = SHAPES[shape].spec
    return [spec.streamed, spec.num_requests]


def _traffic(values: tuple[Any, ...]) -> Traffic:
    """The fields' values by name, in the order of `_Tab.connect`."""
    shape, file, streamed, requests, seed, speed, ttft, tpot, price, *rest = values
    size = 1 + len(_LENGTH_NUMBERS)
    prompt, output, arrivals = rest[:size], rest[size : 2 * size], rest[2 * size :]
    return Traffic(
        shape=shape,
        file=file,
        streamed=streamed,
        requests=requests,
        seed=seed,
        speed=speed,
        ttft_limit=ttft,
        tpot_limit=tpot,
        price=price,
        prompt=LengthFields(**dict(zip(("kind", *_LENGTH_NUMBERS), prompt, strict=True))),
        output=LengthFields(**dict(zip(("kind", *_LENGTH_NUMBERS), output, strict=True))),
        arrivals=ArrivalFields(**dict(zip(("kind", *_ARRIVAL_NUMBERS), arrivals, strict=True))),
    )


def _number(name: str, value: float) -> gr.Number:
    return gr.Number(
        value,
        label=WORKLOAD[name],
        info=WORKLOAD.get(f"{name}_hint"),
        min_width=110,
        elem_id=f"ps-workload-{name}",
    )


def _length_fields(part: str) -> list[gr.components.Component]:
    with gr.Accordion(WORKLOAD["kind"].format(part=WORKLOAD[part]), open=False):
        kinds = [(WORKLOAD["own"] if kind == "own" else kind, kind) for kind in LENGTH_KINDS]
        kind = gr.Dropdown(kinds, value="own", label=WORKLOAD["lengths"], min_width=110)
        defaults = LengthFields()
        with gr.Row():
            numbers = [
                gr.Number(getattr(defaults, name), label=WORKLOAD[name], min_width=110)
                for name in _LENGTH_NUMBERS
            ]
    return [kind, *numbers]


def _arrival_fields() -> list[gr.components.Component]:
    with gr.Accordion(WORKLOAD["arrivals"], open=False):
        kinds = [(WORKLOAD["own"] if kind == "own" else kind, kind) for kind in ARRIVAL_KINDS]
        kind = gr.Dropdown(kinds, value="own", label=WORKLOAD["arrivals"], min_width=110)
        defaults = ArrivalFields()
        with gr.Row():
            numbers = [_number(name, getattr(defaults, name)) for name in _ARRIVAL_NUMBERS]
    return [kind, *numbers]
