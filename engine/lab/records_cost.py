"""What keeping records costs: tokens a second of a service over those of one that keeps nothing.

Both serve the same runner, in turn. The second one's store drops requests and steps; the engine
writes a step's record all the same, since the step's result is one.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from engine.contracts import EngineParts, ServiceStatus
from engine.core.errors import PhaseScopeError
from engine.core.records import RequestRecord, StepRecord
from engine.core.request import Request, SamplingParams
from engine.service import EngineService
from engine.settings import Settings
from engine.telemetry.store import TraceStore

_STREAMS, _INPUT_TOKENS, _OUTPUT_TOKENS = 8, 256, 128
_CLOSE_SECONDS = 10.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsCost:
    """Output tokens a second with records kept and dropped: medians, and that of their ratios."""

    streams: int
    rounds: int
    kept: float
    dropped: float
    ratio: float


class ForgetfulStore(TraceStore):
    """A store that takes everything and keeps nothing."""

    def open(self, request: Request) -> None:
        """Forget it."""

    def add_step(self, step: StepRecord) -> None:
        """Forget it."""

    def close(self, request: Request) -> RequestRecord | None:
        """Forget it; None, as for a request that is not open."""
        return None


def measure_records(settings: Settings, rounds: int) -> RecordsCost | None:
    """Serve the model with and without records in turn; None where no rounds are asked for."""
    if rounds < 1:
        return None
    # torch is imported only here, when the environment is set.
    from engine.assembly import build_engine

    # The two pools stand for the same memory: blocks of one are no prefix in the other.
    parts = build_engine(replace(settings, prefix_caching=False, slots=_STREAMS), lambda *_: None)
    return compare_stores(lambda _: parts, rounds, _INPUT_TOKENS, _OUTPUT_TOKENS)


def compare_stores(
    build: Callable[[Any], EngineParts], rounds: int, input_tokens: int, output_tokens: int
) -> RecordsCost:
    """Pairs of runs, of which the first does not count; who goes first changes."""
    services = (EngineService(build), EngineService(build))
    services[1].store = ForgetfulStore()
    rates: tuple[list[float], list[float]] = ([], [])
    try:
        for service in services:
            _start(service)
        for number in range(rounds + 1):
            for side in (0, 1) if number % 2 else (1, 0):
                prompts = _prompts(services[side], input_tokens)
                rate = _tokens_per_second(services[side], prompts, output_tokens)
                rates[side].extend([rate] if number else [])
    finally:
        for service in services:
            service.close(wait=_CLOSE_SECONDS)
    kept, dropped = rates
    return RecordsCost(
        streams=_STREAMS,
        rounds=rounds,
        kept=statistics.median(kept),
        dropped=statistics.median(dropped),
        ratio=statistics.median(a / b for a, b in zip(kept, dropped, strict=True)),
    )


def _start(service: EngineService) -> None:
    service.start()
    while not service.health()[0]:
        if service.state.status is ServiceStatus.FAILED:
            raise PhaseScopeError(service.state.reason)
        time.sleep(_POLL_SECONDS)


def _prompts(service: EngineService, num_tokens: int) -> list[list[int]]:
    random = Random()
    vocabulary = range(service.tokenizer.vocab_size)
    return [random.choices(vocabulary, k=num_tokens) for _ in range(_STREAMS)]


def _tokens_per_second(
    service: EngineService, prompts: Sequence[list[int]], output_tokens: int
) -> float:
    params = SamplingParams(temperature=0.0, max_tokens=output_tokens, ignore_eos=True)
    start = time.perf_counter()
    streams = [service.submit(prompt, params) for prompt in prompts]
    readers = [threading.Thread(target=list, args=(stream,)) for stream in streams]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return len(prompts) * output_tokens / (time.perf_counter() - start)
