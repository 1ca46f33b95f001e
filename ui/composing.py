"""From a conversation to a prompt: which messages the model gets, as token ids, and what share of
them each part of the conversation has.

Turns that find no room are left out, oldest first. This module knows no page and no engine: a
function that renders messages is handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from engine.core.errors import InvalidRequest
from ui.conversation import Turn

Messages = list[dict[str, Any]]


class Render(Protocol):
    """Token ids of a chat, beginning with `known_ids` where they fit; see `Tokenizer.render`."""

    def __call__(self, messages: Messages, *, known_ids: Sequence[int] = ()) -> list[int]: ...


class Prompt(NamedTuple):
    """A prompt's token ids, its parts as (name, tokens), and how many turns were left out.

    The parts are `system`, `history`, `message` and `template` (turn markers, and what the template
    adds by itself); they add up to the ids, and are empty where they cannot be told apart.
    """

    token_ids: list[int]
    composition: tuple[tuple[str, int], ...]
    num_dropped: int


def compose(
    render: Render,
    system: str,
    past: Sequence[Turn],
    text: str,
    *,
    room: int,
    known_ids: Sequence[int] = (),
) -> Prompt:
    """The prompt for a new message, with the oldest turns left out until it fits.

    room: tokens that it may take. The system prompt and the new text always stay, so it may still
    be too long. known_ids: prompt and answer of the turn before, taken up where their text is the
    same. Raises InvalidRequest for what the template refuses.
    """
    answered = [turn for turn in past if turn.answer]
    dropped = 0
    while True:
        messages = messages_of(system, answered[dropped:], text)
        token_ids = render(messages, known_ids=known_ids)
        if len(token_ids) <= room or dropped == len(answered):
            parts = _composition(render, messages, len(token_ids), known_ids)
            return Prompt(token_ids, parts, dropped)
        dropped += 1


def messages_of(system: str, past: Sequence[Turn], text: str) -> Messages:
    """Messages for the model: the system prompt if there is one, answered turns, the new text.

    An unanswered question is left out: many chat templates insist on turns that alternate.
    """
    messages = [{"role": "system", "content": system}] if system.strip() else []
    for turn in past:
        if turn.answer:
            messages.append({"role": "user", "content": turn.question})
            messages.append({"role": "assistant", "content": turn.answer})
    messages.append({"role": "user", "content": text})
    return messages


def _composition(
    render: Render, messages: Messages, total: int, known_ids: Sequence[int]
) -> tuple[tuple[str, int], ...]:
    """What each part adds to the same messages without it, so that the sum is exact.

    A token over the border of two parts counts with the later one.
    """
    blank = [{**message, "content": ""} for message in messages]
    opens_with_system = messages[0]["role"] == "system"
    try:
        template = with_system = len(render(blank))
        if opens_with_system:
            with_system = len(render([messages[0], *blank[1:]]))
        with_history = with_system
        if len(messages) > 1 + opens_with_system:
            with_history = len(render([*messages[:-1], blank[-1]], known_ids=known_ids))
    except InvalidRequest:  # some templates refuse a message without content
        return ()
    parts = {
        "system": with_system - template,
        "history": with_history - with_system,
        "message": total - with_history,
        "template": template,
    }
    # A template that writes more around nothing than around a text leaves no sensible shares.
    if min(parts.values()) < 0:
        return ()
    return tuple((name, tokens) for name, tokens in parts.items() if tokens)
