"""What this device can do at most with this model, measured: the roof that steps are shown under.

Short timings of the model's own matrices and of plain reading, taken before the engine serves. What
a step's work is, and what bounds it, is for `engine.telemetry.roofline` to say, which knows no
torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from engine.core.capacity import Ceilings, ModelShape
from engine.core.errors import OutOfMemory
from engine.core.plan import Chunk, StepPlan
from engine.core.request import Phase, Request, SamplingParams, Timeline
from engine.model.devices import describe_device, free_bytes
from engine.model.kernels import build_key
from engine.model.runner import TorchRunner

_ROW_COUNTS = (16, 64, 256, 1024, 4096, 16384)
_MAX_SHAPES = 4
_READ_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
_CALLS_BETWEEN_SYNCS = 10
_PROMPT_ROWS = 512
_ROUNDS = 2  # apart in time, so that a passing load on the machine does not lower both


def measure_ceilings(
    model: PreTrainedModel,
    device: torch.device,
    seconds: float = 1.5,
    *,
    runner: TorchRunner | None = None,
    cache: Path | None = None,
) -> Ceilings:
    """Measure the device in about `seconds`, while nothing else runs on it.

    FLOP/s: the best product of the model's own matrix shapes over several row counts, or that of a
    long prompt's step. Bytes/s: the best of a large read, of passes over the weights with 1 and 8
    rows, since the weights of a small model may stay in a cache, and of a step of one position.
    Overhead: what such a step, start to end, takes beyond the time in which its weights are read.

    runner: what computes steps, a plain one by default; its pool is empty afterwards.
    cache: a JSON file to keep the result in. One that was measured with another device, thread
    count, torch, model, runner or build of its kernels is ignored and replaced; one that cannot be
    written is done without.
    """
    matrices = _matrices(model, device)
    if not matrices:
        raise ValueError(
            f"{type(model).__name__} has no linear layers on {device}, so there is nothing to "
            f"measure; give the device that holds its weights."
        )
    runner = runner or TorchRunner(model, num_blocks=1)
    key = _key(matrices, device, runner)
    if cache is not None and (known := _read_cache(cache, key)):
        return known
    flops = bandwidth = 0.0
    share = 0.8 * seconds / _ROUNDS / 2
    with torch.inference_mode():
        for _ in range(_ROUNDS):
            flops = max(flops, _peak_flops(model, matrices, device, share))
            bandwidth = max(bandwidth, _peak_bandwidth(matrices, device, share))
    # A step may be faster than its products one by one, and should not stand above the roof.
    smallest = _step_seconds(runner, 1, device, 0.1 * seconds)
    bandwidth = max(bandwidth, _weight_bytes(matrices) / smallest)
    body = sum(_weight(matrix).numel() for matrix in _body(model, matrices))
    rows = _prompt_rows(model, runner, int(0.1 * seconds * flops / max(1, 2 * body)))
    with contextlib.suppress(OutOfMemory):  # its products alone have been measured
        prompt = _step_seconds(runner, rows, device, 0.1 * seconds)
        flops = max(flops, 2 * rows * body / prompt)
    runner.reset()
    overhead = max(0.0, smallest - _weight_bytes(matrices) / bandwidth)
    measured = Ceilings(flops, bandwidth, overhead)
    if cache is not None:
        _write_cache(cache, key, measured)
    return measured


def shape_of(model: PreTrainedModel, kv_bytes_per_token: int) -> ModelShape:
    """Read from a transformers causal LM what the work of a step depends on."""
    config: Any = model.config.get_text_config()
    hidden, heads = config.hidden_size, config.num_attention_heads
    embedding = _weight(model.get_input_embeddings())
    return ModelShape(
        hidden_size=hidden,
        num_layers=config.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or hidden // heads,
        intermediate_size=getattr(config, "intermediate_size", None)
        or getattr(config, "n_inner", None)
        or 4 * hidden,
        vocab_size=embedding.shape[0],
        tied=_weight(_head(model)) is embedding,
        weight_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        matrix_parameters=_matrix_parameters(model, config),
        kv_bytes_per_token=kv_bytes_per_token,
        activation_bytes=embedding.element_size(),
    )


def _matrix_parameters(model: PreTrainedModel, config: Any) -> int:
    """Weights that one position is multiplied with, embeddings and the head left out.

    Experts are kept in one tensor `[num_experts, ...]` or in one module each; a position goes
    through `num_experts_per_tok` of them.
    """
    looked_up = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    looked_up.add(id(_weight(_head(model))))
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
        if isinstance(module, nn.Linear | Conv1D) and module.weight.device == device
    ]


def _head(model: PreTrainedModel) -> nn.Module:
    # Transformers leaves this method without types.
    head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return head


def _weight(matrix: nn.Module) -> Tensor:
    weight = matrix.weight
    assert isinstance(weight, Tensor)
    return weight


def _shape(matrix: nn.Module) -> tuple[int, int]:
    """Outputs and inputs, however the weights are laid out."""
    if isinstance(matrix, nn.Linear):
        return matrix.out_features, matrix.in_features
    num_inputs, num_outputs = _weight(matrix).shape  # Conv1D: the other way
    return num_outputs, num_inputs


def _weight_bytes(matrices: Iterable[nn.Module]) -> int:
    return sum(_weight(matrix).nbytes for matrix in matrices)


def _input(matrix: nn.Module, rows: int) -> Tensor:
    weight = _weight(matrix)
    return torch.ones(rows, _shape(matrix)[1], dtype=weight.dtype, device=weight.device)


def _body(model: PreTrainedModel, matrices: list[nn.Module]) -> list[nn.Module]:
    """All but the head: it is multiplied with few rows in a step, and with many takes longest."""
    head = _head(model)
    return [matrix for matrix in matrices if matrix is not head]


def _peak_flops(
    model: PreTrainedModel, matrices: list[nn.Module], device: torch.device, seconds: float
) -> float:
    """The best FLOP/s of the largest distinct matrices; 2 operations a weight and row."""
    by_shape = {_shape(matrix): matrix for matrix in _body(model, matrices) or matrices}
    largest = sorted(by_shape.values(), key=lambda m: -_weight(m).numel())[:_MAX_SHAPES]
    memory = free_bytes(device) // 8
    until = time.perf_counter() + seconds
    best_product = partial(largest[0], _input(largest[0], 1))
    best, best_flops = 0.0, 2 * _weight(largest[0]).numel()
    for matrix in largest:
        weight = _weight(matrix)
        for rows in _ROW_COUNTS:
            if rows * sum(_shape(matrix)) * weight.element_size() > memory:
                break
            flops = 2 * weight.numel() * rows
            product = partial(matrix, _input(matrix, rows))
            taken = _best_seconds(product, device, 0.0)
            if flops / taken > best:
                best, best_flops, best_product = flops / taken, flops, product
            # The next count takes four times as long, and a warm-up.
            if 8 * taken > seconds / len(largest):
                break
    # A few runs find the winner; on a busy machine it takes more to see it undisturbed.
    return max(best, best_flops / _best_seconds(best_product, device, until - time.perf_counter()))


def _peak_bandwidth(matrices: list[nn.Module], device: torch.device, seconds: float) -> float:
    """The best bytes a second of a large read and of passes over all weights."""
    num_bytes = min(_READ_BYTES.get(device.type, 256 << 20), free_bytes(device) // 8)
    buffer = torch.ones(max(1, num_bytes // 4), device=device)
    best = buffer.nbytes / _best_seconds(buffer.sum, device, seconds / 3)
    del buffer
    weights = _weight_bytes(matrices)
    for rows in (1, 8):
        products = [partial(matrix, _input(matrix, rows)) for matrix in matrices]
        best = max(best, weights / _best_seconds(partial(_run, products), device, seconds / 3))
    return best


def _run(products: list[partial[Tensor]]) -> None:
    for product in products:
        product()


def _prompt_rows(model: PreTrainedModel, runner: TorchRunner, in_time: int) -> int:
    """Positions of the prompt to measure: as many as context, pool and time have room for."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return max(1, min(_PROMPT_ROWS, runner.num_positions, context or _PROMPT_ROWS, in_time))


def _step_seconds(runner: TorchRunner, count: int, device: torch.device, seconds: float) -> float:
    """The least time of a step over `count` positions."""
    return _best_seconds(partial(runner.run, _plan(count, runner)), device, seconds, calls=1)


def _plan(count: int, runner: TorchRunner) -> StepPlan:
    """A whole step over `count` positions of one request, to be computed often."""
    request = Request(
        number=0,
        token_ids=[0] * count,
        params=SamplingParams(temperature=0.0),
        seed=0,
        timeline=Timeline(submitted=0.0),
        block_table=list(range(-(-count // runner.block_size))),
    )
    return StepPlan((Chunk(request, 0, count, Phase.PREFILL, samples=True),))


def _best_seconds(
    call: Callable[[], object], device: torch.device, seconds: float, calls: int | None = None
) -> float:
    """The least time of one call, repeated for `seconds`, and once at least after a warm-up.

    On an accelerator several calls are queued before waiting for them, so that they are not timed
    with the waiting.
    """
    asynchronous = device.type != "cpu"
    calls = calls or (_CALLS_BETWEEN_SYNCS if asynchronous else 1)
    deadline = time.perf_counter() + seconds
    call()
    best = math.inf
    while best == math.inf or time.perf_counter() < deadline:
        if asynchronous:
            torch.accelerator.synchronize(device)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if asynchronous:
            torch.accelerator.synchronize(device)
        best = min(best, (time.perf_counter() - start) / calls)
    return max(best, 1e-9)


def _key(matrices: list[nn.Module], device: torch.device, runner: TorchRunner) -> str:
    """Identifies what a measurement depends on: machine, device, threads, torch, the model."""
    parts = [
        platform.node(),
        platform.machine(),
        describe_device(device),
        torch.__version__,
        torch.get_num_threads(),
        type(runner).__name__,
        build_key() if runner.kernels else "",
        *[(tuple(_weight(matrix).shape), str(_weight(matrix).dtype)) for matrix in matrices],
    ]
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _read_cache(path: Path, key: str) -> Ceilings | None:
    try:
        stored = json.loads(path.read_text())
        if stored.pop("key") != key:
            return None
        measured = Ceilings(**{name: float(value) for name, value in stored.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # none there, or not one of ours
    values = dataclasses.astuple(measured)
    usable = all(map(math.isfinite, values)) and min(values[:2]) > 0 <= values[2]
    return measured if usable else None


def _write_cache(path: Path, key: str, measured: Ceilings) -> None:
    text = json.dumps({"key": key, **dataclasses.asdict(measured)})
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(unfinished, path)
