"""Counts what would make the host wait for a GPU, on a machine without one.

Whoever wants a number out of a tensor, or copies one to or from the device without saying that the
copy may be made later, waits there for all that was queued before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Operations whose result, or its shape, depends on numbers in a tensor.
_DATA_DEPENDENT = {
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::bincount",
}
_READING = {Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__array__}
_MAKING = {torch.tensor, torch.as_tensor}


class HostWaits:
    """A context that notes, as `names` in order, what in it would have waited."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._modes = (_Functions(self.names), _Operations(self.names))

    def __enter__(self) -> HostWaits:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)


class _Functions(TorchFunctionMode):
    """What is seen only in the calls of Python, since on a CPU nothing is left to do below."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # The layers of transformers ask for the device on which their tensors are already.
        caller = sys._getframe(1).f_globals["__name__"]
        copies = (
            func is Tensor.to
            and not caller.startswith("transformers.")
            and any(
                isinstance(value, torch.device | str) for value in (*args[1:], kwargs.get("device"))
            )
        )
        if (
            func in _READING
            or (func in _MAKING and kwargs.get("device") is not None)
            or (copies and not kwargs.get("non_blocking"))
        ):
            self._names.append(func.__name__)
        return func(*args, **kwargs)


class _Operations(TorchDispatchMode):
    """What the library itself does below those calls."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names = names

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func.name()
        by_mask = name in ("aten::index.Tensor", "aten::index_put_") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        )
        if by_mask or name in _DATA_DEPENDENT:
            self._names.append(name)
        return func(*args, **(kwargs or {}))
