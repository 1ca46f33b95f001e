"""What there is to try below the composer: a long prompt for it, and users who come by themselves.

It places the components and connects them; ui/visitors.py has the users, ui/prompts.py their texts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.service import EngineService
from ui.events import QUIET
from ui.prompts import long_prompt
from ui.visitors import MAX_VISITORS, Kind, TooManyVisitors, Visitors
from ui.words_chat import CHAT, KINDS

LONG_PROMPT_TOKENS: Final = 2_000
ADDED_VISITORS: Final = 5


class Tries(NamedTuple):
    """The components of the two rows."""

    long_prompt: gr.Button
    clear: gr.Button
    kind: gr.Dropdown
    number: gr.Number
    add: gr.Button
    stop: gr.Button


def build_tries() -> Tries:
    """Add the two rows here."""
    with gr.Row(elem_id="ps-tries"):
        gr.HTML(f"<span>{CHAT['try']}</span>", elem_id="ps-tries-label", apply_default_css=False)
        prompt = gr.Button(CHAT["long_prompt"], size="sm", elem_id="ps-long-prompt", min_width=0)
        clear = gr.Button(CHAT["clear"], size="sm", elem_id="ps-clear", min_width=0)
    with gr.Row(elem_id="ps-visitors"):
        kind = gr.Dropdown(
            [(KINDS[kind], kind.value) for kind in Kind],
            value=Kind.SHORT_CHAT.value,
            label=CHAT["visitors_kind"],
            show_label=False,
            container=False,
            filterable=False,
            min_width=0,
            elem_id="ps-visitors-kind",
        )
        count = gr.Number(
            ADDED_VISITORS,
            label=CHAT["visitors_count"],
            show_label=False,
            container=False,
            step=1,
            min_width=0,
            elem_id="ps-visitors-count",
        )
        add = gr.Button(
            _add_label(ADDED_VISITORS), size="sm", elem_id="ps-add-visitors", min_width=0
        )
        stop = gr.Button(
            CHAT["stop_visitors"],
            size="sm",
            elem_id="ps-stop-visitors",
            min_width=0,
            visible=False,
        )
    return Tries(prompt, clear, kind, count, add, stop)


def _add_label(count: int) -> str:
    return CHAT["add_visitor" if count == 1 else "add_visitors"].format(n=count)


def connect_tries(
    service: EngineService, visitors: Visitors, message: gr.Textbox, tries: Tries
) -> None:
    """Connect the rows with the composer's text and with the visitors."""

    def fill() -> Any:
        try:
            return _long_prompt(service)
        except PhaseScopeError as error:
            gr.Info(str(error))
            return gr.skip()

    async def add(kind: str, count: float | None) -> AsyncIterator[Any]:
        try:
            added = visitors.add(_whole(count), Kind(kind))
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

    def name(count: float | None) -> Any:
        try:
            return _add_label(_whole(count))
        except TooManyVisitors:
            return gr.skip()

    tries.long_prompt.click(fill, outputs=message, **QUIET)
    tries.number.change(name, tries.number, tries.add, queue=False, **QUIET)
    tries.add.click(add, [tries.kind, tries.number], tries.stop, trigger_mode="multiple", **QUIET)
    tries.stop.click(send_away, outputs=tries.stop, queue=False, **QUIET)


def _whole(count: float | None) -> int:
    """A count as the number field sends it; raises TooManyVisitors for what cannot be added."""
    if count is None or int(count) != count or not 1 <= count <= MAX_VISITORS:
        raise TooManyVisitors(f"Add a whole number of users, from 1 to {MAX_VISITORS}.")
    return int(count)


def _long_prompt(service: EngineService) -> str:
    tokenizer, config = service.tokenizer, service.config
    assert config is not None, "a service with a tokenizer has a configuration"
    # A quarter of the context is left for the template, the conversation and an answer.
    limit = min(config.max_model_len, config.pool_tokens) * 3 // 4
    return long_prompt(min(LONG_PROMPT_TOKENS, limit), lambda text: len(tokenizer.encode(text)))
