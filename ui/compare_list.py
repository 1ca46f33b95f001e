"""The card of kept results: listed, opened and deleted by their buttons. Compare shows those of two
sides, Workload those of one. What an opened result changes on the page is its tab's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gradio as gr

from engine.core.errors import PhaseScopeError
from engine.lab.result_store import ResultEntry, ResultStore
from ui.admin_key import AdminKey
from ui.compare_progress import message, unlock
from ui.compare_report import results_list

Updates = dict[Any, Any]
"""What a handler changes: component to new value."""

# The list's buttons are HTML: their clicks reach Python as the list's own event.
_CLICKS = """
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-open], [data-delete]");
  if (!button) return;
  const { open, delete: gone } = button.dataset;
  trigger("select", { index: 0, value: open ?? gone, selected: open !== undefined });
});
"""


class ResultsList:
    """The results of `num_sides` sides that a store keeps; `name` begins the elements' ids."""

    def __init__(
        self, store: ResultStore, key: AdminKey, *, name: str, title: str, num_sides: int
    ) -> None:
        self._store = store
        self._key = key
        self._num_sides = num_sides
        with gr.Column(elem_id=f"{name}-results", elem_classes=["ps-card", "ps-results-card"]):
            gr.HTML(f"<h2>{title}</h2>", apply_default_css=False, elem_classes="ps-panel")
            self.component = gr.HTML(
                js_on_load=_CLICKS,
                apply_default_css=False,
                elem_id=f"{name}-list",
                elem_classes="ps-panel",
            )

    def html(self) -> str:
        """The list as it is now."""
        return results_list(self._entries())

    def named(self, request: gr.Request) -> str | None:
        """The result that the page's address names, if it is in this list.

        Raises PhaseScopeError where the address names one that is not there.
        """
        name = str(request.query_params.get("result") or "")
        if name in {entry.id for entry in self._entries()}:
            return name
        if name:
            self._store.load(name)  # it may be of the other kind, or a lesson's
        return None

    def _entries(self) -> list[ResultEntry]:
        return [entry for entry in self._store.list() if entry.num_sides == self._num_sides]

    async def choose(
        self, event: gr.EventData, key: str, show: Callable[[str], Updates], status: gr.HTML
    ) -> Updates:
        """Open or delete the result whose button was clicked."""
        name, opens = str(event.value), bool(event.selected)
        try:
            if opens:
                return await asyncio.to_thread(show, name)
            await unlock(self._key, key)
            await asyncio.to_thread(self._store.delete, name)
        except PhaseScopeError as error:
            return {status: message(str(error), "err"), self.component: self.html()}
        return {self.component: self.html(), status: ""}
