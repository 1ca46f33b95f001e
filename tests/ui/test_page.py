"""The page as Gradio is told to serve it."""

from __future__ import annotations

import asyncio

import gradio as gr

from ui.page import queue_calmly


def test_an_idle_queue_leaves_the_interpreter_to_the_engine() -> None:
    """Gradio's own pace is a thousand looks a second."""
    with gr.Blocks() as demo:
        gr.Textbox()
    queue_calmly(demo)
    queue = demo._queue
    looks = 0

    class Counted(type(queue)):  # type: ignore[misc]
        def __len__(self) -> int:
            nonlocal looks
            looks += 1
            return 0

    queue.__class__ = Counted

    async def watch() -> None:
        task = asyncio.create_task(queue.start_processing())
        await asyncio.sleep(0.5)
        task.cancel()

    asyncio.run(watch())
    assert 0 < looks < 100
