"""The CUDA path on a CPU: varlen attention and recorded decoding steps with stand-ins for what only
a GPU has give the tokens of `model.generate`.
"""

from __future__ import annotations

import pytest
import torch
from transformers import PreTrainedModel

from engine.core.clock import MonotonicClock
from engine.core.engine import Engine
from engine.core.plan import NoText
from engine.model import varlen_probe
from engine.model.varlen import VarlenAttention, key_places
from engine.model.varlen_probe import find_varlen_attention, probe_kernel
from engine.model.varlen_runner import VarlenRunner
from tests.model.fake_varlen import fake_kernel, fake_recorder
from tests.model.test_families import MORE
from tests.model.test_parity import (
    FAMILIES,
    Served,
    generate,
    make,
    prompt,
    reference_model,
    served_model,
)


class ServedByVarlen(Served):
    """An engine whose runner is the one for CUDA devices."""

    runner: VarlenRunner

    def __init__(
        self, model: PreTrainedModel, attention: VarlenAttention, **settings: object
    ) -> None:
        super().__init__(model, **settings)
        self.runner = VarlenRunner(
            model,
            num_blocks=self.config.num_blocks,
            block_size=self.config.block_size,
            attention=attention,
            recorder=fake_recorder,
        )
        self.engine = Engine(self.config, self.runner, NoText(), MonotonicClock())


def found(model: PreTrainedModel, **features: bool) -> VarlenAttention:
    attention = probe_kernel(model, fake_kernel(**features), 16)
    assert attention is not None
    return attention


@pytest.mark.parametrize("paged", [True, False], ids=["block tables", "gathered"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_families_give_the_reference(family: str, paged: bool) -> None:
    model = served_model(family)
    attention = found(model, paged=paged)
    assert attention == VarlenAttention(attention.kernel, paged, True, True)
    prompts = [prompt(length, seed=length) for length in (1, 17, 90, 200)]
    expected = [generate(reference_model(family), ids, 16) for ids in prompts]
    served = ServedByVarlen(model, attention, max_batched_tokens=70, max_running=4, num_blocks=15)
    for _ in range(2):  # the second time over cached blocks
        requests = [served.submit(ids, 16) for ids in prompts]
        served.run()
        assert [request.output_token_ids for request in requests] == expected
    assert served.runner.num_graphs
    served.runner.resize(20)
    assert served.runner.num_graphs == 0, "graphs of the pool that was are left"


def test_layers_that_the_kernel_lacks_windows_for_stay_portable() -> None:
    family = "gemma3, mixed layers"
    model = served_model(family)
    attention = found(model, windows=False)
    assert not attention.windows
    assert not attention.every_layer
    served = ServedByVarlen(model, attention)
    ids = prompt(90)
    request = served.submit(ids, 24)
    served.run()
    assert request.output_token_ids == generate(reference_model(family), ids, 24)
    assert served.runner.num_graphs == 0


def test_soft_capped_layers_stay_portable(monkeypatch: pytest.MonkeyPatch) -> None:
    family = "gemma2, soft-capping"
    monkeypatch.setitem(FAMILIES, family, MORE[family])
    assert probe_kernel(make(family), fake_kernel(), 16) is None


def test_a_kernel_with_other_numbers_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    right = fake_kernel()
    caplog.set_level("INFO")
    model = make("llama")
    assert probe_kernel(model, lambda *a, **k: 1.2 * right(*a, **k), 16) is None
    assert "otherwise than it should" in caplog.text


def test_a_kernel_that_lets_unowned_places_in_is_not_used() -> None:
    def leaky(*arguments: object, **keywords: object) -> object:
        if keywords["block_table"] is not None:  # reads the last block to its end
            size = arguments[1].shape[1]  # type: ignore[attr-defined]
            lengths = keywords["seqused_k"]
            keywords["seqused_k"] = (lengths + size - 1) // size * size  # type: ignore[operator]
        return fake_kernel()(*arguments, **keywords)

    attention = probe_kernel(make("llama"), leaky, 16)
    assert attention is not None
    assert not attention.paged


def test_a_kernel_without_the_arguments_is_not_used() -> None:
    def older(query: torch.Tensor, *arguments: object, scale: float) -> torch.Tensor:
        return query

    assert probe_kernel(make("llama"), older, 16) is None


def test_other_devices_go_without(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert find_varlen_attention(make("llama"), 16) is None
    assert "CUDA devices only" in caplog.text


def test_a_step_asks_for_what_the_kernel_documents() -> None:
    calls: list[dict[str, object]] = []
    model = served_model("mistral, sliding window")
    attention = VarlenAttention(fake_kernel(calls=calls), True, True, True)
    served = ServedByVarlen(model, attention, max_running=2)
    served.submit(prompt(40), 3)
    served.run()
    # 24 positions, a query's own among them, are 23 before it.
    assert {call["window_size"] for call in calls} == {(23, 0)}
    calls.clear()
    served = ServedByVarlen(served_model("llama"), attention, max_running=2)
    served.submit(prompt(40), 3)
    served.run()
    assert calls[0]["window_size"] == (-1, 0)
    assert calls[-1]["window_size"] == (-1, -1)


def test_places_of_gathered_keys() -> None:
    table = torch.tensor([[4, 2, 9], [7, 9, 9]], dtype=torch.int32)
    starts = torch.tensor([0, 6, 9], dtype=torch.int32)
    places = key_places(table, starts, 12, block_size=4)
    assert places[:9].tolist() == [16, 17, 18, 19, 8, 9, 28, 29, 30]
    assert {place // 4 for place in places[9:].tolist()} <= {7, 9}
    assert places.dtype == torch.int64


@pytest.mark.parametrize(
    ("capability", "installed", "expected"),
    [((9, 0), True, ["FA3"]), ((9, 0), False, []), ((8, 0), True, []), ((10, 0), True, [])],
)
def test_a_kernel_with_block_tables_is_taken_where_it_is_installed_and_runs(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    installed: bool,
    expected: list[str],
) -> None:
    activated: list[str] = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(
        varlen_probe.importlib.util, "find_spec", lambda name: object() if installed else None
    )
    monkeypatch.setattr(varlen_probe, "activate_flash_attention_impl", activated.append)
    varlen_probe._activate_better_kernel(torch.device("cuda", 0))
    assert activated == expected


def test_a_kernel_that_cannot_be_activated_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("built for another torch")

    caplog.set_level("INFO")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(varlen_probe.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(varlen_probe, "activate_flash_attention_impl", fail)
    varlen_probe._activate_better_kernel(torch.device("cuda", 0))
    assert "without FA3: built for another torch" in caplog.text
