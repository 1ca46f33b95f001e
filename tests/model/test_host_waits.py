"""A step on a GPU waits for it once, when its tokens are copied to the host."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine.core.plan import Chunk, StepPlan
from engine.core.request import Phase, Request, SamplingParams, Timeline
from engine.model import runner as runner_module
from engine.model import sampling
from engine.model.sampling import SamplingRow
from engine.model.transfer import to_device, to_host, wait_for
from engine.model.varlen import VarlenAttention
from engine.model.varlen_runner import VarlenRunner
from tests.model.fake_varlen import fake_recorder
from tests.model.host_waits import HostWaits
from tests.model.test_parity import served_model


def plan(num_requests: int, start: int, length: int, *, samples: bool = True) -> StepPlan:
    return StepPlan(
        tuple(
            Chunk(
                Request(
                    number=number,
                    token_ids=[number + 1] * (start + length),
                    params=SamplingParams(),
                    seed=0,
                    timeline=Timeline(submitted=0.0),
                    block_table=[2 * number, 2 * number + 1],
                ),
                start,
                length,
                Phase.PREFILL,
                samples=samples,
            )
            for number in range(num_requests)
        )
    )


@pytest.mark.parametrize(
    "family", ["llama", "qwen3", "mistral, sliding window", "gemma3, mixed layers", "gpt2"]
)
@pytest.mark.parametrize("paged", [True, False], ids=["block tables", "gathered"])
@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
def test_computing_a_step_does_not_wait(family: str, paged: bool, graphs: bool) -> None:
    def kernel(query: Tensor, *arguments: object, **keywords: object) -> Tensor:
        return torch.zeros_like(query)

    runner = VarlenRunner(
        served_model(family),
        num_blocks=8,
        attention=VarlenAttention(kernel, paged, True, True),
        recorder=fake_recorder if graphs else None,
    )
    steps = [plan(3, 0, 9), plan(3, 9, 1), plan(3, 10, 1)]
    with torch.inference_mode():
        for step in steps:
            runner._logits(step)  # the first of a kind may set things up
        with HostWaits() as waits:
            for step in steps:
                assert runner._logits(step).shape[0] == 3
    assert waits.names == []
    assert bool(runner.num_graphs) == graphs


def test_a_step_without_tokens_ends_when_the_device_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(runner_module, "wait_for", waited.append)
    runner = runner_module.TorchRunner(served_model("llama"), num_blocks=8)
    assert len(runner.run(plan(1, 0, 9)).tokens) == 1
    assert waited == []
    assert runner.run(plan(1, 0, 9, samples=False)).tokens == ()
    assert waited == [torch.device("cpu")]


def test_numbers_reach_the_device_and_come_back() -> None:
    cpu = torch.device("cpu")
    assert to_host(to_device([3, 1], torch.int64, cpu)) == [3, 1]
    assert to_host(torch.tensor([[0.5], [2.0]])) == [[0.5], [2.0]]
    wait_for(cpu)
    with HostWaits() as waits:
        to_device([3, 1], torch.int64, cpu)
    assert waits.names == []


@pytest.mark.parametrize(
    ("wait", "name"),
    [
        (lambda x: x.sum().item(), "aten::_local_scalar_dense"),
        (lambda x: bool(x.sum() > 0), "aten::_local_scalar_dense"),
        (lambda x: x.nonzero(), "aten::nonzero"),
        (lambda x: x[x > 1], "aten::index.Tensor"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x.cpu(), "cpu"),
        (lambda x: x.to("cpu"), "to"),
        (lambda x: torch.tensor([1], device=x.device), "tensor"),
    ],
)
def test_waits_are_seen(wait: Callable[[Tensor], object], name: str) -> None:
    numbers = torch.tensor([1.0, 2.0])
    with HostWaits() as waits:
        wait(numbers)
    assert waits.names == [name]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.8),
        SamplingParams(temperature=0.8, top_p=0.9),
        SamplingParams(temperature=0.8, top_k=20, min_p=0.05),
        SamplingParams(temperature=0.0, repetition_penalty=1.3, presence_penalty=0.5),
        SamplingParams(temperature=0.0, min_tokens=4),
    ],
)
def test_sampling_waits_once(monkeypatch: pytest.MonkeyPatch, params: SamplingParams) -> None:
    monkeypatch.setattr(sampling, "_choose_on_host", sampling._choose_on_device)
    rows = [SamplingRow(params, number, 0, (1, 2), (3,), frozenset({5})) for number in range(3)]
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    with HostWaits() as waits:
        tokens = sampling.sample(logits, rows)
    assert waits.names == ["tolist"]
    assert all(token.error is None for token in tokens)
