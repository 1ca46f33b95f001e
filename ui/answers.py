"""Answers a visitor's message: submits it, follows its tokens, and says how it went.

Each answer belongs to one browser session, and only that session can see or stop it. Results are
chatbot values and composer texts; this module knows no Gradio component.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from engine.core.errors import PhaseScopeError, QueueFull
from engine.core.request import SamplingParams
from engine.mailbox import TokenStream
from engine.service import EngineService
from ui import conversation
from ui.conversation import Message
from ui.footer import footer
from ui.formats import counted
from ui.reading import Reading
from ui.sampling_form import sampling_params

_RECORD_LOOK_SECONDS = 0.05
_RECORD_PATIENCE = 10.0


class Update(NamedTuple):
    """What the page shows next; a composer of None is left as it is."""

    history: list[Message]
    composer: str | None = None


class Refusal(NamedTuple):
    """Why a message was not taken; `later` when the same may well be taken in a moment."""

    reason: str
    later: bool = False


class Answers:
    """The answers in progress, at most one for each session.

    Whoever reads `send` or `retry` closes it when leaving early (`contextlib.aclosing`): that is
    what frees the request of a tab that was closed.

    epoch: the live feed's epoch, which footers carry so that the page can tell an old server's
    request numbers from this one's.
    """

    def __init__(self, service: EngineService, *, epoch: str = "") -> None:
        self._service = service
        self._epoch = epoch
        self._readings: dict[str, Reading] = {}

    @property
    def num_running(self) -> int:
        """Answers that are being read right now."""
        return len(self._readings)

    async def send(
        self, session: str, text: str, history: Sequence[Message], form: Mapping[str, object]
    ) -> AsyncGenerator[Update, None]:
        """Answer a new message; one that is refused is told why and stays in the composer."""
        past = conversation.without_notices(history)
        async with aclosing(self._answer(session, text, past, form)) as updates:
            async for update in updates:
                if isinstance(update, Refusal):
                    yield Update([*past, conversation.notice(_kept(update))], text)
                else:
                    yield update

    async def retry(
        self, session: str, index: int, history: Sequence[Message], form: Mapping[str, object]
    ) -> AsyncGenerator[Update, None]:
        """Answer the question at `index` of the history anew; what followed it is dropped."""
        found = conversation.before_question(history, index)
        if found is None:
            return
        before, text = found
        async with aclosing(self._answer(session, text, before, form)) as updates:
            async for update in updates:
                if isinstance(update, Refusal):
                    past = conversation.without_notices(history)
                    advice = " Try again in a moment." if update.later else ""
                    yield Update([*past, conversation.notice(update.reason + advice)])
                else:
                    yield Update(update.history)

    def stop(self, session: str) -> None:
        """Stop the session's answer; what it has said so far stays."""
        reading = self._readings.get(session)
        if reading is not None:
            reading.stop()

    def abandon(self, session: str) -> None:
        """End the session's answer with an empty history: its conversation was cleared."""
        reading = self._readings.pop(session, None)
        if reading is not None:
            reading.close()

    def take_back(
        self, session: str, index: int, history: Sequence[Message]
    ) -> tuple[list[Message], str] | None:
        """The history before the question at `index`, and its text to be edited.

        None while an answer is written, and when there is no question.
        """
        if session in self._readings:
            return None
        return conversation.before_question(history, index)

    async def _answer(
        self, session: str, text: str, past: list[Message], form: Mapping[str, object]
    ) -> AsyncGenerator[Update | Refusal, None]:
        """Updates of one answer, or the one refusal."""
        if session in self._readings:
            return
        try:
            if not text.strip():
                raise EmptyMessage("The message is empty; write something first.")
            params = sampling_params(form)
            system = str(form.get("system") or "")
            stream, dropped = await asyncio.to_thread(self._submit, system, past, text, params)
        except QueueFull:
            yield self._queue_full()
            return
        except PhaseScopeError as error:
            yield Refusal(str(error))
            return
        if session in self._readings:  # another of its messages was quicker
            stream.close()
            return
        shown = [*conversation.shown(past), conversation.question(text)]
        notes = _left_out(dropped)
        reading = self._readings[session] = Reading(stream)
        try:
            yield Update([*shown, self._message(reading, notes)], "")
            async for _ in self._looks(reading):
                if not self._reads(session, reading):
                    break
                yield Update([*shown, self._message(reading, notes)])
            # A cleared conversation stays so: Gradio shows an event's last value again at its end.
            kept = self._reads(session, reading)
            yield Update([*shown, self._message(reading, notes)] if kept else [])
        finally:
            # Also reached when the tab was closed: then the request must not go on without it.
            reading.close()
            if self._reads(session, reading):
                del self._readings[session]

    def _reads(self, session: str, reading: Reading) -> bool:
        return self._readings.get(session) is reading

    def _submit(
        self, system: str, past: list[Message], text: str, params: SamplingParams
    ) -> tuple[TokenStream, int]:
        tokenizer, config = self._service.tokenizer, self._service.config
        assert config is not None, "a service with a tokenizer has a configuration"
        limit = min(config.max_model_len, config.pool_tokens)
        messages, dropped = conversation.fitting(
            system,
            conversation.turns(past),
            text,
            room=limit - min(params.max_tokens, limit // 4),
            count=lambda messages: len(tokenizer.render(messages)),
        )
        return self._service.submit_chat(messages, params), dropped

    def _message(self, reading: Reading, notes: tuple[str, ...]) -> Message:
        record = self._service.store.find(reading.stream.number)
        below = ""
        if record is not None:
            below = footer(record, epoch=self._epoch, error=reading.error, notes=notes)
        return conversation.answer(reading.text, below)

    async def _looks(self, reading: Reading) -> AsyncIterator[None]:
        """Moments to show the answer at, up to when its request's record is complete."""
        async for _ in reading.looks():
            yield
        reading.close()
        # The last numbers are added by the engine's thread between two steps, which may take long.
        for look in range(round(_RECORD_PATIENCE / _RECORD_LOOK_SECONDS)):
            record = self._service.store.find(reading.stream.number)
            if record is None or record.complete:
                return
            if look % 10 == 9:
                yield
            await asyncio.sleep(_RECORD_LOOK_SECONDS)

    def _queue_full(self) -> Refusal:
        config = self._service.config
        waiting = f" ({config.max_waiting} waiting)" if config else ""
        return Refusal(f"The queue is full{waiting}.", later=True)


class EmptyMessage(PhaseScopeError):
    """There is nothing in the message to answer."""


def _kept(refusal: Refusal) -> str:
    advice = "; try again in a moment." if refusal.later else "."
    return f"{refusal.reason} Your text is kept{advice}"


def _left_out(turns: int) -> tuple[str, ...]:
    """What to say of turns that the context had no room for."""
    if not turns:
        return ()
    return (f"The oldest {counted(turns, 'turn')} did not fit into the context; left out.",)


def form_of(names: Sequence[str], values: Sequence[Any]) -> dict[str, object]:
    """The form's values by name."""
    return dict(zip(names, values, strict=True))
