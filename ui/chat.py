"""The chat card: the conversation, the composer below it, and what to try.

It only places components and connects them: answers come from ui/answers.py, added users from
ui/visitors.py. What a visitor sees lives in the browser's own component values, never here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from html import escape
from typing import Any, Final, NamedTuple

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.service import EngineService
from ui.answers import Answers, Update, form_of
from ui.prompts import long_prompt
from ui.sampling_form import DEFAULTS, build_form
from ui.visitors import Visitors
from ui.words_chat import CHAT

LONG_PROMPT_TOKENS: Final = 2_000
ADDED_VISITORS: Final = 5
SCRIPT: Final = "live/assets/chat.js"

# Everything here streams or is quick: no click waits for another, and nothing fades while it runs.
_QUIET: Final[dict[str, Any]] = {
    "show_progress": "hidden",
    "concurrency_limit": None,
    "api_visibility": "private",
}


class _Composer(NamedTuple):
    message: gr.Textbox
    stop: gr.Button
    send: gr.Button


class _Tries(NamedTuple):
    long_prompt: gr.Button
    add_visitors: gr.Button
    stop_visitors: gr.Button
    clear: gr.Button


def build_chat(
    service: EngineService, *, epoch: str = "", visitors: Visitors | None = None
) -> Answers:
    """Add the chat card's components inside the current `gr.Blocks`.

    epoch: the live feed's epoch; visitors: shared with other tabs, else made here. Returns the
    answers in progress, for tests and for health.
    """
    answers = Answers(service, epoch=epoch)
    history = _build_history()
    composer = _build_composer()
    tries = _build_tries()
    with gr.Accordion(CHAT["settings"], open=False, elem_id="ps-chat-settings"):
        form = build_form()
    _connect_answers(answers, history, composer, form)
    _connect_history(answers, history, composer.message, tries.clear)
    _connect_tries(service, visitors or Visitors(service), composer.message, tries)
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


def _build_composer() -> _Composer:
    gr.HTML(
        html_template='<p class="ps-hint" role="status" hidden></p>'
        '<p class="ps-said" aria-live="polite"></p>',
        js_on_load=_script("watch"),
        apply_default_css=False,
        elem_id="ps-chat-status",
        elem_classes="ps-panel",
    )
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
            gr.HTML(
                html_template='<div class="ps-counts"><span data-role="tokens"></span>'
                f'<span data-role="limit" data-default="{DEFAULTS["max_tokens"]}"></span></div>',
                js_on_load=_script("count"),
                apply_default_css=False,
                elem_id="ps-counts",
                elem_classes="ps-panel",
            )
            stop = gr.Button(CHAT["stop"], size="sm", elem_id="ps-stop", min_width=0)
            send = gr.Button(
                CHAT["send"], size="sm", variant="primary", elem_id="ps-send", min_width=0
            )
    return _Composer(message, stop, send)


def _build_tries() -> _Tries:
    with gr.Row(elem_id="ps-tries"):
        gr.HTML(f"<span>{CHAT['try']}</span>", elem_id="ps-tries-label", apply_default_css=False)
        return _Tries(
            gr.Button(CHAT["long_prompt"], size="sm", elem_id="ps-long-prompt", min_width=0),
            gr.Button(CHAT["add_visitors"], size="sm", elem_id="ps-add-visitors", min_width=0),
            gr.Button(
                CHAT["stop_visitors"],
                size="sm",
                elem_id="ps-stop-visitors",
                min_width=0,
                visible=False,
            ),
            gr.Button(CHAT["clear"], size="sm", elem_id="ps-clear", min_width=0),
        )


def _script(function: str) -> str:
    words = json.dumps(CHAT)
    return (
        f'import(new URL("{SCRIPT}", document.baseURI))'
        f".then((chat) => chat.{function}(element, {words}));"
    )


def _connect_answers(
    answers: Answers,
    history: gr.Chatbot,
    composer: _Composer,
    form: dict[str, gr.components.Component],
) -> None:
    names, fields = tuple(form), list(form.values())

    async def send(
        message: str, past: list[Any], request: gr.Request, *values: Any
    ) -> AsyncIterator[Any]:
        session = request.session_hash or ""
        updates = answers.send(session, message, past, form_of(names, values))
        async with aclosing(updates):
            async for update in updates:
                yield _outputs(update)

    async def retry(
        past: list[Any], event: gr.RetryData, request: gr.Request, *values: Any
    ) -> AsyncIterator[Any]:
        session, index = request.session_hash or "", _index(event.index)
        updates = answers.retry(session, index, past, form_of(names, values))
        async with aclosing(updates):
            async for update in updates:
                yield _outputs(update)

    async def stop(request: gr.Request) -> None:
        answers.stop(request.session_hash or "")

    outputs = [history, composer.message]
    gr.on(
        [composer.send.click, composer.message.submit],
        send,
        [composer.message, history, *fields],
        outputs,
        trigger_mode="once",
        **_QUIET,
    )
    history.retry(retry, [history, *fields], outputs, trigger_mode="once", **_QUIET)
    composer.stop.click(stop, queue=False, **_QUIET)


def _connect_history(
    answers: Answers, history: gr.Chatbot, message: gr.Textbox, clear_button: gr.Button
) -> None:
    def edit(past: list[Any], event: gr.UndoData, request: gr.Request) -> Any:
        found = answers.take_back(request.session_hash or "", _index(event.index), past)
        return (gr.skip(), gr.skip()) if found is None else found

    async def clear(request: gr.Request) -> list[Any]:
        answers.abandon(request.session_hash or "")
        return []

    history.undo(edit, history, [history, message], **_QUIET)
    clear_button.click(clear, outputs=history, queue=False, **_QUIET)


def _outputs(update: Update) -> tuple[Any, Any]:
    return update.history, gr.skip() if update.composer is None else update.composer


def _index(index: int | tuple[int, int]) -> int:
    return index if isinstance(index, int) else index[0]


def _connect_tries(
    service: EngineService, visitors: Visitors, message: gr.Textbox, tries: _Tries
) -> None:
    def fill() -> Any:
        try:
            return _long_prompt(service)
        except PhaseScopeError as error:
            gr.Info(str(error))
            return gr.skip()

    async def add() -> AsyncIterator[Any]:
        try:
            added = visitors.add(ADDED_VISITORS)
        except PhaseScopeError as error:
            gr.Info(str(error))
            yield gr.skip()
            return
        yield gr.update(visible=True)
        while not all(task.done() for task in added):
            await asyncio.wait(added, timeout=1.0)
            yield gr.skip()
        yield gr.update(visible=visitors.num_running > 0)

    async def send_away() -> Any:
        visitors.stop()
        return gr.update(visible=False)

    tries.long_prompt.click(fill, outputs=message, **_QUIET)
    tries.add_visitors.click(add, outputs=tries.stop_visitors, trigger_mode="multiple", **_QUIET)
    tries.stop_visitors.click(send_away, outputs=tries.stop_visitors, queue=False, **_QUIET)


def _long_prompt(service: EngineService) -> str:
    tokenizer, config = service.tokenizer, service.config
    assert config is not None, "a service with a tokenizer has a configuration"
    # A quarter of the context is left for the template, the conversation and an answer.
    limit = min(config.max_model_len, config.pool_tokens) * 3 // 4
    return long_prompt(min(LONG_PROMPT_TOKENS, limit), lambda text: len(tokenizer.encode(text)))
