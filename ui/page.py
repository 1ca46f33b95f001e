"""Puts the page together: header, headline, the Chat tab with its panels, styles and theme.

The panels are static HTML (ui/panels.py); the scripts in assets/scripts mount themselves on it and
draw from the live feed. This module must not know the engine: whoever launches the page serves the
routes named by the constants below and hands in the chat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import gradio as gr

from ui import compare_panels, panels, recording_panels, words

ASSETS: Final = Path(__file__).resolve().parent.parent / "assets"

SCRIPT_FOLDER: Final = ASSETS / "scripts"
"""Folder whose files the server gives out under ``live/assets/``."""

SCRIPT_ROUTE: Final = "live/assets/"
PLOTLY_ROUTE: Final = "live/plotly.js"
FEED_ROUTE: Final = "live/feed"
RESTART_ROUTE: Final = "live/restart"
REQUEST_ROUTE: Final = "live/request/"
EXPORT_ROUTE: Final = "live/requests"
TRACE_ROUTE: Final = "live/trace.json"

TOKENS: Final = "tokens.css"
"""Goes into the head as it is: Gradio would rewrite its rules for ``body`` inside media queries."""

STYLE_SHEETS: Final = (
    "page.css",
    "timeline.css",
    "chat.css",
    "settings.css",
    "compare.css",
    "workload.css",
    "replay.css",
    "learn.css",
)

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
).set(button_transition="none")
"""Neutral: the default theme's orange would read as prefill. System fonts only; nothing eases."""


def css_text() -> str:
    """The style sheets that know the page's elements as one string, for ``launch(css=...)``."""
    sheets = (ASSETS / name for name in STYLE_SHEETS)
    return "\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets if sheet.exists())


def head_html() -> str:
    """Lines for the document's head, for ``launch(head=...)``."""
    modules = "".join(
        f'<link rel="modulepreload" href="{SCRIPT_ROUTE}{path.name}">'
        for path in sorted(SCRIPT_FOLDER.glob("*.js"))
    )
    tokens = (ASSETS / TOKENS).read_text(encoding="utf-8")
    return f'<meta name="color-scheme" content="light dark">{modules}<style>{tokens}</style>'


def queue_calmly(page: gr.Blocks) -> None:
    """Switch on the page's queue of events, all of which may run at once.

    Gradio looks into it a thousand times a second, which costs 7 % of a core and takes the
    interpreter from the engine; a hundred times are soon enough for a person's click.
    """
    page.queue(max_size=None, default_concurrency_limit=None)
    page._queue.sleep_when_free = max(page._queue.sleep_when_free, 0.01)


Builder = Callable[[gr.Blocks, gr.Tabs], object]
"""Adds a tab of its own to the page; called once, inside the tabs."""


def build_page(
    build_chat: Callable[[], object],
    build_settings: Callable[[], object] | None = None,
    build_tabs: Sequence[Builder] = (),
) -> gr.Blocks:
    """The whole page as a ``gr.Blocks``.

    ``build_chat`` is called once, inside the left column, and adds the chat's components there;
    ``build_settings`` likewise adds the settings panel beside the tabs, and each of ``build_tabs``
    a tab behind the chat's.
    """
    page: gr.Blocks
    with gr.Blocks(title=words.TITLE, fill_width=True, fill_height=True) as page:
        panel("header", panels.header())
        with gr.Tabs(elem_id="ps-tabs", selected="chat") as tabs:
            with gr.Tab("Chat", id="chat", elem_id="ps-tab-chat"):
                _chat_tab(build_chat)
            for build in build_tabs:
                build(page, tabs)
        if build_settings is not None:
            build_settings()
    return page


def _chat_tab(build_chat: Callable[[], object]) -> None:
    panel("notice", panels.notice())
    panel("replay", recording_panels.bar())
    panel("turn", compare_panels.banner())
    panel("headline", panels.headline())
    with gr.Row(elem_id="ps-columns", equal_height=False):
        with gr.Column(elem_id="ps-chat", elem_classes="ps-card"):
            gr.HTML(panels.chat_title(), apply_default_css=False, elem_classes="ps-title")
            build_chat()
        with gr.Column(elem_id="ps-middle"):
            panel("timeline", panels.timeline())
        with gr.Column(elem_id="ps-side"):
            panel("kv", panels.kv_map())
            panel("ttft", panels.ttft())
            panel("roofline", panels.roofline())
        panel("drawer", panels.drawer())


def panel(kind: str, markup: str) -> gr.HTML:
    """Static HTML that the scripts' ``mount(kind, element)`` brings to life."""
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
