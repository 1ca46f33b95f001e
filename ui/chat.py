"""The chat card: the conversation, the composer below it, and what to try.

It only places components and connects them: answers come from ui/answers.py, what there is to try
from ui/tries.py. What a visitor sees lives in the browser's own component values, never here.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from html import escape
from typing import Any, Final, NamedTuple

import gradio as gr

from engine.service import EngineService
from ui.answers import Answers, Update, form_of
from ui.events import QUIET
from ui.sampling_defaults import SamplingDefaults
from ui.sampling_form import build_form
from ui.tries import build_tries, connect_tries
from ui.visitors import Visitors
from ui.words_chat import CHAT

SCRIPT: Final = "live/assets/chat.js"


class _Composer(NamedTuple):
    message: gr.Textbox
    counts: gr.HTML
    stop: gr.Button
    send: gr.Button


def build_chat(
    service: EngineService,
    *,
    epoch: str = "",
    visitors: Visitors | None = None,
    defaults: SamplingDefaults | None = None,
) -> Answers:
    """Add the chat card's components inside the current `gr.Blocks`.

    epoch: the live feed's epoch; visitors: shared with other tabs, else made here; defaults: what
    the sampling form starts with, where the page can change it. Returns the answers in progress,
    for tests and for health.
    """
    answers = Answers(service, epoch=epoch)
    defaults = defaults or SamplingDefaults()
    history = _build_history()
    _build_status()
    colour = gr.Checkbox(label=CHAT["colour"], container=False, elem_id="ps-colour", min_width=0)
    composer = _build_composer(defaults)
    tries = build_tries()
    with gr.Accordion(CHAT["settings"], open=False, elem_id="ps-chat-settings"):
        form = build_form()
    _connect_answers(answers, history, composer, {**form, "colour": colour}, defaults)
    _connect_defaults(defaults, composer.counts, form)
    _connect_history(answers, history, composer.message, tries.clear)
    _connect_colour(answers, history, colour)
    connect_tries(service, visitors or Visitors(service), composer.message, tries)
    return answers


def _build_history() -> gr.Chatbot:
    return gr.Chatbot(
        elem_id="ps-log",
        label=CHAT["conversation"],
        show_label=False,
        container=False,
        layout="bubble",
        height=None,
        buttons=[],
        feedback_options=None,
        # Messages arrive as inert HTML (ui/markup.py); Markdown would read them a second time.
        render_markdown=False,
        sanitize_html=True,
        allow_tags=False,
        latex_delimiters=[],
        placeholder=f"<p class='ps-chat-empty'>{escape(CHAT['empty'])}</p>",
    )


def _build_status() -> None:
    gr.HTML(
        html_template='<p class="ps-hint" role="status" hidden></p>'
        '<p class="ps-said" aria-live="polite"></p>'
        '<p class="ps-wait-tip" role="status" hidden></p>',
        js_on_load=_script("watch"),
        apply_default_css=False,
        elem_id="ps-chat-status",
        elem_classes="ps-panel",
    )


def _build_composer(defaults: SamplingDefaults) -> _Composer:
    with gr.Column(elem_id="ps-composer"):
        message = gr.Textbox(
            label=CHAT["message"],
            show_label=False,
            container=False,
            placeholder=CHAT["ask"],
            lines=1,  # with more, Enter would not send; the style sheet gives it its height
            max_lines=6,
            elem_id="ps-message",
        )
        with gr.Row(elem_id="ps-composer-row"):
            counts = gr.HTML(
                html_template='<div class="ps-counts"><span data-role="tokens"></span>'
                '<span data-role="limit"></span></div>',
                js_on_load=_script("count", "props"),
                apply_default_css=False,
                elem_id="ps-counts",
                elem_classes="ps-panel",
                max_tokens=defaults.values["max_tokens"],
            )
            stop = gr.Button(CHAT["stop"], size="sm", elem_id="ps-stop", min_width=0)
            send = gr.Button(
                CHAT["send"], size="sm", variant="primary", elem_id="ps-send", min_width=0
            )
    return _Composer(message, counts, stop, send)


def _script(function: str, *arguments: str) -> str:
    given = ", ".join(("element", json.dumps(CHAT), *arguments))
    return (
        f'import(new URL("{SCRIPT}", document.baseURI)).then((chat) => chat.{function}({given}));'
    )


def _connect_answers(
    answers: Answers,
    history: gr.Chatbot,
    composer: _Composer,
    form: dict[str, gr.components.Component],
    defaults: SamplingDefaults,
) -> None:
    names, fields = tuple(form), list(form.values())

    async def send(
        message: str, past: list[Any], request: gr.Request, *values: Any
    ) -> AsyncIterator[Any]:
        session = request.session_hash or ""
        updates = answers.send(session, message, past, defaults.fill(form_of(names, values)))
        async with aclosing(updates):
            async for update in updates:
                yield _outputs(update)

    async def retry(
        draft: str, past: list[Any], event: gr.RetryData, request: gr.Request, *values: Any
    ) -> AsyncIterator[Any]:
        session, index = request.session_hash or "", _index(event.index)
        chosen = defaults.fill(form_of(names, values))
        updates = answers.retry(session, index, past, chosen, draft)
        async with aclosing(updates):
            async for update in updates:
                yield _outputs(update)

    async def stop(request: gr.Request) -> None:
        answers.stop(request.session_hash or "")

    inputs = [composer.message, history, *fields]
    outputs = [history, composer.message]
    triggers = [composer.send.click, composer.message.submit]
    gr.on(triggers, send, inputs, outputs, trigger_mode="once", **QUIET)
    history.retry(retry, inputs, outputs, trigger_mode="once", **QUIET)
    composer.stop.click(stop, queue=False, **QUIET)


def _connect_defaults(
    defaults: SamplingDefaults, counts: gr.HTML, form: dict[str, gr.components.Component]
) -> None:
    """Whoever opens the page finds the defaults that hold then."""

    def current() -> list[Any]:
        values = defaults.values
        return [gr.update(max_tokens=values["max_tokens"]), *values.values()]

    outputs = [counts, *(form[name] for name in defaults.values)]
    gr.on(None, current, None, outputs, queue=False, **QUIET)


def _connect_history(
    answers: Answers, history: gr.Chatbot, message: gr.Textbox, clear_button: gr.Button
) -> None:
    def edit(past: list[Any], event: gr.UndoData, request: gr.Request) -> Any:
        found = answers.take_back(request.session_hash or "", _index(event.index), past)
        return (gr.skip(), gr.skip()) if found is None else _outputs(Update(*found))

    async def clear(request: gr.Request) -> list[Any]:
        answers.abandon(request.session_hash or "")
        return []

    history.undo(edit, history, [history, message], **QUIET)
    clear_button.click(clear, outputs=history, queue=False, **QUIET)


def _connect_colour(answers: Answers, history: gr.Chatbot, switch: gr.Checkbox) -> None:
    async def colour(on: bool, past: list[Any], request: gr.Request) -> Any:
        found = answers.colour(request.session_hash or "", past, on)
        return gr.skip() if found is None else found

    switch.change(colour, [switch, history], history, **QUIET)


def _outputs(update: Update) -> tuple[Any, Any]:
    return update.history, gr.skip() if update.composer is None else update.composer


def _index(index: int | tuple[int, int]) -> int:
    return index if isinstance(index, int) else index[0]
