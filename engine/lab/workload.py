"""Traffic to be sent to an engine: what each request asks, and when it is sent.

A `WorkloadSpec` describes traffic, `build` draws it: three seeds reach lengths, text and arrivals
each, and equal specs give workloads equal to the byte. Nothing here sends anything.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from engine.core.errors import InvalidRequest
from engine.lab.workload_arrivals import Arrivals, Start
from engine.lab.workload_lengths import Lengths, check_number, draw
from engine.lab.workload_text import TokenSource

MAX_REQUESTS = 2_000
MAX_PROMPT_TOKENS = 4_000_000
"""Tokens of all prompts of one workload together: they are held in memory."""

EXPORT_FORMAT = "phasescope-workload"


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One request: its prompt, how many tokens it is answered with, and when it is sent.

    `start` says when; `priority` counts where the queue's order goes by it.
    """

    token_ids: tuple[int, ...]
    num_output_tokens: int
    start: Start
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests, each behind the one it waits for, and what is to be said of them.

    `streamed` says whether answers are read token by token; `notes` are sentences about how the
    workload came to be; `seeds` is None for traffic that was not drawn.
    """

    name: str
    items: tuple[WorkItem, ...]
    arrivals: str
    streamed: bool = True
    shared_share: float = 0.0
    seeds: Seeds | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.items:
            raise InvalidRequest("A workload needs at least one request; this one has none.")
        if len(self.items) > MAX_REQUESTS:
            raise InvalidRequest(
                f"A workload may have {MAX_REQUESTS:,} requests; this one has {len(self.items):,}."
            )

    @property
    def prompt_tokens(self) -> tuple[int, int]:
        """Shortest and longest prompt."""
        lengths = [len(item.token_ids) for item in self.items]
        return min(lengths), max(lengths)

    @property
    def output_tokens(self) -> tuple[int, int]:
        """Shortest and longest answer."""
        lengths = [item.num_output_tokens for item in self.items]
        return min(lengths), max(lengths)

    def describe(self) -> dict[str, Any]:
        """What stands beside every number that comes from this workload; plain JSON values."""
        return {
            "name": self.name,
            "requests": len(self.items),
            "prompt_tokens": list(self.prompt_tokens),
            "output_tokens": list(self.output_tokens),
            "shared_share": self.shared_share,
            "arrivals": self.arrivals,
            "streamed": self.streamed,
            "seeds": None if self.seeds is None else self.seeds.to_json(),
            "notes": list(self.notes),
            "digest": self.digest(),
        }

    def lines(self) -> Iterator[str]:
        """The workload as JSONL: a header, then a request a line; `importing` reads it again."""
        header = {
            "format": EXPORT_FORMAT,
            "version": 1,
            "name": self.name,
            "arrivals": self.arrivals,
            "streamed": self.streamed,
            "shared_share": self.shared_share,
        }
        yield json.dumps(header) + "\n"
        for item in self.items:
            row: dict[str, Any] = {
                "time": item.start.time,
                "after": item.start.after,
                "delay": item.start.delay,
                "output_tokens": item.num_output_tokens,
                "priority": item.priority,
                "token_ids": item.token_ids,
            }
            yield json.dumps(row) + "\n"

    def digest(self) -> str:
        """A short name of the exact content: equal workloads have equal ones."""
        digest = blake2b(digest_size=8)
        for line in self.lines():
            digest.update(line.encode())
        return digest.hexdigest()

    def clipped(self, max_model_len: int) -> Workload:
        """The workload as a context of `max_model_len` tokens can hold it.

        A prompt keeps its beginning, so that what is shared stays shared; an answer is cut to what
        is left. A note says how many were cut.
        """
        items = [_clip(item, max_model_len) for item in self.items]
        cut = sum(new is not old for new, old in zip(items, self.items, strict=True))
        if not cut:
            return self
        note = f"{cut:,} requests were cut to the model's context of {max_model_len:,} tokens."
        return replace(self, items=tuple(items), notes=(*self.notes, note))


@dataclass(frozen=True, slots=True)
class Seeds:
    """Where randomness comes from; each seed changes one thing and leaves the others alone."""

    lengths: int = 0
    text: int = 0
    arrivals: int = 0

    @classmethod
    def all(cls, seed: int) -> Seeds:
        """The same seed for all three."""
        return cls(seed, seed, seed)

    def to_json(self) -> dict[str, int]:
        """Plain values."""
        return {"lengths": self.lengths, "text": self.text, "arrivals": self.arrivals}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of request in a mix: how often (`weight`), and how long prompt and answer are.

    `shared_share` is the share of the part's mean prompt that all its prompts have in common, at
    their beginning (a system prompt, a document).
    """

    prompt: Lengths
    output: Lengths
    weight: float = 1.0
    shared_share: float = 0.0

    def __post_init__(self) -> None:
        check_number("weight", self.weight, least=0.0, above=True)
        check_number("shared-prefix share", self.shared_share, least=0.0, most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """Traffic before it is drawn.

    turns: requests of one conversation; each turn's prompt is the whole prompt before it, an answer
    of the length asked there, and `prompt` more tokens, so that a growing prefix is shared. (The
    answer in the prompt is synthetic too: the model's own is not known beforehand.) Turns after the
    first are sent `think_seconds` after the one before has ended.
    """

    name: str
    parts: tuple[Part, ...]
    num_requests: int
    arrivals: Arrivals
    turns: int = 1
    think_seconds: float = 0.0
    streamed: bool = True
    seeds: Seeds = field(default_factory=Seeds)

    def __post_init__(self) -> None:
        check_number("number of requests", self.num_requests, least=1, most=MAX_REQUESTS)
        check_number("number of turns", self.turns, least=1, most=100)
        check_number("think time", self.think_seconds, least=0.0)
        if not self.parts:
            raise InvalidRequest("A workload needs at least one kind of request; got none.")

    def with_seed(self, seed: int) -> WorkloadSpec:
        """The same traffic drawn with other seeds."""
        return replace(self, seeds=Seeds.all(seed))


def build(spec: WorkloadSpec, source: TokenSource) -> Workload:
    """Draw a workload; raises InvalidRequest when it would be larger than memory should hold."""
    lengths_rng = random.Random(f"lengths:{spec.seeds.lengths}")
    arrivals_rng = random.Random(f"arrivals:{spec.seeds.arrivals}")
    num_conversations = -(-spec.num_requests // spec.turns)
    openings = spec.arrivals.starts(arrivals_rng, num_conversations)
    kinds = _spread(spec.parts, lengths_rng, num_conversations)
    planned: list[WorkItem] = []
    total = 0
    last_of_conversation: list[int] = []
    for number, (kind, opening) in enumerate(zip(kinds, openings, strict=True)):
        turns = min(spec.turns, spec.num_requests - len(planned))
        start = opening
        if opening.after is not None:
            start = replace(opening, after=last_of_conversation[opening.after])
        for item in _conversation(spec, kind, number, turns, source, lengths_rng):
            total += len(item.token_ids)
            if total > MAX_PROMPT_TOKENS:
                raise InvalidRequest(
                    f"The prompts of this workload have more than {MAX_PROMPT_TOKENS:,} tokens "
                    f"together. Ask for fewer or shorter requests."
                )
            planned.append(replace(item, start=start))
            start = Start(after=len(planned) - 1, delay=spec.think_seconds)
        last_of_conversation.append(len(planned) - 1)
    return Workload(
        name=spec.name,
        items=tuple(planned),
        arrivals=spec.arrivals.describe(),
        streamed=spec.streamed,
        shared_share=shared_share([item.token_ids for item in planned]),
        seeds=spec.seeds,
    )


def merged(name: str, parts: Sequence[tuple[float, Workload]]) -> Workload:
    """Several workloads as one, each begun at its number of seconds."""
    items: list[WorkItem] = []
    for begin, part in parts:
        before = len(items)
        for item in part.items:
            start = item.start
            if start.after is not None:
                start = replace(start, after=start.after + before)
            else:
                start = replace(start, time=(start.time or 0.0) + begin)
            items.append(replace(item, start=start))
    return Workload(
        name=name,
        items=tuple(items),
        arrivals="; ".join(f"from {begin:g} s {part.arrivals}" for begin, part in parts),
        streamed=all(part.streamed for _, part in parts),
        shared_share=shared_share([item.token_ids for item in items]),
        seeds=parts[0][1].seeds,
    )


def shared_share(prompts: Sequence[tuple[int, ...]]) -> float:
    """The share of all prompt tokens that an earlier prompt begins with in the same way.

    It is what a prefix cache of unlimited size could reuse, whole blocks aside.
    """
    in_order = sorted(range(len(prompts)), key=lambda index: prompts[index])
    shared = 0
    for before, here in pairwise(in_order):
        # In sorted order the longest common beginning is with a neighbour, so each shared token of
        # a group of n prompts is counted n - 1 times, once for all but the first.
        shared += _common(prompts[before], prompts[here])
    total = sum(map(len, prompts))
    return shared / total if total else 0.0


def _conversation(
    spec: WorkloadSpec,
    kind: int,
    number: int,
    turns: int,
    source: TokenSource,
    rng: random.Random,
) -> Iterator[WorkItem]:
    part = spec.parts[kind]
    seed = spec.seeds.text
    history: list[int] = []
    for turn in range(turns):
        (prompt_length,) = draw(part.prompt, rng, 1)
        (output_length,) = draw(part.output, rng, 1)
        common: list[int] = []
        if turn == 0:
            typical = part.prompt.at(0.5)
            length = min(prompt_length, round(part.shared_share * typical))
            common = source.draw(f"opening:{seed}:{kind}", length)
        own = source.draw(f"text:{seed}:{number}:{turn}", prompt_length - len(common))
        prompt = [*history, *common, *own]
        yield WorkItem(tuple(prompt), output_length, Start(0.0))
        history = [*prompt, *source.draw(f"answer:{seed}:{number}:{turn}", output_length)]


def _spread(parts: Sequence[Part], rng: random.Random, count: int) -> list[int]:
    """Which part each conversation is of, in proportion to the weights and in random order."""
    total = sum(part.weight for part in parts)
    bounds = [sum(part.weight for part in parts[: i + 1]) / total for i in range(len(parts))]
    # Evenly spread places keep the proportions exact even among few requests.
    places = [(index + 0.5) / count for index in range(count)]
    kinds = [next(i for i, bound in enumerate(bounds) if place <= bound) for place in places]
    rng.shuffle(kinds)
    return kinds


def _clip(item: WorkItem, max_model_len: int) -> WorkItem:
    prompt = item.token_ids[: max_model_len - 1]
    output = min(item.num_output_tokens, max_model_len - len(prompt))
    if len(prompt) == len(item.token_ids) and output == item.num_output_tokens:
        return item
    return replace(item, token_ids=prompt, num_output_tokens=output)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
