"""What is to be checked on a GPU, each as a function that says what came of it.

Tokens are judged by a reference in float32 with transformers' own attention; memory and waiting by
the device's own accounts, which are handed in, so that everything else runs on a CPU as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from engine.core.clock import MonotonicClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.plan import NoText
from engine.core.request import Request, SamplingParams, Timeline
from engine.lab.gpu_check import Outcome
from engine.model.runner import TorchRunner
from engine.model.runners import make_runner

MakeRunner = Callable[[PreTrainedModel, int, int], tuple[TorchRunner, str]]

# Largest logit less that of the token chosen, over the logits' spread. In float32 only a tie may be
# decided otherwise than by `generate`; half precision rounds, but a wrong key costs whole units.
_MOST_REGRET = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.1}
_BLOCK_SIZE, _NUM_BLOCKS = 16, 256
_SPARE_BYTES = 1 << 20
_PROMPT_LENGTHS = (1, 17, 90, 200)
_SAMPLING = (
    SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=0.8, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=0.9, top_p=0.9, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=1.1, top_k=40, min_p=0.02, max_tokens=24, ignore_eos=True),
)


def tiny_configs() -> dict[str, PreTrainedConfig]:
    """Small models of several families by name, with heads of a size that kernels are made for."""
    sizes: dict[str, Any] = {
        "vocab_size": 512,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "initializer_range": 0.05,
    }
    return {
        "Llama": LlamaConfig(**sizes),
        "Qwen3": Qwen3Config(**sizes),
        "Mistral, sliding window": MistralConfig(**sizes, sliding_window=24),
        "Gemma 2, soft-capping": Gemma2Config(**sizes, query_pre_attn_scalar=64),
        "GPT-2": GPT2Config(
            vocab_size=512,
            n_embd=256,
            n_layer=3,
            n_head=4,
            bos_token_id=None,
            eos_token_id=None,
            initializer_range=0.1,
        ),
    }


def random_model(config: PreTrainedConfig, device: torch.device) -> PreTrainedModel:
    """A model of random weights in float32, the same at every call."""
    torch.manual_seed(1)
    from_config: Any = AutoModelForCausalLM.from_config
    model: PreTrainedModel = from_config(config, dtype=torch.float32).to(device).eval()
    return model


def _make_runner(model: PreTrainedModel, num_blocks: int, size: int) -> tuple[TorchRunner, str]:
    return make_runner(model, num_blocks=num_blocks, block_size=size, kernels=False)


class _Served:
    """A copy of a model behind an engine, and prompts for it."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, make: MakeRunner) -> None:
        copied: Any = copy.deepcopy(model)
        model = copied.to(dtype)
        config = EngineConfig(
            num_blocks=_NUM_BLOCKS, max_model_len=1024, block_size=_BLOCK_SIZE, max_running=8
        )
        self.runner, self.path = make(model, _NUM_BLOCKS, _BLOCK_SIZE)
        self.engine = Engine(config, self.runner, NoText(), MonotonicClock())
        vocabulary = model.config.get_text_config().vocab_size
        generator = torch.Generator().manual_seed(3)
        self.prompts: list[list[int]] = [
            torch.randint(vocabulary, (length,), generator=generator).tolist()
            for length in _PROMPT_LENGTHS
        ]
        self._number = 0

    def round(self, sampling: Sequence[SamplingParams]) -> list[Request]:
        """Serve every prompt once, and return the requests; parameters go round."""
        requests = []
        for index, prompt in enumerate(self.prompts):
            self._number += 1
            request = Request(
                number=self._number,
                token_ids=list(prompt),
                params=sampling[index % len(sampling)],
                seed=index,
                timeline=Timeline(submitted=0.0),
            )
            self.engine.add(request)
            requests.append(request)
        while self.engine.step():
            pass
        return requests


def parity(
    name: str, reference: PreTrainedModel, dtype: torch.dtype, make: MakeRunner = _make_runner
) -> Outcome:
    """Whether greedy tokens in `dtype` are those of the reference, a model in float32.

    A token passes when the reference, given all before it, has none that it likes better by more
    than rounding explains; with no such token the text is what `generate` writes.
    """
    served = _Served(reference, dtype, make)
    worst = 0.0
    for request in served.round(_SAMPLING[:1]):
        if request.error:
            return Outcome(name, request.error, False)
        worst = max(worst, _regret(reference, request))
    finding = f"{served.path}: at most {worst:.1e} of the spread below the best token"
    return Outcome(f"{name}, {_short(dtype)}", finding, worst <= _MOST_REGRET[dtype])


def waiting(
    reference: PreTrainedModel,
    dtype: torch.dtype,
    forbidden: Callable[[], AbstractContextManager[None]],
    make: MakeRunner = _make_runner,
) -> Outcome:
    """Whether steps with plain sampling run where waiting for the device is `forbidden`.

    Within it, every wait but that for the tokens raises RuntimeError.
    """
    name = f"no waiting in a step, {_short(dtype)}"
    served = _Served(reference, dtype, make)
    for _ in range(2):  # what is set up once may wait, with and without cached blocks
        served.round(_SAMPLING)
    try:
        with forbidden():
            requests = served.round(_SAMPLING)
    except RuntimeError as error:
        return Outcome(name, str(error).splitlines()[0], False)
    count = sum(request.num_output_tokens for request in requests)
    return Outcome(name, f"{served.path}: {count} tokens", True)


def memory(
    reference: PreTrainedModel,
    dtype: torch.dtype,
    in_use: Callable[[], int],
    make: MakeRunner = _make_runner,
    *,
    num_steps: int = 1000,
) -> Outcome:
    """Whether the pool takes what it should, and `num_steps` steps take no more memory.

    in_use: bytes of the device's memory in use.
    """
    name = f"memory over {num_steps:,} steps, {_short(dtype)}"
    served = _Served(reference, dtype, make)
    before = in_use()
    for _ in range(2):
        served.round(_SAMPLING)
    start = in_use()
    first = served.engine.num_steps
    while served.engine.num_steps - first < num_steps:
        served.round(_SAMPLING)
    growth = in_use() - start
    pool = served.runner.kv_bytes_per_token * _BLOCK_SIZE * _NUM_BLOCKS
    finding = (
        f"pool {pool / 2**20:.1f} MiB, {(start - before) / 2**20:.1f} MiB taken at first,"
        f" then {growth / 2**20:+.1f} MiB"
    )
    return Outcome(name, finding, start - before >= pool and growth <= _SPARE_BYTES)


@contextmanager
def cuda_waits_forbidden() -> Iterator[None]:
    """CUDA operations that make the host wait raise RuntimeError."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _regret(reference: PreTrainedModel, request: Request) -> float:
    """The most by which the reference likes another token better, over its logits' spread."""
    ids = torch.tensor([request.token_ids], device=reference.device)
    with torch.inference_mode():
        logits: Tensor = reference(input_ids=ids, use_cache=False).logits[0].float()
    start = len(request.prompt_token_ids) - 1
    judged = logits[start:-1]
    chosen = judged.gather(1, ids[0, start + 1 :, None]).squeeze(1)
    return float(((judged.amax(dim=-1) - chosen) / judged.std(dim=-1)).max())


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
