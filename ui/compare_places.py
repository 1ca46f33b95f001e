"""Where an experiment can be run: on the engine that serves the page, or in the simulation.

A place says with which configuration a comparison starts, how far its settings may go, and whose
tokens the prompts are made of. It runs nothing and knows no component of the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.core.capacity import Ceilings
from engine.core.config import EngineConfig
from engine.core.errors import EngineStopped, InvalidRequest
from engine.lab.backends import SimulatedBackend
from engine.lab.simulation import SMOLLM2_135M, simulated_tokens
from engine.lab.workload_text import TextCoder, TokenSource, Vocabulary
from engine.service import EngineService
from ui.words_compare import COMPARE

SIMULATED_CONFIG: Final = EngineConfig(num_blocks=2_048)
SIMULATED_CEILINGS: Final = Ceilings(1e12, 25e9, 3e-3)
"""A small server's processor: 1 TFLOP/s, 25 GB/s, 3 ms a step; used until one is measured."""

_MOST_SIMULATED_BLOCKS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where runs are made. `backend` is None on the real engine, which is had in a turn only.

    coder: the loaded model's tokenizer, for traffic that is text; None while there is none.
    """

    config: EngineConfig
    source: TokenSource
    most_blocks: int
    coder: TextCoder | None = None
    backend: SimulatedBackend | None = None


def find_place(service: EngineService, *, simulated: bool) -> Place:
    """The place by name; raises EngineStopped or InvalidRequest where the engine is no use."""
    return _simulation(service) if simulated else _engine(service)


def starting_config(service: EngineService) -> EngineConfig:
    """What the fields show first: the engine's own settings, or the simulation's meanwhile."""
    return service.config or SIMULATED_CONFIG


def _engine(service: EngineService) -> Place:
    config, info = service.config, service.info
    if config is None or info is None:
        raise EngineStopped(service.state.reason or COMPARE["not_serving"])
    tokenizer = service.tokenizer
    if not isinstance(tokenizer, Vocabulary):
        raise InvalidRequest(COMPARE["no_vocabulary"])
    rows = info.shape.vocab_size if info.shape else None
    # The pool was sized by this machine's memory: an experiment may have less, never more.
    return Place(
        config=config,
        source=TokenSource.of(tokenizer, rows),
        most_blocks=config.num_blocks,
        coder=_coder(service),
    )


def _simulation(service: EngineService) -> Place:
    info = service.info
    shape, ceilings, name = SMOLLM2_135M, SIMULATED_CEILINGS, "SmolLM2-135M, bfloat16"
    if info is not None and info.shape is not None and info.ceilings is not None:
        shape, ceilings, name = info.shape, info.ceilings, f"{info.name}, {info.dtype}"
    return Place(
        config=starting_config(service),
        source=simulated_tokens(shape),
        most_blocks=_MOST_SIMULATED_BLOCKS,
        coder=_coder(service),
        backend=SimulatedBackend(name, shape, ceilings),
    )


def _coder(service: EngineService) -> TextCoder | None:
    coder = service.tokenizer if service.config is not None else None
    return coder if isinstance(coder, TextCoder) else None
