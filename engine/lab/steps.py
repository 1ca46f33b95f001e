"""What one step of the model costs as it is served: decoding by batch and context, prefill.

Each kind of step is timed on the served runner and on one without compiled kernels and fused
layers; they take turns, round by round, since machines are noisy, and medians are told. Prefill is
set against the matrix rate that is measured in the same minutes. Run it as
`python -m engine.lab.steps`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from engine import environment
from engine.core.capacity import ModelShape
from engine.core.errors import PhaseScopeError
from engine.core.plan import Chunk, Runner, StepPlan
from engine.core.records import StepRow
from engine.core.request import Phase, Request, SamplingParams, Timeline
from engine.lab.records_cost import RecordsCost, measure_records
from engine.settings import Settings
from engine.telemetry.roofline import step_work

BLOCK_SIZE = 16
LONG, SHORT, CHUNK = 1024, 256, 512
_NUM_LONG, _NUM_SHORT = 8, 24
_STEPS_A_VISIT = 3
_RATE_SECONDS = 0.3
_MILLISECONDS = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of step: its plan, and the operations that it takes."""

    name: str
    plan: StepPlan
    flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A runner to be timed; `matrix_rate` measures FLOP/s of its matrices now."""

    name: str
    runner: Runner
    shape: ModelShape
    matrix_rate: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One runner: the median milliseconds of each kind of step, and what follows from them.

    long_context_ratio: decoding 8 requests at 1,024 positions over 256. matrix_rate: FLOP/s of the
    model's matrices, of each round the best of all columns, and of these the median; prefill_share:
    the FLOP/s of a 512-token chunk over that of its round, the median.
    """

    name: str
    milliseconds: dict[str, float]
    long_context_ratio: float
    matrix_rate: float
    prefill_share: float


def main(arguments: Sequence[str]) -> int:
    """Measure and print a table or JSON; 0 when it ran."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.steps", description=__doc__)
    parser.add_argument("--model", help="as for app.py")
    parser.add_argument("--device", default="auto", help="as for app.py")
    parser.add_argument("--dtype", default="auto", help="as for app.py")
    parser.add_argument("--threads", type=int, default=0, help="as for app.py")
    parser.add_argument("--rounds", type=int, default=10, help="visits of each kind of step")
    parser.add_argument(
        "--no-plain", action="store_true", help="leave out the runner without kernels"
    )
    parser.add_argument(
        "--records-rounds", type=int, default=5, help="pairs of runs with and without; 0: none"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    environment.prepare(options.threads)
    settings = Settings(
        model=options.model, device=options.device, dtype=options.dtype, threads=options.threads
    )
    try:
        columns = _columns(settings, options.rounds, plain=not options.no_plain)
        records = measure_records(settings, options.records_rounds)
    except PhaseScopeError as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        cost = {"records": asdict(records) if records else None}
        print(json.dumps({"columns": [asdict(column) for column in columns]} | cost, indent=2))
    else:
        print(table(columns, records))
    return 0


def cases(shape: ModelShape) -> list[Case]:
    """The kinds of step that are timed; no two requests share a block."""
    requests = _requests()
    long, short = requests[:_NUM_LONG], requests[_NUM_LONG:-1]
    everyone, chunked = [*long, *short], requests[-1]
    decode = {
        "decode, batch 1, context 256": _decode(long[:1], SHORT),
        "decode, batch 8, context 256": _decode(long, SHORT),
        "decode, batch 32, context 256": _decode(everyone, SHORT),
        "decode, batch 8, context 1,024": _decode(long, LONG),
    }
    prefill = {
        "prefill, 512-token chunk": _chunk(chunked, 0, CHUNK, samples=False),
        "prefill, 256-token prompt": _chunk(chunked, 0, SHORT, samples=True),
    }
    return [
        Case(name=name, plan=plan, flops=flops_of(shape, plan))
        for name, plan in (decode | prefill).items()
    ]


def flops_of(shape: ModelShape, plan: StepPlan) -> float:
    """The operations of a plan, as the roofline counts them."""
    rows = [StepRow(c.request.number, c.start, c.length, c.phase) for c in plan.chunks]
    return step_work(shape, rows, sum(chunk.samples for chunk in plan.chunks)).flops


def measure(served: Sequence[Served], rounds: int) -> list[Column]:
    """Time every kind of step on every runner, in turn."""
    for one in served:
        _fill(one.runner)
    kinds = [cases(one.shape) for one in served]
    visits: list[dict[str, list[list[float]]]] = [{c.name: [] for c in kind} for kind in kinds]
    rates: list[float] = []
    for _ in range(rounds):
        # A machine that is shared may be half as fast a minute later: what is compared is measured
        # in one round.
        rates.append(max(one.matrix_rate() for one in served))
        for one, kind, times in zip(served, kinds, visits, strict=True):
            for case in kind:
                times[case.name].append(_visit(one.runner, case.plan))
    return [
        _column(one.name, kind, times, rates)
        for one, kind, times in zip(served, kinds, visits, strict=True)
    ]


def table(columns: Sequence[Column], records: RecordsCost | None) -> str:
    """The columns beside each other, in lines of text."""
    rows: list[tuple[str, list[str]]] = [
        ("milliseconds, medians", [column.name for column in columns]),
        *(
            (name, [f"{column.milliseconds[name]:.1f}" for column in columns])
            for name in columns[0].milliseconds
        ),
        (
            "decode, batch 8: 1,024 over 256",
            [f"{column.long_context_ratio:.2f}" for column in columns],
        ),
        ("matrix rate, TFLOP/s", [f"{column.matrix_rate / 1e12:.2f}" for column in columns]),
        ("512-token chunk over that rate", [f"{column.prefill_share:.2f}" for column in columns]),
    ]
    lines = [f"{name:<36}" + "".join(f"{cell:>18}" for cell in cells) for name, cells in rows]
    if records is not None:
        lines.append(
            f"tokens/s with records over without: {records.ratio:.3f} ({records.kept:.1f} and "
            f"{records.dropped:.1f}; median of {records.rounds} pairs, {records.streams} streams)"
        )
    return "\n".join(lines)


def _column(
    name: str,
    kind: Sequence[Case],
    visits: Mapping[str, Sequence[Sequence[float]]],
    rates: Sequence[float],
) -> Column:
    medians = {
        case.name: statistics.median(chain.from_iterable(visits[case.name])) for case in kind
    }
    chunk = next(case for case in kind if case.plan.num_tokens == CHUNK)
    shares = [
        chunk.flops / statistics.median(visit) / rate
        for visit, rate in zip(visits[chunk.name], rates, strict=True)
    ]
    return Column(
        name=name,
        milliseconds={case: _MILLISECONDS * value for case, value in medians.items()},
        long_context_ratio=(
            medians["decode, batch 8, context 1,024"] / medians["decode, batch 8, context 256"]
        ),
        matrix_rate=statistics.median(rates),
        prefill_share=statistics.median(shares),
    )


def _visit(runner: Runner, plan: StepPlan) -> list[float]:
    """Seconds of a few steps on end, after one that brings the weights back into the caches."""
    runner.run(plan)
    seconds = []
    for _ in range(_STEPS_A_VISIT):
        start = time.perf_counter()
        runner.run(plan)
        seconds.append(time.perf_counter() - start)
    return seconds


def num_blocks() -> int:
    """Blocks that all requests of `cases` take."""
    return sum(len(request.block_table) for request in _requests())


def _requests() -> list[Request]:
    """Long ones, short ones, and one for the prefill cases; each with blocks of its own.

    A request's blocks lie next to each other, as in a pool that has room.
    """
    requests: list[Request] = []
    first_block = 0
    for length in [LONG] * _NUM_LONG + [SHORT] * _NUM_SHORT + [CHUNK]:
        blocks = length // BLOCK_SIZE
        number = len(requests)
        requests.append(
            Request(
                number=number,
                token_ids=[(number * 7919 + i * 31) % 1000 for i in range(length)],
                params=SamplingParams(temperature=0.0, ignore_eos=True),
                seed=0,
                timeline=Timeline(submitted=0.0),
                block_table=list(range(first_block, first_block + blocks)),
            )
        )
        first_block += blocks
    return requests


def _decode(requests: Sequence[Request], context: int) -> StepPlan:
    """The position that makes each request `context` positions long, and a token from it."""
    return StepPlan(
        tuple(Chunk(request, context - 1, 1, Phase.DECODE, samples=True) for request in requests)
    )


def _chunk(request: Request, start: int, length: int, *, samples: bool) -> StepPlan:
    return StepPlan((Chunk(request, start, length, Phase.PREFILL, samples),))


def _fill(runner: Runner) -> None:
    """Compute the keys and values that the decoding steps read."""
    for request in _requests():
        for start in range(0, request.num_prompt_tokens, SHORT):
            runner.run(_chunk(request, start, SHORT, samples=False))


def _columns(settings: Settings, rounds: int, *, plain: bool) -> list[Column]:
    served = [_load("as served", settings, kernels=True)]
    if plain:
        served.append(_load("without kernels", settings, kernels=False))
    return measure(served, rounds)


def _load(name: str, settings: Settings, *, kernels: bool) -> Served:
    """The model made ready as `engine.assembly` does it, with a pool for `cases`."""
    # torch is imported only here, when the environment is set.
    from engine.model.ceilings import measure_ceilings, shape_of
    from engine.model.devices import pick_device, pick_dtype
    from engine.model.loading import load
    from engine.model.probe import probe
    from engine.model.runners import make_runner
    from engine.model.sources import find_source
    from engine.model.tuning import tune

    device = pick_device(settings.device)
    dtype = pick_dtype(settings.dtype, device)
    model = load(find_source(settings.model), device, dtype, lambda _: None).model
    shape = shape_of(model, probe(model))
    usable = tune(model, kernels=kernels and device.type == "cpu")
    runner, _ = make_runner(model, num_blocks=num_blocks(), block_size=BLOCK_SIZE, kernels=usable)

    def matrix_rate() -> float:
        return measure_ceilings(model, device, _RATE_SECONDS).flops_per_second

    return Served(name=name, runner=runner, shape=shape, matrix_rate=matrix_rate)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
