"""Numbers between the host and a device without waiting, and the one wait that a step ends with.

A plain copy from or to a GPU holds the thread until everything queued before it is done. Knows
nothing of models, steps and sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def to_device(
    values: Sequence[int] | Sequence[float], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Host numbers as a tensor on `device`, `[len(values)]`; the copy is queued, not awaited."""
    # torch keeps pinned memory until the copy has been made.
    host = torch.tensor(values, dtype=dtype, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Any:
    """The tensor's numbers as nested lists, once all that they depend on has been computed."""
    if tensor.device.type == "cuda":
        device, tensor = tensor.device, tensor.to("cpu", non_blocking=True)  # into pinned memory
        wait_for(device)
    return tensor.tolist()


def wait_for(device: torch.device) -> None:
    """Return when the device has computed what was queued on it; at once on a CPU."""
    if device.type == "cuda":
        # An event, since `torch.cuda.set_sync_debug_mode` forbids every other way of waiting.
        torch.cuda.current_stream(device).record_event().synchronize()
    elif device.type != "cpu":
        torch.accelerator.synchronize(device)
