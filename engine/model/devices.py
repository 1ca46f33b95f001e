"""Where a model runs and in which number format: choosing them, and saying them in words.

Knows torch's devices; what the computer itself offers is `engine.host`'s to say.
"""

from __future__ import annotations

from typing import Final

import psutil
import torch

from engine import host
from engine.core.errors import InvalidRequest

DTYPES: Final = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_CPU_FLAGS_FOR_BFLOAT16 = ("amx_bf16", "avx512_bf16")


def pick_device(name: str = "auto") -> torch.device:
    """The device called `name`: "auto", "cpu", "cuda", "cuda:1", "mps".

    "auto" is the first CUDA device if there is one, else the CPU. Raises `InvalidRequest`, with
    field "device", for a device that torch does not know or this computer does not have.
    """
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise _no_such_device(name, "is not the name of a device") from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            raise _no_such_device(name, "is not here: torch finds no CUDA device")
        if (device.index or 0) >= count:
            raise _no_such_device(name, f"is not here: the last one is cuda:{count - 1}")
        return torch.device("cuda", device.index or 0)
    if device.type == "mps" and torch.backends.mps.is_available():
        return torch.device("mps")
    raise _no_such_device(name, "is not here, or this engine does not run on it")


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The number format called `name`: "auto", "float32", "bfloat16", "float16".

    "auto" is bfloat16 where `device` multiplies it in hardware, else float32. Raises
    `InvalidRequest`, with field "dtype", for any other name.
    """
    if name == "auto":
        return torch.bfloat16 if has_fast_bfloat16(device) else torch.float32
    if name not in DTYPES:
        raise InvalidRequest(
            f"The dtype {name!r} is not one of auto, {', '.join(DTYPES)}.", field="dtype"
        )
    return DTYPES[name]


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16 matrix products.

    On a CPU with AMX they ran six times faster than float32's; without them, they are emulated
    and slower.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        flags = torch.cpu.get_capabilities()
        return any(flags.get(flag, False) for flag in _CPU_FLAGS_FOR_BFLOAT16)
    return False


def free_bytes(device: torch.device) -> int:
    """Bytes of the device's memory that can still be taken; main memory unless it is CUDA."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return host.free_memory()


def describe_device(device: torch.device) -> str:
    """The device in words for the page's header: "2-core CPU", "NVIDIA H200"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"{host.cores()}-core CPU"
    return f"{device.type.upper()} with {psutil.virtual_memory().total / 2**30:.0f} GiB"


def _no_such_device(name: str, reason: str) -> InvalidRequest:
    found = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return InvalidRequest(
        f"The device {name!r} {reason}. Devices here: {', '.join(found)}; auto picks one.",
        field="device",
    )
