"""The settings panel's second part: the sampling that a new chat starts with.

It only places the fields and connects them; what holds is in ui/sampling_defaults.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.service import EngineService
from ui.admin_key import WRONG_KEY_SECONDS, AdminKey
from ui.sampling_defaults import SamplingDefaults
from ui.sampling_form import NUMBERS
from ui.settings_change import Answer, shown_answer
from ui.words_settings import SETTINGS


def build_sampling_defaults(
    defaults: SamplingDefaults,
    service: EngineService,
    sidebar: gr.Sidebar,
    key_field: gr.Textbox,
    key: AdminKey,
) -> None:
    """Add the part here; its fields show what holds whenever `sidebar` is opened."""
    gr.HTML(
        f'<h3>{SETTINGS["sampling"]}</h3><p class="ps-cap">{SETTINGS["sampling_hint"]}</p>',
        apply_default_css=False,
        elem_id="ps-sampling-head",
        elem_classes="ps-panel",
    )
    with gr.Row(elem_classes="ps-fields"):
        fields = [
            gr.Number(
                label=number.label,
                info=number.info,
                step=number.step,
                min_width=90,
                elem_id=f"ps-default-{number.name.replace('_', '-')}",
            )
            for number in NUMBERS
        ]
    said = gr.HTML(
        "",
        apply_default_css=False,
        elem_id="ps-sampling-answer",
        elem_classes="ps-settings-answer",
    )
    with gr.Row(elem_classes="ps-settings-buttons"):
        apply = gr.Button(
            SETTINGS["sampling_apply"], size="sm", elem_id="ps-sampling-apply", min_width=0
        )

    def current() -> list[object]:
        return list(defaults.values.values())

    async def take(given: str, *values: Any) -> list[Any]:
        answer = Answer(SETTINGS["sampling_applied"])
        if not key.opens(given):
            await asyncio.sleep(WRONG_KEY_SECONDS)
            answer = Answer(SETTINGS["wrong_key"], ok=False)
        else:
            chosen = {number.name: value for number, value in zip(NUMBERS, values, strict=True)}
            config = service.config
            try:
                defaults.change(chosen, longest=config.max_model_len if config else None)
            except PhaseScopeError as error:
                answer = Answer(str(error), ok=False)
        # The fields keep what was typed unless it holds now.
        return [shown_answer(answer), *(current() if answer.ok else values)]

    def reload() -> list[Any]:
        return ["", *current()]

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    outputs = [said, *fields]
    apply.click(take, [key_field, *fields], outputs, **quiet)
    sidebar.expand(reload, None, outputs, queue=False, **quiet)
