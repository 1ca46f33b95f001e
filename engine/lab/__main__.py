"""Workloads and comparisons without a page: `python -m engine.lab run --workload chat`.

The exit status says whether the limits were met, so that it can stand in a pipeline: 0 they were,
or none were given; 1 they were not; 2 it could not be run as asked; 130 it was stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from engine import environment
from engine.contracts import EngineParts, Report, ServiceStatus
from engine.core.capacity import Ceilings
from engine.core.config import EngineConfig
from engine.core.errors import EngineStopped, InvalidRequest, PhaseScopeError
from engine.lab.arguments import arrivals_of, changes_of, limits_of, read_arguments
from engine.lab.backends import Backend, ServiceBackend, SimulatedBackend
from engine.lab.experiment import Experiment, config_with, perform
from engine.lab.importing import read_trace
from engine.lab.importing_replay import Replay, to_workload
from engine.lab.measures import Limits
from engine.lab.presets import PRESETS
from engine.lab.printing import print_limits, print_result, show_progress
from engine.lab.results import Result
from engine.lab.simulation import SMOLLM2_135M, simulated_tokens
from engine.lab.tracing import perfetto_trace
from engine.lab.workload import Workload, build
from engine.lab.workload_arrivals import Poisson
from engine.lab.workload_lengths import check_number
from engine.lab.workload_shapes import SHAPES, fixed
from engine.lab.workload_text import TextCoder, TokenSource, Vocabulary
from engine.service import EngineService
from engine.settings import Settings

MET, NOT_MET, NOT_RUN, INTERRUPTED = 0, 1, 2, 130
BLOCK_SIZE = 16
_NO_LIMIT_SECONDS = 7 * 24 * 3600.0
_CLOSE_SECONDS = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; returns the exit status."""
    try:
        options = read_arguments(arguments, __doc__ or "")
        result = _run(options)
    except PhaseScopeError as error:
        print(f"Not run: {error}", file=sys.stderr)
        return NOT_RUN
    except KeyboardInterrupt:
        print("Stopped; no result was written.", file=sys.stderr)
        return INTERRUPTED
    print_result(result)
    try:
        _write_files(options, result)
    except OSError as error:
        print(f"Not written: {error.filename} ({error.strerror}).", file=sys.stderr)
        return NOT_RUN
    return MET if print_limits(result, options.slo_share) else NOT_MET


def _write_files(options: argparse.Namespace, result: Result) -> None:
    for path, lines in (
        (options.json, [result.to_json()]),
        (options.csv, result.csv_lines()),
        (options.sends, result.send_lines()),
        (options.perfetto, _trace(result)),
    ):
        if path is not None:
            _write(path, lines)


def _trace(result: Result) -> Iterator[str]:
    yield perfetto_trace(result)


def _write(path: str, lines: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)


def _run(options: argparse.Namespace) -> Result:
    limits = limits_of(options)
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
    if options.save_workload is not None:
        _save_workload(options.save_workload, experiment.workload(0))
    try:
        return perform(experiment, backend, report=show_progress)
    finally:
        if sys.stderr.isatty():
            print(file=sys.stderr)


def _save_workload(path: str, workload: Workload) -> None:
    try:
        _write(path, workload.lines())
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidRequest(f"{path} cannot be written: {reason}.") from None


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
    configs = (a, config_with(a, changes_of(a, options.b))) if options.b else (a,)
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
            limit=Replay().limit if options.requests is None else options.requests,
            speed=1.0 if options.speed is None else options.speed,
            arrivals=arrivals_of(options) or Poisson(1.0),
            streamed=options.streamed is not False,
            max_model_len=context,
            seed=options.seed,
        )
        workload = to_workload(trace, source, replay, coder)
        return lambda pair: workload
    shape = SHAPES[options.workload or "chat"]
    spec = fixed(shape.spec, options.input_tokens, options.output_tokens)
    if options.requests is not None:
        spec = replace(spec, num_requests=options.requests)
    if options.streamed is not None:
        spec = replace(spec, streamed=options.streamed)
    arrivals = arrivals_of(options)
    if arrivals is not None:
        spec = replace(spec, arrivals=arrivals)
    return lambda pair: build(spec.with_seed(options.seed + pair), source).clipped(context)


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
