"""Linear layers laid out for this processor's matrix units, those of one input computed as one.

Our own kernels multiply weights in panels of 16 outputs, and oneDNN multiplies them fastest in a
layout of its own; one wide product costs less than three narrow ones. Which layers share an input
is observed in a step, not known by a model's name. Only half precision on a CPU is packed: float32
is the reference that others are compared with.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.model.kernels import available, has_tiles

log = logging.getLogger(__name__)

# Half precision rounds each product; the order of its sums may differ between layouts.
_TOLERANCE = 0.02


class PackedLinear(nn.Linear):
    """One or more linear layers over the same input, laid out for this processor; inference only.

    In panels (`panels_of`) where the kernels multiply those, else in oneDNN's layout. Its output is
    theirs side by side, `[..., sum of out_features]`.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        nn.Module.__init__(self)
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self.out_features, self.in_features = weight.shape
        self.in_panels = has_panels(weight)
        if self.in_panels:
            packed = panels_of(weight)
        else:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        bias = torch.cat(biases) if biases else weight.new_empty(0) if self.in_panels else None
        self.register_buffer("weight", packed)
        self.register_buffer("bias", bias)

    def forward(self, input: Tensor) -> Tensor:
        """`[..., in_features]` -> `[..., out_features]`."""
        output: Tensor
        if self.in_panels:
            output = torch.ops.phasescope.project(input.contiguous(), self.weight, self.bias)
        else:
            output = torch.ops.mkldnn._linear_pointwise(
                input, self.weight, self.bias, "none", [], ""
            )
        return output


def has_panels(weight: Tensor) -> bool:
    """Whether our kernels can multiply a weight `[outputs, inputs]`; float32 is never repacked."""
    outputs, inputs = weight.shape
    if weight.device.type != "cpu" or outputs % 32 or not available():
        return False
    if weight.dtype == torch.float32:
        return inputs % 16 == 0
    return weight.dtype == torch.bfloat16 and inputs % 32 == 0 and has_tiles()


def panels_of(weight: Tensor) -> Tensor:
    """A weight `[outputs, inputs]` as our kernels take it; see `has_panels`.

    float32: `[outputs / 16, 16, inputs]`, a view. bfloat16: `[outputs / 16, inputs / 2, 16, 2]`,
    pairs of inputs together, as the processor's tiles want them.
    """
    outputs, inputs = weight.shape
    if weight.dtype == torch.float32:
        return weight.view(outputs // 16, 16, inputs)
    return weight.view(outputs // 16, 16, inputs // 2, 2).transpose(1, 2).contiguous()


def combine(layers: Sequence[nn.Linear]) -> nn.Module:
    """Layers over one input, all with a bias or none, as one; packed where that is of use.

    Its output is theirs side by side, `[..., sum of out_features]`.
    """
    if _packable(layers[0].weight):
        return PackedLinear(layers)
    if len(layers) == 1:
        return layers[0]
    joined = nn.Linear(
        layers[0].in_features,
        sum(layer.out_features for layer in layers),
        bias=layers[0].bias is not None,
        device="meta",
    )
    joined.weight = _joined([layer.weight for layer in layers])
    if joined.bias is not None:
        joined.bias = _joined([layer.bias for layer in layers])
    return joined


def _joined(parameters: Sequence[Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.cat([p.detach() for p in parameters]), requires_grad=False)


class _Shared(nn.Module):
    """Computes the layers of one input when the first is called, and keeps it for the rest."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.linear = PackedLinear(layers)
        self._num_left = 0
        self._num_layers = len(layers)
        self._input: Tensor | None = None
        self._output: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:
        if self._input is not input or self._num_left == 0:
            self._input, self._output = input, self.linear(input)
            self._num_left = self._num_layers
        self._num_left -= 1
        output = self._output
        assert output is not None
        if self._num_left == 0:
            self._input = self._output = None  # nothing is kept from step to step
        return output


class _Part(nn.Module):
    """One layer's share of a `_Shared` output."""

    def __init__(self, shared: _Shared, start: int, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.shared = shared
        self._start, self._stop = start, start + layer.out_features

    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = self.shared(input)
        return output[..., self._start : self._stop]


class _Call(NamedTuple):
    """A linear layer that was called, by its place in the model, and its input."""

    parent: nn.Module
    name: str
    layer: nn.Linear
    input: Tensor


def pack_linear_layers(model: PreTrainedModel, step: Callable[[], Tensor]) -> int:
    """Replace the model's linear layers by packed ones; returns how many were replaced.

    step: computes a short step on the model and returns its logits. Nothing is replaced, and 0
    returned, where this processor or number format gains nothing by it, where torch lacks the
    operations, or where the logits would not stay the same within rounding.
    """
    if not _packable(next(model.parameters())) or hasattr(model, "hf_device_map"):
        return 0
    expected, calls = _observe(model, step)
    replaced: list[_Call] = []
    try:
        for group in _groups(calls):
            _replace(group)
            replaced += group
        packed = step()
    except Exception as error:
        # These operations are torch's own and may change: the plain layers always work.
        log.info("Linear layers are left unpacked: %s", error)
        _restore(replaced)
        return 0
    slack = _TOLERANCE * expected.std().item()
    if not torch.allclose(packed, expected, rtol=_TOLERANCE, atol=slack):
        log.info("Linear layers are left unpacked: packing them changes the logits")
        _restore(replaced)
        return 0
    return len(replaced)


def _packable(weight: Tensor) -> bool:
    """Whether weights are laid out anew: in half precision, with oneDNN to fall back on."""
    if weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # as torch has it
        return False
    try:
        return bool(torch.ops.mkldnn._reorder_linear_weight and torch.ops.mkldnn._linear_pointwise)
    except AttributeError:
        return False


def _observe(model: nn.Module, step: Callable[[], Tensor]) -> tuple[Tensor, list[_Call]]:
    """The step's logits, and the linear layers in the order in which it called them."""
    calls: list[_Call] = []
    handles = []
    for parent in model.modules():
        for name, layer in parent.named_children():
            if type(layer) is nn.Linear:

                def note(
                    layer: nn.Module, inputs: Any, parent: nn.Module = parent, name: str = name
                ) -> None:
                    assert isinstance(layer, nn.Linear)
                    calls.append(_Call(parent, name, layer, inputs[0]))

                handles.append(layer.register_forward_pre_hook(note))
    try:
        return step(), calls
    finally:
        for handle in handles:
            handle.remove()


def _groups(calls: Sequence[_Call]) -> list[list[_Call]]:
    """Calls in a row with one parent and one input, of layers that are called once a step."""
    times: dict[int, int] = {}
    for call in calls:
        times[id(call.layer)] = times.get(id(call.layer), 0) + 1
    once = [call for call in calls if times[id(call.layer)] == 1]
    # One bias among several layers without would have to be filled up with zeros.
    rows = itertools.groupby(
        once, key=lambda call: (id(call.parent), id(call.input), call.layer.bias is None)
    )
    return [list(group) for _, group in rows]


def _replace(group: list[_Call]) -> None:
    if len(group) == 1:
        setattr(group[0].parent, group[0].name, PackedLinear([group[0].layer]))
        return
    shared = _Shared([call.layer for call in group])
    start = 0
    for call in group:
        setattr(call.parent, call.name, _Part(shared, start, call.layer))
        start += call.layer.out_features


def _restore(replaced: Sequence[_Call]) -> None:
    for call in replaced:
        setattr(call.parent, call.name, call.layer)
