"""Answers a visitor's message: submits it, follows its tokens, and says how it went.

Each answer belongs to one browser session, and only that session can see or stop it. Results are
chatbot values and composer texts; this module knows no Gradio component.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from engine.core.errors import EngineStopped, PhaseScopeError, QueueFull
from engine.mailbox import TokenStream
from engine.service import EngineService
from ui import conversation, waits
from ui.composing import Prompt, compose
from ui.conversation import Message
from ui.footer import footer
from ui.formats import counted
from ui.keeping import KeptAnswer, KeptAnswers
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


class _Current:
    """A session's answer in progress, and whether it is to be coloured in the end."""

    def __init__(self, reading: Reading, prompt: Prompt, colour: bool) -> None:
        self.reading = reading
        self.prompt = prompt
        self.colour = colour


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
        self._current: dict[str, _Current] = {}
        self._kept = KeptAnswers(service.clock.now)

    @property
    def num_running(self) -> int:
        """Answers that are being read right now."""
        return len(self._current)

    async def send(
        self, session: str, text: str, history: Sequence[Message], form: Mapping[str, object]
    ) -> AsyncGenerator[Update, None]:
        """Answer a new message; one that is refused is told why and stays in the composer."""
        past = conversation.without_notices(history)
        async with aclosing(self._answer(session, text, past, form)) as updates:
            async for update in updates:
                if isinstance(update, Refusal):
                    notice = conversation.notice(_kept(update), refused=True)
                    yield Update([*past, notice], text)
                else:
                    yield update

    async def retry(
        self,
        session: str,
        index: int,
        history: Sequence[Message],
        form: Mapping[str, object],
        draft: str = "",
    ) -> AsyncGenerator[Update, None]:
        """Answer the question at `index` of the history anew; what followed it is dropped.

        Where the newest message was refused, it is that one, kept as the draft, which is sent.
        """
        if conversation.was_refused(history):
            async with aclosing(self.send(session, draft, history, form)) as sent:
                async for shown in sent:
                    yield shown
            return
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
        current = self._current.get(session)
        if current is not None:
            current.reading.stop()

    def abandon(self, session: str) -> None:
        """End the session's answer with an empty history: its conversation was cleared."""
        current = self._current.pop(session, None)
        if current is not None:
            current.reading.close()
        self._kept.drop(session)

    def colour(self, session: str, history: Sequence[Message], on: bool) -> list[Message] | None:
        """The history with tokens coloured by their wait, or as usual; see `ui.waits`.

        None while an answer is written: then it is done at its end.
        """
        current = self._current.get(session)
        if current is not None:
            current.colour = on
            return None
        return conversation.redrawn(
            history, lambda number, text: self._coloured(session, number, text) if on else None
        )

    def take_back(
        self, session: str, index: int, history: Sequence[Message]
    ) -> tuple[list[Message], str | None] | None:
        """The history before the question at `index`, and its text to be edited.

        A message that was refused is in the composer already: its text is None. None at all while
        an answer is written, and when there is no question.
        """
        if session in self._current:
            return None
        if conversation.was_refused(history):
            return conversation.without_notices(history), None
        return conversation.before_question(history, index)

    async def _answer(
        self, session: str, text: str, past: list[Message], form: Mapping[str, object]
    ) -> AsyncGenerator[Update | Refusal, None]:
        """Updates of one answer, or the one refusal."""
        if session in self._current:
            return
        try:
            stream, prompt = await self._submit(session, text, past, form)
        except QueueFull:
            yield self._queue_full()
            return
        except PhaseScopeError as error:
            yield Refusal(str(error))
            return
        if session in self._current:  # another of its messages was quicker
            stream.close()
            return
        shown = [*conversation.shown(past), conversation.question(text)]
        current = _Current(Reading(stream), prompt, bool(form.get("colour")))
        self._current[session] = current
        try:
            yield Update([*shown, self._message(current)], "")
            async for _ in self._looks(current.reading):
                if not self._reads(session, current):
                    break
                yield Update([*shown, self._message(current)])
            yield Update(self._finished(session, current, shown))
        finally:
            # Also reached when the tab was closed: then the request must not go on without it.
            current.reading.close()
            if self._reads(session, current):
                del self._current[session]

    def _reads(self, session: str, current: _Current) -> bool:
        return self._current.get(session) is current

    def _finished(self, session: str, current: _Current, shown: list[Message]) -> list[Message]:
        """The history with its new answer, which is kept from now on."""
        # A cleared conversation stays so: Gradio shows an event's last value again at its end.
        if not self._reads(session, current):
            return []
        reading = current.reading
        answer = KeptAnswer.of(current.prompt.token_ids, reading.tokens)
        self._kept.put(session, reading.stream.number, answer)
        history = [*shown, self._message(current)]
        if current.colour:
            return conversation.redrawn(history, lambda *found: self._coloured(session, *found))
        return history

    async def _submit(
        self, session: str, text: str, past: list[Message], form: Mapping[str, object]
    ) -> tuple[TokenStream, Prompt]:
        if not text.strip():
            raise EmptyMessage("The message is empty; write something first.")
        params = sampling_params(form)
        # The number comes from the browser, the answer only from this session's own.
        before = self._kept.get(session, conversation.newest_number(past))
        known_ids = before.token_ids if before else []
        system, turns = str(form.get("system") or ""), conversation.turns(past)

        def submit() -> tuple[TokenStream, Prompt]:
            submitted = self._service.clock.now()
            tokenizer, config = self._service.tokenizer, self._service.config
            assert config is not None, "a service with a tokenizer has a configuration"
            limit = min(config.max_model_len, config.pool_tokens)
            room = limit - min(params.max_tokens, limit // 4)
            prompt = compose(tokenizer.render, system, turns, text, room=room, known_ids=known_ids)
            # Without a cache salt on purpose: visitors share prefixes, and the page shows it.
            stream, _ = self._service.submit_request(
                prompt.token_ids, params, submitted=submitted, composition=prompt.composition
            )
            return stream, prompt

        return await asyncio.to_thread(submit)

    def _message(self, current: _Current) -> Message:
        reading = current.reading
        record = self._service.store.find(reading.stream.number)
        below = ""
        if record is not None:
            notes = _left_out(current.prompt.num_dropped)
            below = footer(record, epoch=self._epoch, error=reading.error, notes=notes)
        return conversation.answer(reading.text, below)

    def _coloured(self, session: str, number: int, text: str) -> waits.Coloured | None:
        kept = self._kept.get(session, number)
        record = self._service.store.find(number)
        if kept is None or record is None:
            return None
        try:
            tokenizer = self._service.tokenizer
        except EngineStopped:  # it is being loaded anew
            return None
        return waits.coloured(record, kept.texts, text, lambda i: tokenizer.decode([i]))

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
