"""What a step costs beside the model: planning, text, records and mailboxes, on a runner that
computes nothing.

Run it as `python -m engine.lab.bookkeeping`. CPU time is told beside wall time: on a machine that
others use, it is the one to trust.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence

from engine import environment
from engine.core.clock import MonotonicClock
from engine.core.config import EngineConfig
from engine.core.engine import Engine
from engine.core.plan import NoText, SampledToken, StepPlan, StepResult, Text, sampled_chunks
from engine.core.request import Request, SamplingParams, Timeline
from engine.mailbox import Mailbox
from engine.telemetry.store import TraceStore

_PROMPT_TOKENS = 100
_BLOCK_SIZE = 16
_WARM_UP, _ROUNDS = 20, 5
_MILLISECONDS = 1e3


class _Nothing:
    """A runner whose tokens cost nothing: ordinary words, another in every step."""

    def run(self, plan: StepPlan) -> StepResult:
        return StepResult(
            tuple(
                SampledToken(1000 + chunk.request.num_output_tokens % 500)
                for chunk in sampled_chunks(plan)
            )
        )

    def resize(self, num_blocks: int) -> None:
        pass

    def reset(self) -> None:
        pass


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 0 when it ran."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.bookkeeping", description=__doc__)
    parser.add_argument("--requests", type=int, default=64, help="requests that decode at once")
    parser.add_argument("--steps", type=int, default=50, help="steps of each of the rounds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    environment.prepare(0)
    results = {
        "plan and commit": measure(options.requests, options.steps, NoText(), records=False),
        "with records and mailboxes": measure(options.requests, options.steps, NoText()),
        "with text too": measure(options.requests, options.steps, _tokenizer()),
    }
    if options.json:
        rows = {name: {"wall_ms": wall, "cpu_ms": cpu} for name, (wall, cpu) in results.items()}
        print(json.dumps({"requests": options.requests, "a_step": rows}, indent=2))
        return 0
    print(f"Milliseconds a step with {options.requests} decoding requests")
    for name, (wall, cpu) in results.items():
        print(f"  {name:<28}wall {wall:6.2f}   CPU {cpu:6.2f}")
    return 0


def measure(
    num_requests: int, num_steps: int, text: Text, *, records: bool = True
) -> tuple[float, float]:
    """Wall and CPU milliseconds of a decoding step, the medians of a few rounds."""
    # Prompts are read before the first decoding step, and nobody may end while steps are timed.
    num_tokens = num_steps * _ROUNDS + 2 * _WARM_UP
    context = _PROMPT_TOKENS + num_tokens
    config = EngineConfig(
        num_blocks=num_requests * -(-context // _BLOCK_SIZE),
        max_running=num_requests,
        max_batched_tokens=8 * num_requests,
        max_model_len=context,
        block_size=_BLOCK_SIZE,
    )
    clock = MonotonicClock()
    engine = Engine(config, _Nothing(), text, clock)
    store = TraceStore()
    mailboxes: dict[int, Mailbox] = {}
    for number in range(1, num_requests + 1):
        request = Request(
            number=number,
            token_ids=[(number * 7 + i) % 40_000 for i in range(_PROMPT_TOKENS)],
            params=SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True),
            seed=1,
            timeline=Timeline(submitted=clock.now()),
        )
        mailboxes[number] = Mailbox()
        store.open(request)
        engine.add(request)

    def step() -> None:
        output = engine.step()
        if output is None or output.record is None or not records:
            return
        store.add_step(output.record)
        for request, token_id, piece, _reason, _error in output.outputs:
            if token_id is not None:
                mailboxes[request.number].put(token_id, piece)

    for _ in range(_WARM_UP):
        step()
    walls, cpus = [], []
    for _ in range(_ROUNDS):
        wall, cpu = time.perf_counter(), time.thread_time()
        for _ in range(num_steps):
            step()
        walls.append((time.perf_counter() - wall) / num_steps)
        cpus.append((time.thread_time() - cpu) / num_steps)
    return (
        statistics.median(walls) * _MILLISECONDS,
        statistics.median(cpus) * _MILLISECONDS,
    )


def _tokenizer() -> Text:
    """The bundled model's text interface; the weights are not loaded."""
    # transformers is imported only here, when the environment is set.
    from engine.model.loading import load_tokenizer
    from engine.model.sources import find_source
    from engine.model.text import Tokenizer

    return Tokenizer(load_tokenizer(find_source(None), lambda _: None), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
