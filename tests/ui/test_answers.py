"""Answering a message over a real service with a stub model, without a browser."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from engine.contracts import ServiceStatus
from engine.core.plan import StepPlan
from engine.core.request import FinishReason
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, started, stub_build, wait_until
from ui import conversation, markup
from ui.answers import Answers, Update
from ui.reading import PATIENCE_SECONDS

FORM: dict[str, object] = {"temperature": 0.0, "max_tokens": 40}
Serve = Callable[..., tuple[EngineService, Answers]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    services: list[EngineService] = []

    def make(script: str = "words ", seconds: float = 0.0, **settings: Any) -> tuple[Any, Answers]:
        service = started(ScriptedRunner(script, seconds=seconds), **settings)
        services.append(service)
        return service, Answers(service, epoch="e")

    yield make
    for service in services:
        service.close()


async def _all(updates: AsyncIterator[Update]) -> list[Update]:
    return [update async for update in updates]


def _send(
    answers: Answers, text: str, history: Any = (), session: str = "s", **form: object
) -> list[Update]:
    return asyncio.run(_all(answers.send(session, text, list(history), {**FORM, **form})))


def _answer(update: Update) -> str:
    return conversation.turns(update.history)[-1].answer


def _said(update: Update) -> str:
    return markup.plain(update.history[-1]["content"][1]["text"])


def test_an_answer_grows_and_ends_with_its_numbers(serve: Serve) -> None:
    service, answers = serve(seconds=0.01)
    updates = _send(answers, "hello", max_tokens=60)
    texts = [_answer(update) for update in updates]
    assert texts[-1] == "words " * 10
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert len(set(texts)) > 3
    assert "reached the 60-token limit" in _said(updates[-1])
    assert any("so far" in _said(update) for update in updates)
    assert answers.num_running == 0
    assert service.store.find(1).complete  # type: ignore[union-attr]


def test_the_composer_is_emptied_once_and_then_left_alone(serve: Serve) -> None:
    _, answers = serve(seconds=0.01)
    composers = [update.composer for update in _send(answers, "hello")]
    assert composers[0] == ""
    assert set(composers[1:]) == {None}


def test_updates_are_paced_and_the_first_token_is_not(serve: Serve) -> None:
    _, answers = serve(seconds=0.005)

    async def run() -> tuple[list[float], list[str]]:
        times, texts = [], []
        async for update in answers.send("s", "hello", [], {**FORM, "max_tokens": 200}):
            times.append(time.monotonic())
            texts.append(_answer(update))
        return times, texts

    times, texts = asyncio.run(run())
    first = next(i for i, text in enumerate(texts) if text)
    assert times[first] - times[0] < 0.1
    seconds = times[-1] - times[0]
    assert len(times) <= 10 * seconds + 4


def test_a_conversation_goes_on_and_footers_stay_out_of_the_prompt(serve: Serve) -> None:
    service, answers = serve(script="ab<b>")
    first = _send(answers, "one & <two>", max_tokens=5)[-1]
    second = _send(answers, "three", first.history, max_tokens=5)[-1]
    assert len(conversation.turns(second.history)) == 2
    # The stub's prompt is the messages' contents, a line each, a token a character.
    prompt = "\n".join(["one & <two>", "ab<b>", "three"])
    record = service.store.find(2)
    assert record is not None
    assert record.num_prompt_tokens == len(prompt)


def test_a_system_prompt_comes_first(serve: Serve) -> None:
    service, answers = serve()
    _send(answers, "hi", system="Be brief.")
    assert service.store.find(1).num_prompt_tokens == len("Be brief.\nhi")  # type: ignore[union-attr]


def test_stop_ends_the_answer_within_a_second_and_keeps_it(serve: Serve) -> None:
    service, answers = serve(seconds=0.01)

    async def run() -> tuple[list[Update], float]:
        updates, stopped_at = [], 0.0
        async for update in answers.send("s", "hello", [], {**FORM, "max_tokens": 1000}):
            updates.append(update)
            if len(updates) == 3:
                answers.stop("somebody else")
            if len(updates) == 5:
                stopped_at = time.monotonic()
                answers.stop("s")
        return updates, time.monotonic() - stopped_at

    updates, seconds = asyncio.run(run())
    assert len(updates) > 5, "a stranger's stop ended it"
    assert seconds < 1
    assert _answer(updates[-1]).startswith("words")
    taken = len(service.store.find(1).token_delivered)  # type: ignore[union-attr]
    assert f"stopped by you after {taken} tokens" in _said(updates[-1])
    assert answers.num_running == 0


def test_a_reader_that_leaves_frees_its_request(serve: Serve) -> None:
    service, answers = serve(seconds=0.01)

    async def run() -> None:
        async with aclosing(
            answers.send("s", "hello", [], {**FORM, "max_tokens": 1500})
        ) as updates:
            async for update in updates:
                if _answer(update):
                    break
        assert answers.num_running == 0

    asyncio.run(run())
    gc.collect()
    wait_until(lambda: service.store.find(1).complete, timeout=2)  # type: ignore[union-attr]
    assert service.store.find(1).finish_reason is FinishReason.CANCELLED  # type: ignore[union-attr]


def test_a_waiting_answer_is_looked_at_at_least_once_a_second(serve: Serve) -> None:
    """Between two looks nobody notices that a tab was closed."""
    assert PATIENCE_SECONDS <= 1
    _, answers = serve(seconds=1.2)

    async def run() -> list[float]:
        return [
            time.monotonic() async for _ in answers.send("s", "hi", [], {**FORM, "max_tokens": 2})
        ]

    times = asyncio.run(run())
    assert max(b - a for a, b in itertools.pairwise(times)) < 1


@pytest.mark.parametrize(
    ("text", "form", "words"),
    [
        ("  \n", {}, "empty"),
        ("hello", {"temperature": -1}, "temperature must be a finite number from 0 to 100"),
        ("hello", {"max_tokens": 0}, "max_tokens"),
        ("x" * 3000, {}, "the context holds 2047"),
    ],
)
def test_what_cannot_be_served_is_said_and_kept(
    serve: Serve, text: str, form: dict[str, object], words: str
) -> None:
    service, answers = serve()
    past = _send(answers, "before")[-1].history
    (update,) = _send(answers, text, past, **form)
    assert update.composer == text
    assert update.history[:-1] == past
    assert words in _said(update).replace(",", "")
    assert "Your text is kept." in _said(update)
    assert answers.num_running == 0
    # The sentence is gone with the next message, and never part of a prompt.
    after = _send(answers, "again", update.history)[-1]
    assert [turn.question for turn in conversation.turns(after.history)] == ["before", "again"]
    assert len(after.history) == 4
    assert service.health()[0]


def test_a_full_queue_is_said_and_the_text_kept(serve: Serve) -> None:
    _, answers = serve(seconds=0.02, max_running=1, max_waiting=1)

    async def run() -> Update:
        form = {**FORM, "max_tokens": 100}
        others = [asyncio.create_task(_all(answers.send(s, "x", [], form))) for s in "ab"]
        await asyncio.sleep(0.3)
        (update,) = await _all(answers.send("c", "mine", [], form))
        answers.stop("a")
        answers.stop("b")
        await asyncio.gather(*others)
        return update

    update = asyncio.run(run())
    assert update.composer == "mine"
    assert _said(update) == (
        "The queue is full (1 waiting). Your text is kept; try again in a moment."
    )


def test_a_model_that_is_not_there_yet_is_said_and_the_text_kept() -> None:
    service = EngineService(stub_build(ScriptedRunner()))
    (update,) = _send(Answers(service), "hello")
    assert update.composer == "hello"
    assert "Your text is kept." in _said(update)


def test_an_engine_failure_keeps_what_was_said_and_tells_why() -> None:
    def fail(plan: StepPlan) -> None:
        if plan.chunks[0].request.num_output_tokens == 12:
            raise RuntimeError("a <cable> was pulled")

    service = started(ScriptedRunner(seconds=0.01, before=fail))
    last = _send(Answers(service), "hello")[-1]
    assert _answer(last) == "words words "
    assert "R1 failed after 12 tokens: " in _said(last)
    assert "a <cable> was pulled" in _said(last)
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    assert _answer(_send(Answers(service), "hello", max_tokens=5)[-1]) == "words"
    service.close()


def test_old_turns_are_left_out_with_a_note_when_the_context_is_full(serve: Serve) -> None:
    service, answers = serve(max_model_len=128)
    history: Any = []
    for _ in range(6):
        last = _send(answers, "q" * 20, history, max_tokens=18)[-1]
        history = last.history
        assert _answer(last) == "words " * 3
    assert "did not fit into the context; left out" in _said(last)
    assert len(conversation.turns(history)) == 6, "they stay on the page"
    assert all(record.finish_reason is FinishReason.LENGTH for record in service.store.records())


def test_retry_answers_the_question_anew(serve: Serve) -> None:
    _, answers = serve()
    first = _send(answers, "one", max_tokens=5)[-1].history
    second = _send(answers, "two", first, max_tokens=5)[-1].history

    def retry(index: int, history: Any, **form: object) -> list[Update]:
        return asyncio.run(_all(answers.retry("s", index, history, {**FORM, **form})))

    updates = retry(2, second, max_tokens=7)
    assert [turn.question for turn in conversation.turns(updates[-1].history)] == ["one", "two"]
    assert _answer(updates[-1]) == "words w"
    assert {update.composer for update in updates} == {None}
    assert retry(1, second) == []
    (refused,) = retry(2, second, top_p=7)
    assert refused.history[:4] == second
    assert "top_p" in _said(refused)


def _retry(answers: Answers, index: int, history: Any, draft: str) -> list[Update]:
    return asyncio.run(_all(answers.retry("s", index, history, FORM, draft)))


def test_retry_after_a_refusal_sends_the_refused_text(serve: Serve) -> None:
    _, answers = serve()
    past = _send(answers, "one", max_tokens=5)[-1].history
    (refused,) = _send(answers, "two", past, top_p=7)
    # Gradio names the newest question in the history, which is not the one that was refused.
    updates = _retry(answers, 0, refused.history, "two")
    assert updates[0].composer == ""
    turns = conversation.turns(updates[-1].history)
    assert [turn.question for turn in turns] == ["one", "two"]
    assert turns[-1].answer
    (again,) = _retry(answers, 0, refused.history, " ")
    assert "The message is empty" in _said(again)


def test_editing_after_a_refusal_leaves_the_composer_and_the_answers_alone(serve: Serve) -> None:
    _, answers = serve()
    past = _send(answers, "one", max_tokens=5)[-1].history
    (refused,) = _send(answers, "two", past, top_p=7)
    assert answers.take_back("s", 0, refused.history) == (past, None)


def test_the_record_says_what_the_prompt_was_made_of(serve: Serve) -> None:
    service, answers = serve(script="abcde")
    first = _send(answers, "four", max_tokens=5)[-1].history
    last = _send(answers, "sixsix", first, max_tokens=5, system="Be.")[-1]
    record = service.store.find(2)
    assert record is not None
    # The stub puts the messages on lines of their own.
    parts = {"system": 3, "history": 9, "message": 6, "template": 3}
    assert dict(record.composition) == parts
    assert sum(parts.values()) == record.num_prompt_tokens
    assert "6 of 21 tokens are your message" in _said(last)


def _colour(answers: Answers, history: Any, on: bool = True, session: str = "s") -> Any:
    return answers.colour(session, history, on)


def test_answers_are_coloured_by_their_waits_and_back(serve: Serve) -> None:
    _, answers = serve(script="a <b>**c** ", seconds=0.005)
    plain = _send(answers, "one", max_tokens=22)[-1].history
    plain = _send(answers, "two", plain, max_tokens=11)[-1].history
    shown = _colour(answers, plain)
    for message in (shown[1], shown[3]):
        text, legend, footer = (part["text"] for part in message["content"])
        assert text.count("class='ps-w") == len(markup.plain(text))
        assert "gap before a token" in legend
        assert "ps-foot" in footer
    assert conversation.turns(shown) == conversation.turns(plain)
    assert _colour(answers, shown, on=False) == plain
    # A coloured conversation goes on as any other.
    again = _send(answers, "three", shown, max_tokens=11)[-1].history
    assert [turn.answer for turn in conversation.turns(again)][:2] == [
        turn.answer for turn in conversation.turns(plain)
    ]
    assert _colour(answers, plain, session="another") == plain, "another session's tokens"
    answers.abandon("s")
    assert _colour(answers, plain) == plain, "they were kept after Clear"


def test_an_answer_is_coloured_at_its_end_if_asked_for_while_it_is_written(serve: Serve) -> None:
    _, answers = serve(seconds=0.01)

    async def run(at_first: bool, later: bool) -> Update:
        form = {**FORM, "colour": at_first}
        updates = []
        async for update in answers.send("s", "hello", [], form):
            updates.append(update)
            if len(updates) == 3:
                assert answers.colour("s", update.history, later) is None
        assert "ps-w" not in repr(updates[:-1])
        return updates[-1]

    assert "ps-w" in repr(asyncio.run(run(False, True)))
    assert "ps-w" not in repr(asyncio.run(run(True, False)))


def test_a_message_can_be_taken_back_unless_it_is_being_answered(serve: Serve) -> None:
    _, answers = serve(seconds=0.01)
    history = _send(answers, "a<b", max_tokens=5)[-1].history
    assert answers.take_back("s", 0, history) == ([], "a<b")

    async def run() -> None:
        async with aclosing(answers.send("s", "x", history, FORM)) as updates:
            async for _ in updates:
                assert answers.take_back("s", 0, history) is None
                assert await _all(answers.send("s", "y", history, FORM)) == []
                break

    asyncio.run(run())


def test_a_cleared_conversation_does_not_come_back(serve: Serve) -> None:
    service, answers = serve(seconds=0.01)

    async def run() -> list[Update]:
        updates = []
        async for update in answers.send("s", "hello", [], {**FORM, "max_tokens": 1000}):
            updates.append(update)
            if len(updates) == 3:
                answers.abandon("s")
        return updates

    updates = asyncio.run(run())
    assert [bool(update.history) for update in updates] == [True, True, True, False]
    assert answers.num_running == 0
    wait_until(lambda: service.store.find(1).complete, timeout=2)  # type: ignore[union-attr]


def test_two_visitors_share_an_engine_and_nothing_else(serve: Serve) -> None:
    _, answers = serve(seconds=0.01)

    async def run() -> tuple[list[Update], list[Update]]:
        async def red() -> list[Update]:
            return await _all(answers.send("1", "red", [], {**FORM, "max_tokens": 100}))

        async def blue() -> list[Update]:
            updates = []
            async for update in answers.send("2", "blue", [], {**FORM, "max_tokens": 100}):
                updates.append(update)
                if len(updates) == 4:
                    answers.stop("2")
            return updates

        return await asyncio.gather(red(), blue())

    red, blue = asyncio.run(run())
    assert "blue" not in repr(red)
    assert "red" not in re.sub("reused|read|shared", "", repr(blue))
    assert "stopped by you" in _said(blue[-1])
    assert "reached the 100-token limit" in _said(red[-1])


def test_two_messages_of_one_session_at_once_give_one_answer(serve: Serve) -> None:
    service, answers = serve(seconds=0.005)

    async def run() -> list[list[Update]]:
        return await asyncio.gather(
            *(_all(answers.send("s", text, [], FORM)) for text in ("first", "second"))
        )

    answered = [updates for updates in asyncio.run(run()) if updates]
    assert len(answered) == 1
    assert _answer(answered[0][-1]).startswith("words words")
    assert answers.num_running == 0
    wait_until(lambda: not service.store.live())
