"""The lessons: what each runs, what it reads off the runs, and which guess that makes right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from engine.core.capacity import Ceilings
from engine.core.config import EngineConfig
from engine.core.errors import PhaseScopeError
from engine.lab.backends import SimulatedBackend
from engine.lab.experiment import perform
from engine.lab.results import Result
from engine.lab.simulation import SMOLLM2_135M, simulated_tokens
from ui.compare_desk import Job
from ui.compare_places import Place
from ui.learn import learn_routes
from ui.learn_lessons import LESSONS, LessonUnmeasured
from ui.learn_report import CODE_ROUTE, finding, question, verdict
from ui.learn_runs import LessonRuns

PLACE = Place(
    config=EngineConfig(num_blocks=1_024),
    source=simulated_tokens(SMOLLM2_135M),
    most_blocks=1_024,
    backend=SimulatedBackend("a model", SMOLLM2_135M, Ceilings(1e12, 25e9, 3e-3)),
)
_RESULTS: dict[str, Result] = {}


def result_of(name: str) -> Result:
    """The lesson's experiment in virtual time, run once for all tests."""
    if name not in _RESULTS:
        assert PLACE.backend is not None
        _RESULTS[name] = perform(LESSONS[name].experiment(PLACE), PLACE.backend)
    return _RESULTS[name]


@pytest.fixture(params=LESSONS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_lesson_measures_what_it_asks(name: str) -> None:
    lesson = LESSONS[name]
    found = lesson.measure(result_of(name))
    assert 0 <= found.answer < len(lesson.words.guesses)
    assert found.bracket.start < found.bracket.end
    assert found.bracket.side in {side.name for side in result_of(name).sides}
    assert all(label and value for label, value in found.numbers)


def test_what_is_said_is_short_and_every_guess_can_be_right(name: str) -> None:
    words = LESSONS[name].words
    assert words.explanation.count(". ") + 1 <= 3
    assert not words.limits or len(words.limits) == len(words.guesses) - 1
    assert list(words.limits) == sorted(words.limits)


def test_the_cache_lacks_the_last_token_of_an_answer() -> None:
    found = LESSONS["growth"].measure(result_of("growth"))
    assert LESSONS["growth"].words.guesses[found.answer] == "299"
    assert dict(found.numbers)["In the cache at the end"] == "299 tokens"
    assert found.bracket.text == "99 tokens more, one a step"


def test_the_bracket_of_the_stall_is_the_longest_pause_of_those_who_were_reading() -> None:
    result = result_of("stall")
    found = LESSONS["stall"].measure(result)
    streams = [r for r in result.sides[0].timeline.requests if r.num_prompt_tokens < 1_000]
    gaps = [
        later - earlier
        for record in streams
        for earlier, later in zip(record.token_delivered, record.token_delivered[1:], strict=False)
    ]
    assert found.bracket.end - found.bracket.start == max(gaps)


@pytest.mark.parametrize(
    ("scale", "between", "words"),
    [
        (100.0, False, "no token for "),
        (100.0, True, "longest gap "),
        (0.001, False, "longest gap "),
    ],
)
def test_only_a_second_in_which_nobody_got_a_token_is_called_so(
    scale: float, between: bool, words: str
) -> None:
    result = result_of("stall")
    side = result.sides[0]
    long = max(side.timeline.requests, key=lambda record: record.num_prompt_tokens)
    first, second, *others = (r for r in side.timeline.requests if r is not long)
    gap = (0.0, 0.1 * scale)
    quick = (0.0, 0.05 * scale, 0.1 * scale) if between else gap
    told = [replace(r, token_delivered=gap) for r in (first, *others)]
    told.append(replace(second, token_delivered=quick))
    timeline = replace(side.timeline, requests=(*told, long))
    changed = replace(result, sides=(replace(side, timeline=timeline), result.sides[1]))
    assert LESSONS["stall"].measure(changed).bracket.text.startswith(words)


def test_answers_whose_tokens_are_delivered_one_after_another_are_silent_together() -> None:
    result = result_of("stall")
    side = result.sides[0]
    long = max(side.timeline.requests, key=lambda record: record.num_prompt_tokens)
    others = [record for record in side.timeline.requests if record is not long]
    told = [
        replace(record, token_delivered=(number / 1e3, 3 + number / 1e3))
        for number, record in enumerate(others)
    ]
    timeline = replace(side.timeline, requests=(*told, long))
    changed = replace(result, sides=(replace(side, timeline=timeline), result.sides[1]))
    bracket = LESSONS["stall"].measure(changed).bracket
    assert (bracket.start, bracket.end) == ((len(others) - 1) / 1e3, 3.0)
    assert bracket.text == "no token for 3.00 s"


@pytest.mark.parametrize(("factor", "answer"), [(0.01, 0), (100.0, 2)])
def test_the_right_guess_follows_from_the_run(factor: float, answer: int) -> None:
    """Writing that takes `factor` times as long makes another guess right."""
    result = result_of("read-write")
    record = result.sides[0].timeline.requests[0]
    first = record.token_sampled[0]
    slower = tuple(first + factor * (time - first) for time in record.token_sampled)
    changed = _with_request(result, token_sampled=slower)
    assert LESSONS["read-write"].measure(changed).answer == answer


def test_a_run_that_was_stopped_is_no_measurement(name: str) -> None:
    result = result_of(name)
    with pytest.raises(LessonUnmeasured, match="ended early"):
        LESSONS[name].measure(_with_request(result, num_output_tokens=1))


def test_the_guess_is_set_beside_what_was_measured() -> None:
    lesson, result = LESSONS["growth"], result_of("growth")
    found = lesson.measure(result)
    assert "Your guess was right: 299." in verdict(lesson, found, 1)
    assert "You guessed 300; it was 299." in verdict(lesson, found, 2)
    assert f'href="{CODE_ROUTE}engine/core/engine.py"' in verdict(lesson, found, 2)
    shown = finding(lesson, found, result, {"blocks": 8})
    assert result.id in shown
    assert "299 tokens" in shown
    assert "299" not in question(lesson)


def test_only_the_files_of_the_lessons_are_given_out() -> None:
    client = TestClient(Starlette(routes=learn_routes()))
    for lesson in LESSONS.values():
        answer = client.get(f"/{CODE_ROUTE}{lesson.source}")
        assert answer.status_code == 200
        assert "from __future__" in answer.text
    for other in ("app.py", "engine/settings.py", "../../etc/passwd", "/etc/passwd"):
        assert client.get(f"/{CODE_ROUTE}{other}").status_code == 404


def test_another_lesson_leaves_the_one_that_runs_behind() -> None:
    runs = LessonRuns()
    job = Job()
    with runs.running("me") as run:
        assert run.start(lambda: job) is job
        runs.abandon("somebody else")
        assert not run.abandoned
        with pytest.raises(PhaseScopeError, match="in a moment"), runs.running("me"):
            pass
        runs.abandon("me")
        assert run.abandoned
        assert job.stopping
    with runs.running("me") as again:
        assert not again.abandoned


def test_a_lesson_that_is_left_before_it_has_begun_is_stopped_at_once() -> None:
    runs = LessonRuns()
    with runs.running("me") as run:
        runs.stop("me")
        assert run.start(Job).stopping
        assert not run.abandoned


def _with_request(result: Result, **changes: Any) -> Result:
    """The result with its first request changed on every side."""
    sides = []
    for side in result.sides:
        first, *others = side.timeline.requests
        requests = (replace(first, **changes), *others)
        sides.append(replace(side, timeline=replace(side.timeline, requests=requests)))
    return replace(result, sides=tuple(sides))
