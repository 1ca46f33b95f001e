"""The Compare tab: the same traffic under two configurations, side by side.

It places the components and connects them. What the form asks for is in ui/compare_form.py, what
runs it in ui/compare_desk.py, and what a result looks like in ui/compare_report.py; the timelines
are drawn by assets/scripts/compare*.js.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.lab.presets import PRESETS
from engine.lab.results import Result
from engine.lab.verdict import MAX_PAIRS, MIN_PAIRS
from engine.turns import MAX_TURN_SECONDS
from ui import compare_panels, compare_report
from ui.admin_key import AdminKey
from ui.compare_desk import Desk, Job, JobState
from ui.compare_form import CHOICES, SIDE_FIELDS, Wanted, make_experiment, side_values
from ui.compare_places import find_place, starting_config
from ui.compare_progress import follow, message, unlock
from ui.figures import gap_percentiles
from ui.page import Builder, panel
from ui.words_compare import COMPARE, SIDE_LABELS

FIRST_PRESET: Final = next(iter(PRESETS))
_QUIET: Final[dict[str, Any]] = {"show_progress": "hidden", "api_visibility": "private"}
# The list's buttons are HTML: their clicks reach Python as the list's own event.
_LIST_CLICKS = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-open], [data-delete]");
  if (!button) return;
  const { open, delete: gone } = button.dataset;
  trigger("select", { index: 0, value: open ?? gone, selected: open !== undefined });
});
"""
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


@dataclass(frozen=True, slots=True)
class _Form:
    key: gr.Textbox
    place: gr.Radio
    preset: gr.Dropdown
    look_at: gr.HTML
    numbers: list[gr.components.Component]
    a: list[gr.components.Component]
    b: list[gr.components.Component]

    @property
    def inputs(self) -> list[gr.components.Component]:
        """Every field, in the order that `_Tab.run` takes them in."""
        return [self.key, self.place, self.preset, *self.numbers, *self.a, *self.b]


class _Tab:
    """The components of the tab and what their events do."""

    def __init__(self, desk: Desk, key: AdminKey) -> None:
        self._desk = desk
        self._key = key
        self._build_bar()
        self._form = self._build_form()
        self._status = gr.HTML(apply_default_css=False, elem_id="ps-compare-status")
        self._report = gr.HTML(
            apply_default_css=False, elem_id="ps-compare-report", elem_classes="ps-panel"
        )
        panel("timelines", compare_panels.timelines())
        self._build_numbers()

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

    def _build_form(self) -> _Form:
        base = starting_config(self._desk.service)
        with gr.Column(elem_id="ps-compare-form", elem_classes=["ps-card", "ps-form"]):
            with gr.Row(elem_classes="ps-form-row"):
                preset = gr.Dropdown(
                    [(preset.title, name) for name, preset in PRESETS.items()],
                    value=FIRST_PRESET,
                    label=COMPARE["effect"],
                    scale=3,
                    elem_id="ps-compare-preset",
                )
                place = gr.Radio(
                    [(COMPARE["real"], "real"), (COMPARE["simulated"], "simulated")],
                    value="real",
                    label=COMPARE["where"],
                    info=COMPARE["real_hint"].format(seconds=MAX_TURN_SECONDS),
                    scale=4,
                    elem_id="ps-compare-place",
                )
            look_at = gr.HTML(
                _look_at(FIRST_PRESET), apply_default_css=False, elem_classes="ps-panel"
            )
            numbers = self._build_numbers_of_form()
            with gr.Row(elem_classes="ps-form-sides"):
                a, b = (_side_fields(side, side_values(FIRST_PRESET, side, base)) for side in "ab")
        return _Form(self._key_field, place, preset, look_at, numbers, a, b)

    def _build_numbers_of_form(self) -> list[gr.components.Component]:
        hints = {"repeats": COMPARE["repeats_hint"].format(least=MIN_PAIRS)}
        fields: list[gr.components.Component] = []
        with gr.Row(elem_classes="ps-form-row"):
            for name, value in (
                ("repeats", MIN_PAIRS),
                ("seed", 0),
                ("ttft_limit", 0),
                ("tpot_limit", 0),
            ):
                hint = hints.get(name) or COMPARE.get(f"{name}_hint") or COMPARE["limit_hint"]
                most = MAX_PAIRS if name == "repeats" else None
                fields.append(
                    gr.Number(
                        value,
                        label=COMPARE[name],
                        info=hint,
                        maximum=most,
                        min_width=150,
                        elem_id=f"ps-compare-{name.replace('_', '-')}",
                    )
                )
            self._key_field = gr.Textbox(
                label=COMPARE["key"],
                info=COMPARE["key_hint"],
                type="password",
                visible=self._key.required,
                elem_id="ps-compare-key",
            )
        return fields

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
                    show_label=False, container=False, elem_id="ps-compare-gaps-plot"
                )
        with gr.Column(elem_id="ps-compare-results", elem_classes="ps-card"):
            gr.HTML(
                f"<h2>{COMPARE['results']}</h2>", apply_default_css=False, elem_classes="ps-panel"
            )
            self._list = gr.HTML(
                js_on_load=_LIST_CLICKS,
                apply_default_css=False,
                elem_id="ps-compare-list",
                elem_classes="ps-panel",
            )

    # -- events -----------------------------------------------------------------------------------

    def connect(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect the events; inside the page's Blocks."""
        form, self._tabs = self._form, tabs
        shown = [
            *(self._line, self._exports, self._report, self._table, self._gaps, self._caption),
            *(self._plot, self._list, self._status, self._run, self._stop),
        ]
        self._run.click(self.run, form.inputs, shown, concurrency_limit=None, **_QUIET)
        self._stop.click(self.stop, None, self._status, queue=False, **_QUIET)
        self._change.click(None, js=_TOGGLE_FORM, api_visibility="private")
        filled = [form.look_at, *form.a, *form.b]
        form.preset.change(self.fill, form.preset, filled, queue=False, **_QUIET)
        self._list.select(self.choose, form.key, shown, queue=False, **_QUIET)
        page.load(self.open, form.preset, [tabs, *filled, *shown], queue=False, **_QUIET)

    async def run(
        self, request: gr.Request, key: str, place: str, preset: str, *values: Any
    ) -> AsyncIterator[dict[Any, Any]]:
        """Start the experiment, tell how far it is, and show its result.

        It ends with its asker's page: whoever leaves gives the engine back.
        """
        try:
            await unlock(self._key, key)
            job = await asyncio.to_thread(self._start, request, place, preset, values)
        except PhaseScopeError as error:
            yield {self._status: message(str(error), "err")}
            return
        try:
            yield {self._run: gr.Button(visible=False), self._stop: gr.Button(visible=True)}
            async for told in follow(job):
                yield {self._status: gr.skip() if told is None else told}
        finally:
            # Also where the page was closed before it was followed.
            job.stop()
        yield await asyncio.to_thread(self._ended, job.state)

    def stop(self, request: gr.Request) -> str:
        """End the visitor's own experiment."""
        self._desk.stop(str(request.session_hash))
        return message(COMPARE["stopping"], "busy")

    def fill(self, preset: str) -> list[Any]:
        """Fill both sides for a preset, upon the engine's settings of this moment."""
        base = starting_config(self._desk.service)
        both = [*side_values(preset, "a", base), *side_values(preset, "b", base)]
        return [_look_at(preset), *both]

    async def choose(self, event: gr.EventData, key: str) -> dict[Any, Any]:
        """Open or delete the result whose button was clicked in the list."""
        name, opens = str(event.value), bool(event.selected)
        try:
            if opens:
                return await asyncio.to_thread(self._show, name)
            await unlock(self._key, key)
            await asyncio.to_thread(self._desk.store.delete, name)
        except PhaseScopeError as error:
            return {self._status: message(str(error), "err"), self._list: self._listed()}
        return {self._list: self._listed(), self._status: ""}

    def open(self, request: gr.Request, preset: str) -> dict[Any, Any]:
        """Fill a new page, and show the result that its address names."""
        filled = dict(
            zip([self._form.look_at, *self._form.a, *self._form.b], self.fill(preset), strict=True)
        )
        name = request.query_params.get("result")
        if not name:
            return {**filled, self._list: self._listed()}
        try:
            if len(self._desk.store.load(name).sides) < 2:
                return {**filled, self._list: self._listed()}  # the Workload tab's
            shown = self._show(name)
        except PhaseScopeError as error:
            shown = {self._list: self._listed(), self._status: message(str(error), "err")}
        return {**filled, **shown, self._tabs: gr.Tabs(selected="compare")}

    # -- what they are made of --------------------------------------------------------------------

    def _start(self, request: gr.Request, place: str, preset: str, values: tuple[Any, ...]) -> Job:
        pairs, seed, ttft, tpot, *sides = values
        where = find_place(self._desk.service, simulated=place == "simulated")
        wanted = Wanted(preset=preset, num_pairs=pairs, seed=seed, ttft_limit=ttft, tpot_limit=tpot)
        half = len(SIDE_FIELDS)
        experiment = make_experiment(where, wanted, sides[:half], sides[half:])
        return self._desk.start(str(request.session_hash), experiment, where)

    def _ended(self, state: JobState) -> dict[Any, Any]:
        stop = {self._stop: gr.Button(visible=False)}
        if state.result_id is None:
            run = {self._run: gr.Button(visible=True)}
            return {**run, **stop, self._status: message(state.error or "", "err")}
        run = {self._run: gr.Button(COMPARE["again"], visible=True)}
        return {**self._show(state.result_id), **run, **stop}

    def _show(self, name: str) -> dict[Any, Any]:
        """Everything that a result changes on the page; raises PhaseScopeError."""
        result = self._desk.store.load(name)
        shown = {
            self._line: compare_report.workload_line(result),
            self._exports: compare_report.exports(result),
            self._report: compare_report.report(result),
            self._table: compare_report.difference_table(result),
            self._list: self._listed(),
            self._status: "",
            self._run: gr.Button(COMPARE["again"]),
        }
        return shown | self._gap_chart(result)

    def _gap_chart(self, result: Result) -> dict[Any, Any]:
        if len(result.sides) < 2:
            return {self._gaps: gr.Column(visible=False)}
        a, b = result.sides
        caption = compare_report.gap_caption(a, b)
        return {
            self._gaps: gr.Column(visible=True),
            self._caption: f'<h2>{COMPARE["gaps"]}</h2><p class="ps-cap">{escape(caption)}</p>',
            self._plot: gap_percentiles(a.gap_percentiles, b.gap_percentiles),
        }

    def _listed(self) -> str:
        kept = self._desk.store.list()
        return compare_report.results_list([entry for entry in kept if entry.verdict])


def _side_fields(side: str, values: list[Any]) -> list[gr.components.Component]:
    fields: list[gr.components.Component] = []
    with gr.Column(elem_classes="ps-form-side", min_width=240):
        name = side.upper()
        gr.HTML(
            f'<h3><i class="ps-badge" data-badge="{name}">{name}</i></h3>', apply_default_css=False
        )
        for setting, value in zip(SIDE_FIELDS, values, strict=True):
            label, hint = SIDE_LABELS[setting]
            here: dict[str, Any] = {
                "label": label,
                "info": hint,
                "elem_id": f"ps-{side}-{setting.replace('_', '-')}",
            }
            if setting in CHOICES:
                fields.append(gr.Dropdown(list(CHOICES[setting]), value=value, **here))
            elif setting == "prefix_caching":
                fields.append(gr.Checkbox(value, **here))
            else:
                fields.append(gr.Number(value, step=1, **here))
    return fields


def _look_at(preset: str) -> str:
    text = COMPARE["look_at"].format(text=escape(PRESETS[preset].look_at))
    return f'<p class="ps-look-at">{text}</p>'
