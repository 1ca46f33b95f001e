"""The HTML of a lesson: its question, what was seen, and why it is so. Pure functions.

The picture is drawn by assets/scripts/learn.js from `data-lesson` in what `finding` returns.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from engine.lab.results import Result
from ui import wire
from ui.learn_lessons import Finding, Lesson
from ui.panels import attribute, lane_legend
from ui.words_learn import BROWSER_LEARN, LEARN

CODE_ROUTE = "live/code/"


def question(lesson: Lesson) -> str:
    """What is asked before anything runs."""
    return f"<h2>{escape(lesson.words.title)}</h2><p>{escape(lesson.words.question)}</p>"


def setting(lesson: Lesson) -> str:
    """What the engine is made to do."""
    return f"<h2>{escape(lesson.words.title)}</h2><p>{escape(lesson.words.runs)}</p>"


def picture() -> str:
    """Two sides of one band; the script fills and shows what a result has."""
    side = (
        '<div class="ps-lesson-side" data-side="{name}" hidden><p class="ps-side-head">'
        '<i class="ps-badge" data-badge="{name}" aria-hidden="true">{name}</i>'
        '<b data-role="title"></b></p>'
        '<canvas data-role="bracket" aria-hidden="true"></canvas>'
        '<canvas data-role="band" role="img" aria-label="{name}"></canvas>'
        '<canvas data-role="axis" aria-hidden="true"></canvas></div>'
    )
    sides = "".join(side.replace("{name}", name) for name in "AB")
    return (
        f'<section class="ps-lesson" data-learn-words="{attribute(BROWSER_LEARN)}" hidden>'
        f'<div data-role="legend">{lane_legend()}</div>'
        f'{sides}<p class="ps-status" data-kind="err" role="alert" hidden></p></section>'
    )


def finding(lesson: Lesson, found: Finding, result: Result, engine: dict[str, Any]) -> str:
    """The numbers of the run, and for the script what to draw and where the bracket goes.

    engine: fields of the feed's `config` that the band needs for its scale.
    """
    side, start, end, text = found.bracket
    drawn = {
        "result": result.id,
        "band": lesson.band,
        "engine": engine,
        "bracket": {
            "side": side,
            "from": wire.ticks(start),
            "to": wire.ticks(end),
            "text": text,
        },
    }
    rows = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}</dd></div>"
        for label, value in found.numbers
    )
    machine = result.machine
    measured = LEARN["measured"].format(model=machine["model"], device=machine["device"])
    data = escape(json.dumps(drawn))
    return (
        f'<div data-lesson="{data}"><dl class="ps-lesson-numbers">{rows}</dl>'
        f'<p class="ps-cap">{escape(measured)} '
        f'<a href="?result={escape(result.id)}">{LEARN["link"]}</a></p></div>'
    )


def verdict(lesson: Lesson, found: Finding, guess: int | None) -> str:
    """The guess, if there was one, beside what was measured, why, and where it is done."""
    guesses = lesson.words.guesses
    answer = guesses[found.answer]
    if guess is None:
        sentence = LEARN["open"].format(answer=answer)
    elif guess == found.answer:
        sentence = LEARN["right"].format(answer=answer)
    else:
        sentence = LEARN["wrong"].format(guess=guesses[guess], answer=answer)
    source = LEARN["source"].format(file=lesson.source)
    return (
        f"<h2>{escape(sentence)}</h2><p>{escape(lesson.words.explanation)}</p>"
        f'<p><a href="{CODE_ROUTE}{lesson.source}" target="_blank">{escape(source)}</a></p>'
    )
