"""Small experiments in the simulation, for the tests of what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.core.capacity import Ceilings
from engine.core.config import EngineConfig
from engine.lab.backends import SimulatedBackend
from engine.lab.experiment import (
    Experiment,
    config_with,
    perform,
)
from engine.lab.measures import Limits
from engine.lab.results import Result
from engine.lab.runs import Progress, Run
from engine.lab.simulation import SMOLLM2_135M, simulated_tokens
from engine.lab.workload import Workload, build
from engine.lab.workload_shapes import SHAPES

CEILINGS = Ceilings(1e12, 25e9, 0.003)
SOURCE = simulated_tokens(SMOLLM2_135M)
BASE = EngineConfig(num_blocks=1_024, fingerprint="secret")
LIMITS = Limits(ttft_seconds=0.2, tpot_seconds=0.02)


class Recorded(SimulatedBackend):
    """The simulation, noting under which policy each run was made."""

    def __init__(self, seconds_left: Callable[[], float] | None = None) -> None:
        super().__init__("SmolLM2-135M", SMOLLM2_135M, CEILINGS)
        self.policies: list[str] = []
        self.digests: list[str] = []
        self._left = seconds_left

    def seconds_left(self) -> float | None:
        return None if self._left is None else self._left()

    def run(
        self,
        workload: Workload,
        config: EngineConfig,
        progress: Progress,
        should_stop: Callable[[], bool],
    ) -> Run:
        self.policies.append(config.policy)
        self.digests.append(workload.digest())
        return super().run(workload, config, progress, should_stop)


def chat(pair: int) -> Workload:
    return build(replace(SHAPES["chat"].spec, num_requests=8).with_seed(pair), SOURCE)


def compared(num_pairs: int = 2, **changes: Any) -> Result:
    b = config_with(BASE, changes or {"policy": "static"})
    experiment = Experiment(
        title="=chat", configs=(BASE, b), workload=chat, num_pairs=num_pairs, limits=LIMITS
    )
    return perform(experiment, Recorded())
