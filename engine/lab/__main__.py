"""Workloads and comparisons without a page: `python -m engine.lab run --workload chat`.

The exit status says whether the limits were met, so that it can stand in a pipeline: 0 they were,
or none were given; 1 they were not; 2 it could not be run as asked.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import environment
from engine.contracts import EngineParts, Report, ServiceStatus
from engine.core.capacity import Ceilings
from engine.core.config import EngineConfig
from engine.core.errors import EngineStopped, InvalidRequest, PhaseScopeError
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS
from engine.lab.backends import Backend, ServiceBackend, SimulatedBackend
from engine.lab.experiment import Experiment, config_with, perform
from engine.lab.importing import read_trace
from engine.lab.importing_replay import Replay, to_workload
from engine.lab.measures import Limits
from engine.lab.presets import PRESETS
from engine.lab.printing import print_result, show_progress
from engine.lab.results import Result
from engine.lab.simulation import SMOLLM2_135M, simulated_tokens
from engine.lab.verdict import MAX_PAIRS
from engine.lab.workload import Workload, build
from engine.lab.workload_arrivals import Arrivals, Burst, ClosedLoop, Constant, Gamma
from engine.lab.workload_lengths import check_number
from engine.lab.workload_shapes import SHAPES, fixed
from engine.lab.workload_text import TextCoder, TokenSource, Vocabulary
from engine.service import EngineService
from engine.settings import Settings

MET, NOT_MET, NOT_RUN = 0, 1, 2
BLOCK_SIZE = 16
_NO_LIMIT_SECONDS = 7 * 24 * 3600.0
_CLOSE_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        result = _run(options)
    except PhaseScopeError as error:
        print(f"Not run: {error}", file=sys.stderr)
        return NOT_RUN
    print_result(result)
    try:
        _write_files(options, result)
    except OSError as error:
        print(f"Not written: {error.filename} ({error.strerror}).", file=sys.stderr)
        return NOT_RUN
    shares = [side.good_share for side in result.sides if side.good_share is not None]
    return MET if all(share >= options.slo_share for share in shares) else NOT_MET


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.lab", description=__doc__)
    run = parser.add_subparsers(required=True).add_parser(
        "run", help="serve a workload and say what came of it"
    )
    _add_traffic(run)
    _add_sides(run)
    _add_limits(run)
    _add_engine(run)
    return parser


def _add_traffic(run: argparse.ArgumentParser) -> None:
    traffic = run.add_argument_group("traffic")
    traffic.add_argument("--workload", choices=sorted(SHAPES), default="chat")
    traffic.add_argument(
        "--preset", choices=sorted(PRESETS), help="a comparison with its own traffic and sides"
    )
    traffic.add_argument("--trace", type=Path, help="a trace file instead of a shape")
    traffic.add_argument("--speed", type=float, default=1.0, help="of the trace's times")
    traffic.add_argument("--requests", type=int, help="how many")
    traffic.add_argument("--rate", type=float, help="requests a second; inf: all at once")
    traffic.add_argument("--burstiness", type=float, default=1.0, help="1: Poisson; inf: even")
    traffic.add_argument("--users", type=int, help="closed loop of so many users instead")
    traffic.add_argument("--think", type=float, default=0.0, help="their seconds between requests")
    traffic.add_argument("--burst", type=int, help="bursts of so many, at the rate on average")
    traffic.add_argument("--input-tokens", type=int, help="the same length for all prompts")
    traffic.add_argument("--output-tokens", type=int, help="the same length for all answers")
    traffic.add_argument("--seed", type=int, default=0)


def _add_sides(run: argparse.ArgumentParser) -> None:
    side = run.add_argument_group("configuration A")
    side.add_argument("--policy", choices=sorted(POLICIES), default="chunked")
    side.add_argument("--queue-order", choices=sorted(QUEUE_ORDERS), default="first-come")
    side.add_argument("--budget", type=int, default=Settings().budget, help="tokens a step")
    side.add_argument("--slots", type=int, default=Settings().slots)
    side.add_argument("--long-prompt-threshold", type=int, default=0)
    side.add_argument("--kv-blocks", type=int, default=0)
    side.add_argument("--context", type=int, default=Settings().context)
    side.add_argument("--prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    compare = run.add_argument_group("comparison")
    compare.add_argument(
        "--b",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="what B has instead, such as --b policy=static; without it only A is run",
    )
    compare.add_argument("--runs", type=int, default=1, help=f"of each side, up to {MAX_PAIRS}")


def _add_limits(run: argparse.ArgumentParser) -> None:
    limits = run.add_argument_group("limits and output")
    limits.add_argument("--slo-ttft", type=float, help="milliseconds to the first token")
    limits.add_argument("--slo-tpot", type=float, help="milliseconds for each further token")
    limits.add_argument("--slo-share", type=float, default=0.99, help="of requests to meet them")
    limits.add_argument("--price", type=float, help="of the machine for an hour")
    limits.add_argument("--json", help="write the result to this file")
    limits.add_argument("--csv", help="write a line a run to this file")
    limits.add_argument("--sends", help="write planned and actual sending times to this file")


def _add_engine(run: argparse.ArgumentParser) -> None:
    where = run.add_argument_group("engine")
    where.add_argument("--model", help="as for app.py")
    where.add_argument("--device", default="auto", help="as for app.py")
    where.add_argument("--dtype", default="auto", help="as for app.py")
    where.add_argument("--threads", type=int, default=0, help="as for app.py")
    where.add_argument(
        "--simulated", action="store_true", help="a cost model of SmolLM2-135M, not a real engine"
    )
    where.add_argument("--peak-tflops", type=float, default=1.0, help="of the simulated device")
    where.add_argument("--bandwidth", type=float, default=25.0, help="its GB/s")
    where.add_argument("--overhead", type=float, default=3.0, help="its milliseconds a step")


def _write_files(options: argparse.Namespace, result: Result) -> None:
    for path, lines in (
        (options.json, [result.to_json()]),
        (options.csv, result.csv_lines()),
        (options.sends, result.send_lines()),
    ):
        if path is not None:
            Path(path).write_text("".join(lines), encoding="utf-8")


def _run(options: argparse.Namespace) -> Result:
    limits = Limits(
        ttft_seconds=None if options.slo_ttft is None else options.slo_ttft / 1e3,
        tpot_seconds=None if options.slo_tpot is None else options.slo_tpot / 1e3,
    )
    if options.simulated:
        name, base = "SmolLM2-135M, bfloat16", _simulated_config(options)
        check_number("peak in TFLOP/s", options.peak_tflops, least=0.0, above=True)
        check_number("bandwidth in GB/s", options.bandwidth, least=0.0, above=True)
        check_number("overhead in milliseconds", options.overhead, least=0.0)
        ceilings = Ceilings(
            options.peak_tflops * 1e12, options.bandwidth * 1e9, options.overhead / 1e3
        )
        backend: Backend = SimulatedBackend(name, SMOLLM2_135M, ceilings)
        return _perform(options, backend, base, simulated_tokens(SMOLLM2_135M), None, limits)
    with _service(options) as service:
        config, tokenizer = service.config, service.tokenizer
        assert config is not None, "a service that is ready has a configuration"
        if not isinstance(tokenizer, Vocabulary):
            raise InvalidRequest("This model's tokenizer does not say how many tokens it has.")
        shape = service.info.shape if service.info else None
        source = TokenSource.of(tokenizer, shape.vocab_size if shape else None)
        coder = tokenizer if isinstance(tokenizer, TextCoder) else None
        # Nobody else uses this engine, so its turn may last as long as it takes.
        with service.exclusive_turn("command line", max_seconds=_NO_LIMIT_SECONDS) as turn:
            return _perform(options, ServiceBackend(service, turn), config, source, coder, limits)


def _perform(
    options: argparse.Namespace,
    backend: Backend,
    base: EngineConfig,
    source: TokenSource,
    coder: TextCoder | None,
    limits: Limits,
) -> Result:
    a = replace(
        base,
        policy=options.policy,
        queue_order=options.queue_order,
        long_prompt_threshold=options.long_prompt_threshold,
    )
    experiment = _experiment(options, a, source, coder, limits)
    try:
        return perform(experiment, backend, report=show_progress)
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)


def _experiment(
    options: argparse.Namespace,
    a: EngineConfig,
    source: TokenSource,
    coder: TextCoder | None,
    limits: Limits,
) -> Experiment:
    if options.preset is not None:
        preset = PRESETS[options.preset]
        print(f"{preset.title}. Look at: {preset.look_at}", file=sys.stderr)
        experiment = preset.experiment(
            a, source, num_pairs=options.runs, seed=options.seed, limits=limits
        )
        return replace(experiment, price_per_hour=options.price)
    configs = (a, config_with(a, _changes(a, options.b))) if options.b else (a,)
    traffic = _traffic(options, source, coder, a.max_model_len)
    return Experiment(
        title=traffic(0).name,
        configs=configs,
        workload=traffic,
        num_pairs=options.runs,
        limits=limits,
        price_per_hour=options.price,
    )


def _traffic(
    options: argparse.Namespace, source: TokenSource, coder: TextCoder | None, context: int
) -> Callable[[int], Workload]:
    """The workload of each pair: the trace, or the shape with the next seed."""
    if options.trace is not None:
        trace = read_trace(options.trace)
        print(trace.summary(), file=sys.stderr)
        for item in trace.rejected[:10]:
            print(f"  line {item.line}: {item.reason}", file=sys.stderr)
        replay = Replay(
            limit=options.requests or Replay().limit,
            speed=options.speed,
            max_model_len=context,
            seed=options.seed,
        )
        workload = to_workload(trace, source, replay, coder)
        return lambda pair: workload
    spec = fixed(SHAPES[options.workload].spec, options.input_tokens, options.output_tokens)
    if options.requests is not None:
        spec = replace(spec, num_requests=options.requests)
    arrivals = _arrivals(options)
    if arrivals is not None:
        spec = replace(spec, arrivals=arrivals)
    return lambda pair: build(spec.with_seed(options.seed + pair), source).clipped(context)


def _arrivals(options: argparse.Namespace) -> Arrivals | None:
    if options.users is not None:
        return ClosedLoop(options.users, options.think)
    if options.rate is None:
        return None
    if options.burst is not None:
        return Burst(options.burst, options.burst / options.rate)
    if math.isinf(options.burstiness):
        return Constant(options.rate)
    return Gamma(options.rate, options.burstiness)


def _changes(base: EngineConfig, settings: Sequence[str]) -> dict[str, Any]:
    """`SETTING=VALUE` texts as values of the types that the settings have."""
    changes: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        before = getattr(base, name, None)
        if not equals:
            raise InvalidRequest(f"Write --b SETTING=VALUE; got {text!r}.")
        if isinstance(before, bool):
            words = {"on": True, "true": True, "off": False, "false": False}
            if value.lower() not in words:
                raise InvalidRequest(f"{name} must be on or off; got {value!r}.", field=name)
            changes[name] = words[value.lower()]
        elif isinstance(before, int):
            try:
                changes[name] = int(value)
            except ValueError:
                raise InvalidRequest(
                    f"{name} must be a whole number; got {value!r}.", field=name
                ) from None
        else:
            changes[name] = value
    return changes


def _simulated_config(options: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        num_blocks=options.kv_blocks or options.slots * -(-options.context // BLOCK_SIZE),
        max_batched_tokens=options.budget,
        max_running=options.slots,
        max_model_len=options.context,
        block_size=BLOCK_SIZE,
        prefix_caching=options.prefix_caching,
    )


@contextmanager
def _service(options: argparse.Namespace) -> Iterator[EngineService]:
    """The engine with the model loaded; raises EngineStopped with the reason where it fails."""
    environment.prepare(options.threads)
    settings = Settings(
        model=options.model,
        device=options.device,
        dtype=options.dtype,
        threads=options.threads,
        budget=options.budget,
        slots=options.slots,
        context=options.context,
        kv_blocks=options.kv_blocks,
        prefix_caching=options.prefix_caching,
    )

    def make_parts(report: Report) -> EngineParts:
        # torch is imported only here, when the environment is set.
        from engine.assembly import build_engine

        return build_engine(settings, report)

    service = EngineService(make_parts)
    service.start()
    try:
        while not service.health()[0]:
            if service.state.status is ServiceStatus.FAILED:
                raise EngineStopped(service.state.reason)
            time.sleep(0.05)
        yield service
    finally:
        service.close(wait=_CLOSE_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
