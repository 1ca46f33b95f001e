"""Loading a model: from a source to weights in memory, with the tokenizer and the end tokens.

Brings together where the files come from, what is refused, and which device and dtype to use; knows
nothing of requests, KV blocks or attention.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from engine.core.errors import ModelNotFound, ModelNotServable
from engine.model import refusals
from engine.model.cache import file_digest
from engine.model.conversion import convert_gguf
from engine.model.devices import free_bytes
from engine.model.progress import ByteCounter, Progress, ReportProgress
from engine.model.sources import ModelSource, download

__all__ = ["LoadedModel", "Progress", "load", "load_tokenizer"]

_PLACES_FOR_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_SHARE_FOR_WEIGHTS = 0.9  # of a device's free memory: activations and the KV pool need the rest


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, in eval mode, and what others must know of it.

    `fingerprint` identifies the weights and their dtype, so that keys and values made by one model
    are never taken for another's. `num_parameters` and `weights_bytes` count tied parameters once.
    `context_length` is in tokens.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    config: PreTrainedConfig
    generation_config: GenerationConfig
    name: str
    device: torch.device
    dtype: torch.dtype
    fingerprint: str
    num_parameters: int
    weights_bytes: int
    context_length: int


def load(
    source: ModelSource, device: torch.device, dtype: torch.dtype, progress: ReportProgress
) -> LoadedModel:
    """Bring a model into memory on `device` in `dtype`, reporting each stage to `progress`.

    Code that comes with a model is never run. Raises `ModelNotFound` when there is nothing to load,
    `ModelNotServable` when this engine cannot serve it, its files are damaged or it does not fit,
    and `PhaseScopeError` when a GGUF file cannot be converted for want of a writable folder.
    """
    # Progress is told in our own way. (transformers leaves this function untyped.)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    folder = _fetch(source, progress)
    config = refusals.read_config(str(folder), source.name)
    refusals.check_config(config, source.name)
    weight_files = _weight_files(folder, source.name)
    tokenizer = _load_tokenizer(folder, source.name)
    generation_config = _generation_config(folder, config)
    model = _load_weights(config, weight_files, device, dtype, source.name, progress)
    model.generation_config = generation_config
    progress(Progress("warming", 0, 0))
    parameters = list(model.parameters())
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        config=model.config,
        generation_config=generation_config,
        name=source.name,
        device=device,
        dtype=dtype,
        fingerprint=_fingerprint(folder, weight_files, dtype),
        num_parameters=sum(parameter.numel() for parameter in parameters),
        weights_bytes=sum(parameter.nbytes for parameter in parameters),
        context_length=refusals.context_length(config),
    )


def load_tokenizer(source: ModelSource, progress: ReportProgress) -> PreTrainedTokenizerBase:
    """The tokenizer alone, without the weights; raises as `load` does."""
    return _load_tokenizer(_fetch(source, progress), source.name)


def _fetch(source: ModelSource, progress: ReportProgress) -> Path:
    if source.kind == "gguf":
        return convert_gguf(Path(source.location), progress)
    is_remote = source.kind == "hub"
    folder = download(source.location, progress) if is_remote else Path(source.location)
    if not (folder / "config.json").is_file():
        raise ModelNotFound(
            f"{source.location} holds no config.json, so it is not a transformers model: give one "
            "that is, or the path of a .gguf file on this disk."
        )
    return folder


def _weight_files(folder: Path, name: str) -> list[Path]:
    """The files that hold the weights; raises `ModelNotServable` when some are missing."""
    for place in _PLACES_FOR_WEIGHTS:
        index = folder / f"{place}.index.json"
        if (folder / place).is_file():
            return [folder / place]
        if index.is_file():
            try:
                names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            except (ValueError, KeyError, AttributeError) as error:
                raise _damaged(name, f"{index.name} cannot be read") from error
            if missing := [one for one in names if not (folder / one).is_file()]:
                raise _damaged(name, f"{missing[0]} is missing")
            return [folder / one for one in names]
    raise ModelNotServable(
        f"{name} has no weights: {folder} holds neither "
        f"{' nor '.join(_PLACES_FOR_WEIGHTS)}, whole or in parts."
    )


def _load_tokenizer(folder: Path, name: str) -> PreTrainedTokenizerBase:
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False
        )
    except Exception as error:  # each tokenizer class fails in its own way
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelNotServable(f"The tokenizer of {name} cannot be loaded: {reason}") from error
    return tokenizer


def _generation_config(folder: Path, config: PreTrainedConfig) -> GenerationConfig:
    """The folder's generation config, with the model's end token where it names none."""
    derived = GenerationConfig.from_model_config(config)
    try:
        stated = GenerationConfig.from_pretrained(str(folder))
    except (OSError, ValueError):  # ValueError: settings that contradict each other
        return derived
    if stated.eos_token_id is None:
        stated.eos_token_id = derived.eos_token_id
    return stated


def _load_weights(
    config: PreTrainedConfig,
    files: list[Path],
    device: torch.device,
    dtype: torch.dtype,
    name: str,
    progress: ReportProgress,
) -> PreTrainedModel:
    needed_bytes = _needed_bytes(config, dtype)
    device_map, max_memory = placement(device, needed_bytes, name)
    try:
        state = _open_tensors(files)
        counter = ByteCounter("loading", sum(map(_stored_bytes, state.values())), progress)
        model_class: Any = refusals.model_class(config)  # what it returns depends on its arguments
        model, info = model_class.from_pretrained(
            None,
            config=config,
            state_dict={key: _CountedTensor(value, counter) for key, value in state.items()},
            dtype=dtype,
            device_map=device_map,
            max_memory=max_memory,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
        )
    except (SafetensorError, RuntimeError, ValueError, OSError, EOFError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise _does_not_fit(name, needed_bytes, free_bytes(device)) from error
        raise _damaged(name, (str(error).splitlines() or [type(error).__name__])[0]) from error
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise _damaged(name, f"{len(missing)} tensors are missing, {missing[0]} among them")
    for key, stored, expected in info["mismatched_keys"]:
        raise _damaged(name, f"{key} is {list(stored)} where {list(expected)} belongs")
    counter.finish()
    loaded: PreTrainedModel = model.eval()
    return loaded


def _needed_bytes(config: PreTrainedConfig, dtype: torch.dtype) -> int:
    parameters = refusals.empty_model(config).parameters()
    return sum(parameter.numel() for parameter in parameters) * dtype.itemsize


def placement(
    device: torch.device, needed_bytes: int, name: str
) -> tuple[dict[str, torch.device] | str, dict[int | str, int] | None]:
    """Where the weights go: `device_map` and `max_memory` for accelerate.

    All on `device` if they take at most nine tenths of its free memory. Else, from a CUDA device,
    they are spread over all CUDA devices and main memory, nine tenths of each. Never to disk: a
    step would then read the whole model from it. Raises `ModelNotServable` if that is not enough.
    """
    free = free_bytes(device)
    if needed_bytes <= free * _SHARE_FOR_WEIGHTS:
        return {"": device}, None
    if device.type != "cuda":
        raise _does_not_fit(name, needed_bytes, free)
    room: dict[int | str, int] = {
        index: int(free_bytes(torch.device("cuda", index)) * _SHARE_FOR_WEIGHTS)
        for index in range(torch.cuda.device_count())
    }
    room["cpu"] = int(free_bytes(torch.device("cpu")) * _SHARE_FOR_WEIGHTS)
    if needed_bytes > sum(room.values()):
        raise _does_not_fit(name, needed_bytes, sum(room.values()))
    return "auto", room


class _CountedTensor:
    """A stored tensor that is read when transformers indexes it, and counts its bytes then."""

    def __init__(self, stored: Any, counter: ByteCounter) -> None:
        self._stored = stored
        self._counter = counter

    def __getitem__(self, index: Any) -> torch.Tensor:
        # A copy: what is read is a view of the file, which would be fetched page by page by the
        # first forward pass, be no part of the memory in use, and change if the file did.
        tensor: torch.Tensor = self._stored[index].clone()
        self._counter.add(tensor.nbytes)
        return tensor


def _open_tensors(files: list[Path]) -> Mapping[str, Any]:
    """Every stored tensor by name; none of their data is read yet."""
    tensors: dict[str, Any] = {}
    for file in files:
        if file.suffix == ".safetensors":
            opened: Any = safe_open(file, framework="pt")
            tensors.update({key: opened.get_slice(key) for key in opened.keys()})  # noqa: SIM118 (no dict)
        else:
            tensors.update(_unpickle(file))
    return tensors


def _unpickle(file: Path) -> Mapping[str, torch.Tensor]:
    try:
        tensors: Mapping[str, torch.Tensor] = torch.load(
            file, map_location="cpu", mmap=True, weights_only=True
        )
    except pickle.UnpicklingError:
        raise ValueError(
            f"{file.name} holds more than tensors, and code in a checkpoint is never run"
        ) from None
    return tensors


def _stored_bytes(stored: Any) -> int:
    if isinstance(stored, torch.Tensor):
        return stored.nbytes
    # An empty slice tells the element's size without reading the tensor.
    shape = stored.get_shape()
    if not shape:
        return int(stored[...].nbytes)
    return int(stored[:0].dtype.itemsize * torch.Size(shape).numel())


def _fingerprint(folder: Path, weight_files: list[Path], dtype: torch.dtype) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in (
        (folder / "config.json").read_text(),
        *(file_digest(file) for file in weight_files),
        str(dtype),
        transformers.__version__,
    ):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _damaged(name: str, reason: str) -> ModelNotServable:
    return ModelNotServable(
        f"The weights of {name} cannot be loaded: {reason.rstrip('.')}. Fetch the model again."
    )


def _does_not_fit(name: str, needed_bytes: int, free: int) -> ModelNotServable:
    return ModelNotServable(
        f"{name} does not fit: its weights take {needed_bytes / 2**30:.1f} GiB and "
        f"{free / 2**30:.1f} GiB are free, a tenth of which is kept for the rest. Use a smaller "
        "model, or bfloat16 in place of float32."
    )
