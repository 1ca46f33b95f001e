"""A conversation as the value of a Gradio chatbot, and back again as messages for the model.

The value travels with the browser and is the only place that holds the conversation, so what comes
back is read with care: whatever does not look like a message of ours is left out. An answer's first
part is its text, everything after it (footer, notice) belongs to the page and never to a prompt.
This module knows neither Gradio's components nor the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ui import markup

Message: TypeAlias = dict[str, Any]

MAX_TURNS = 20
"""Turns that a conversation keeps: each update draws all of them, and each message carries them."""

_NOTICE = "ps-chat-notice"


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


def notice(sentence: str) -> Message:
    """A sentence of the page itself, in the place of an answer."""
    return _message("assistant", "", f'<p class="{_NOTICE}">{markup.verbatim(sentence)}</p>')


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


def prompt(system: str, past: Sequence[Turn], text: str) -> list[dict[str, str]]:
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


def fitting(
    system: str,
    past: Sequence[Turn],
    text: str,
    *,
    room: int,
    count: Callable[[list[dict[str, str]]], int],
) -> tuple[list[dict[str, str]], int]:
    """The prompt with the oldest turns left out until it fits, and how many those are.

    room: tokens that the prompt may take; count: tokens of a rendered prompt. The system prompt and
    the new text always stay, so what comes back may still be too long on its own.
    """
    answered = [turn for turn in past if turn.answer]
    for dropped in range(len(answered)):
        messages = prompt(system, answered[dropped:], text)
        if count(messages) <= room:
            return messages, dropped
    return prompt(system, (), text), len(answered)


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
