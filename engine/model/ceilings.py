"""What this device can do at most with this model, measured: the roof that steps are shown under.

Short timings of the model's own matrices and of plain reading, taken before the engine serves. The
results have the fields of `Ceilings` and `ModelShape` in `engine.telemetry.roofline`, which counts
the work of a step and must not know torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from engine.model.devices import describe_device, free_bytes

_ROW_COUNTS = (16, 64, 256, 1024, 4096, 16384)
_MAX_SHAPES = 4
_READ_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
_CALLS_BETWEEN_SYNCS = 10


class MeasuredCeilings(NamedTuple):
    """Peak arithmetic, peak memory traffic, and what a step costs beside both."""

    flops_per_second: float
    bytes_per_second: float
    overhead_seconds: float


class ModelDimensions(NamedTuple):
    """The fields of `ModelShape`, by the same names."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied: bool
    weight_bytes: int
    matrix_parameters: int
    kv_bytes_per_token: int
    activation_bytes: int


def measure_ceilings(
    model: nn.Module,
    device: torch.device,
    seconds: float = 1.5,
    *,
    one_token_step: Callable[[], object] | None = None,
    cache: Path | None = None,
) -> MeasuredCeilings:
    """Measure the device in about `seconds`, while nothing else runs on it.

    FLOP/s: the best product of the model's own matrix shapes over several row counts. Bytes/s: the
    better of a large read and of passes over the weights with 1 and 8 rows, since the weights of a
    small model may stay in a cache. Overhead: `one_token_step` computes one position of one short
    request, start to end as the engine does; what it takes beyond reading the weights is the fixed
    cost of a step. Without it the overhead is given as 0.

    cache: a JSON file to keep the result in. One that was measured with another device, thread
    count, torch or model is ignored and replaced; one that cannot be written is done without.
    """
    matrices = _matrices(model, device)
    if not matrices:
        raise ValueError(
            f"{type(model).__name__} has no linear layers on {device}, so there is nothing to "
            f"measure; give the device that holds its weights."
        )
    key = _key(matrices, device, with_step=one_token_step is not None)
    if cache is not None and (known := _read_cache(cache, key)):
        return known
    with torch.inference_mode():
        flops = _peak_flops(model, matrices, device, 0.5 * seconds)
        bandwidth = _peak_bandwidth(matrices, device, 0.4 * seconds)
    overhead = 0.0
    if one_token_step is not None:
        step = _best_seconds(one_token_step, device, 0.1 * seconds, calls=1)
        overhead = max(0.0, step - _weight_bytes(matrices) / bandwidth)
    measured = MeasuredCeilings(flops, bandwidth, overhead)
    if cache is not None:
        _write_cache(cache, key, measured)
    return measured


def shape_of(model: nn.Module, kv_bytes_per_token: int) -> ModelDimensions:
    """Read from a transformers causal LM what the work of a step depends on."""
    config: Any = model.config.get_text_config()  # type: ignore[union-attr,operator]
    hidden, heads = config.hidden_size, config.num_attention_heads
    embedding = model.get_input_embeddings().weight  # type: ignore[operator]
    output = model.get_output_embeddings()  # type: ignore[operator]
    return ModelDimensions(
        hidden_size=hidden,
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or hidden // heads,
        intermediate_size=getattr(config, "intermediate_size", None)
        or getattr(config, "n_inner", None)
        or 4 * hidden,
        vocab_size=config.vocab_size,
        tied=output.weight is embedding,
        weight_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        matrix_parameters=_matrix_parameters(model, config),
        kv_bytes_per_token=kv_bytes_per_token,
        activation_bytes=embedding.element_size(),
    )


def _matrix_parameters(model: nn.Module, config: Any) -> int:
    """Weights that one position is multiplied with, embeddings and the head left out.

    Experts are kept in one tensor `[num_experts, ...]` or in one module each; a position goes
    through `num_experts_per_tok` of them.
    """
    looked_up = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    looked_up.add(id(model.get_output_embeddings().weight))  # type: ignore[operator]
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    active = getattr(config, "num_experts_per_tok", None)
    share = active / experts if experts and active else 1.0
    total = 0.0
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2 and id(parameter) not in looked_up:
            total += parameter.numel() * (share if ".experts." in name else 1.0)
    return round(total)


def _matrices(model: nn.Module, device: torch.device) -> list[nn.Module]:
    """The model's linear layers whose weights are on the device."""
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear | Conv1D) and module.weight.device.type == device.type
    ]


def _num_inputs(matrix: nn.Module) -> int:
    return int(matrix.in_features if isinstance(matrix, nn.Linear) else matrix.nx)  # type: ignore[arg-type]


def _weight(matrix: nn.Module) -> Tensor:
    weight = matrix.weight
    assert isinstance(weight, Tensor)
    return weight


def _weight_bytes(matrices: Iterable[nn.Module]) -> int:
    return sum(_weight(matrix).nbytes for matrix in matrices)


def _input(matrix: nn.Module, rows: int) -> Tensor:
    weight = _weight(matrix)
    return torch.ones(rows, _num_inputs(matrix), dtype=weight.dtype, device=weight.device)


def _peak_flops(
    model: nn.Module, matrices: list[nn.Module], device: torch.device, seconds: float
) -> float:
    """The best FLOP/s of the largest distinct matrices; 2 operations a weight and row."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    # The head is multiplied with few rows in a step, and with many would take all of the time.
    body = [matrix for matrix in matrices if matrix is not head] or matrices
    by_shape = {tuple(_weight(matrix).shape): matrix for matrix in body}
    largest = sorted(by_shape.values(), key=lambda m: -_weight(m).numel())[:_MAX_SHAPES]
    best = 0.0
    for matrix in largest:
        deadline = time.perf_counter() + seconds / len(largest)
        for rows in _ROW_COUNTS:
            inputs = _input(matrix, rows)
            taken = _best_seconds(lambda m=matrix, x=inputs: m(x), device, seconds / 60)  # type: ignore[misc]
            best = max(best, 2 * _weight(matrix).numel() * rows / taken)
            # The next count takes four times as long, and needs a warm-up and a few runs.
            if time.perf_counter() + 16 * taken > deadline:
                break
    return best


def _peak_bandwidth(matrices: list[nn.Module], device: torch.device, seconds: float) -> float:
    """The best bytes a second of a large read and of passes over all weights."""
    num_bytes = min(_READ_BYTES.get(device.type, 256 << 20), free_bytes(device) // 8)
    buffer = torch.ones(max(1, num_bytes // 4), device=device)
    best = buffer.nbytes / _best_seconds(buffer.sum, device, seconds / 3)
    del buffer
    weights = _weight_bytes(matrices)
    for rows in (1, 8):
        inputs = [(matrix, _input(matrix, rows)) for matrix in matrices]

        def read_weights(inputs: list[tuple[nn.Module, Tensor]] = inputs) -> None:
            for matrix, rows_in in inputs:
                matrix(rows_in)

        best = max(best, weights / _best_seconds(read_weights, device, seconds / 3))
    return best


def _best_seconds(
    call: Callable[[], object], device: torch.device, seconds: float, calls: int | None = None
) -> float:
    """The least time of one call, repeated for `seconds` and at least three times.

    On an accelerator several calls are queued before waiting for them, so that they are not timed
    with the waiting.
    """
    asynchronous = device.type != "cpu"
    calls = calls or (_CALLS_BETWEEN_SYNCS if asynchronous else 1)
    call()
    best, runs = math.inf, 0
    deadline = time.perf_counter() + seconds
    while runs < 3 or time.perf_counter() < deadline:
        if asynchronous:
            torch.accelerator.synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if asynchronous:
            torch.accelerator.synchronize(device)
        best = min(best, (time.perf_counter() - start) / calls)
        runs += 1
    return max(best, 1e-9)


def _key(matrices: list[nn.Module], device: torch.device, *, with_step: bool) -> str:
    """Identifies what a measurement depends on: machine, device, threads, torch and matrices."""
    parts = [
        platform.node(),
        platform.machine(),
        describe_device(device),
        torch.__version__,
        torch.get_num_threads(),
        with_step,
        *[(tuple(_weight(matrix).shape), str(_weight(matrix).dtype)) for matrix in matrices],
    ]
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _read_cache(path: Path, key: str) -> MeasuredCeilings | None:
    try:
        stored = json.loads(path.read_text())
        if stored.pop("key") != key:
            return None
        measured = MeasuredCeilings(**{name: float(value) for name, value in stored.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # none there, or not one of ours
    usable = all(map(math.isfinite, measured)) and min(measured[:2]) > 0 <= measured[2]
    return measured if usable else None


def _write_cache(path: Path, key: str, measured: MeasuredCeilings) -> None:
    text = json.dumps({"key": key, **measured._asdict()})
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(unfinished, path)
