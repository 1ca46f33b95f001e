"""What the Learn tab says: its questions, the guesses, and why it is so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonWords:
    """The words of one lesson.

    limits: where the second guess begins, and the third, in what the lesson measures; empty where
    the guesses are the values themselves. explanation: three sentences at most.
    """

    title: str
    question: str
    guesses: tuple[str, ...]
    limits: tuple[float, ...] = ()
    runs: str
    explanation: str


LEARN: Final[dict[str, str]] = {
    "tab": "Learn",
    "intro": (
        "Five short lessons. Guess first; then the engine behind this page runs it, and you see "
        "what was measured."
    ),
    "lessons": "Lesson",
    "predict": "Predict",
    "run_step": "Run",
    "see": "See",
    "explain": "Explain",
    "guess": "Your guess",
    "guess_first": "Choose a guess first; any will do.",
    "run": "Run it on the engine",
    "running": "The engine is at work for this lesson alone; it takes some seconds.",
    "running_already": "Your last lesson is just ending; run this one in a moment.",
    "stop": "Stop",
    "why": "Why is it so?",
    "next": "Next lesson",
    "right": "Your guess was right: {answer}.",
    "open": "It was {answer}.",
    "wrong": "You guessed {guess}; it was {answer}.",
    "source": "The code: {file}",
    "measured": "Measured in this run: {model} on {device}.",
    "unmeasured": (
        "The run ended early, so there is nothing to measure. Go back to Predict and run it again."
    ),
    "link": "Link to this run",
    "no_lesson": "That result is of a lesson that this page does not have.",
    "waiting": "Nothing has run yet. Make a guess and run the lesson.",
}

LESSON_WORDS: Final[dict[str, LessonWords]] = {
    "read-write": LessonWords(
        title="Reads fast, writes slowly",
        question=(
            "A model reads a prompt of 1,000 tokens and then writes an answer. For each token, how "
            "much faster is reading than writing?"
        ),
        guesses=("less than 2 times", "2 to 8 times", "more than 8 times"),
        limits=(2.0, 8.0),
        runs="One request alone on the engine, prompt 1,000 tokens, answer 48 tokens.",
        explanation=(
            "All tokens of a prompt are known, so one step computes hundreds of them and fetches "
            "the weights once for all. An answer is written a token at a time, because each token "
            "is the input of the next. So every written token pays for all the weights again."
        ),
    ),
    "stall": LessonWords(
        title="The stall, and its fix",
        question=(
            "Three people are reading their answers when a prompt of 1,500 tokens arrives. Read in "
            "one piece, for how long does it hold up their text?"
        ),
        guesses=("less than 0.25 s", "0.25 to 1 s", "more than 1 s"),
        limits=(0.25, 1.0),
        runs="The same traffic twice: the long prompt in one step (A), then in chunks (B).",
        explanation=(
            "A step returns nothing until all of it is computed, so whoever shares a step with a "
            "long prompt waits for the whole of it. Chunked prefill fills each step up to the "
            "token budget and takes the waiting streams along. The long prompt itself pays for "
            "that with a later first token."
        ),
    ),
    "prefix": LessonWords(
        title="Read once, use again",
        question=(
            "Eight people ask about one document of 800 tokens. With prefix caching, how much "
            "sooner does the first token of the later seven come?"
        ),
        guesses=("hardly any sooner", "1.3 to 3 times sooner", "more than 3 times sooner"),
        limits=(1.3, 3.0),
        runs="The same questions twice: without prefix caching (A), then with it (B).",
        explanation=(
            "Keys and values of a prompt depend only on what stands before them, so equal openings "
            "have equal blocks. A full block is found by the hash of its tokens and all before "
            "it, and is shared instead of computed. Only the part behind it is left to read."
        ),
    ),
    "growth": LessonWords(
        title="Watch the cache grow",
        question=(
            "A prompt of 200 tokens gets an answer of 100. How many tokens are in the KV cache "
            "when the last one has been written?"
        ),
        guesses=("200", "299", "300"),
        runs="One request alone on the engine, prompt 200 tokens, answer 100 tokens.",
        explanation=(
            "Reading puts the prompt into the cache in one jump; then each step adds one token. A "
            "token's keys and values are computed when it is the input of the next step. The last "
            "token of an answer is never an input, so it is on screen and not in the cache."
        ),
    ),
    "batch": LessonWords(
        title="A bigger batch",
        question=(
            "Eight people ask at once. Answered all in one batch instead of one after the other, "
            "how many times the tokens a second does the engine write?"
        ),
        guesses=("less than 1.3 times", "1.3 to 4 times", "more than 4 times"),
        limits=(1.3, 4.0),
        runs="The same eight requests twice: one at a time (A), then all in one batch (B).",
        explanation=(
            "Writing one token fetches all the weights, and seven more streams in the step use "
            "the same ones. So the step takes little longer and writes eight tokens. Each single "
            "stream gets slower by what the step takes longer."
        ),
    ),
}

BROWSER_LEARN: Final[dict[str, Any]] = {
    "since_start": "since start",
    "picture": "{side}: {band}, with one interval marked: {text}.",
    "bands": {"requests": "requests", "steps": "engine steps", "growth": "KV cache growth"},
    "failed": "The run could not be fetched from the server. Run the lesson again.",
}
"""What the tab's script says; ``{name}`` is filled in by the browser."""
