"""Recorded steps are bounded, checked when they are made, and never required."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine.model import cuda_graphs
from engine.model.cuda_graphs import DecodeGraphs, Record
from engine.model.step_buffer import StepLayout
from tests.model.fake_varlen import fake_record

CPU = torch.device("cpu")
LAYOUT = StepLayout(2, 2, 2, 0, 64, 1)
OTHER = StepLayout(4, 4, 4, 0, 64, 1)


def compute(buffer: Tensor, layout: StepLayout) -> Tensor:
    return buffer[: 3 * layout.num_samples].view(layout.num_samples, 3).float() * 2


def packed(layout: StepLayout, first: int = 0) -> Tensor:
    return torch.arange(first, first + layout.num_words)


def graphs(record: Record = fake_record) -> DecodeGraphs:
    return DecodeGraphs(CPU, lambda device: record)


def test_a_replay_computes_the_step_that_it_is_given() -> None:
    recorded = graphs()
    for first in (0, 7):
        logits = recorded.run(packed(LAYOUT, first), LAYOUT, compute)
        assert logits is not None
        assert logits.tolist() == compute(packed(LAYOUT, first), LAYOUT).tolist()
    assert len(recorded) == 1
    assert recorded.run(packed(OTHER), OTHER, compute) is not None
    assert len(recorded) == 2
    recorded.clear()
    assert len(recorded) == 0


def test_the_number_of_graphs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "_MAX_GRAPHS", 1)
    recorded = graphs()
    assert recorded.run(packed(LAYOUT), LAYOUT, compute) is not None
    assert recorded.run(packed(OTHER), OTHER, compute) is None
    assert recorded.run(packed(LAYOUT), LAYOUT, compute) is not None


@pytest.mark.parametrize(("limit", "value"), [("_MAX_SECONDS", 0.0), ("_MIN_FREE_BYTES", 1 << 60)])
def test_time_and_memory_are_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(cuda_graphs, limit, value)
    assert graphs().run(packed(LAYOUT), LAYOUT, compute) is None


def test_a_failed_recording_ends_them_all(caplog: pytest.LogCaptureFixture) -> None:
    attempts: list[int] = []

    def fail_second(compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        attempts.append(len(attempts))
        if len(attempts) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")
        return fake_record(compute)

    recorded = graphs(fail_second)
    assert recorded.run(packed(LAYOUT), LAYOUT, compute) is not None
    assert recorded.run(packed(OTHER), OTHER, compute) is None
    assert "without CUDA graphs: operation not permitted" in caplog.text
    assert recorded.run(packed(LAYOUT), LAYOUT, compute) is None
    assert len(attempts) == 2, "nothing is recorded after a failure"


def test_a_graph_that_computes_otherwise_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    def stale(compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        return (lambda: None), torch.zeros_like(compute())

    assert graphs(stale).run(packed(LAYOUT), LAYOUT, compute) is None
    assert "gave other logits" in caplog.text


def test_a_row_of_nan_is_no_reason_to_go_without() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], [torch.nan] * 3])
    assert graphs().run(packed(LAYOUT), LAYOUT, lambda buffer, layout: logits) is not None
