"""A service for experiments without a model: a scripted runner whose steps take longer the more
tokens they compute, and a tokenizer that says which tokens it has.
"""

from __future__ import annotations

import time
from dataclasses import replace

from engine.contracts import EngineParts, Report, ServiceStatus
from engine.core.plan import StepPlan
from engine.service import EngineService
from tests.stub_service import ScriptedRunner, StubTokenizer, stub_build, wait_until


class LabTokenizer(StubTokenizer):
    """The stub's characters, as a vocabulary to draw prompts from."""

    vocab_size = 128
    special_token_ids = frozenset(range(32))


def lab_service(
    seconds: float = 0.001, seconds_per_token: float = 0.0, **settings: object
) -> EngineService:
    """A ready service; a step takes `seconds` and `seconds_per_token` for each position."""

    def work(plan: StepPlan) -> None:
        time.sleep(seconds + seconds_per_token * sum(chunk.length for chunk in plan.chunks))

    build = stub_build(ScriptedRunner(before=work), **settings)

    def with_vocabulary(report: Report) -> EngineParts:
        return replace(build(report), tokenizer=LabTokenizer())  # type: ignore[arg-type]

    service = EngineService(with_vocabulary, stuck_after=60.0, recovery_pause=0.3)
    service.start()
    wait_until(lambda: service.state.status is ServiceStatus.READY)
    return service
