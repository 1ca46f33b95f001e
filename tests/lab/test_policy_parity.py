"""Whatever fills a step, greedy answers of a real (tiny, random) model stay those of `generate`."""

from __future__ import annotations

import pytest

from engine.core.clock import MonotonicClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.plan import NoText
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS
from engine.core.request import Request, SamplingParams, Timeline
from engine.model.runner import TorchRunner
from tests.model.test_parity import generate, prompt, reference_model, served_model

FAMILY = "llama"
LENGTHS = (5, 40, 33, 70, 17)
TOKENS = 30


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    model = reference_model(FAMILY)
    return [generate(model, prompt(length, length), TOKENS) for length in LENGTHS]


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("order", sorted(QUEUE_ORDERS))
@pytest.mark.parametrize("num_blocks", [64, 8])
def test_greedy_answers_do_not_depend_on_policy_order_or_pool(
    policy: str, order: str, num_blocks: int, expected: list[list[int]]
) -> None:
    config = EngineConfig(
        num_blocks=num_blocks,
        max_batched_tokens=24,
        max_running=3,
        max_model_len=128,
        policy=policy,
        queue_order=order,
        long_prompt_threshold=10,
    )
    runner = TorchRunner(served_model(FAMILY), num_blocks=num_blocks, block_size=16)
    engine = Engine(config, runner, NoText(), MonotonicClock())
    requests = []
    for number, length in enumerate(LENGTHS, start=1):
        request = Request(
            number=number,
            token_ids=prompt(length, length),
            params=SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True),
            seed=0,
            timeline=Timeline(submitted=0.0, queued=0.0),
            priority=-number,
        )
        engine.add(request)
        requests.append(request)
        engine.step()
        engine.scheduler.check()
    while engine.step():
        engine.scheduler.check()
    assert [request.output_token_ids for request in requests] == expected
    assert any(r.timeline.preemptions for r in requests) == (num_blocks == 8)
