"""This engine beside other servers of the same model on the same cores, in one run, as ratios.

Every server is a process of its own, asked over HTTP by the same client with the same prompts; they
take turns, round by round, and whoever is not being asked is paused. Run it as `make peers`.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from engine import environment, host
from engine.core.errors import PhaseScopeError
from engine.lab.peer_client import Group
from engine.lab.peer_results import MARKS_SETTING, Measured, Row, rows_of, table
from engine.lab.peer_servers import Running, Server, llama_cpp, phasescope, running, transformers

if TYPE_CHECKING:
    from engine.model.sources import ModelSource

_WORD = re.compile(r" ?[a-z]{3,}")
_CORRECTIONS = 10
_LEAVE = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent. prompts: makes texts that share no opening, `prompts(count, seed)`."""

    prompts: Callable[[int, int], list[str]]
    output_tokens: int
    rounds: int
    timeout: float


class Prompts:
    """Texts of random words, all `num_tokens` long, without a chat template.

    tokenizer: one of transformers. Raises PhaseScopeError when it has no words of its own.
    """

    def __init__(self, tokenizer: Any, num_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._num_tokens = num_tokens
        texts = (tokenizer.decode([token]) for token in range(len(tokenizer)))
        words = sorted({text.strip() for text in texts if _WORD.fullmatch(text)})
        # With words of one token the length comes out at once; not every tokenizer has them.
        self._words = [word for word in words if self._is_one_token(f" {word}")] or words
        if not self._words:
            raise PhaseScopeError("No token of this model is a word, so no prompt can be written.")

    def make(self, count: int, seed: int) -> list[str]:
        """`count` texts; another seed gives other ones."""
        random = Random(seed)
        return [self._text(random) for _ in range(count)]

    def _is_one_token(self, text: str) -> bool:
        return len(self._tokenizer.encode(text, add_special_tokens=False)) == 1

    def _text(self, random: Random) -> str:
        words: list[str] = []
        missing = self._num_tokens
        for _ in range(_CORRECTIONS):
            words = (
                words[:missing] if missing < 0 else words + random.choices(self._words, k=missing)
            )
            text = "".join(f" {word}" for word in words)
            missing = self._num_tokens - len(self._tokenizer.encode(text))
            if not missing:
                return text
        raise PhaseScopeError(
            f"No prompt of exactly {self._num_tokens} tokens could be written; try another length."
        )


def main(arguments: Sequence[str]) -> int:
    """Run the comparison and print a table or JSON; 0 when our own server could be measured."""
    options = _parse(arguments)
    environment.prepare(options.threads)
    try:
        with leaving_in_order():
            setting, rows, failures = _run(options)
    except PhaseScopeError as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        notes = {"failures": failures, "another_run": MARKS_SETTING}
        print(json.dumps(setting | notes | {"rows": [asdict(row) for row in rows]}, indent=2))
    else:
        print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in setting.items()))
        print(table(rows, failures))
    return 0


def compare(
    servers: Sequence[Server], load: Load, streams: Sequence[int], *, marks: bool = True
) -> tuple[list[Row], dict[str, str]]:
    """Measure all servers, of which the first is ours, with each number of streams.

    marks: as for `rows_of`.

    Returns the rows and, by name, why a peer could not be measured. Raises PhaseScopeError when
    ours could not.
    """
    failures: dict[str, str] = {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as logs, ExitStack() as stack:
        started: list[Running] = []
        for server in servers:
            _say(f"starting {server.name}")
            try:
                started.append(stack.enter_context(running(server, Path(logs))))
            except PhaseScopeError as error:
                if server is servers[0]:
                    raise
                failures[server.name] = str(error)
        for count in streams:
            measured = _take_turns(started, load, count, failures)
            rows += rows_of(measured, count, load.output_tokens, marks=marks)
    return rows, failures


def _take_turns(
    started: list[Running], load: Load, count: int, failures: dict[str, str]
) -> list[Measured]:
    """What each answered to `count` requests at once, after a round that does not count.

    Ours is the first of those started; a peer that fails is taken out of them.
    """
    ours = started[0]
    groups: dict[str, list[Group]] = {one.server.name: [] for one in started}
    seed = time.time_ns()
    for number in range(load.rounds + 1):
        _say(f"{count} at once, round {number} of {load.rounds}" if number else "warming up")
        prompts = load.prompts(count, seed + number)
        first = number % len(started)
        for one in (*started[first:], *started[:first]):
            try:
                group = one.ask(prompts, load.output_tokens, load.timeout)
            except PhaseScopeError as error:
                if one is ours:
                    raise
                failures[one.server.name] = str(error)
                started.remove(one)
            else:
                groups[one.server.name] += [group] if number else []
    return [
        Measured(name=one.server.name, family=one.server.family, groups=groups[one.server.name])
        for one in started
    ]


def _say(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


def _run(options: argparse.Namespace) -> tuple[dict[str, Any], list[Row], dict[str, str]]:
    """The setting, and what `compare` returns."""
    # torch comes with these, so they are imported only here, when the environment is set.
    from engine.model.loading import load_tokenizer
    from engine.model.sources import find_source

    source = find_source(options.model)
    tokenizer = load_tokenizer(source, lambda _: None)
    load = Load(
        prompts=Prompts(tokenizer, options.input_tokens).make,
        output_tokens=options.output_tokens,
        rounds=options.rounds,
        timeout=options.timeout,
    )
    ours = phasescope(options.model, source.name, max(options.streams), options.device)
    peers, absent = _peers(options, source, tokenizer)
    recorded = options.model is None and options.device == "cpu"
    rows, failures = compare([ours, *peers], load, options.streams, marks=recorded)
    setting = {
        "model": source.name,
        "device": options.device,
        "threads": options.threads or host.cores(),
        "input_tokens": options.input_tokens,
        "output_tokens": options.output_tokens,
        "rounds": options.rounds,
    }
    return setting, rows, absent | failures


def _peers(
    options: argparse.Namespace, source: ModelSource, tokenizer: Any
) -> tuple[list[Server], dict[str, str]]:
    """The peers that are installed, and why the others are not here."""
    servers: list[Server] = []
    absent: dict[str, str] = {}
    if options.transformers:
        folder = _model_folder(source)
        servers += [
            transformers(options.transformers, folder, dtype, options.device)
            for dtype in options.dtypes
        ]
    else:
        absent["transformers"] = "it is not installed; make peers does that"
    if not options.llama_cpp:
        absent["llama.cpp"] = "it is not installed; make peers LLAMA_CPP=1 does that, in minutes"
    elif source.kind != "gguf":
        absent["llama.cpp"] = "it reads GGUF files only"
    else:
        threads = options.threads or host.cores()
        unwanted = tokenizer.all_special_ids
        servers.append(llama_cpp(options.llama_cpp, Path(source.location), threads, unwanted))
    return servers, absent


def _model_folder(source: ModelSource) -> Path:
    """The model as transformers reads it: the same weights that we serve."""
    from engine.model.conversion import convert_gguf
    from engine.model.sources import download

    if source.kind == "gguf":
        return convert_gguf(Path(source.location), lambda _: None)
    if source.kind == "hub":
        return download(source.location, lambda _: None)
    return Path(source.location).resolve()


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """Turn the signals that end a program into an exit, so that every server is stopped first."""

    def leave(number: int, frame: object) -> NoReturn:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in _LEAVE}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m engine.lab.peers", description=__doc__)
    parser.add_argument("--transformers", help="executable of transformers with its serving extra")
    parser.add_argument(
        "--llama-cpp", help="Python of an environment with llama-cpp-python[server]"
    )
    parser.add_argument("--model", help="as for app.py")
    parser.add_argument(
        "--device", default="cpu", help="of all servers but llama.cpp, which runs on the CPU"
    )
    parser.add_argument("--threads", type=int, default=0, help="of every server; 0: one a core")
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], help="those to try for transformers"
    )
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 4, 1])
    parser.add_argument("--input-tokens", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one round of one")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    least = {"streams": min(options.streams), "rounds": options.rounds}
    for name, value in (least | {"input-tokens": options.input_tokens}).items():
        if value < 1:
            parser.error(f"--{name} must be at least 1; got {value}")
    if options.output_tokens < 2:
        parser.error("--output-tokens must be at least 2: one token has no gap behind it")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
