"""Comparisons with other servers: what the client measures, and that every server is stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import psutil
import pytest

from engine.core.errors import PhaseScopeError
from engine.lab.peer_client import Answer, Group
from engine.lab.peer_results import Measured, figures_of, rows_of, table
from engine.lab.peer_servers import Server, llama_cpp, phasescope, running, transformers
from engine.lab.peers import Load, Prompts, compare, main

SCRIPTED = str(Path(__file__).with_name("scripted_completions.py"))
TOKENS = 6


def scripted(name: str = "scripted", family: str = "scripted", **script: object) -> Server:
    settings = [f"{key}={value}" for key, value in script.items()]
    return Server(
        name=name,
        family=family,
        command=lambda port: [sys.executable, SCRIPTED, str(port), *settings],
        model="any",
    )


def load(rounds: int = 1, timeout: float = 10.0) -> Load:
    return Load(
        prompts=lambda count, seed: [f"{seed} {number}" for number in range(count)],
        output_tokens=TOKENS,
        rounds=rounds,
        timeout=timeout,
    )


def group(*times: tuple[float, ...], seconds: float = 1.0) -> Group:
    answers = tuple(Answer(times=one, output_tokens=len(one)) for one in times)
    return Group(answers=answers, seconds=seconds)


def is_free(url: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0


@pytest.mark.parametrize("usage", [0, 1])
def test_the_client_measures_what_the_script_says(tmp_path: Path, usage: int) -> None:
    with running(scripted(first=0.5, gap=0.02, usage=usage), tmp_path) as server:
        answered = server.ask(["one", "two", "three", "four"], TOKENS, timeout=10)
    for answer in answered.answers:
        assert answer.output_tokens == TOKENS
        assert len(answer.gaps) == TOKENS - 1
        assert 0.5 <= answer.ttft < 1.5
        assert sum(answer.gaps) == pytest.approx(0.1, abs=0.5)
    assert answered.seconds >= max(answer.times[-1] for answer in answered.answers)
    assert answered.seconds < 4 * 0.6, "the requests were sent one by one"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("status", "answered 422: Unexpected fields"),
        ("error", "the pool is full"),
        ("silent", "text in 0 events"),
        ("junk", "no JSON object: <html>"),
        ("slow", "not every answer was complete after 1 s"),
    ],
)
def test_an_answer_that_fails_says_how(tmp_path: Path, fault: str, words: str) -> None:
    with (
        running(scripted(fault=fault), tmp_path) as server,
        pytest.raises(PhaseScopeError, match=f"(?i){words}"),
    ):
        server.ask(["one"], TOKENS, timeout=1)
    assert is_free(server.url)


def test_a_paused_server_does_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    with running(scripted(), tmp_path) as server:
        with pytest.raises(httpx.TimeoutException):
            httpx.get(f"{server.url}/health", timeout=0.3)
        server.resume()
        assert httpx.get(f"{server.url}/health", timeout=5).status_code == 200


def test_a_server_is_stopped_though_it_is_paused_and_the_run_fails(tmp_path: Path) -> None:
    urls: list[str] = []

    def fail_beside(server: Server) -> None:
        with running(server, tmp_path) as one:
            urls.append(one.url)
            raise RuntimeError("the run")

    with pytest.raises(RuntimeError, match="the run"):
        fail_beside(scripted())
    assert is_free(urls[0])


def test_processes_that_a_server_started_are_stopped_with_it(tmp_path: Path) -> None:
    children = tmp_path / "child"
    program = (
        "import subprocess, sys, runpy; child = subprocess.Popen(['sleep', '60']); "
        f"open({str(children)!r}, 'w').write(str(child.pid)); "
        f"sys.argv = sys.argv[1:]; runpy.run_path({SCRIPTED!r}, run_name='__main__')"
    )
    server = Server(
        name="a parent",
        family="scripted",
        command=lambda port: [sys.executable, "-c", program, "scripted", str(port)],
        model="any",
    )
    with running(server, tmp_path):
        child = int(children.read_text())
        os.kill(child, 0)
    deadline = time.monotonic() + 5
    while _runs(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether a process is there and not only waiting to be collected."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([sys.executable, "-c", "raise SystemExit('no such model')"], "code 1.*no such model"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "did not serve within 0.5 s"),
        (["/nowhere/transformers", "serve"], "could not be started"),
    ],
)
def test_a_server_that_does_not_start_is_named_with_its_last_words(
    tmp_path: Path, command: Sequence[str], words: str
) -> None:
    server = Server(name="broken", family="broken", command=lambda _: command, model="any")
    with (
        pytest.raises(PhaseScopeError, match=f"broken.*{words}"),
        running(server, tmp_path, start_seconds=0.5 if "sleep" in command[-1] else 30),
    ):
        pytest.fail("it serves")


def test_peers_take_turns_and_one_that_fails_is_told_beside_the_others() -> None:
    servers = [
        scripted("PhaseScope", "PhaseScope", first=0.05, gap=0.02),
        scripted("slow peer", "transformers", first=0.3, gap=0.1),
        scripted("fast peer", "transformers", first=0.1, gap=0.04),
        scripted("faulty peer", "llama.cpp", fault="error"),
    ]
    rows, failures = compare(servers, load(), [2])
    found = {row.name: row for row in rows}
    assert list(found) == ["PhaseScope", "slow peer", "fast peer"]
    assert failures == {
        "faulty peer": "The server ended an answer: {'message': 'the pool is full'}"
    }
    assert found["PhaseScope"].ratios is None
    slow = found["slow peer"].ratios
    assert slow is not None
    assert slow.throughput > 1 > slow.ttft_p50
    assert slow.itl_p50 < 1
    assert found["fast peer"].fastest
    assert not found["slow peer"].fastest
    assert all(row.requests == row.complete == 2 for row in rows)
    printed = table(rows, failures)
    assert "faulty peer could not be measured: The server ended an answer" in printed
    assert "fast peer *" in printed
    assert "slow peer *" not in printed


def test_a_server_that_crashes_is_told_with_its_last_words(tmp_path: Path) -> None:
    with (
        running(scripted(fault="crash"), tmp_path) as server,
        pytest.raises(PhaseScopeError, match=r"connection failed.*code 3.*illegal instruction"),
    ):
        server.ask(["one"], TOKENS, timeout=10)


def test_without_our_own_server_there_is_no_comparison() -> None:
    servers = [scripted("PhaseScope", "PhaseScope", fault="error"), scripted("peer")]
    with pytest.raises(PhaseScopeError, match="the pool is full"):
        compare(servers, load(), [1])


def test_figures_are_pooled_over_requests_and_throughput_is_the_median_of_rounds() -> None:
    rounds = [
        group((0.1, 0.12, 0.15), (0.3, 0.32, 0.36), seconds=0.5),
        group((0.2, 0.22, 0.25), (0.4, 0.42, 0.46), seconds=1.0),
        group((0.2, 0.22, 0.25), (0.4, 0.42, 0.46), seconds=2.0),
    ]
    figures = figures_of(rounds)
    assert figures.tokens_per_second == 6.0
    assert figures.ttft_p50 == pytest.approx(250)
    assert figures.ttft_p95 == pytest.approx(400)
    assert figures.itl_p50 == pytest.approx(25)


def test_a_peer_that_is_not_here_is_shown_with_figures_that_are_said_to_be_recorded() -> None:
    ours = Measured(name="PhaseScope", family="PhaseScope", groups=[group((0.1, 0.12, 0.14))])
    rows = rows_of([ours], 1, output_tokens=3)
    recorded = {row.family: row for row in rows if row.recorded}
    assert recorded.keys() == {"transformers", "llama.cpp"}
    assert recorded["llama.cpp"].ratios is not None
    assert recorded["llama.cpp"].ratios.itl_p50 == pytest.approx(20 / 15.6)
    printed = table(rows, {"llama.cpp": "it is not installed"})
    assert "llama.cpp, another run" in printed
    assert "not measured now but recorded" in printed
    assert "llama.cpp could not be measured: it is not installed" in printed
    assert not any(row.recorded for row in rows_of([ours], 3, output_tokens=3))


def test_answers_that_ended_early_are_told() -> None:
    rows, failures = compare([scripted("PhaseScope", short=2)], load(), [1])
    assert rows[0].complete == 0
    assert "ended 1 of 1 answers early" in table(rows, failures)


class Words:
    """A tokenizer whose every token is a word with its space, and which adds one at the start."""

    _texts = ("<s>", "<unk>", " red", " green", " blue", "Ω", " UPPER")

    def __len__(self) -> int:
        return len(self._texts)

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self._texts[token] for token in tokens)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        start = [0] if add_special_tokens else []
        return [*start, *(self._texts.index(f" {word}") for word in text.split())]


def test_prompts_have_the_length_that_was_asked_for_and_share_no_opening() -> None:
    prompts = Prompts(Words(), 40)
    texts = [*prompts.make(4, seed=1), *prompts.make(4, seed=2)]
    assert {len(Words().encode(text)) for text in texts} == {40}
    assert len({tuple(text.split()[:16]) for text in texts}) == len(texts)
    assert prompts.make(4, seed=1) == texts[:4]


def test_words_of_several_tokens_are_left_out_where_others_are() -> None:
    class Halves(Words):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            ids = super().encode(text, add_special_tokens)
            return [token for one in ids for token in ([1, one] if one == 4 else [one])]

    assert Prompts(Halves(), 9).make(20, seed=1)
    assert not any("blue" in text for text in Prompts(Halves(), 9).make(20, seed=1))


def test_a_length_that_no_prompt_can_have_is_refused() -> None:
    class Pairs(Words):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            return [0, 0] * len(text.split())

    with pytest.raises(PhaseScopeError, match="exactly 7 tokens"):
        Prompts(Pairs(), 7).make(1, seed=1)


def test_each_server_is_asked_to_answer_in_full_length_and_from_the_same_weights() -> None:
    folder, gguf = Path("/models/small"), Path("/models/small.Q4_1.gguf")
    ours = phasescope(None, "small", 8, "cpu")
    theirs = transformers("bin/transformers", folder, "bfloat16", "cpu")
    llama = llama_cpp("bin/python", gguf, 2, [0, 2])
    assert ours.extras["ignore_eos"] is True
    assert '"eos_token_id": -1' in theirs.extras["generation_config"]
    assert llama.extras["logit_bias"] == {"0": -100, "2": -100}
    assert llama.name == "llama.cpp, Q4_1"
    assert str(folder) in theirs.command(1)
    assert str(gguf) in llama.command(1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--output-tokens", "1"], "at least 2"),
        (["--streams", "4", "0"], "--streams must be at least 1; got 0"),
        (["--rounds", "0"], "--rounds must be at least 1; got 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err


def test_a_program_that_is_told_to_end_stops_its_servers(tmp_path: Path) -> None:
    """The signal of `kill` and of an ending session, while a peer answers."""
    told = tmp_path / "port"
    program = (
        "import sys, pathlib; from pathlib import Path; "
        "from engine.lab import peers; from engine.lab.peer_servers import Server, running\n"
        f"server = Server(name='s', family='s', model='m', command=lambda port: "
        f"[sys.executable, {SCRIPTED!r}, str(port), 'fault=slow'])\n"
        f"with peers.leaving_in_order(), running(server, Path({str(tmp_path)!r})) as one:\n"
        f"    Path({str(told)!r}).write_text(one.url)\n"
        "    one.ask(['x'], 4, 60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + 30
    while not (told.exists() and told.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    assert is_free(told.read_text())
