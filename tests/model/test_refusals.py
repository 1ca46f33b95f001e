"""Models that cannot be served are refused by their configuration, with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, PreTrainedConfig

from engine.core.errors import ModelNotServable
from engine.model.refusals import check_config, context_length, read_config

TINY = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}


def config(model_type: str, **settings: Any) -> PreTrainedConfig:
    return AutoConfig.for_model(model_type, **settings)


def tiny(model_type: str, **settings: Any) -> PreTrainedConfig:
    return config(model_type, **{**TINY, **settings})


@pytest.mark.parametrize(
    "model_type", ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"]
)
def test_decoder_only_models_are_served(model_type: str) -> None:
    check_config(tiny(model_type, head_dim=8), "tiny")


@pytest.mark.parametrize("model_type", ["gpt2", "gpt_neox", "opt"])
def test_older_decoder_only_models_are_served(model_type: str) -> None:
    check_config(config(model_type), "tiny")


@pytest.mark.parametrize(
    "rope", [{"rope_type": "linear", "factor": 2.0}, {"rope_type": "yarn", "factor": 2.0}]
)
def test_rope_that_does_not_depend_on_the_length_is_served(rope: dict[str, Any]) -> None:
    check_config(tiny("llama", rope_parameters={"rope_theta": 1e4, **rope}), "tiny")


REFUSED = {
    "t5": (lambda: config("t5"), "encoder-decoder"),
    "bart": (lambda: config("bart"), "encoder-decoder"),
    "mamba": (lambda: config("mamba", num_hidden_layers=2), "state-space or recurrent"),
    "mamba2": (lambda: config("mamba2", num_hidden_layers=2), "state-space or recurrent"),
    "rwkv": (lambda: config("rwkv", num_hidden_layers=2), "state-space or recurrent"),
    "recurrent_gemma": (lambda: config("recurrent_gemma"), "state-space or recurrent"),
    "jamba": (lambda: config("jamba"), "hybrid"),
    "qwen3_next": (lambda: config("qwen3_next"), "hybrid"),
    "lfm2": (
        lambda: tiny("lfm2", layer_types=["conv", "full_attention"]),
        "hybrid",
    ),
    "vit": (lambda: config("vit"), "not a causal language model"),
    "bert": (lambda: config("bert"), "looks both ways"),
    "masked bert": (
        lambda: config("bert", architectures=["BertForMaskedLM"]),
        "those of a BertForMaskedLM",
    ),
    "headless": (lambda: tiny("llama", architectures=["LlamaModel"]), "those of a LlamaModel"),
    "gpt_oss": (lambda: config("gpt_oss", num_hidden_layers=2), "attention sinks"),
    "dynamic rope": (
        lambda: tiny("llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0}),
        r"\(dynamic\) change with a sequence's length",
    ),
    "long rope": (
        lambda: tiny(
            "llama",
            rope_parameters={
                "rope_type": "longrope",
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
                "factor": 2.0,
                "original_max_position_embeddings": 32,
            },
        ),
        r"\(longrope\) change",
    ),
    "one layer type's rope": (
        lambda: tiny(
            "gemma3_text",
            rope_parameters={
                "full_attention": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        ),
        r"\(dynamic\) change",
    ),
    "chunked attention": (
        lambda: tiny("llama4_text", num_local_experts=1),
        r"a kind the attention function does not do \(chunked_attention\)",
    ),
    "llava": (lambda: config("llava"), "multi-modal"),
    "qwen2_vl": (lambda: config("qwen2_vl"), "multi-modal"),
    "gemma3": (lambda: config("gemma3"), "multi-modal"),
    "bloom": (lambda: config("bloom"), "ALiBi|how long its context is"),
    "impossible": (lambda: tiny("llama", vocab_size=-1), "cannot build it"),
    "quantised": (
        lambda: tiny("llama", quantization_config={"quant_method": "gptq", "bits": 4}),
        r"quantised \(gptq\).*GGUF",
    ),
    "no context": (lambda: tiny("llama", max_position_embeddings=0), "how long its context is"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_served_is_refused_by_name_with_the_reason(case: str) -> None:
    make, reason = REFUSED[case]
    with pytest.raises(ModelNotServable, match=reason) as caught:
        check_config(make(), "org/the-model")
    assert str(caught.value).startswith("org/the-model (")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model_type": "unheard_of"}, "does not know its architecture"),
        (
            {"model_type": "x", "auto_map": {"AutoConfig": "configuration_x.XConfig"}},
            "code that comes with a model is never run",
        ),
        ("{not json", "config.json cannot be read"),
        ({}, "cannot be served"),
        ({**TINY, "model_type": "llama", "hidden_size": "wide"}, "Validation error.*hidden_size"),
    ],
)
def test_unknown_and_unreadable_configurations(tmp_path: Path, settings: Any, reason: str) -> None:
    text = settings if isinstance(settings, str) else json.dumps(settings)
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "configuration_x.py").write_text("raise SystemExit('the code was run')")
    with pytest.raises(ModelNotServable, match=reason):
        read_config(str(tmp_path), "the-model")


def test_context_length_under_its_several_names() -> None:
    assert context_length(tiny("llama")) == 64
    assert context_length(config("gpt2", n_positions=48)) == 48
