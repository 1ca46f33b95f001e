"""The engine beside `model.generate` on the same weights, dtype and threads, in one run.

Machines are noisy, so what counts are the ratios: both sides take turns, round by round. Run it as
`python -m engine.lab.bench`; `--json` prints the figures for a program.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engine import environment
from engine.contracts import EngineParts, ServiceStatus
from engine.core.errors import PhaseScopeError
from engine.core.records import RequestRecord
from engine.core.request import SamplingParams
from engine.service import EngineService
from engine.settings import Settings
from engine.telemetry.metrics import describe, itl, ttft


@dataclass(frozen=True, slots=True)
class Side:
    """One side at one concurrency: output tokens a second and latencies in milliseconds."""

    tokens_per_second: float
    ttft_p50: float
    ttft_p95: float
    itl_p50: float
    itl_p95: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides at one concurrency, medians over the rounds; ratios are engine over generate."""

    concurrency: int
    rounds: int
    engine: Side
    generate: Side
    throughput_ratio: float
    ttft_p50_ratio: float
    itl_p50_ratio: float


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark and print a table or JSON; 0 when it ran."""
    parser = argparse.ArgumentParser(prog="python -m engine.lab.bench", description=__doc__)
    parser.add_argument("--model", help="as for app.py")
    parser.add_argument("--dtype", default="auto", help="as for app.py")
    parser.add_argument("--threads", type=int, default=0, help="as for app.py")
    parser.add_argument("--budget", type=int, default=Settings().budget, help="as for app.py")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    environment.prepare(options.threads)
    settings = Settings(
        model=options.model,
        dtype=options.dtype,
        threads=options.threads,
        budget=options.budget,
        slots=max(options.concurrency),
    )
    bench = _Bench(settings, options.input_tokens, options.output_tokens)
    results = [bench.compare(concurrency, options.rounds) for concurrency in options.concurrency]
    bench.close()
    if options.json:
        print(json.dumps(bench.setting | {"results": [asdict(r) for r in results]}, indent=2))
    else:
        _print_table(bench.setting, results)
    return 0


class _Bench:
    """A served model, and the same model for `generate`."""

    def __init__(self, settings: Settings, input_tokens: int, output_tokens: int) -> None:
        # torch is imported only here, when the environment is set.
        import torch

        from engine.assembly import build_engine
        from engine.lab.reference import Reference

        self._input_tokens, self._output_tokens = input_tokens, output_tokens
        parts: list[EngineParts] = []

        def build(report: Any) -> EngineParts:
            parts.append(build_engine(settings, report))
            return parts[0]

        self._service = EngineService(build)
        self._service.start()
        while not self._service.health()[0]:
            if self._service.state.status is ServiceStatus.FAILED:
                raise PhaseScopeError(self._service.state.reason)
            time.sleep(0.05)
        self._reference = Reference(settings, input_tokens, output_tokens)
        info = parts[0].info
        self.setting: dict[str, Any] = {
            "model": info.name,
            "dtype": info.dtype,
            "device": info.device,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "token_budget": parts[0].config.max_batched_tokens,
        }
        self._seed = 0

    def compare(self, concurrency: int, rounds: int) -> Comparison:
        """Both sides in turn, after a round of each that does not count."""
        engine: list[Side] = []
        generate: list[Side] = []
        for number in range(rounds + 1):
            self._seed += 1
            prompts = self._reference.prompts(concurrency, self._seed)
            pair = (self._serve(prompts), self._reference.run(prompts))
            if number:
                engine.append(pair[0])
                generate.append(pair[1])
        a, b = _median(engine), _median(generate)
        return Comparison(
            concurrency=concurrency,
            rounds=rounds,
            engine=a,
            generate=b,
            throughput_ratio=a.tokens_per_second / b.tokens_per_second,
            ttft_p50_ratio=a.ttft_p50 / b.ttft_p50,
            itl_p50_ratio=a.itl_p50 / b.itl_p50,
        )

    def close(self) -> None:
        self._service.close(wait=10)

    def _serve(self, prompts: list[list[int]]) -> Side:
        params = SamplingParams(temperature=0.0, max_tokens=self._output_tokens, ignore_eos=True)
        start = time.perf_counter()
        streams = [self._service.submit(prompt, params) for prompt in prompts]
        readers = [threading.Thread(target=list, args=(stream,)) for stream in streams]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        seconds = time.perf_counter() - start
        records = [self._record(stream.number) for stream in streams]
        first, gaps = describe(ttft(records)), describe(itl(records))
        return Side(
            tokens_per_second=sum(r.num_output_tokens for r in records) / seconds,
            ttft_p50=1e3 * (first.p50 or 0.0),
            ttft_p95=1e3 * (first.p95 or 0.0),
            itl_p50=1e3 * (gaps.p50 or 0.0),
            itl_p95=1e3 * (gaps.p95 or 0.0),
        )

    def _record(self, number: int) -> RequestRecord:
        """The final record, which the engine's thread completes a moment after the last token."""
        while True:
            record = self._service.store.find(number)
            if record is not None and record.complete:
                return record
            time.sleep(0.001)


def _median(sides: Sequence[Side]) -> Side:
    """The median of each figure over the rounds."""

    def middle(name: str) -> float:
        value = describe([getattr(side, name) for side in sides]).p50
        assert value is not None
        return value

    return Side(**{name: middle(name) for name in Side.__dataclass_fields__})


def _print_table(setting: dict[str, Any], results: Sequence[Comparison]) -> None:
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in setting.items()))
    print(f"{'':14}{'tok/s':>18}{'TTFT p50 / p95, ms':>26}{'ITL p50 / p95, ms':>24}")
    for result in results:
        for name, side in (("engine", result.engine), ("generate", result.generate)):
            print(
                f"{result.concurrency:>3} {name:10}{side.tokens_per_second:>18.1f}"
                f"{side.ttft_p50:>15.0f} / {side.ttft_p95:<8.0f}"
                f"{side.itl_p50:>13.1f} / {side.itl_p95:<8.1f}"
            )
        print(
            f"    {'ratio':10}{result.throughput_ratio:>18.2f}{result.ttft_p50_ratio:>15.2f}"
            f"{'':11}{result.itl_p50_ratio:>13.2f}"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
