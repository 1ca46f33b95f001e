"""Servers of language models as processes: how each is started, asked and, always, stopped.

They run in turn on the same cores, so one that is not being asked is stopped by a signal: some keep
a core busy while they wait. For POSIX systems. What was measured is for `engine.lab.peers` to know.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from engine.core.errors import PhaseScopeError
from engine.lab.peer_client import Group, ask_together

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.2
_CRASH_SECONDS = 0.5
_LAST_WORDS = 400  # characters of a server's log that a message quotes

# Without a limit, the pool of transformers may take 14 GB on a CPU.
_TRANSFORMERS_POOL = ("--cb-block-size", "32", "--cb-num-blocks", "512")
_TRANSFORMERS_BUDGET = ("--cb-max-batch-tokens", "512")
_LLAMA_CONTEXT_TOKENS = "4096"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that can be started.

    family: what it is, whatever its settings; command: the program for a port; model: the name
    that requests give; extras: fields of a request's body that make it answer in full length and
    count its tokens; ready: a path that answers 200 once it serves; environ: added to ours.
    """

    name: str
    family: str
    command: Callable[[int], Sequence[str]]
    model: str
    extras: Mapping[str, Any] = field(default_factory=dict)
    ready: str = "/health"
    environ: Mapping[str, str] = field(default_factory=dict)


def phasescope(model: str | None, model_name: str, slots: int, device: str) -> Server:
    """This project, as `app.py` starts it."""
    options = ["--slots", str(slots), "--device", device, *(("--model", model) if model else ())]
    return Server(
        name="PhaseScope",
        family="PhaseScope",
        command=lambda port: [sys.executable, "app.py", "--port", str(port), *options],
        model=model_name,
        extras={"ignore_eos": True, "stream_options": {"include_usage": True}},
    )


def transformers(executable: str, folder: Path, dtype: str, device: str) -> Server:
    """`transformers serve` with continuous batching, of a model's folder."""
    # It refuses `ignore_eos`; an end token that is none does the same.
    endless = json.dumps({"do_sample": False, "eos_token_id": -1})
    options = ["--continuous-batching", *_TRANSFORMERS_POOL, *_TRANSFORMERS_BUDGET]
    return Server(
        name=f"transformers, {dtype}",
        family="transformers",
        command=lambda port: [
            *(executable, "serve", str(folder), "--device", device, "--dtype", dtype),
            *("--host", "127.0.0.1", "--port", str(port), *options),
        ],
        model=str(folder),
        extras={"generation_config": endless},
        environ={"HF_HUB_OFFLINE": "1"},
    )


def llama_cpp(python: str, gguf: Path, threads: int, end_token_ids: Sequence[int]) -> Server:
    """The server of llama-cpp-python, of the GGUF file itself; it serves one request at a time."""
    options = ["--n_ctx", _LLAMA_CONTEXT_TOKENS, "--n_gpu_layers", "0"]
    counts = ["--n_threads", str(threads), "--n_threads_batch", str(threads)]
    return Server(
        name=f"llama.cpp, {gguf.stem.rpartition('.')[2]}",
        family="llama.cpp",
        command=lambda port: [
            *(python, "-m", "llama_cpp.server", "--model", str(gguf)),
            *("--host", "127.0.0.1", "--port", str(port), *options, *counts),
        ],
        model=str(gguf),
        extras={"logit_bias": {str(token): -100 for token in end_token_ids}},
        ready="/v1/models",
    )


class Running:
    """A server's process; `running` makes one."""

    def __init__(
        self, server: Server, process: subprocess.Popen[bytes], url: str, log: Path
    ) -> None:
        self.server = server
        self.url = url
        self._process = process
        self._log = log

    def wait_until_ready(self, seconds: float) -> None:
        """Raises PhaseScopeError, with its last words, when it ends or does not serve in time."""
        name, deadline = self.server.name, time.monotonic() + seconds
        while self._process.poll() is None:
            if time.monotonic() > deadline:
                raise PhaseScopeError(
                    f"{name} did not serve within {seconds:g} s. It said: {self._last_words()}"
                )
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(self.url + self.server.ready, timeout=5, trust_env=False)
                if answer.status_code == httpx.codes.OK:
                    return
            time.sleep(_POLL_SECONDS)
        raise PhaseScopeError(f"{name} {self._how_it_ended()}")

    def ask(self, prompts: Sequence[str], output_tokens: int, timeout: float) -> Group:
        """Let it run, send it all prompts at once, and pause it.

        Raises as `ask_together` does, with its last words when it ended meanwhile.
        """
        self.resume()
        try:
            return ask_together(
                self.url,
                prompts,
                model=self.server.model,
                output_tokens=output_tokens,
                extras=self.server.extras,
                timeout=timeout,
            )
        except PhaseScopeError as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # A connection breaks a moment before its process has ended.
                self._process.wait(_CRASH_SECONDS)
                raise PhaseScopeError(f"{error} It {self._how_it_ended()}") from None
            raise
        finally:
            self.pause()

    def pause(self) -> None:
        """Take its cores away."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it and every process that it started; one that does not end by itself is killed."""
        self._signal(signal.SIGTERM)
        self.resume()  # one that is paused would not hear it
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _how_it_ended(self) -> str:
        return f"ended with code {self._process.returncode}. It said: {self._last_words()}"

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-_LAST_WORDS:] or "nothing"


@contextmanager
def running(
    server: Server, logs: Path, *, start_seconds: float = START_SECONDS
) -> Iterator[Running]:
    """Start a server on a free port, and stop it in the end, whatever happens; paused at first.

    logs: a folder for what it says. Raises PhaseScopeError, with its last words, when it cannot be
    started or does not serve after `start_seconds`.
    """
    port = _free_port()
    log = logs / f"{port}.log"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                list(server.command(port)),
                cwd=ROOT,
                env=os.environ | server.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise PhaseScopeError(f"{server.name} could not be started: {error}") from None
    started = Running(server, process, f"http://127.0.0.1:{port}", log)
    try:
        started.wait_until_ready(start_seconds)
        started.pause()
        yield started
    finally:
        started.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
