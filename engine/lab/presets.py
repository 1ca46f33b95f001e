"""The classic effects of serving, each as a comparison that is ready to run.

A preset says what to look at; whether it is seen is up to the runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.core.config import EngineConfig
from engine.lab.experiment import Experiment, config_with
from engine.lab.measures import Limits
from engine.lab.workload import Part, Workload, WorkloadSpec, build, merged
from engine.lab.workload_arrivals import Constant
from engine.lab.workload_lengths import Fixed, Lengths, Uniform
from engine.lab.workload_text import TokenSource

_AT_ONCE = Constant(math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A comparison by name.

    look_at: what to watch, in one sentence. a and b: what each side changes in the engine's
    configuration. draw: the traffic for a seed.
    """

    title: str
    look_at: str
    a: dict[str, Any]
    b: dict[str, Any]
    draw: Callable[[int, TokenSource], Workload]

    def experiment(
        self,
        base: EngineConfig,
        source: TokenSource,
        *,
        num_pairs: int = 1,
        seed: int = 0,
        limits: Limits | None = None,
    ) -> Experiment:
        """The comparison on an engine configured as `base`, each pair with a seed of its own."""
        return Experiment(
            title=self.title,
            configs=(config_with(base, self.a), config_with(base, self.b)),
            workload=lambda pair: self.draw(seed + pair, source).clipped(base.max_model_len),
            num_pairs=num_pairs,
            limits=limits or Limits(),
        )


def _traffic(
    name: str, count: int, prompt: Lengths, output: Lengths, shared_share: float = 0.0
) -> WorkloadSpec:
    part = Part(prompt=prompt, output=output, shared_share=shared_share)
    return WorkloadSpec(name=name, parts=(part,), num_requests=count, arrivals=_AT_ONCE)


def _long_prompt(seed: int, source: TokenSource) -> Workload:
    streams = _traffic("streams", 3, Fixed(48), Fixed(64)).with_seed(seed)
    long = _traffic("long prompt", 1, Fixed(1_500), Fixed(16)).with_seed(seed + 1_000)
    parts = [(0.0, build(streams, source)), (0.5, build(long, source))]
    return merged("three streams and a long prompt", parts)


def _drawn(spec: WorkloadSpec) -> Callable[[int, TokenSource], Workload]:
    return lambda seed, source: build(spec.with_seed(seed), source)


PRESETS: dict[str, Preset] = {
    "long-prompt": Preset(
        title="A long prompt arrives while others read their answers",
        look_at="The gap in the running streams while the long prompt is read.",
        a={"policy": "prefill-first"},
        b={"policy": "chunked"},
        draw=_long_prompt,
    ),
    "shared-document": Preset(
        title="Many questions about one document",
        look_at="Time to first token of all but the first, and the tokens reused.",
        a={"prefix_caching": False},
        b={"prefix_caching": True},
        draw=_drawn(_traffic("one document", 8, Fixed(800), Fixed(16), shared_share=0.9)),
    ),
    "budget": Preset(
        title="A small token budget against a large one",
        look_at="Gaps between tokens against the time to first token of the long prompts.",
        a={"max_batched_tokens": 64},
        b={"max_batched_tokens": 512},
        draw=_long_prompt,
    ),
    "batching": Preset(
        title="Static against continuous batching",
        look_at="Short answers that wait for the longest of their batch, and the throughput.",
        a={"policy": "static"},
        b={"policy": "chunked"},
        draw=_drawn(_traffic("answers of all lengths", 24, Uniform(16, 48), Uniform(4, 96))),
    ),
    "slots": Preset(
        title="2 slots against 16",
        look_at="Queueing against the gaps between tokens, and the throughput.",
        a={"max_running": 2},
        b={"max_running": 16},
        draw=_drawn(_traffic("a crowd", 16, Uniform(16, 64), Fixed(32))),
    ),
}
