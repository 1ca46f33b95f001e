"""From a GGUF file to a folder that transformers loads in a second.

A GGUF file holds quantised weights, the tokenizer's tables and the configuration as metadata, which
takes many seconds to unpack; so that is done once and kept in the cache folder. What the unpacking
by transformers loses is put right here, from the file's own metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor, dequantize
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
)

from engine.core.errors import ModelNotServable
from engine.model import cache
from engine.model.progress import ByteCounter, ReportProgress
from engine.model.refusals import check_config, empty_model

_FORMAT = 1  # raise it when what is written below changes: older entries are then made anew
_SHARD_BYTES = 2 << 30
_ROPE_FACTORS = "rope_freqs.weight"
_CONTROL_TOKEN = 3  # llama.cpp's token type for tokens that are no text

# Quantised weights are kept in float32, which holds scale * q + minimum exactly; the others as they
# were. Loading 538 MB of float32 as bfloat16 took no longer than loading 269 MB of bfloat16.
_STORED_DTYPES = {
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}

# Names (`tokenizer.ggml.pre`) of the pre-tokenizers that cut every digit off before GPT-2's rule;
# transformers reads them all as GPT-2's. From llama.cpp's `llm_tokenizer_bpe`.
_SINGLE_DIGIT_PRE_TOKENIZERS = frozenset(
    {"smollm", "starcoder", "refact", "command-r", "codeshell"}
)

# Control tokens that end an answer though no metadata key says so. From llama.cpp's `llama_vocab`.
_END_TOKEN_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<end_of_turn>",
        "<EOT>",
        "</s>",
    }
)


def convert_gguf(file: Path, report: ReportProgress) -> Path:
    """The folder with the converted model, made now if the cache does not hold it already.

    Raises `ModelNotServable` for a file that is no GGUF file or holds a model this engine or
    transformers cannot run, `PhaseScopeError` when the cache cannot be written.
    """
    return cache.cached_folder(
        _entry_name(file), lambda folder: _convert(file, folder, report), cache.cache_folder()
    )


def _open(file: Path) -> GGUFReader:
    try:
        return GGUFReader(file)
    except Exception as error:  # the reader raises whatever the bytes lead it to
        raise ModelNotServable(
            f"{file.name} cannot be read as a GGUF file ({error}); it may be cut short: "
            "fetch it again."
        ) from error


def _entry_name(file: Path) -> str:
    version = f"{_FORMAT}/{transformers.__version__}"
    digest = hashlib.blake2b(f"{cache.file_digest(file)}/{version}".encode(), digest_size=8)
    return f"{file.stem}-{digest.hexdigest()}"


def _convert(file: Path, folder: Path, report: ReportProgress) -> None:
    reader = _open(file)
    counter = ByteCounter("converting", sum(int(one.n_bytes) for one in reader.tensors), report)
    cache.require_space(folder, sum(_stored_bytes(tensor) for tensor in reader.tensors))
    architecture = str(_metadata(reader, "general.architecture", "unknown"))
    try:
        config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
        _repair_config(config, reader, architecture)
        check_config(config, file.name)
        tokenizer = PreTrainedTokenizerFast.from_pretrained(file.parent, gguf_file=file.name)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise ModelNotServable(
            f"{file.name} holds a model of architecture {architecture!r}, which transformers "
            f"{transformers.__version__} cannot unpack ({error}); use the model's own folder or "
            "hub id instead."
        ) from error
    _check_rope(reader, architecture, file.name)
    _repair_tokenizer(tokenizer, reader, config)
    model = empty_model(config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    generation_config = GenerationConfig.from_model_config(config)
    generation_config.eos_token_id = _end_token_ids(reader, config)
    generation_config.save_pretrained(folder)
    _write_shards(_dequantised(reader, architecture, config, model, counter), folder)
    counter.finish()


def _stored_bytes(tensor: ReaderTensor) -> int:
    dtype = _STORED_DTYPES.get(tensor.tensor_type, torch.float32)
    return int(tensor.n_elements) * dtype.itemsize


def _repair_config(config: PreTrainedConfig, reader: GGUFReader, architecture: str) -> None:
    """Take over sizes that transformers leaves at one checkpoint's values."""
    expert_size = _metadata(reader, f"{architecture}.expert_feed_forward_length")
    if expert_size is not None and hasattr(config, "moe_intermediate_size"):
        config.moe_intermediate_size = int(expert_size)


def _check_rope(reader: GGUFReader, architecture: str, name: str) -> None:
    """Refuse rotary positions that are scaled: transformers would leave the scaling out.

    llama.cpp states it as metadata or, for Llama 3.1 and later, as a tensor of factors.
    """
    kind = _metadata(reader, f"{architecture}.rope.scaling.type", "none")
    factors = [one.data for one in reader.tensors if one.name == _ROPE_FACTORS]
    if kind != "none" or any((one != 1.0).any() for one in factors):
        raise ModelNotServable(
            f"{name} cannot be served: it scales its rotary positions, which transformers "
            f"{transformers.__version__} does not read from GGUF files; use the model's own folder "
            "or hub id instead."
        )


def _repair_tokenizer(
    tokenizer: PreTrainedTokenizerFast, reader: GGUFReader, config: PreTrainedConfig
) -> None:
    """Put right what transformers does not take over from the metadata."""
    if _metadata(reader, "tokenizer.ggml.pre") in _SINGLE_DIGIT_PRE_TOKENIZERS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    tokenizer.model_max_length = config.max_position_embeddings


def _end_token_ids(reader: GGUFReader, config: PreTrainedConfig) -> list[int]:
    """All ids that end an answer, the file's own end-of-sequence id first."""
    eos = config.eos_token_id
    found = list(eos) if isinstance(eos, list | tuple) else [eos]
    found += [_metadata(reader, f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    tokens = reader.fields.get("tokenizer.ggml.tokens")
    types = _metadata(reader, "tokenizer.ggml.token_type", [])
    if tokens is not None:
        for token_id, token_type in enumerate(types):
            if token_type == _CONTROL_TOKEN and tokens.contents(token_id) in _END_TOKEN_TEXTS:
                found.append(token_id)
    return list(dict.fromkeys(int(token_id) for token_id in found if token_id is not None))


def _dequantised(
    reader: GGUFReader,
    architecture: str,
    config: PreTrainedConfig,
    model: torch.nn.Module,
    counter: ByteCounter,
) -> Iterator[tuple[str, torch.Tensor]]:
    """The model's tensors under the names transformers gives them, one after the other."""
    processor_class: Any = TENSOR_PROCESSORS.get(architecture, TensorProcessor)
    processor = processor_class(config=config.to_dict())
    names = _tensor_names(model, processor, reader)
    unplaced = []
    assembled: dict[str, torch.Tensor] = {}  # tensors put together from several, such as experts
    for tensor in reader.tensors:
        result = processor.process(
            weights=dequantize(tensor.data, tensor.tensor_type),
            name=tensor.name,
            tensor_key_mapping=names,
            parsed_parameters={"tensors": assembled},
        )
        if result.name in names:  # None: it went into one that is put together
            dtype = _STORED_DTYPES.get(tensor.tensor_type, torch.float32)
            yield names[result.name], torch.from_numpy(result.weights.copy()).to(dtype)
        elif result.name not in (None, _ROPE_FACTORS):
            unplaced.append(tensor.name)
        counter.add(int(tensor.n_bytes))
    if unplaced:
        raise ModelNotServable(
            f"The GGUF file holds weights that transformers has no place for ({unplaced[0]}, "
            f"{len(unplaced)} in all); use the model's own folder or hub id instead."
        )
    yield from assembled.items()


class _WithoutChildren:
    """A model as `get_gguf_hf_weights_map` sees it, whose submodules it does not go through.

    It makes its table of names anew for each submodule: 6 s for 30 layers, which only models whose
    files were written from their inner module need.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.config = model.config
        self.state_dict = model.state_dict

    def named_children(self) -> list[tuple[str, torch.nn.Module]]:
        return []


def _tensor_names(
    model: torch.nn.Module, processor: TensorProcessor, reader: GGUFReader
) -> dict[str, str]:
    names: dict[str, str] = get_gguf_hf_weights_map(_WithoutChildren(model), processor)
    if not all(tensor.name in names for tensor in reader.tensors):
        names = get_gguf_hf_weights_map(model, processor)
    return names


def _write_shards(tensors: Iterator[tuple[str, torch.Tensor]], folder: Path) -> None:
    """Write tensors as safetensors files of about 2 GiB, so that few are in memory at once."""
    weight_map: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    shard_bytes = num_shards = 0

    def write() -> None:
        nonlocal shard, shard_bytes, num_shards
        num_shards += 1
        name = f"model-{num_shards:05}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))
        shard, shard_bytes = {}, 0

    for name, tensor in tensors:
        shard[name] = tensor.contiguous()
        shard_bytes += tensor.nbytes
        if shard_bytes >= _SHARD_BYTES:
            write()
    if shard:
        write()
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _metadata(reader: GGUFReader, key: str, default: Any = None) -> Any:
    field = reader.fields.get(key)
    return default if field is None else field.contents()
