"""A deterministic stand-in for the engine's live feed, for browser tests only.

A small scheduler simulation (chunked prefill, decode, queueing, preemption, a prefix cache,
failures) writes frames of the wire contract. Its numbers illustrate nothing: the app must never
serve them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

TICKS = 10_000
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Arrival:
    """One request to come: seconds since start, tokens in and out, and how it goes."""

    at: float
    prompt: int
    out: int
    cached: int = 0
    fails_after: int | None = None
    cancelled_after: int | None = None


@dataclass
class Job:
    """The simulation's side of a request."""

    n: int
    arrival: Arrival
    computed: int = 0
    state: str = "preparing"
    times: dict[str, int | None] = field(default_factory=dict)
    chunks: list[list[int]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    preemptions: list[list[int]] = field(default_factory=list)
    recomputed: int = 0
    high_water: int = 0
    finish: str | None = None
    blocks: list[int] = field(default_factory=list)
    shared: int = 0
    sent: tuple[int, int, str] = (0, 0, "")

    @property
    def known(self) -> int:
        return self.arrival.prompt + len(self.tokens)


class Simulation:
    """Runs arrivals through a fixed pool and budget; ``frame`` reports what has changed."""

    def __init__(
        self,
        arrivals: list[Arrival],
        *,
        seed: int = 7,
        budget: int = 128,
        slots: int = 8,
        blocks: int = 576,
        roof: bool = True,
    ) -> None:
        self.random = random.Random(seed)
        self.budget, self.slots, self.blocks = budget, slots, blocks
        self.roof = {"flops": 7.2e11, "bytes": 3.8e10, "overhead": 0.002} if roof else None
        self.arrivals = sorted(arrivals, key=lambda arrival: arrival.at)
        self.now = 0
        self.jobs: list[Job] = []
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.steps: list[list[Any]] = []
        self.free = list(range(blocks))
        self.evictable: dict[int, int] = {}  # block id -> request that left it, oldest first
        self.owners: dict[int, set[int]] = {}
        self.state = "live"
        self.state_text = ""
        self._sent_steps = 0

    # --- the engine ---------------------------------------------------------------------------

    def run_until(self, second: float) -> None:
        while self.now < second * TICKS:
            self._arrive()
            if not self.waiting and not self.running:
                upcoming = len(self.jobs)
                if upcoming >= len(self.arrivals):
                    self.now = int(second * TICKS)
                    return
                self.now = max(self.now, round(self.arrivals[upcoming].at * TICKS))
                continue
            self._step()

    def _arrive(self) -> None:
        while len(self.jobs) < len(self.arrivals):
            arrival = self.arrivals[len(self.jobs)]
            submitted = round(arrival.at * TICKS)
            if submitted > self.now:
                return
            job = Job(len(self.jobs) + 1, arrival)
            prepared = submitted + 60 + arrival.prompt // 8
            job.times = {"sub": submitted, "que": min(prepared, max(self.now, prepared))}
            job.state = "queued"
            self.jobs.append(job)
            self.waiting.append(job)

    def _plan(self) -> tuple[list[tuple[Job, int]], list[Job]]:
        left = self.budget
        prefill: list[tuple[Job, int]] = []
        decode = [job for job in self.running if job.computed == job.known - 1 and job.tokens][
            :left
        ]
        left -= len(decode)
        for job in self.running:
            todo = job.known - job.computed
            if job not in decode and todo > 0 and left > 0:
                prefill.append((job, min(todo, left)))
                left -= min(todo, left)
        while self.waiting and left > 0 and len(self.running) < self.slots:
            job = self.waiting[0]
            if job.times["que"] > self.now or not self._room(job.known):
                break
            self._admit(self.waiting.pop(0))
            take = min(left, job.known - job.computed)
            prefill.append((job, take))
            left -= take
        return prefill, decode

    def _room(self, tokens: int) -> bool:
        return len(self.free) + len(self.evictable) >= tokens // BLOCK_SIZE + 1

    def _admit(self, job: Job) -> None:
        job.state = "reading"
        job.times.setdefault("sch", self.now)
        self.running.append(job)
        cached = job.arrival.cached // BLOCK_SIZE * BLOCK_SIZE
        if not job.preemptions:
            job.computed = cached
            job.shared = cached // BLOCK_SIZE
        self._grow(job, job.computed)

    def _grow(self, job: Job, tokens: int) -> None:
        while len(job.blocks) * BLOCK_SIZE < tokens:
            if not self.free and not self.evictable:
                self._preempt()
            block = self.free.pop(0) if self.free else next(iter(self.evictable))
            self.evictable.pop(block, None)
            self.owners[block] = {job.n}
            job.blocks.append(block)

    def _preempt(self) -> None:
        victim = self.running[-1]
        victim.preemptions.append([self.now, victim.computed])
        victim.high_water = max(victim.high_water, victim.computed)
        self._release(victim, cache=False)
        victim.computed, victim.state = 0, "queued"
        self.running.remove(victim)
        self.waiting.insert(0, victim)

    def _release(self, job: Job, *, cache: bool) -> None:
        for block in job.blocks:
            if cache:
                self.evictable[block] = job.n
            else:
                self.free.append(block)
        job.blocks = []

    def _step(self) -> None:
        prefill, decode = self._plan()
        if not prefill and not decode:
            self.now += 50
            return
        read = sum(tokens for _, tokens in prefill)
        context = sum(job.computed for job in self.running)
        flops = (read + len(decode)) * 2.7e8 + context * 2e4
        moved = 2.69e8 + context * 46_080
        seconds = max(flops / 7.2e11 / 0.82, moved / 3.8e10 / 0.9) + 0.0028
        seconds *= 1 + 0.03 * self.random.random()
        overhead = self.random.random() < 0.02
        seconds += 0.02 * self.random.random() if overhead else 0
        start, took = self.now, max(1, round(seconds * 4 * TICKS))
        self.now = start + took
        for job, tokens in prefill:
            if job in self.running:
                self._read(job, tokens, start, took)
        for job in decode:
            if job in self.running:
                self._write(job)
        bound = 3 if overhead else 2 if read > 40 else 1
        used = sum(len(job.blocks) for job in self.running)
        row = [
            len(self.steps) + 1,
            start,
            took,
            read,
            len(decode),
            len(self.running),
            len(self.waiting),
        ]
        self.steps.append([*row, used, len(self.evictable), flops, moved * 1.0, bound])

    def _read(self, job: Job, tokens: int, start: int, took: int) -> None:
        recompute = job.computed < job.high_water
        self._grow(job, job.computed + tokens)
        if job not in self.running:
            return
        job.computed += tokens
        job.recomputed += tokens if recompute else 0
        job.chunks.append([start, took, tokens, int(recompute)])
        if job.computed >= job.known:
            job.state = "writing"
            job.times.setdefault("fts", self.now)
            self._token(job)

    def _write(self, job: Job) -> None:
        self._grow(job, job.computed + 1)
        if job in self.running:
            job.computed += 1
            self._token(job)

    def _token(self, job: Job) -> None:
        delivered = self.now + 30 + self.random.randrange(20)
        job.tokens.append(max(delivered, job.tokens[-1] if job.tokens else 0))
        arrival = job.arrival
        written = len(job.tokens)
        if written == arrival.fails_after:
            self._end(job, "failed", "error")
        elif written == arrival.cancelled_after:
            self._end(job, "cancelled", "cancelled")
        elif written >= arrival.out:
            self._end(job, "done", "stop")

    def _end(self, job: Job, state: str, finish: str) -> None:
        job.state, job.finish = state, finish
        job.times["end"] = job.tokens[-1]
        job.high_water = job.computed
        self._release(job, cache=state == "done")
        self.running.remove(job)

    # --- the wire ------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        return {
            "model": "Fake-Model-1M",
            "dtype": "bfloat16",
            "device": "2-core CPU",
            "budget": self.budget,
            "slots": self.slots,
            "blocks": self.blocks,
            "block_size": BLOCK_SIZE,
            "kv_bytes": 46_080,
            "context": 8192,
            "max_waiting": 64,
            "prefix_caching": True,
            "policy": "chunked",
            "roof": self.roof,
        }

    def frame(self, *, reset: bool = False) -> dict[str, Any]:
        """One frame: everything with ``reset``, else what changed since the last frame."""
        if reset:
            self._sent_steps = max(0, len(self.steps) - 4000)
            for job in self.jobs:
                job.sent = (0, 0, "")
        entries = [self._entry(job) for job in self.jobs[-600:] if self._changed(job)]
        steps = self.steps[self._sent_steps :]
        self._sent_steps = len(self.steps)
        frame = {
            "now": self.now,
            "state": self._state(),
            "sum": self._sum(),
            "steps": steps,
            "reqs": entries,
            "kv": self._kv(),
        }
        if reset:
            return frame | {"reset": True, "wall": 1_796_000_000.0, "config": self.config()}
        return {name: value for name, value in frame.items() if value != []}

    def _changed(self, job: Job) -> bool:
        return job.sent != (len(job.chunks), len(job.tokens), job.state)

    def _entry(self, job: Job) -> dict[str, Any]:
        chunks, tokens, _ = job.sent
        arrival = job.arrival
        entry: dict[str, Any] = {
            "n": job.n,
            "id": f"R{job.n}",
            "st": job.state,
            "prompt": arrival.prompt,
            "cached": arrival.cached // BLOCK_SIZE * BLOCK_SIZE,
            "max": 400,
            "out": len(job.tokens),
            "fin": job.finish,
            "ftd": job.tokens[0] if job.tokens else None,
            "ltd": job.tokens[-1] if job.tokens else None,
            "pre": job.preemptions,
            "recomputed": job.recomputed,
            "kv_end": None,
            **{name: job.times.get(name) for name in ("sub", "que", "sch", "fts", "end")},
        }
        if len(job.chunks) > chunks:
            entry["chunks"] = [chunks, job.chunks[chunks:]]
        if len(job.tokens) > tokens:
            new = job.tokens[tokens:]
            entry["tok"] = [tokens, new[0], [b - a for a, b in pairwise(new)]]
        job.sent = (len(job.chunks), len(job.tokens), job.state)
        return entry

    def _state(self) -> dict[str, Any]:
        idle = self.state == "live" and not self.running and not self.waiting
        name = "idle" if idle else self.state
        return {"name": name, "progress": None, "text": self.state_text, "since": self.now}

    def _sum(self) -> dict[str, Any]:
        since = self.now - 5 * TICKS
        delivered = sum(1 for job in self.jobs for t in job.tokens[-400:] if since < t <= self.now)
        ttft = sorted(job.tokens[0] - job.times["sub"] for job in self.jobs if job.tokens)
        gaps = sorted(b - a for job in self.jobs for a, b in pairwise(job.tokens))
        used = sum(len(job.blocks) for job in self.running)
        return {
            "run": len(self.running),
            "wait": len(self.waiting),
            "used": used,
            "evictable": len(self.evictable),
            "free": self.blocks - used - len(self.evictable),
            "tps": delivered / 5,
            "tps_window": 5,
            "ttft": _percentiles(ttft),
            "itl": _percentiles(gaps),
            "done": sum(job.state == "done" for job in self.jobs),
            "failed": sum(job.state == "failed" for job in self.jobs),
        }

    def _kv(self) -> dict[str, Any]:
        cells = [(0, 0)] * self.blocks
        for block, owner in self.evictable.items():
            cells[block] = (1, owner)
        last = []
        for job in self.running:
            for i, block in enumerate(job.blocks):
                cells[block] = (3 if i < job.shared else 2, job.n)
            filled = job.computed % BLOCK_SIZE
            if filled and job.blocks:
                last.append([job.n, job.blocks[-1], filled])
        runs: list[list[int]] = []
        for state, owner in cells:
            if runs and runs[-1][1:] == [state, owner]:
                runs[-1][0] += 1
            else:
                runs.append([1, state, owner])
        return {"n": self.blocks, "runs": runs, "last": last}


def _percentiles(ascending: list[int]) -> dict[str, Any]:
    n = len(ascending)
    picked = {f"p{p}": ascending[min(n - 1, n * p // 100)] if n else None for p in (50, 95, 99)}
    return {"n": n, **picked, "max": ascending[-1] if n else None}


def chat_hour() -> list[Arrival]:
    """Seven requests: short chats, one 2,000-token prompt, a queue behind it, one prefix hit."""
    return [
        Arrival(0.2, 158, 270),
        Arrival(1.0, 236, 520),
        Arrival(2.2, 118, 172),
        Arrival(4.0, 180, 460),
        Arrival(6.0, 2000, 330),
        Arrival(7.1, 200, 300),
        Arrival(13.5, 312, 400, cached=288),
    ]


def crowd(requests: int, *, per_second: float = 2.0, seed: int = 3) -> list[Arrival]:
    """``requests`` arrivals with mixed lengths; every 17th fails, every 23rd is cancelled."""
    rnd = random.Random(seed)
    arrivals, at = [], 0.5
    for i in range(1, requests + 1):
        at += rnd.expovariate(per_second)
        long = rnd.random() < 0.06
        prompt = rnd.randint(600, 1600) if long else rnd.randint(30, 240)
        out = rnd.randint(20, 120)
        arrivals.append(
            Arrival(
                at,
                prompt,
                out,
                fails_after=12 if i % 17 == 0 else None,
                cancelled_after=9 if i % 23 == 0 else None,
            )
        )
    return arrivals
