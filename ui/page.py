"""Puts the page together: header, headline, the Chat tab with its panels, styles and theme.

The panels are static HTML (ui/panels.py); the scripts in assets/scripts mount themselves on it and
draw from the live feed. This module must not know the engine: whoever launches the page serves the
routes named by the constants below and hands in the chat.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import gradio as gr

from ui import panels, words

ASSETS: Final = Path(__file__).resolve().parent.parent / "assets"

SCRIPT_FOLDER: Final = ASSETS / "scripts"
"""Folder whose files the server gives out under ``live/assets/``."""

SCRIPT_ROUTE: Final = "live/assets/"
PLOTLY_ROUTE: Final = "live/plotly.js"
FEED_ROUTE: Final = "live/feed"
RESTART_ROUTE: Final = "live/restart"
REQUEST_ROUTE: Final = "live/request/"
EXPORT_ROUTE: Final = "live/requests"

STYLE_SHEETS: Final = ("tokens.css", "page.css", "timeline.css", "chat.css", "settings.css")

_FONT = [
    "ui-sans-serif",
    "-apple-system",
    "Segoe UI",
    "Roboto",
    "Arial",
    "Liberation Sans",
    "sans-serif",
]

THEME: Final = gr.themes.Base(
    primary_hue="neutral",
    secondary_hue="neutral",
    neutral_hue="slate",
    font=_FONT,
    font_mono=["ui-monospace", "Menlo", "Consolas", "Liberation Mono", "monospace"],
)
"""Neutral: the default theme's orange would read as prefill. System fonts only."""


def css_text() -> str:
    """All style sheets of the page as one string, for ``launch(css=...)``."""
    sheets = (ASSETS / name for name in STYLE_SHEETS)
    return "\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets if sheet.exists())


def head_html() -> str:
    """Lines for the document's head, for ``launch(head=...)``."""
    modules = "".join(
        f'<link rel="modulepreload" href="{SCRIPT_ROUTE}{path.name}">'
        for path in sorted(SCRIPT_FOLDER.glob("*.js"))
    )
    return f'<meta name="color-scheme" content="light dark">{modules}'


def build_page(
    build_chat: Callable[[], object], build_settings: Callable[[], object] | None = None
) -> gr.Blocks:
    """The whole page as a ``gr.Blocks``.

    ``build_chat`` is called once, inside the left column, and adds the chat's components there;
    ``build_settings`` likewise adds the settings panel beside the tabs.
    """
    page: gr.Blocks
    with gr.Blocks(title=words.TITLE, fill_width=True, fill_height=True) as page:
        _panel("header", panels.header())
        with gr.Tabs(elem_id="ps-tabs"), gr.Tab("Chat", id="chat", elem_id="ps-tab-chat"):
            _panel("notice", panels.notice())
            _panel("headline", panels.headline())
            with gr.Row(elem_id="ps-columns", equal_height=False):
                with gr.Column(elem_id="ps-chat", elem_classes="ps-card"):
                    build_chat()
                with gr.Column(elem_id="ps-middle"):
                    _panel("timeline", panels.timeline())
                with gr.Column(elem_id="ps-side"):
                    _panel("kv", panels.kv_map())
                    _panel("ttft", panels.ttft())
                    _panel("roofline", panels.roofline())
                _panel("drawer", panels.drawer())
        if build_settings is not None:
            build_settings()
    return page


def _panel(kind: str, markup: str) -> gr.HTML:
    mount = (
        f'import(new URL("{SCRIPT_ROUTE}main.js", document.baseURI))'
        f'.then((scripts) => scripts.mount("{kind}", element));'
    )
    return gr.HTML(
        html_template=markup,
        js_on_load=mount,
        apply_default_css=False,
        elem_id=f"ps-{kind}",
        elem_classes="ps-panel",
    )
