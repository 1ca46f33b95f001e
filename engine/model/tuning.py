"""Makes a loaded model as fast as this machine allows, without changing what it computes.

Each way is optional, checked against the model as it was, and given up where it does not agree.
"""

from __future__ import annotations

import logging

import torch
from transformers import PreTrainedModel

from engine.model.fusing import fuse_layers
from engine.model.kernels import load_kernels
from engine.model.packing import pack_linear_layers
from engine.model.probe import probe_decoding, probe_logits
from engine.model.stacking import stack_layers

log = logging.getLogger(__name__)

_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05}


def tune(model: PreTrainedModel, *, kernels: bool = True) -> bool:
    """Fuse and pack what can be; returns whether steps may use the compiled kernels.

    kernels: whether to compile and use them at all.
    """
    usable = kernels and _kernels_agree(model)
    if usable:
        fuse_layers(model, lambda: probe_decoding(model, kernels=True)[1])
        stack_layers(model, lambda: probe_decoding(model, kernels=True)[0])
    pack_linear_layers(model, lambda: probe_logits(model))
    return usable


def _kernels_agree(model: PreTrainedModel) -> bool:
    weight = next(model.parameters())
    tolerance = _TOLERANCE.get(weight.dtype)
    if weight.device.type != "cpu" or tolerance is None or not load_kernels():
        return False
    expected, _ = probe_decoding(model, kernels=False)
    try:
        logits, _ = probe_decoding(model, kernels=True)
    except RuntimeError as error:
        log.info("Serving without compiled kernels: %s", error)
        return False
    slack = tolerance * expected.std().item()
    return torch.allclose(logits, expected, rtol=tolerance, atol=slack)
