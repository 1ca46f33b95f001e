"""Writes tiny GGUF files with random weights, as llama.cpp's converter would write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, quants
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.convert_slow_tokenizer import bytes_to_unicode

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("Ġ", "Ġ"), ("1", "2"), ("a", "b")]
_ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE}
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def tokens() -> list[str]:
    """The special tokens, one token a byte, and the merged ones."""
    return [*SPECIAL_TOKENS, *bytes_to_unicode().values(), *("".join(pair) for pair in MERGES)]


def tiny_llama(seed: int = 0, *, tied: bool = True) -> LlamaForCausalLM:
    """A random Llama of two layers with grouped heads, whose sizes divide into GGUF's blocks."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            vocab_size=len(tokens()),
            max_position_embeddings=128,
            rope_parameters={"rope_type": "default", "rope_theta": 54321.0},
            tie_word_embeddings=tied,
            bos_token_id=1,
            eos_token_id=2,
        )
    ).eval()


def tiny_mixture_of_experts() -> Qwen3MoeForCausalLM:
    """A random Qwen3 of two layers with four experts each, of which a token uses two."""
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            hidden_size=64,
            intermediate_size=96,
            moe_intermediate_size=32,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            vocab_size=len(tokens()),
            max_position_embeddings=128,
            tie_word_embeddings=False,
        )
    ).eval()


def write_gguf(
    model: PreTrainedModel,
    file: Path,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    pre_tokenizer: str = "smollm",
    rope_scaling: gguf.RopeScalingType = gguf.RopeScalingType.NONE,
    more_tensors: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Path:
    """Write `model` with its matrices stored as `kind`, and `more_tensors` beside them."""
    config = model.config
    architecture = _ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    if architecture is gguf.MODEL_ARCH.QWEN3MOE:
        writer.add_key_length(config.head_dim)
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_name("Tiny")
    writer.add_rope_scaling_type(rope_scaling)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(tokens())
    writer.add_token_types([3] * len(SPECIAL_TOKENS) + [1] * (len(tokens()) - len(SPECIAL_TOKENS)))
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, weights in _stored_tensors(model, architecture):
        stored = kind if weights.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(name, quants.quantize(weights, stored), raw_dtype=stored)
    for name, values in more_tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _stored_tensors(
    model: PreTrainedModel, architecture: gguf.MODEL_ARCH
) -> Iterator[tuple[str, np.ndarray]]:
    names = gguf.get_tensor_name_map(architecture, model.config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        weights = parameter.detach().numpy()
        block = f"blk.{name.split('.')[2]}" if ".layers." in name else ""
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(weights, 2, axis=1)
            yield f"{block}.ffn_gate_exps.weight", np.ascontiguousarray(gate)
            yield f"{block}.ffn_up_exps.weight", np.ascontiguousarray(up)
        elif name.endswith("experts.down_proj"):
            yield f"{block}.ffn_down_exps.weight", weights
        elif architecture is gguf.MODEL_ARCH.LLAMA:
            yield names.get_name(name, (".weight",)), _interleaved(weights, name, model.config)
        else:
            yield names.get_name(name, (".weight",)), weights


def _interleaved(weights: np.ndarray, name: str, config: LlamaConfig) -> np.ndarray:
    """Llama's query and key rows in llama.cpp's order: 0, half, 1, half + 1 and so on."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, num_heads in heads.items():
        if part in name:
            halves = weights.reshape(num_heads, 2, config.head_dim // 2, *weights.shape[1:])
            return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))
    return weights
