"""The settings panel: the engine's limits, for everybody, and how this browser shows the page.

It only places the fields and connects them. It keeps nothing between two clicks: the fields show
what the engine has when the panel is opened, and what a click does is in ui/settings_change.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import gradio as gr

from engine.service import EngineService
from ui.admin_key import WRONG_KEY_SECONDS, AdminKey
from ui.panels import display_settings, settings_head
from ui.sampling_defaults import SamplingDefaults
from ui.settings_change import CHOICES, NUMBERS, Answer, SettingsChange, shown_answer
from ui.settings_sampling import build_sampling_defaults
from ui.words_settings import SETTINGS


def build_settings(
    service: EngineService,
    key: AdminKey | None = None,
    defaults: SamplingDefaults | None = None,
) -> None:
    """Add the panel, closed, inside the current `gr.Blocks`; the header's button opens it.

    defaults: the ones that the chat starts with, where the page has one.
    """
    key = key or AdminKey()
    change = SettingsChange(service)
    with gr.Sidebar(position="right", open=False, width=340, elem_id="ps-settings") as sidebar:
        gr.HTML(settings_head(), apply_default_css=False, elem_classes="ps-panel")
        inputs, buttons = _build_engine_form(key), _build_buttons()
        if defaults is not None:
            build_sampling_defaults(defaults, service, sidebar, inputs.key, key)
        gr.HTML(
            html_template=display_settings(),
            js_on_load=_MOUNT,
            apply_default_css=False,
            elem_id="ps-display",
            elem_classes="ps-panel",
        )
    _connect(change, key, sidebar, inputs, buttons)


class _Inputs(NamedTuple):
    key: gr.Textbox
    values: list[gr.components.Component]


class _Buttons(NamedTuple):
    answer: gr.HTML
    apply: gr.Button
    confirm: gr.Button
    keep: gr.Button
    question: gr.Textbox


_MOUNT = (
    'import(new URL("live/assets/main.js", document.baseURI))'
    '.then((scripts) => scripts.mount("settings", element));'
)


def _build_engine_form(key: AdminKey) -> _Inputs:
    gr.HTML(
        f'<h3>{SETTINGS["engine"]}</h3><p class="ps-cap">{SETTINGS["for_everybody"]}</p>',
        apply_default_css=False,
        elem_classes="ps-panel",
    )
    # Built where it is not needed too, so that the handlers have the same inputs.
    key_field = gr.Textbox(
        label=SETTINGS["key"],
        info=SETTINGS["key_hint"],
        type="password",
        visible=key.required,
        elem_id="ps-admin-key",
    )
    values: list[gr.components.Component] = [
        gr.Number(
            label=number.label,
            info=number.hint,
            precision=None,
            step=1,
            elem_id=f"ps-setting-{number.name.replace('_', '-')}",
        )
        for number in NUMBERS
    ]
    values += [
        gr.Dropdown(
            list(choice.values),
            label=choice.label,
            info=choice.hint,
            filterable=False,
            elem_id=f"ps-setting-{choice.name.replace('_', '-')}",
        )
        for choice in CHOICES
    ]
    values.append(
        gr.Checkbox(
            label="Prefix caching",
            info="Reuse the KV blocks of equal prompt openings. Restarts the engine.",
            elem_id="ps-setting-prefix-caching",
        )
    )
    return _Inputs(key_field, values)


def _build_buttons() -> _Buttons:
    answer = gr.HTML(
        "",
        apply_default_css=False,
        elem_id="ps-settings-answer",
        elem_classes="ps-settings-answer",
    )
    with gr.Row(elem_id="ps-settings-buttons", elem_classes="ps-settings-buttons"):
        apply = gr.Button(SETTINGS["apply"], size="sm", elem_id="ps-settings-apply", min_width=0)
        confirm = gr.Button(
            SETTINGS["confirm"],
            size="sm",
            visible=False,
            elem_id="ps-settings-confirm",
            min_width=0,
        )
        keep = gr.Button(
            SETTINGS["keep"], size="sm", visible=False, elem_id="ps-settings-keep", min_width=0
        )
    return _Buttons(answer, apply, confirm, keep, gr.Textbox(visible=False))


def _connect(
    change: SettingsChange,
    key: AdminKey,
    sidebar: gr.Sidebar,
    inputs: _Inputs,
    buttons: _Buttons,
) -> None:
    answer_outputs = [buttons.answer, buttons.apply, buttons.confirm, buttons.keep]
    outputs = [*answer_outputs, buttons.question, *inputs.values]

    async def act(given: str, question: str, values: Sequence[Any]) -> list[Any]:
        if not key.opens(given):
            await asyncio.sleep(WRONG_KEY_SECONDS)
            answer = Answer(SETTINGS["wrong_key"], ok=False)
        else:
            answer = await asyncio.to_thread(change.apply, values, question or None)
        # The fields keep what was typed unless it holds now.
        shown = values if not answer.ok or answer.question else change.current()
        return [*_answered(answer), *shown]

    async def ask(given: str, *values: Any) -> list[Any]:
        return await act(given, "", values)

    async def agree(given: str, question: str, *values: Any) -> list[Any]:
        return await act(given, question, values)

    def reload() -> list[Any]:
        return [*_answered(Answer("")), *change.current()]

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    buttons.apply.click(ask, [inputs.key, *inputs.values], outputs, **quiet)
    agreed = [inputs.key, buttons.question, *inputs.values]
    buttons.confirm.click(agree, agreed, outputs, **quiet)
    buttons.keep.click(reload, None, outputs, queue=False, **quiet)
    sidebar.expand(reload, None, outputs, queue=False, **quiet)


def _answered(answer: Answer) -> list[Any]:
    asks = bool(answer.question)
    return [
        shown_answer(answer),
        gr.Button(visible=not asks),
        gr.Button(visible=asks),
        gr.Button(visible=asks),
        answer.question,
    ]
