"""The checks for a GPU, on a CPU: each passes where all is well, and fails on what it is for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from engine.lab import gpu_check
from engine.lab.gpu_check import Outcome, bench, main, table
from engine.lab.gpu_trials import memory, parity, random_model, tiny_configs, waiting
from engine.model.runner import TorchRunner
from engine.model.varlen import VarlenAttention
from engine.model.varlen_runner import VarlenRunner
from tests.model.fake_varlen import fake_kernel, fake_recorder

CPU = torch.device("cpu")


def varlen(
    model: PreTrainedModel, num_blocks: int, size: int, *, windows: bool = True
) -> tuple[TorchRunner, str]:
    """What is made on a GPU, with stand-ins for the kernel and for graphs."""
    attention = VarlenAttention(fake_kernel(windows=windows), True, True, True)
    runner = VarlenRunner(
        model, num_blocks=num_blocks, block_size=size, attention=attention, recorder=fake_recorder
    )
    return runner, "stand-ins"


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    return random_model(tiny_configs()["Llama"], CPU)


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu_check.environment, "prepare", lambda threads: None)
    assert main([]) == 2
    assert capsys.readouterr().out.count(".") == 1


@pytest.mark.parametrize("family", list(tiny_configs()))
def test_parity_on_the_portable_path(family: str) -> None:
    outcome = parity(family, random_model(tiny_configs()[family], CPU), torch.float32)
    assert outcome.passed, outcome.finding
    assert outcome.name == f"{family}, float32"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parity_with_varlen_attention(llama: PreTrainedModel, dtype: torch.dtype) -> None:
    outcome = parity("Llama", llama, dtype, varlen)
    assert outcome.passed, outcome.finding
    assert "stand-ins" in outcome.finding


def test_a_kernel_that_ignores_windows_fails_parity() -> None:
    model = random_model(tiny_configs()["Mistral, sliding window"], CPU)

    def ignoring(model: PreTrainedModel, blocks: int, size: int) -> tuple[TorchRunner, str]:
        return varlen(model, blocks, size, windows=False)

    assert not parity("Mistral", model, torch.bfloat16, ignoring).passed
    assert parity("Mistral", model, torch.bfloat16, varlen).passed


def test_a_step_that_waits_fails(llama: PreTrainedModel) -> None:
    runners: list[TorchRunner] = []

    def make(model: PreTrainedModel, blocks: int, size: int) -> tuple[TorchRunner, str]:
        runners.append(TorchRunner(model, num_blocks=blocks, block_size=size))
        return runners[-1], "portable"

    @contextmanager
    def forbidden() -> Iterator[None]:
        def wait(plan: object) -> None:
            raise RuntimeError("called a synchronizing CUDA operation\nbacktrace")

        runners[-1].run = wait  # type: ignore[assignment]
        yield

    outcome = waiting(llama, torch.float32, forbidden, make)
    assert not outcome.passed
    assert outcome.finding == "called a synchronizing CUDA operation"
    assert waiting(llama, torch.float32, nullcontext, make).passed


def test_memory_that_grows_fails(llama: PreTrainedModel) -> None:
    def check(*in_use: int) -> Outcome:
        values = iter(in_use)
        return memory(llama, torch.float32, lambda: next(values), num_steps=1)

    pool = 256 * 16 * 3 * 2 * 2 * 64 * 4  # blocks, positions, layers, k and v, heads, size, bytes
    steady = check(0, pool, pool)
    assert steady.passed
    assert "pool 12.0 MiB" in steady.finding
    assert not check(0, pool, pool + (2 << 20)).passed
    assert not check(0, pool - 1, pool - 1).passed, "less than the pool was taken"


def test_the_benchmark_becomes_a_row_for_each_concurrency(monkeypatch: pytest.MonkeyPatch) -> None:
    side = {"tokens_per_second": 1500.0, "itl_p50": 2.5}
    result = {"concurrency": 8, "throughput_ratio": 3.0, "itl_p50_ratio": 0.5}
    report = {
        "model": "SmolLM2",
        "dtype": "bfloat16",
        "results": [result | {"engine": side, "generate": side}],
    }
    commands: list[list[str]] = []

    def run(command: list[str], **keywords: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(returncode=0, stdout="note\n" + json.dumps(report, indent=2))

    monkeypatch.setattr(subprocess, "run", run)
    (outcome,) = bench(60.0, (8, 64))
    assert commands[0][-3:] == ["--concurrency", "8", "64"]
    assert outcome.name == "SmolLM2, 8 at once, bfloat16"
    assert "1,500 tok/s over 1,500: 3.00" in outcome.finding
    assert table([outcome]).splitlines()[2].endswith("| ok |")


def test_a_benchmark_that_does_not_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    (outcome,) = bench(30.0, (1,), extra=["--no-such-option"])
    assert not outcome.passed
    assert "--no-such-option" in outcome.finding

    def run(command: list[str], timeout: float, **keywords: Any) -> Any:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    (outcome,) = bench(30.0, (1,))
    assert outcome.finding == "was not done within 30 s"
    assert "FAILED" in table([outcome])
