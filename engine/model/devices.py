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
_ACCELERATORS: Final = ("cuda", "mps", "xpu")
_CPU_FLAGS_FOR_BFLOAT16 = ("amx_bf16", "avx512_bf16")


def pick_device(name: str = "auto") -> torch.device:
    """The device called `name`: "auto", "cpu", "cuda", "cuda:1", "mps", "xpu".

    "auto" is the accelerator that torch finds (CUDA, MPS or XPU), else the CPU. Raises
    `InvalidRequest`, with field "device", for a device that torch does not know or this computer
    does not have.
    """
    here = _accelerator()
    if name == "auto":
        return torch.device(here, 0) if here else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise _no_such_device(name, "is not the name of a device") from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type not in _ACCELERATORS:
        raise _no_such_device(name, "is not one that this engine runs on")
    if device.type != here:
        raise _no_such_device(name, f"is not here: torch finds no {device.type.upper()} device")
    count = torch.accelerator.device_count()
    if (device.index or 0) >= count:
        raise _no_such_device(name, f"is not here: the last one is {here}:{count - 1}")
    return torch.device(here, device.index or 0)


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
    """Bytes of the device's memory that can still be taken; an MPS device shares main memory."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "xpu":
        return int(torch.accelerator.get_memory_info(device)[0])
    return host.free_memory()


def describe_device(device: torch.device) -> str:
    """The device in words for the page's header: "2-core CPU", "NVIDIA H200"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "xpu":
        return torch.xpu.get_device_name(device)
    if device.type == "cpu":
        return f"{host.cores()}-core CPU"
    return f"{device.type.upper()} with {psutil.virtual_memory().total / 2**30:.0f} GiB"


def _accelerator() -> str | None:
    """The type of the accelerator that this torch is built for and finds here, if we run on it."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return found.type if found is not None and found.type in _ACCELERATORS else None


def _no_such_device(name: str, reason: str) -> InvalidRequest:
    here = _accelerator()
    count = torch.accelerator.device_count() if here else 0
    found = ["cpu", *(f"{here}:{index}" for index in range(count))]
    return InvalidRequest(
        f"The device {name!r} {reason}. Devices here: {', '.join(found)}; auto picks one.",
        field="device",
    )
