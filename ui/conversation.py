"""A conversation as the value of a Gradio chatbot, and back again as turns.

The value travels with the browser and is the only place that holds the conversation, so what comes
back is read with care: whatever does not look like a message of ours is left out. An answer's first
part is its text, everything after it (legend, footer, notice) belongs to the page and never to a
prompt. This module knows neither Gradio's components nor the engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ui import markup

Message: TypeAlias = dict[str, Any]

MAX_TURNS = 20
"""Turns that a conversation keeps: each update draws all of them, and each message carries them."""

_NOTICE = "ps-chat-notice"
_REFUSED = "ps-refused"
_NUMBER = re.compile(r'class="ps-foot[^"]*" value="(\d{1,15})"')


class Turn(NamedTuple):
    """One question and its answer; the answer is empty when none came."""

    question: str
    answer: str


def question(text: str) -> Message:
    """What a person sent, shown as it was typed."""
    return _message("user", markup.verbatim(text))


def answer(text: str, footer: str) -> Message:
    """What the model wrote so far, with the footer's HTML below it."""
    return _message("assistant", markup.render(text), footer)


def notice(sentence: str, *, refused: bool = False) -> Message:
    """A sentence of the page itself, in the place of an answer.

    refused: a new message was not taken, and its text is in the composer.
    """
    kind = f"{_NOTICE} {_REFUSED}" if refused else _NOTICE
    return _message("assistant", "", f'<p class="{kind}">{markup.verbatim(sentence)}</p>')


def was_refused(history: Sequence[Message]) -> bool:
    """Whether the newest message was not taken."""
    below = _footer(history[-1]) if history else ""
    return below.startswith(f'<p class="{_NOTICE} {_REFUSED}"')


def without_notices(history: Sequence[Message]) -> list[Message]:
    """The history without sentences of the page: they answer one moment only."""
    return [message for message in history if _NOTICE not in _footer(message)]


def turns(history: object) -> list[Turn]:
    """Questions and answers, oldest first; a question that got no answer has an empty one."""
    found: list[Turn] = []
    open_question: str | None = None
    for message in history if isinstance(history, list) else []:
        role, text = _role(message), _text(message)
        if text is None or _NOTICE in _footer(message):
            continue
        if role == "user":
            if open_question is not None:
                found.append(Turn(open_question, ""))
            open_question = text
        elif role == "assistant" and open_question is not None:
            found.append(Turn(open_question, text))
            open_question = None
    if open_question is not None:
        found.append(Turn(open_question, ""))
    return found


def shown(history: Sequence[Message]) -> list[Message]:
    """The newest turns, as many as a conversation keeps before one more is added."""
    starts = [i for i, message in enumerate(history) if _role(message) == "user"]
    if len(starts) < MAX_TURNS:
        return list(history)
    return list(history[starts[-(MAX_TURNS - 1)] :])


def before_question(history: Sequence[Message], index: int) -> tuple[list[Message], str] | None:
    """What stood before the question at `index`, and its text; None if there is no question."""
    if not 0 <= index < len(history) or _role(history[index]) != "user":
        return None
    return list(history[:index]), _text(history[index]) or ""


def newest_number(history: Sequence[Message]) -> int | None:
    """The request that gave the newest answer; None when the newest question has none."""
    for message in reversed(history):
        if _role(message) == "assistant" and _NOTICE not in _footer(message):
            return _number(message)
        if _role(message) == "user":
            return None
    return None


def redrawn(
    history: Sequence[Message], draw: Callable[[int, str], tuple[str, str] | None]
) -> list[Message]:
    """The history with answers shown another way, or as usual where `draw` returns None.

    draw: from a request's number and its answer to the text as HTML, whose characters stay the
    same, and the HTML of a legend below it.
    """
    return [_redraw(message, draw) for message in history]


def _redraw(message: Message, draw: Callable[[int, str], tuple[str, str] | None]) -> Message:
    text, number = _text(message), _number(message)
    if _role(message) != "assistant" or text is None or number is None:
        return message
    drawn, below = draw(number, text), _parts(message)[-1]
    return answer(text, below) if drawn is None else _message("assistant", *drawn, below)


def _number(message: Message) -> int | None:
    """The request of an answer, as its footer names it."""
    parts = _parts(message)
    found = _NUMBER.search(parts[-1]) if len(parts) > 1 else None
    return int(found[1]) if found else None


def _message(role: str, *parts: str) -> Message:
    return {"role": role, "content": [{"type": "text", "text": part} for part in parts]}


def _role(message: object) -> str | None:
    return message.get("role") if isinstance(message, dict) else None


def _parts(message: object) -> list[str]:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return []
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return [part for part in parts if isinstance(part, str)]


def _text(message: object) -> str | None:
    parts = _parts(message)
    return markup.plain(parts[0]) if parts else None


def _footer(message: object) -> str:
    return "".join(_parts(message)[1:])
