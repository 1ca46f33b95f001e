"""The lessons of the Learn tab: what each runs on the engine, and what it reads off the result.

A lesson states a question, sends its traffic, and measures one number; which of the guesses was
right follows from that number alone. It knows no component of the page. Words are in
ui/words_learn.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

from engine.core.errors import PhaseScopeError
from engine.core.records import RequestRecord
from engine.lab.experiment import Experiment, config_with
from engine.lab.presets import PRESETS
from engine.lab.results import Result, Side
from engine.lab.workload import Part, WorkloadSpec, build
from engine.lab.workload_arrivals import Constant
from engine.lab.workload_lengths import Fixed
from ui.compare_places import Place
from ui.formats import counted, duration, rate
from ui.words_learn import LEARN, LESSON_WORDS, LessonWords

READ_PROMPT: Final = 1_000
READ_OUTPUT: Final = 48
GROW_PROMPT: Final = 200
GROW_OUTPUT: Final = 100
BATCH_SIZE: Final = 8
BATCH_PROMPT: Final = 32
BATCH_OUTPUT: Final = 32
SILENCE_SECONDS: Final = 1.0
"""A longer pause of every answer is said to be one without a token."""


class LessonUnmeasured(PhaseScopeError):
    """The run ended before what the lesson asks about had happened."""


class Bracket(NamedTuple):
    """The one remark in the picture: an interval of a side's run, in seconds, and its words."""

    side: str
    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a run showed. answer: index of the guess that holds; numbers: label and value."""

    answer: int
    bracket: Bracket
    numbers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One walk from a guess to what was measured.

    band: of the timeline, the one that answers. source: the file of this project where it happens.
    experiment: raises InvalidRequest where the engine's limits are too narrow for it. measure:
    raises LessonUnmeasured.
    """

    name: str
    band: str
    source: str
    experiment: Callable[[Place], Experiment]
    measure: Callable[[Result], Finding]

    @property
    def words(self) -> LessonWords:
        """Title, question, guesses and explanation."""
        return LESSON_WORDS[self.name]


def lesson_of(result: Result) -> Lesson:
    """The lesson that a result is of; raises LessonUnmeasured where it is of none."""
    for name, lesson in LESSONS.items():
        if result.title == _title(name):
            return lesson
    raise LessonUnmeasured(LEARN["no_lesson"])


def _title(name: str) -> str:
    return f"{LEARN['tab']}: {LESSON_WORDS[name].title}"


def _single(place: Place, name: str, spec: WorkloadSpec, *changes: dict[str, object]) -> Experiment:
    """One run for each of `changes` to the engine's configuration; without any, as it is."""
    configs = tuple(config_with(place.config, dict(change)) for change in changes or ({},))
    workload = build(spec, place.source).clipped(place.config.max_model_len)
    return Experiment(title=_title(name), configs=configs, workload=lambda pair: workload)


def _spec(name: str, count: int, prompt: int, output: int) -> WorkloadSpec:
    part = Part(prompt=Fixed(prompt), output=Fixed(output))
    return WorkloadSpec(name=name, parts=(part,), num_requests=count, arrivals=Constant(math.inf))


def _read_write_experiment(place: Place) -> Experiment:
    spec = _spec("one prompt and its answer", 1, READ_PROMPT, READ_OUTPUT)
    return _single(place, "read-write", spec)


def _read_write(result: Result) -> Finding:
    record = _requests(result.sides[0])[0]
    start, first, last = _moments(record)
    read = record.num_prompt_tokens / (first - start)
    if record.num_output_tokens < 2 or last <= first:
        raise LessonUnmeasured(LEARN["unmeasured"])
    write = (record.num_output_tokens - 1) / (last - first)
    words = LESSON_WORDS["read-write"]
    prompt = counted(record.num_prompt_tokens, "token")
    return Finding(
        _index(read / write, words.limits),
        Bracket("A", start, first, f"{prompt} read in {duration(first - start)}"),
        (
            ("Reading the prompt", rate(read)),
            ("Writing the answer", rate(write)),
            ("Reading is", _times(read / write, "faster a token")),
        ),
    )


def _stall(result: Result) -> Finding:
    a, b = result.sides
    pauses = [_longest_pause(side) for side in (a, b)]
    (start, end), _ = pauses
    before, after = (end - start for start, end in pauses)
    long = [max(_requests(side), key=lambda record: record.num_prompt_tokens) for side in (a, b)]
    waits = [_ttft(record) for record in long]
    return Finding(
        _index(before, LESSON_WORDS["stall"].limits),
        _pause_bracket(a, start, end),
        (
            ("Longest pause, whole prompts (A)", duration(before)),
            ("Longest pause, chunks (B)", duration(after)),
            ("First token of the long prompt", f"A {duration(waits[0])}, B {duration(waits[1])}"),
        ),
    )


def _prefix(result: Result) -> Finding:
    later = [sorted(_requests(side), key=lambda r: r.submitted)[1:] for side in result.sides]
    without, with_reuse = (median(_ttft(record) for record in records) for records in later)
    shown = max(later[1], key=lambda record: record.num_cached_tokens)
    lane = _requests(result.sides[1]).index(shown) + 1  # lanes are numbered from 1
    prompt = counted(shown.num_prompt_tokens, "prompt token")
    reused = f"{shown.num_cached_tokens:,} of {prompt} reused"
    end = shown.submitted + _ttft(shown)
    return Finding(
        _index(without / with_reuse, LESSON_WORDS["prefix"].limits),
        Bracket("B", shown.submitted, end, f"R{lane}: {reused}"),
        (
            ("First token, nothing reused (A)", f"{duration(without)}, p50 of {len(later[0])}"),
            ("First token, prefix reused (B)", f"{duration(with_reuse)}, p50 of {len(later[1])}"),
            ("Reuse is", _times(without / with_reuse, "sooner")),
        ),
    )


def _growth_experiment(place: Place) -> Experiment:
    return _single(place, "growth", _spec("one answer", 1, GROW_PROMPT, GROW_OUTPUT))


def _growth(result: Result) -> Finding:
    record = _requests(result.sides[0])[0]
    _, first, last = _moments(record)
    held, known = record.num_computed_tokens, record.num_prompt_tokens + record.num_output_tokens
    grown = held - record.num_prompt_tokens
    guesses = (record.num_prompt_tokens, known - 1, known)
    if held not in guesses:
        raise LessonUnmeasured(LEARN["unmeasured"])
    return Finding(
        guesses.index(held),
        Bracket("A", first, last, f"{counted(grown, 'token')} more, one a step"),
        (
            ("Prompt", counted(record.num_prompt_tokens, "token")),
            ("Answer", counted(record.num_output_tokens, "token")),
            ("In the cache at the end", counted(held, "token")),
        ),
    )


def _batch_experiment(place: Place) -> Experiment:
    together = min(BATCH_SIZE, place.config.max_batched_tokens)
    spec = _spec("eight answers", BATCH_SIZE, BATCH_PROMPT, BATCH_OUTPUT)
    return _single(place, "batch", spec, {"max_running": 1}, {"max_running": together})


def _batch(result: Result) -> Finding:
    rates, spans = [], []
    for side in result.sides:
        records = _requests(side)
        ends = [_moments(record)[2] for record in records]
        spans.append((min(record.submitted for record in records), max(ends)))
        tokens = sum(record.num_output_tokens for record in records)
        rates.append(tokens / (spans[-1][1] - spans[-1][0]))
    gaps = [median(_engine_gaps(_requests(side))) for side in result.sides]
    start, end = spans[1]
    answers = counted(len(_requests(result.sides[1])), "answer")
    return Finding(
        _index(rates[1] / rates[0], LESSON_WORDS["batch"].limits),
        Bracket("B", start, end, f"all {answers} in {duration(end - start)}"),
        (
            ("One at a time (A)", f"{rate(rates[0])}, a token every {duration(gaps[0])}"),
            ("All in one batch (B)", f"{rate(rates[1])}, a token every {duration(gaps[1])} each"),
            ("The batch writes", _times(rates[1] / rates[0], "the tokens a second")),
        ),
    )


def _preset(name: str, preset: str) -> Callable[[Place], Experiment]:
    def experiment(place: Place) -> Experiment:
        return PRESETS[preset].experiment(place.config, place.source)

    return experiment


LESSONS: Final[dict[str, Lesson]] = {
    lesson.name: lesson
    for lesson in (
        Lesson(
            name="read-write",
            band="requests",
            source="engine/core/scheduler.py",
            experiment=_read_write_experiment,
            measure=_read_write,
        ),
        Lesson(
            name="stall",
            band="requests",
            source="engine/core/policies.py",
            experiment=_preset("stall", "long-prompt"),
            measure=_stall,
        ),
        Lesson(
            name="prefix",
            band="requests",
            source="engine/core/kv_blocks.py",
            experiment=_preset("prefix", "shared-document"),
            measure=_prefix,
        ),
        Lesson(
            name="growth",
            band="growth",
            source="engine/core/engine.py",
            experiment=_growth_experiment,
            measure=_growth,
        ),
        Lesson(
            name="batch",
            band="steps",
            source="engine/model/runner.py",
            experiment=_batch_experiment,
            measure=_batch,
        ),
    )
}
"""In the order of the tab, by name."""


def _requests(side: Side) -> tuple[RequestRecord, ...]:
    """The requests of the run that is drawn; raises LessonUnmeasured unless each got its answer."""
    records = side.timeline.requests
    # Every answer of an experiment has exactly the length that was planned.
    if not records or any(r.num_output_tokens < r.max_output_tokens for r in records):
        raise LessonUnmeasured(LEARN["unmeasured"])
    return records


def _moments(record: RequestRecord) -> tuple[float, float, float]:
    """Scheduled, first and last token sampled; raises LessonUnmeasured where one is missing."""
    if record.scheduled is None or not record.token_sampled:
        raise LessonUnmeasured(LEARN["unmeasured"])
    return record.scheduled, record.token_sampled[0], record.token_sampled[-1]


def _ttft(record: RequestRecord) -> float:
    if record.first_token_delivered is None:
        raise LessonUnmeasured(LEARN["unmeasured"])
    return record.first_token_delivered - record.submitted


def _readers(side: Side) -> list[RequestRecord]:
    """Those whose answers were being read: all but the long prompt's."""
    records = _requests(side)
    longest_prompt = max(record.num_prompt_tokens for record in records)
    return [record for record in records if record.num_prompt_tokens < longest_prompt]


def _pause_bracket(side: Side, start: float, end: float) -> Bracket:
    """The longest pause of one answer, or the time within it in which no answer got a token."""
    middle = (start + end) / 2
    times = [t for record in _readers(side) for t in record.token_delivered]
    # Tokens of one step are delivered one after another: their pauses begin a little apart.
    silent_from = max(t for t in times if t <= middle)
    silent_to = min(t for t in times if t >= middle)
    silence = silent_to - silent_from
    if silence > SILENCE_SECONDS:
        return Bracket(side.name, silent_from, silent_to, f"no token for {duration(silence)}")
    return Bracket(side.name, start, end, f"longest gap {duration(end - start)}")


def _longest_pause(side: Side) -> tuple[float, float]:
    """Ends of the longest time without a token in an answer that was already being read."""
    gaps = [gap for record in _readers(side) for gap in pairwise(record.token_delivered)]
    if not gaps:
        raise LessonUnmeasured(LEARN["unmeasured"])
    return max(gaps, key=lambda gap: gap[1] - gap[0])


def _engine_gaps(records: Sequence[RequestRecord]) -> list[float]:
    gaps = [b - a for record in records for a, b in pairwise(record.token_sampled)]
    if not gaps:
        raise LessonUnmeasured(LEARN["unmeasured"])
    return gaps


def _index(value: float, limits: tuple[float, ...]) -> int:
    """Which of the guesses a value belongs to; each begins at its limit."""
    return sum(value >= limit for limit in limits)


def _times(factor: float, what: str) -> str:
    return f"{factor:.1f} times {what}"
