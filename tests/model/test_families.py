"""More model families than the parity tests take apart: each served in chunks, under preemption and
with cache hits, gives the tokens of `model.generate`; what ignores our attention is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transformers import (
    CohereConfig,
    FalconConfig,
    Gemma2Config,
    GPTJConfig,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MixtralConfig,
    Olmo2Config,
    OlmoConfig,
    OPTConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3MoeConfig,
    SmolLM3Config,
    Starcoder2Config,
)

from engine.core.errors import ModelNotServable
from engine.model.probe import probe
from tests.model import test_parity as parity
from tests.model.test_parity import Served, generate, make, prompt, reference_model, served_model

_HEADED = parity._SIZES
_PLAIN = {name: value for name, value in _HEADED.items() if name != "head_dim"}
_GPT = {"vocab_size": parity.VOCABULARY, "bos_token_id": None, "eos_token_id": None}
_SMALL = {"num_hidden_layers": 3, "num_attention_heads": 6, "hidden_size": 48}

MORE: dict[str, Callable[[], PreTrainedConfig]] = {
    "qwen2, biases": lambda: Qwen2Config(**_PLAIN),
    "phi3, partial rotary": lambda: Phi3Config(**_PLAIN, partial_rotary_factor=0.5),
    "gpt-neox": lambda: GPTNeoXConfig(
        **_GPT, **_SMALL, intermediate_size=96, rotary_pct=0.25, initializer_range=0.5
    ),
    "gpt-j": lambda: GPTJConfig(
        **_GPT, n_embd=48, n_layer=3, n_head=6, rotary_dim=4, initializer_range=0.5
    ),
    "opt": lambda: OPTConfig(
        **_GPT, **_SMALL, ffn_dim=96, word_embed_proj_dim=48, pad_token_id=1, init_std=0.5
    ),
    "olmo": lambda: OlmoConfig(**_PLAIN),
    "olmo2": lambda: Olmo2Config(**_PLAIN),
    "gemma2, soft-capping": lambda: Gemma2Config(
        **_HEADED,
        sliding_window=20,
        query_pre_attn_scalar=8,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=10.0,
    ),
    "smollm3, layers without rope": lambda: SmolLM3Config(**_PLAIN, no_rope_layers=[1, 0, 1]),
    "cohere": lambda: CohereConfig(**_PLAIN),
    "granite": lambda: GraniteConfig(**_PLAIN),
    "starcoder2": lambda: Starcoder2Config(**_PLAIN),
    "mixtral, experts": lambda: MixtralConfig(**_PLAIN, num_local_experts=4, num_experts_per_tok=2),
    "qwen3 moe, experts": lambda: Qwen3MoeConfig(
        **_HEADED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
    ),
    "llama, biases and tied head": lambda: LlamaConfig(
        **_HEADED, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, config in MORE.items():
        monkeypatch.setitem(parity.FAMILIES, name, config)


@pytest.mark.parametrize("family", list(MORE))
def test_the_family_gives_the_reference(family: str) -> None:
    prompts = [prompt(length, seed=length) for length in (1, 17, 90, 200)]
    expected = [generate(reference_model(family), ids, 16) for ids in prompts]
    probe(served_model(family))
    for budget, num_blocks in ((7, 128), (33, 15), (512, 128)):
        served = Served(
            served_model(family), max_batched_tokens=budget, max_running=4, num_blocks=num_blocks
        )
        for _ in range(2):  # the second time over cached blocks
            requests = [served.submit(ids, 16) for ids in prompts]
            served.run()
            assert [request.output_token_ids for request in requests] == expected


def test_a_family_that_does_not_call_our_attention_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = FalconConfig(**_GPT, **_SMALL, alibi=False)
    monkeypatch.setitem(parity.FAMILIES, "falcon", lambda: config)
    with pytest.raises(ModelNotServable, match="Falcon"):
        probe(make("falcon"))
