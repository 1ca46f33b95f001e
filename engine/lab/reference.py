"""`model.generate` of transformers as a peer to measure against: batched, greedy, dense cache."""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from engine.lab.bench import Side
from engine.model.devices import pick_device, pick_dtype
from engine.model.loading import load
from engine.model.sources import find_source
from engine.settings import Settings
from engine.telemetry.metrics import describe


class Reference:
    """A second copy of the model, with transformers' own attention, and prompts for both sides."""

    def __init__(self, settings: Settings, input_tokens: int, output_tokens: int) -> None:
        device = pick_device(settings.device)
        dtype = pick_dtype(settings.dtype, device)
        loaded = load(find_source(settings.model), device, dtype, lambda _: None)
        self._model: Any = loaded.model
        self._vocabulary = loaded.config.get_text_config().vocab_size
        self._input_tokens, self._output_tokens = input_tokens, output_tokens

    def prompts(self, count: int, seed: int) -> list[list[int]]:
        """Random prompts of one length; another seed shares no prefix with this one."""
        generator = torch.Generator().manual_seed(seed)
        shape = (count, self._input_tokens)
        # The first ids are control tokens in many vocabularies.
        ids: list[list[int]] = torch.randint(
            64, self._vocabulary, shape, generator=generator
        ).tolist()
        return ids

    def run(self, prompts: list[list[int]]) -> Side:
        """Generate for all prompts in one batch; each token's time is the end of its step."""
        clock = _StepTimes()
        ids = torch.tensor(prompts, device=self._model.device)
        start = time.perf_counter()
        with torch.inference_mode():
            self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=self._output_tokens,
                min_new_tokens=self._output_tokens,
                do_sample=False,
                stopping_criteria=StoppingCriteriaList([clock]),
            )
        seconds = time.perf_counter() - start
        first = 1e3 * (clock.times[0] - start)
        gaps = describe([b - a for a, b in zip(clock.times, clock.times[1:], strict=False)])
        return Side(
            tokens_per_second=len(prompts) * self._output_tokens / seconds,
            ttft_p50=first,
            ttft_p95=first,
            itl_p50=1e3 * (gaps.p50 or 0.0),
            itl_p95=1e3 * (gaps.p95 or 0.0),
        )


class _StepTimes(StoppingCriteria):
    """Notes when each step is done, and stops nothing."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **keywords: Any) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)
