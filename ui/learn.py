"""The Learn tab: five lessons, each a walk from a guess over a run on the engine to the reason.

It places the components and connects them. What the lessons run and measure is in
ui/learn_lessons.py; runs go through the desk of the Compare tab, one visitor's after another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final

import gradio as gr
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from engine.core.errors import PhaseScopeError
from engine.lab.results import Result
from ui import learn_report
from ui.admin_key import AdminKey
from ui.compare_desk import Desk, Job
from ui.compare_places import find_place
from ui.compare_progress import Controls, message
from ui.events import QUIET
from ui.learn_lessons import LESSONS, Lesson, lesson_of
from ui.learn_runs import LessonRun, LessonRuns
from ui.page import Builder, panel
from ui.words_compare import COMPARE
from ui.words_learn import LEARN

FIRST: Final = next(iter(LESSONS))
PREDICT, RUN, SEE, EXPLAIN = range(4)
_ROOT: Final = Path(__file__).resolve().parent.parent


def build_learn(desk: Desk, key: AdminKey | None = None) -> Builder:
    """What adds the tab to the page; a key locks running lessons, as it does experiments."""

    def build(page: gr.Blocks, tabs: gr.Tabs) -> None:
        with (
            gr.Tab(LEARN["tab"], id="learn", elem_id="ps-tab-learn"),
            gr.Column(elem_id="ps-learn", elem_classes="ps-scope"),
        ):
            tab = _Tab(desk, key or AdminKey())
        tab.connect(page, tabs)

    return build


def learn_routes() -> list[Route]:
    """The source files that the lessons point to, as plain text, and no others."""
    sources = {lesson.source for lesson in LESSONS.values()}

    async def code(request: Request) -> Response:
        name = str(request.path_params["name"])
        if name not in sources:
            return PlainTextResponse("No lesson points to this file.", 404)
        return PlainTextResponse(await asyncio.to_thread((_ROOT / name).read_text, "utf-8"))

    return [Route(f"/{learn_report.CODE_ROUTE}{{name:path}}", code)]


class _Tab:
    """The components of the tab and what their events do."""

    def __init__(self, desk: Desk, key: AdminKey) -> None:
        self._desk = desk
        self._key = key
        self._runs = LessonRuns()
        gr.HTML(
            f'<p class="ps-cap">{LEARN["intro"]}</p>',
            apply_default_css=False,
            elem_classes="ps-panel",
        )
        self._lesson = gr.Radio(
            [(lesson.words.title, name) for name, lesson in LESSONS.items()],
            value=FIRST,
            label=LEARN["lessons"],
            elem_id="ps-lessons",
        )
        with gr.Walkthrough(selected=PREDICT, elem_id="ps-walk") as self._walk:
            self._build_predict()
            self._build_run()
            self._build_see()
            self._build_explain()
        self._controls = Controls(desk, self._key, self._run, self._stop, self._status)

    # -- components -------------------------------------------------------------------------------

    def _build_predict(self) -> None:
        lesson = LESSONS[FIRST]
        with gr.Step(LEARN["predict"], id=PREDICT), gr.Column(elem_classes=_CARD):
            self._question = _text(learn_report.question(lesson))
            self._guess = gr.Radio(
                _choices(lesson), label=LEARN["guess"], value=None, elem_id="ps-lesson-guess"
            )
            self._secret = gr.Textbox(
                label=COMPARE["key"],
                info=COMPARE["key_hint"],
                type="password",
                visible=self._key.required,
                elem_id="ps-lesson-key",
            )
            self._asked = gr.HTML(apply_default_css=False, elem_id="ps-lesson-asked")
            with gr.Row(elem_classes="ps-form-buttons"):
                self._run = gr.Button(LEARN["run"], variant="primary", elem_id="ps-lesson-run")

    def _build_run(self) -> None:
        with gr.Step(LEARN["run_step"], id=RUN), gr.Column(elem_classes=_CARD):
            self._setting = _text(learn_report.setting(LESSONS[FIRST]))
            self._status = gr.HTML(apply_default_css=False, elem_id="ps-lesson-status")
            with gr.Row(elem_classes="ps-form-buttons"):
                self._stop = gr.Button(LEARN["stop"], elem_id="ps-lesson-stop", visible=False)

    def _build_see(self) -> None:
        with gr.Step(LEARN["see"], id=SEE), gr.Column(elem_classes=_CARD):
            self._seen = _text(learn_report.setting(LESSONS[FIRST]))
            panel("lesson", learn_report.picture())
            self._finding = _text(_waiting(), "ps-lesson-finding")
            with gr.Row(elem_classes="ps-form-buttons"):
                self._why = gr.Button(LEARN["why"], variant="primary", elem_id="ps-lesson-why")

    def _build_explain(self) -> None:
        with gr.Step(LEARN["explain"], id=EXPLAIN), gr.Column(elem_classes=_CARD):
            self._verdict = _text(_waiting(), "ps-lesson-verdict")
            with gr.Row(elem_classes="ps-form-buttons"):
                self._next = gr.Button(LEARN["next"], elem_id="ps-lesson-next")

    # -- events -----------------------------------------------------------------------------------

    def connect(self, page: gr.Blocks, tabs: gr.Tabs) -> None:
        """Connect the events; inside the page's Blocks."""
        self._tabs = tabs
        asked = [self._lesson, self._guess, self._secret]
        opened = [self._question, self._guess, self._setting, self._seen]
        seen = [self._walk, self._asked, self._status, self._finding, self._verdict]
        begun = [*opened, *seen]
        shown = [self._lesson, *begun, self._run, self._stop]
        self._run.click(self.run, asked, shown, **QUIET)
        self._stop.click(self.stop, None, self._status, queue=False, **QUIET)
        self._lesson.input(self.begin, self._lesson, begun, queue=False, **QUIET)
        self._why.click(lambda: gr.Walkthrough(selected=EXPLAIN), None, self._walk, **QUIET)
        self._next.click(
            self.begin_next, self._lesson, [self._lesson, *begun], queue=False, **QUIET
        )
        page.load(self.open, None, [tabs, self._lesson, *begun], queue=False, **QUIET)

    def open(self, request: gr.Request) -> dict[Any, Any]:
        """Show the run of a lesson that the page's address names; other results have other tabs."""
        name, store = str(request.query_params.get("result") or ""), self._desk.store
        nothing = {self._status: gr.skip()}
        if not name or name in {entry.id for entry in store.list()}:
            return nothing
        try:
            result = store.load(name)
        except PhaseScopeError:
            return nothing  # the Compare tab says so
        here = gr.Tabs(selected="learn")
        try:
            lesson = lesson_of(result)
            shown = {**self._opened(lesson), **self._measured(lesson, None, result)}
        except PhaseScopeError as error:
            return {self._tabs: here, self._asked: message(str(error), "err")}
        return {self._tabs: here, self._lesson: lesson.name, **shown}

    def begin(self, request: gr.Request, name: str) -> dict[Any, Any]:
        """Open a lesson at its question; one that runs is left behind."""
        self._runs.abandon(str(request.session_hash))
        return {
            **self._opened(LESSONS[name]),
            self._walk: gr.Walkthrough(selected=PREDICT),
            self._asked: "",
            self._status: "",
            self._finding: _waiting(),
            self._verdict: _waiting(),
        }

    def begin_next(self, request: gr.Request, name: str) -> dict[Any, Any]:
        """Open the lesson after this one; behind the last comes the first."""
        names = list(LESSONS)
        following = names[(names.index(name) + 1) % len(names)]
        return {self._lesson: following, **self.begin(request, following)}

    def stop(self, request: gr.Request) -> str:
        """End the visitor's lesson."""
        self._runs.stop(str(request.session_hash))
        return message(COMPARE["stopping"], "busy")

    async def run(
        self, request: gr.Request, name: str, guess: int | None, key: str
    ) -> AsyncIterator[dict[Any, Any]]:
        """Run the lesson, tell how far it is, and open what was seen."""
        if guess is None:
            yield {self._asked: message(LEARN["guess_first"], "busy")}
            return
        visitor = str(request.session_hash)
        try:
            with self._runs.running(visitor) as run:
                yield {
                    self._walk: gr.Walkthrough(selected=RUN),
                    self._asked: "",
                    self._status: message(LEARN["running"], "busy"),
                }
                begin = partial(self._start, visitor, LESSONS[name])
                shown = partial(self._show, LESSONS[name], guess)
                steps = self._controls.serve(key, partial(run.start, begin), shown)
                async with aclosing(steps):
                    async for updates in steps:
                        yield self._told(run, updates)
        except PhaseScopeError as error:
            yield {self._asked: message(str(error), "busy")}

    # -- what they are made of --------------------------------------------------------------------

    def _opened(self, lesson: Lesson) -> dict[Any, Any]:
        """The words of a lesson in all its steps."""
        return {
            self._question: learn_report.question(lesson),
            self._guess: gr.Radio(_choices(lesson), value=None),
            self._setting: learn_report.setting(lesson),
            self._seen: learn_report.setting(lesson),
        }

    def _start(self, visitor: str, lesson: Lesson) -> Job:
        place = find_place(self._desk.service, simulated=False)
        return self._desk.start(visitor, lesson.experiment(place), place, lesson=True)

    def _told(self, run: LessonRun, updates: dict[Any, Any]) -> dict[Any, Any]:
        """What a run may change: its buttons alone, once its visitor has opened another lesson."""
        if not run.abandoned:
            return updates
        buttons: dict[Any, Any] = {
            part: updates[part] for part in (self._run, self._stop) if part in updates
        }
        # A yield is what tells a closed page, also where there is nothing to say.
        return buttons or {self._status: gr.skip()}

    def _show(self, lesson: Lesson, guess: int, name: str) -> dict[Any, Any]:
        """What a run that has ended changes on the page; raises PhaseScopeError."""
        shown = self._measured(lesson, guess, self._desk.store.load(name))
        return {self._guess: guess, **shown}  # the guess as it was when the run began

    def _measured(self, lesson: Lesson, guess: int | None, result: Result) -> dict[Any, Any]:
        """What was seen in a result; raises LessonUnmeasured."""
        found = lesson.measure(result)
        return {
            self._walk: gr.Walkthrough(selected=SEE),
            self._status: "",
            self._finding: learn_report.finding(lesson, found, result, self._scale()),
            self._verdict: learn_report.verdict(lesson, found, guess),
        }

    def _scale(self) -> dict[str, int]:
        """What the cache's band needs to know of the engine."""
        config, info = self._desk.service.config, self._desk.service.info
        if config is None or info is None:
            return {}
        return {
            "blocks": config.num_blocks,
            "block_size": config.block_size,
            "kv_bytes": info.kv_bytes_per_token,
        }


_CARD: Final = ["ps-card", "ps-form", "ps-lesson-card"]


def _text(value: str, elem_id: str | None = None) -> gr.HTML:
    return gr.HTML(value, apply_default_css=False, elem_id=elem_id, elem_classes="ps-panel")


def _choices(lesson: Lesson) -> list[tuple[str, int]]:
    return [(guess, index) for index, guess in enumerate(lesson.words.guesses)]


def _waiting() -> str:
    return f'<p class="ps-cap">{LEARN["waiting"]}</p>'
