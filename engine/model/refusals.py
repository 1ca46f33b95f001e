"""Which models this engine serves, decided from the configuration before any weight is read.

The engine keeps keys and values of a causal, decoder-only transformer in a paged pool and calls one
attention function; every model that needs more, or something else, is refused by name here.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
)

from engine.core.errors import ModelNotServable

_SERVED_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "dense", "sparse"})
_LENGTH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})
_CONTEXT_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
_SINK_PARAMETERS = ("sinks", "s_aux", "attention_sink_bias")


def check_config(config: PreTrainedConfig, name: str) -> None:
    """Raise `ModelNotServable`, saying why, if the model called `name` cannot be served."""
    reason = (
        _wrong_kind(config)
        or _keeps_state(config)
        or _position_dependent(config)
        or _quantised(config)
    )
    if reason is None and not context_length(config):
        reason = "its configuration does not say how long its context is"
    if reason is None:
        try:
            sinks = _attention_sinks(empty_model(config))
        except Exception as error:  # each model class fails in its own way
            reason = f"transformers cannot build it from its configuration ({_first_line(error)})"
        else:
            if sinks:
                reason = f"it uses attention sinks ({sinks}), which the attention function lacks"
    if reason is not None:
        raise ModelNotServable(f"{name} ({config.model_type}) cannot be served: {reason}.")


def context_length(config: PreTrainedConfig) -> int:
    """The most positions a sequence may have, 0 if the configuration does not say."""
    for key in _CONTEXT_LENGTH_KEYS:
        value = getattr(config, key, None)
        if isinstance(value, int) and value > 0:
            return value
    return 0


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """The class of causal language model transformers has for this configuration."""
    found: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    chosen: type[PreTrainedModel] = found[0] if isinstance(found, tuple) else found
    return chosen


def empty_model(config: PreTrainedConfig) -> PreTrainedModel:
    """The model without memory for its weights: names, shapes and tied parameters only."""
    with torch.device("meta"):
        return model_class(config)(config)


def read_config(folder: str, name: str) -> PreTrainedConfig:
    """The configuration in a model's folder; raises `ModelNotServable` if it cannot be used."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # each configuration class checks its fields in its own way
        if "trust_remote_code" in str(error) or "does not recognize" in str(error):
            reason = (
                "the installed transformers does not know its architecture, and code that comes "
                "with a model is never run"
            )
        else:
            reason = f"its config.json cannot be read ({_first_line(error)})"
        raise ModelNotServable(f"{name} cannot be served: {reason}.") from error
    return config


def _wrong_kind(config: PreTrainedConfig) -> str | None:
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder model, and this engine serves decoder-only models"
    if config.get_text_config() is not config or hasattr(config, "vision_config"):
        return "it is a multi-modal model, and this engine serves text-only ones"
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return "it is not a causal language model"
    served = model_class(config).__name__
    stated = [str(architecture) for architecture in getattr(config, "architectures", None) or ()]
    if stated and served.lower() not in [architecture.lower() for architecture in stated]:
        return f"its weights are those of a {stated[0]}, not of a causal language model ({served})"
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        return "its attention looks both ways (is_decoder is false): it is not a causal model"
    return None


def _keeps_state(config: PreTrainedConfig) -> str | None:
    others = sorted(set(getattr(config, "layer_types", None) or ()) - _SERVED_LAYER_TYPES)
    has_state = any(part in kind for kind in others for part in ("linear", "conv", "hybrid"))
    if model_class(config)._is_stateful or has_state:
        return (
            "it is a state-space or recurrent model, or a hybrid with one: a state that each token "
            "changes cannot be kept in KV blocks"
        )
    if others:
        return f"it has layers of a kind the attention function does not do ({', '.join(others)})"
    return None


def _position_dependent(config: PreTrainedConfig) -> str | None:
    kinds = sorted(_rope_types(config) & _LENGTH_DEPENDENT_ROPE)
    if kinds:
        return (
            f"its rotary positions ({kinds[0]}) change with a sequence's length, so that keys in "
            "the cache could not be kept as it grows"
        )
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return "it uses ALiBi position biases, which the attention function does not do"
    return None


def _rope_types(config: PreTrainedConfig) -> set[str]:
    """The kinds of rotary positions in use: one, or one for each type of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    each = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    return {str(one.get("rope_type", one.get("type", "default"))) for one in each}


def _quantised(config: PreTrainedConfig) -> str | None:
    quantisation = getattr(config, "quantization_config", None)
    if quantisation is None:
        return None
    method = (
        quantisation.get("quant_method", "an unnamed method")
        if isinstance(quantisation, dict)
        else getattr(quantisation, "quant_method", "an unnamed method")
    )
    return (
        f"its weights are quantised ({getattr(method, 'value', method)}); use the unquantised "
        "model or a GGUF file"
    )


def _attention_sinks(model: PreTrainedModel) -> str | None:
    """The name of a parameter that holds attention sinks, if the model has one."""
    for name, _ in model.named_parameters():
        if name.rpartition(".")[2] in _SINK_PARAMETERS:
            return name
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".: ")
