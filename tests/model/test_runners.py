"""Which way of computing steps a device gets, and what it is called."""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel

from engine.model import runners
from engine.model.runner import TorchRunner
from engine.model.runners import make_runner
from engine.model.varlen import VarlenAttention
from engine.model.varlen_runner import VarlenRunner
from tests.model.fake_varlen import fake_kernel, fake_recorder
from tests.model.test_parity import make


@pytest.fixture
def elsewhere() -> PreTrainedModel:
    """A model on a device that is no CPU; it cannot compute there."""
    return make("llama").to(torch.device("meta"))


@pytest.mark.parametrize(
    ("kernels", "path"), [(True, "compiled kernels"), (False, "plain operators")]
)
def test_a_cpu(kernels: bool, path: str) -> None:
    runner, words = make_runner(make("llama"), num_blocks=4, block_size=16, kernels=kernels)
    assert type(runner) is TorchRunner
    assert words == path


def test_an_accelerator_without_varlen_attention(elsewhere: PreTrainedModel) -> None:
    runner, words = make_runner(elsewhere, num_blocks=4, block_size=16, kernels=False)
    assert type(runner) is TorchRunner
    assert words == "portable attention"


@pytest.mark.parametrize(("paged", "reads"), [(True, "block tables"), (False, "gathered keys")])
def test_an_accelerator_with_varlen_attention(
    monkeypatch: pytest.MonkeyPatch, elsewhere: PreTrainedModel, paged: bool, reads: str
) -> None:
    attention = VarlenAttention(fake_kernel(), paged, True, True)
    monkeypatch.setattr(runners, "find_varlen_attention", lambda model, size: attention)
    monkeypatch.setattr(runners, "cuda_recorder", fake_recorder)
    runner, words = make_runner(elsewhere, num_blocks=4, block_size=16, kernels=False)
    assert isinstance(runner, VarlenRunner)
    assert words == f"CUDA varlen attention with {reads}"
