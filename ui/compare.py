"""The Compare tab: the same traffic under two configurations, side by side.

It places the components and connects them. What the form asks for is in ui/compare_form.py, what
runs it in ui/compare_desk.py, and what a result looks like in ui/compare_report.py; the timelines
are drawn by assets/scripts/compare*.js.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.lab.results import Result
from ui import compare_panels, compare_report
from ui.admin_key import AdminKey
from ui.compare_desk import Desk, Job
from ui.compare_fields import CompareFields
from ui.compare_form import make_experiment
from ui.compare_list import ResultsList, Updates
from ui.compare_places import find_place
from ui.compare_progress import Controls, message
from ui.events import QUIET
from ui.figures import gap_percentiles
from ui.page import Builder, panel
from ui.words_compare import COMPARE

# The form folds away while a result is looked at; nothing of it has to reach the server.
_TOGGLE_FORM = "() => { document.getElementById('ps-compare').classList.toggle('ps-form-open'); }"


def build_compare(desk: Desk, key: AdminKey | None = None) -> Builder:
    """What adds the tab to the page; a key locks starting and deleting experiments."""

    def build(page: gr.Blocks, tabs: gr.Tabs) -> None:
        with (
            gr.Tab(COMPARE["tab"], id="compare", elem_id="ps-tab-compare"),
            gr.Column(elem_id="ps-compare", elem_classes=["ps-scope", "ps-form-open"]),
        ):
            tab = _Tab(desk, key or AdminKey())
        tab.connect(page, tabs)

    return build


class _Tab:
    """The components of the tab and what their events do."""

    def __init__(self, desk: Desk, key: AdminKey) -> None:
        self._desk = desk
        self._build_bar()
        self._form = CompareFields(desk.service, key)
        self._status = gr.HTML(apply_default_css=False, elem_id="ps-compare-status")
        self._controls = Controls(desk, key, self._run, self._stop, self._status)
        self._report = gr.HTML(
            apply_default_css=False, elem_id="ps-compare-report", elem_classes="ps-panel"
        )
        panel("timelines", compare_panels.timelines())
        self._build_numbers()
        self._results = ResultsList(
            desk.store, key, name="ps-compare", title=COMPARE["results"], num_sides=2
        )

    # -- components -------------------------------------------------------------------------------

    def _build_bar(self) -> None:
        with gr.Row(elem_id="ps-compare-bar", elem_classes="ps-card"):
            self._line = gr.HTML(
                f'<p class="ps-workload-line">{COMPARE["empty"]}</p>',
                apply_default_css=False,
                elem_id="ps-compare-line",
                elem_classes="ps-panel",
            )
            self._change = gr.Button(COMPARE["change"], min_width=0, elem_id="ps-compare-change")
            self._exports = gr.HTML(
                apply_default_css=False, elem_id="ps-compare-export", elem_classes="ps-panel"
            )
            self._run = gr.Button(
                COMPARE["run"], variant="primary", min_width=0, elem_id="ps-compare-run"
            )
            self._stop = gr.Button(
                COMPARE["stop"], visible=False, min_width=0, elem_id="ps-compare-stop"
            )

    def _build_numbers(self) -> None:
        with gr.Row(elem_id="ps-compare-numbers"):
            self._table = gr.HTML(
                apply_default_css=False, elem_id="ps-compare-table", elem_classes="ps-panel"
            )
            with gr.Column(
                elem_id="ps-compare-gaps", elem_classes="ps-card", visible=False
            ) as self._gaps:
                self._caption = gr.HTML(apply_default_css=False, elem_classes="ps-panel")
                self._plot = gr.Plot(
                    show_label=False,
                    container=False,
                    elem_id="ps-compare-gaps-plot",
                    elem_classes="ps-result-plot",
                )
                self._gaps_table = gr.HTML(apply_default_css=False, elem_classes="ps-panel")

    # -- events -----------------------------------------------------------------------------------

    def connect(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect the events; inside the page's Blocks."""
        self._tabs, listed = tabs, self._results.component
        shown = [
            *(self._line, self._exports, self._report, self._table, self._gaps, self._caption),
            *(self._plot, self._gaps_table, listed, self._status, self._run, self._stop),
        ]
        inputs = [self._form.key, *self._form.inputs]
        self._controls.connect(inputs, shown, self._start, self._shown_anew)
        self._change.click(None, js=_TOGGLE_FORM, api_visibility="private")
        self._form.connect()
        listed.select(self.choose, self._form.key, shown, queue=False, **QUIET)
        filled = self._form.filled
        page.load(self.open, self._form.preset, [tabs, *filled, *shown], queue=False, **QUIET)

    async def choose(self, event: gr.EventData, key: str) -> Updates:
        """Open or delete the result whose button was clicked in the list."""
        return await self._results.choose(event, key, self._show, self._status)

    def open(self, request: gr.Request, preset: str) -> Updates:
        """Fill a new page, and show the result that its address names."""
        filled = dict(zip(self._form.filled, self._form.fill(preset), strict=True))
        listed = {self._results.component: self._results.html()}
        try:
            name = self._results.named(request)
            if name is None:
                return {**filled, **listed}
            shown = self._show(name)
        except PhaseScopeError as error:
            shown = {**listed, self._status: message(str(error), "err")}
        return {**filled, **shown, self._tabs: gr.Tabs(selected="compare")}

    # -- what they are made of --------------------------------------------------------------------

    def _start(self, visitor: str, values: Sequence[Any]) -> Job:
        simulated, wanted, a, b = self._form.read(values)
        where = find_place(self._desk.service, simulated=simulated)
        experiment = make_experiment(where, wanted, a, b)
        return self._desk.start(visitor, experiment, where)

    def _shown_anew(self, name: str) -> Updates:
        return {**self._show(name), self._run: gr.Button(COMPARE["again"], visible=True)}

    def _show(self, name: str) -> Updates:
        """Everything that a result changes on the page; raises PhaseScopeError."""
        result = self._desk.store.load(name)
        shown = {
            self._line: compare_report.workload_line(result),
            self._exports: compare_report.exports(result),
            self._report: compare_report.report(result),
            self._table: compare_report.difference_table(result),
            self._results.component: self._results.html(),
            self._status: "",
            self._run: gr.Button(COMPARE["again"]),
        }
        return shown | self._gap_chart(result)

    def _gap_chart(self, result: Result) -> Updates:
        if len(result.sides) < 2:
            return {self._gaps: gr.Column(visible=False)}
        a, b = result.sides
        caption = compare_report.gap_caption(a, b)
        return {
            self._gaps: gr.Column(visible=True),
            self._caption: f'<h2>{COMPARE["gaps"]}</h2><p class="ps-cap">{escape(caption)}</p>',
            self._plot: gap_percentiles(a.gap_percentiles, b.gap_percentiles),
            self._gaps_table: compare_report.gap_table([a, b]),
        }
