"""The Workload tab: one kind of traffic, described or imported, run once and measured.

It places the components and connects them. What the form asks for is in ui/workload_form.py, what
runs it in ui/compare_desk.py, and what a run looks like in ui/workload_report.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.lab.results import Result
from engine.turns import MAX_TURN_SECONDS
from ui import compare_panels, compare_report, workload_figures, workload_report
from ui.admin_key import AdminKey
from ui.compare_desk import Desk, Job
from ui.compare_list import ResultsList, Updates
from ui.compare_places import find_place
from ui.compare_progress import Controls
from ui.events import QUIET
from ui.page import SCRIPT_ROUTE, Builder, panel
from ui.words_compare import COMPARE
from ui.words_workload import WORKLOAD
from ui.workload_fields import TrafficFields
from ui.workload_form import workload_experiment
from ui.workload_numbers import limits
from ui.workload_runs import MAX_ROWS, RunsTable, table

_CHARTS: Final = ("gaps", "first", "finished")
# The table's buttons are HTML: a click on a run reaches Python as the table's own event.
_RUNS_TABLE: Final = f"""
import(new URL("{SCRIPT_ROUTE}runs_table.js", document.baseURI)).then((scripts) =>
  scripts.watchRuns(element, (name) =>
    trigger("select", {{ index: 0, value: name, selected: true }})));
"""


def build_workload(desk: Desk, key: AdminKey | None = None) -> Builder:
    """What adds the tab to the page; a key locks starting and deleting runs."""

    def build(page: gr.Blocks, tabs: gr.Tabs) -> None:
        with (
            gr.Tab(WORKLOAD["tab"], id="workload", elem_id="ps-tab-workload") as place,
            gr.Row(elem_id="ps-workload", elem_classes="ps-scope", equal_height=False),
        ):
            tab = _Tab(desk, key or AdminKey())
        tab.connect(page, tabs, place)

    return build


class _Tab:
    """The components of the tab and what their events do."""

    def __init__(self, desk: Desk, key: AdminKey) -> None:
        self._desk = desk
        self._rows = RunsTable(desk.store)
        with gr.Column(elem_id="ps-workload-form", elem_classes=["ps-card", "ps-form"], scale=1):
            self._build_form(key)
        with gr.Column(elem_id="ps-workload-run", scale=3):
            self._build_results()
            self._runs = ResultsList(
                desk.store, key, name="ps-workload", title=WORKLOAD["runs"], num_sides=1
            )
        self._controls = Controls(desk, key, self._run, self._stop, self._status)

    # -- components -------------------------------------------------------------------------------

    def _build_form(self, key: AdminKey) -> None:
        self._traffic = TrafficFields("ps-workload")
        self._place = gr.Radio(
            [(COMPARE["real"], "real"), (COMPARE["simulated"], "simulated")],
            value="real",
            label=COMPARE["where"],
            info=COMPARE["real_hint"].format(seconds=MAX_TURN_SECONDS),
            elem_id="ps-workload-place",
        )
        with gr.Row():
            self._numbers = [
                _number("seed", WORKLOAD["seed"], None),
                _number("ttft-limit", COMPARE["ttft_limit"], COMPARE["limit_hint"]),
                _number("tpot-limit", COMPARE["tpot_limit"], COMPARE["limit_hint"]),
                _number("price", WORKLOAD["price"], WORKLOAD["price_hint"]),
            ]
        self._secret = gr.Textbox(
            label=COMPARE["key"],
            info=COMPARE["key_hint"],
            type="password",
            visible=key.required,
            elem_id="ps-workload-key",
        )
        with gr.Row(elem_classes="ps-form-buttons"):
            self._run = gr.Button(WORKLOAD["run"], variant="primary", elem_id="ps-workload-start")
            self._stop = gr.Button(WORKLOAD["stop"], visible=False, elem_id="ps-workload-stop")

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
        self._report = gr.HTML(
            apply_default_css=False, elem_id="ps-workload-report", elem_classes="ps-panel"
        )
        panel("run", compare_panels.single_timeline())
        with gr.Column(elem_id="ps-workload-result", elem_classes="ps-card"):
            gr.HTML(
                f'<h2 id="ps-runs-title">{WORKLOAD["result"]}</h2>'
                f'<p class="ps-cap">{WORKLOAD["result_cap"].format(most=MAX_ROWS)}</p>',
                apply_default_css=False,
                elem_classes="ps-panel",
            )
            self._table = gr.HTML(
                table([]),
                js_on_load=_RUNS_TABLE,
                apply_default_css=False,
                elem_id="ps-workload-table",
                elem_classes="ps-panel",
            )
            self._all_numbers = gr.HTML(
                apply_default_css=False, elem_id="ps-workload-numbers", elem_classes="ps-panel"
            )
        with gr.Row(elem_id="ps-workload-charts", visible=False) as self._charts:
            self._captions, self._plots, self._tables = _build_charts()

    # -- events -----------------------------------------------------------------------------------

    def connect(self, page: gr.Blocks, tabs: gr.Tabs, place: gr.Tab) -> None:
        """Connect the events; inside the page's Blocks."""
        self._tabs, listed = tabs, self._runs.component
        shown = [
            *(self._line, self._exports, self._report, self._status),
            *(self._table, self._all_numbers),
            *(self._charts, *self._captions, *self._plots, *self._tables),
            *(listed, self._run, self._stop),
        ]
        inputs = [self._secret, self._place, *self._numbers, *self._traffic.inputs]
        self._controls.connect(inputs, shown, self._start, self._show)
        self._traffic.connect()
        for clicked in (listed, self._table):
            clicked.select(self.choose, self._secret, shown, queue=False, **QUIET)
        # Not with the page: reading large results would take a while, and few look at them.
        place.select(self._rows.html, None, self._table, queue=False, **QUIET)
        page.load(self.open, None, [tabs, *shown], queue=False, **QUIET)

    async def choose(self, event: gr.EventData, key: str) -> Updates:
        """Open or delete the run whose button was clicked."""
        updates = await self._runs.choose(event, key, self._show, self._status)
        return {**updates, self._table: await asyncio.to_thread(self._rows.html)}

    def open(self, request: gr.Request) -> Updates:
        """List the runs that are kept, and show the one that the page's address names."""
        try:
            name = self._runs.named(request)
            if name is not None:
                return {**self._show(name), self._tabs: gr.Tabs(selected="workload")}
        except PhaseScopeError:
            pass  # the Compare tab says so
        return {self._runs.component: self._runs.html()}

    # -- what they are made of --------------------------------------------------------------------

    def _start(self, visitor: str, values: Sequence[Any]) -> Job:
        place, seed, ttft, tpot, price, *rest = values
        where = find_place(self._desk.service, simulated=place == "simulated")
        traffic = replace(self._traffic.traffic(rest), seed=seed)
        experiment = workload_experiment(where, traffic, limits(ttft, tpot), price)
        return self._desk.start(visitor, experiment, where)

    def _show(self, name: str) -> Updates:
        """Everything that a run changes on the page; raises PhaseScopeError."""
        result = self._desk.store.load(name)
        return {
            self._line: compare_report.workload_line(result),
            self._exports: compare_report.exports(result),
            self._report: workload_report.run_report(result),
            self._table: self._rows.html(),
            self._all_numbers: workload_report.all_numbers(result),
            self._runs.component: self._runs.html(),
            self._status: "",
            self._charts: gr.Row(visible=True),
            **dict(zip(self._captions, workload_report.chart_captions(result), strict=True)),
            **dict(zip(self._plots, _figures(result), strict=True)),
            **dict(zip(self._tables, workload_report.chart_tables(result), strict=True)),
        }


def _figures(result: Result) -> list[Any]:
    side = result.sides[0]
    records = side.timeline.requests
    return [
        workload_figures.gaps(side.gap_percentiles),
        workload_figures.first_tokens(records, result.limits),
        workload_figures.finished(records, result.limits, side.seconds),
    ]


def _build_charts() -> tuple[list[gr.HTML], list[gr.Plot], list[gr.HTML]]:
    captions, plots, tables = [], [], []
    for name in _CHARTS:
        with gr.Column(elem_classes=["ps-card", "ps-chart"], min_width=260):
            captions.append(gr.HTML(apply_default_css=False, elem_classes="ps-panel"))
            plots.append(
                gr.Plot(
                    show_label=False,
                    container=False,
                    elem_id=f"ps-workload-{name}-plot",
                    elem_classes="ps-result-plot",
                )
            )
            tables.append(gr.HTML(apply_default_css=False, elem_classes="ps-panel"))
    return captions, plots, tables


def _number(name: str, label: str, hint: str | None) -> gr.Number:
    return gr.Number(0, label=label, info=hint, min_width=110, elem_id=f"ps-workload-{name}")
