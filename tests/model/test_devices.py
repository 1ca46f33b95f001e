"""Choosing a device and a dtype, and the sentences for those that are not there."""

from __future__ import annotations

import pytest
import torch

from engine import host
from engine.core.errors import InvalidRequest
from engine.model import devices

CPU = torch.device("cpu")


def accelerators(patch: pytest.MonkeyPatch, kind: str | None, count: int) -> None:
    """What torch finds: `count` accelerators of a kind, or none."""
    found = torch.device(kind) if kind else None
    patch.setattr(torch.accelerator, "current_accelerator", lambda check_available: found)
    patch.setattr(torch.accelerator, "device_count", lambda: count)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerators(monkeypatch, "cuda", 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 << 30, 8 << 30))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerators(monkeypatch, None, 0)


@pytest.mark.usefixtures("no_gpu")
def test_auto_is_the_cpu_without_a_gpu() -> None:
    assert devices.pick_device("auto") == CPU
    assert devices.pick_device("cpu") == CPU


@pytest.mark.usefixtures("two_gpus")
def test_auto_is_the_first_gpu() -> None:
    assert devices.pick_device("auto") == torch.device("cuda", 0)
    assert devices.pick_device("cuda") == torch.device("cuda", 0)
    assert devices.pick_device("cuda:1") == torch.device("cuda", 1)


@pytest.mark.parametrize("kind", ["mps", "xpu"])
def test_auto_is_another_accelerator_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    accelerators(monkeypatch, kind, 1)
    assert devices.pick_device("auto") == torch.device(kind, 0)
    assert devices.pick_device(kind) == torch.device(kind, 0)
    with pytest.raises(InvalidRequest, match=f"no CUDA device. Devices here: cpu, {kind}:0"):
        devices.pick_device("cuda")


def test_auto_is_the_cpu_beside_an_accelerator_that_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accelerators(monkeypatch, "hpu", 1)
    assert devices.pick_device("auto") == CPU


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "gpu", "", "tpu", "meta", "cuda:-1", "mps"])
def test_a_device_that_is_not_here_is_named_with_those_that_are(name: str) -> None:
    with pytest.raises(InvalidRequest, match="Devices here: cpu; auto picks one") as caught:
        devices.pick_device(name)
    assert repr(name) in str(caught.value)
    assert caught.value.field == "device"


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_beyond_the_last_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"the last one is cuda:1.*cpu, cuda:0, cuda:1"):
        devices.pick_device("cuda:2")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"amx_bf16": True, "avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": False, "avx512_bf16": True}, torch.bfloat16),
        ({"avx2": True, "avx512_f": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto_dtype_follows_the_processor(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, bool], expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
    assert devices.pick_dtype("auto", CPU) is expected


def test_auto_dtype_follows_the_gpu(monkeypatch: pytest.MonkeyPatch, two_gpus: None) -> None:
    gpu = torch.device("cuda", 0)
    assert devices.pick_dtype("auto", gpu) is torch.bfloat16
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert devices.pick_dtype("auto", gpu) is torch.float32


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_a_named_dtype_is_taken(name: str) -> None:
    assert devices.pick_dtype(name, CPU) is getattr(torch, name)


@pytest.mark.parametrize("name", ["int8", "fp16", "", "Float32"])
def test_other_dtypes_are_refused_with_the_choices(name: str) -> None:
    with pytest.raises(InvalidRequest, match="auto, float32, bfloat16, float16") as caught:
        devices.pick_dtype(name, CPU)
    assert caught.value.field == "dtype"


def test_the_cpu_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cores", lambda: 2)
    assert devices.describe_device(CPU) == "2-core CPU"


@pytest.mark.usefixtures("two_gpus")
def test_the_gpu_in_words_and_its_memory() -> None:
    gpu = torch.device("cuda", 0)
    assert devices.describe_device(gpu) == "NVIDIA H200"
    assert devices.free_bytes(gpu) == 5 << 30


def test_the_cpus_free_bytes_are_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "free_memory", lambda: 12345)
    assert devices.free_bytes(CPU) == 12345
