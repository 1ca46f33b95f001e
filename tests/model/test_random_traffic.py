"""Random traffic on a real (tiny) model: whatever shares a step with it, a request's tokens are its
own; and thousands of requests leave no block behind.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.request import FinishReason, Request
from tests.model.test_parity import COMPILED, Served, prompt, served_model

_SAMPLING: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 5},
    {"temperature": 1.2, "seed": 6, "top_k": 20, "top_p": 0.9},
    {"temperature": 0.7, "seed": 7, "min_p": 0.05, "repetition_penalty": 1.2},
    {"repetition_penalty": 1.3, "presence_penalty": 0.5},
]


def submit(served: Served, length: int, shared: int, count: int, sampling: int) -> Request:
    ids = prompt(48, seed=1)[:shared] + prompt(length, seed=length)
    return served.submit(ids, count, **_SAMPLING[sampling])


def solo(spec: tuple[int, int, int, int]) -> list[int]:
    served = Served(served_model("llama"), max_batched_tokens=64)
    request = submit(served, *spec)
    served.run()
    return request.output_token_ids


_SPECS = st.tuples(
    st.integers(1, 60), st.integers(0, 48), st.integers(1, 24), st.integers(0, len(_SAMPLING) - 1)
)


@settings(max_examples=15, deadline=None)
@given(
    specs=st.lists(_SPECS, min_size=2, max_size=8),
    budget=st.integers(4, 80),
    num_blocks=st.integers(9, 40),
    seed=st.integers(0, 1000),
)
def test_rows_equal_their_solo_runs(
    specs: list[tuple[int, int, int, int]], budget: int, num_blocks: int, seed: int
) -> None:
    chooser = random.Random(seed)
    served = Served(
        served_model("llama"), max_batched_tokens=budget, max_running=4, num_blocks=num_blocks
    )
    requests: list[tuple[tuple[int, int, int, int], Request]] = []
    for spec in specs:
        requests.append((spec, submit(served, *spec)))
        for _ in range(chooser.randrange(4)):
            served.engine.step()
            served.engine.scheduler.check()
        if chooser.random() < 0.2:
            served.engine.cancel(chooser.choice(requests)[1])
    served.run()
    for spec, request in requests:
        expected = solo(spec)
        if request.finish_reason is FinishReason.CANCELLED:
            assert request.output_token_ids == expected[: request.num_output_tokens]
        else:
            assert request.output_token_ids == expected


def test_three_thousand_mixed_requests_leave_no_block_behind() -> None:
    chooser = random.Random(9)
    served = Served(
        served_model("llama" + COMPILED), max_batched_tokens=128, max_running=16, num_blocks=20
    )
    pool = served.engine.scheduler.pool
    live: list[Request] = []
    for _ in range(3000):
        live.append(
            submit(
                served,
                chooser.randrange(1, 30),
                chooser.choice((0, 0, 32, 48)),
                chooser.randrange(1, 5),
                chooser.randrange(len(_SAMPLING)),
            )
        )
        if chooser.random() < 0.1:
            served.engine.cancel(chooser.choice(live))
        if len(live) % 16 == 0:
            served.run()
            live = []
    served.run()
    assert pool.num_used == 0
    assert pool.num_free + pool.num_evictable == 20
    assert pool.num_evictions > 0
