"""The options of `python -m engine.lab run`, and what they say of traffic and limits.

It reads a command line and refuses what cannot be meant; it runs nothing and prints nothing.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.core.config import EngineConfig
from engine.core.errors import InvalidRequest
from engine.core.policies import POLICIES
from engine.core.queue_order import QUEUE_ORDERS
from engine.lab.measures import Limits
from engine.lab.presets import PRESETS
from engine.lab.verdict import MAX_PAIRS
from engine.lab.workload_arrivals import Arrivals, Burst, ClosedLoop, Constant, Gamma
from engine.lab.workload_lengths import check_number
from engine.lab.workload_shapes import SHAPES
from engine.settings import Settings

# Each option that names traffic, and the options that have no meaning beside it.
_IGNORED_BESIDE = {
    "preset": (
        *("trace", "workload", "speed", "requests", "rate", "burstiness", "users", "think"),
        *("burst", "input_tokens", "output_tokens", "streamed", "b"),
    ),
    "trace": ("workload", "input_tokens", "output_tokens"),
    "users": ("rate", "burst", "burstiness"),
}
_NEEDED_BESIDE = {"burst": "rate", "burstiness": "rate", "think": "users", "speed": "trace"}


def read_arguments(arguments: Sequence[str], description: str) -> argparse.Namespace:
    """The options; argparse ends the program with status 2 for what is no option.

    Raises InvalidRequest for options that contradict each other or are out of range.
    """
    options = _parser(description).parse_args(arguments)
    for name, ignored in _IGNORED_BESIDE.items():
        if getattr(options, name) is None:
            continue
        given = [_flag(other) for other in ignored if getattr(options, other) is not None]
        if given:
            raise InvalidRequest(
                f"{_flag(name)} leaves no room for {' and '.join(given)}; give one or the other."
            )
    for name, needed in _NEEDED_BESIDE.items():
        if getattr(options, name) is not None and getattr(options, needed) is None:
            raise InvalidRequest(f"{_flag(name)} says nothing without {_flag(needed)}; add it.")
    check_number("share of requests (--slo-share)", options.slo_share, least=0.0, most=1.0)
    return options


def limits_of(options: argparse.Namespace) -> Limits:
    """The limits, which are milliseconds on the command line; raises InvalidRequest."""
    return Limits(
        ttft_seconds=None if options.slo_ttft is None else options.slo_ttft / 1e3,
        tpot_seconds=None if options.slo_tpot is None else options.slo_tpot / 1e3,
    )


def arrivals_of(options: argparse.Namespace) -> Arrivals | None:
    """How requests arrive; None for the traffic's own way. Raises InvalidRequest."""
    if options.users is not None:
        return ClosedLoop(options.users, options.think or 0.0)
    if options.rate is None:
        return None
    if options.burst is not None:
        check_number("rate in requests a second", options.rate, least=0.0, above=True)
        return Burst(options.burst, options.burst / options.rate)
    burstiness = 1.0 if options.burstiness is None else options.burstiness
    return Constant(options.rate) if math.isinf(burstiness) else Gamma(options.rate, burstiness)


def changes_of(base: EngineConfig, settings: Sequence[str]) -> dict[str, Any]:
    """`SETTING=VALUE` texts as values of the types that the settings have.

    Raises InvalidRequest for a text of another form or a value of another type.
    """
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


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.lab", description=description)
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
    traffic.add_argument("--workload", choices=sorted(SHAPES), help="a shape; chat by default")
    traffic.add_argument(
        "--preset", choices=sorted(PRESETS), help="a comparison with its own traffic and sides"
    )
    traffic.add_argument("--trace", type=Path, help="a trace file instead of a shape")
    traffic.add_argument("--speed", type=float, help="how many times as fast the trace is played")
    traffic.add_argument(
        "--requests", type=int, help="how many; by default as the shape, 500 of a trace"
    )
    traffic.add_argument("--rate", type=float, help="requests a second; inf: all at once")
    traffic.add_argument("--burstiness", type=float, help="of the rate; 1: Poisson; inf: even")
    traffic.add_argument("--users", type=int, help="closed loop of so many users instead")
    traffic.add_argument("--think", type=float, help="their seconds between requests")
    traffic.add_argument("--burst", type=int, help="bursts of so many, at the rate on average")
    traffic.add_argument("--input-tokens", type=int, help="the same length for all prompts")
    traffic.add_argument("--output-tokens", type=int, help="the same length for all answers")
    traffic.add_argument(
        "--streamed",
        action=argparse.BooleanOptionalAction,
        help="whether answers are read token by token; as the shape has it by default",
    )
    traffic.add_argument("--seed", type=int, default=0, help="of lengths, texts and arrivals")


def _add_sides(run: argparse.ArgumentParser) -> None:
    side = run.add_argument_group("configuration A")
    side.add_argument(
        "--policy", choices=sorted(POLICIES), default="chunked", help="how a step is filled"
    )
    side.add_argument(
        "--queue-order",
        choices=sorted(QUEUE_ORDERS),
        default="first-come",
        help="who of those that wait is next",
    )
    side.add_argument("--budget", type=int, default=Settings().budget, help="tokens a step")
    side.add_argument("--slots", type=int, default=Settings().slots, help="requests at once")
    side.add_argument(
        "--long-prompt-threshold",
        type=int,
        default=0,
        metavar="TOKENS",
        help="most tokens of one prompt in a step; 0: any",
    )
    side.add_argument(
        "--kv-blocks", type=int, default=0, help="16-token blocks; 0: what the slots need"
    )
    side.add_argument("--context", type=int, default=Settings().context, help="most tokens")
    side.add_argument("--prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    compare = run.add_argument_group("comparison")
    compare.add_argument(
        "--b",
        action="append",
        metavar="SETTING=VALUE",
        help="what B has instead, such as --b policy=static; without it only A is run",
    )
    compare.add_argument(
        "--runs",
        type=int,
        default=1,
        help=f"of each side, up to {MAX_PAIRS}; from 6 on a difference can be claimed",
    )


def _add_limits(run: argparse.ArgumentParser) -> None:
    limits = run.add_argument_group("limits and output")
    limits.add_argument("--slo-ttft", type=float, help="milliseconds to the first token")
    limits.add_argument("--slo-tpot", type=float, help="milliseconds for each further token")
    limits.add_argument(
        "--slo-share",
        type=float,
        default=0.99,
        help="of the requests that must meet them, from 0 to 1; 0.99 by default",
    )
    limits.add_argument("--price", type=float, help="of the machine for an hour")
    limits.add_argument("--json", help="write the result to this file")
    limits.add_argument("--csv", help="write a line a run to this file")
    limits.add_argument("--sends", help="write planned and actual sending times to this file")
    limits.add_argument("--perfetto", help="write the first run for ui.perfetto.dev to this file")
    limits.add_argument(
        "--save-workload", help="write the first run's requests to this file, to use as --trace"
    )


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


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
