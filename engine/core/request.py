"""A request: what was asked, what is known of it so far, and when each thing happened.

The scheduler sees a request as a few counters (known tokens, computed tokens) and everything else
is derived from them. This module knows neither the model nor the clock: whoever acts on a request
hands the time in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.core.errors import InvalidRequest

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 256
MAX_LOGPROBS = 20
SEED_LIMIT = 2**63


class RequestStatus(StrEnum):
    """Where a request stands; a preempted request is waiting again."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why a request ended. `stop` covers end-of-sequence tokens and stop strings."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class Phase(StrEnum):
    """What a scheduled chunk is, derived from where it starts (see `Request.phase_at`)."""

    PREFILL = "prefill"
    RECOMPUTE = "recompute"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How output tokens are chosen and when to stop.

    temperature: 0 is greedy; top_k: 0 keeps all; top_p and min_p are shares of probability;
    repetition_penalty divides (1 is off), presence and frequency penalties subtract (0 is off);
    seed: None draws one at submission; max_tokens and min_tokens count output tokens, the end token
    included; stop: strings that end the text and are not part of it; logprobs: how many
    alternatives to record a token, None for none.

    Raises InvalidRequest naming the field and its limits.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _check_float("temperature", self.temperature, 0.0, 100.0)
        _check_float("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _check_float("min_p", self.min_p, 0.0, 1.0)
        _check_float("repetition_penalty", self.repetition_penalty, 0.0, 10.0, open_low=True)
        _check_float("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_float("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_int("top_k", self.top_k, 0, None)
        _check_int("max_tokens", self.max_tokens, 1, None)
        _check_int("min_tokens", self.min_tokens, 0, self.max_tokens)
        if self.seed is not None:
            _check_int("seed", self.seed, -SEED_LIMIT, SEED_LIMIT - 1)
        if self.logprobs is not None:
            _check_int("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if not isinstance(self.stop, tuple) or not all(isinstance(s, str) for s in self.stop):
            raise InvalidRequest("stop must be a list of strings.", field="stop")
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequest(
                f"stop has {len(self.stop)} strings; the limit is {MAX_STOP_STRINGS}.", field="stop"
            )
        if any(not s or len(s) > MAX_STOP_LENGTH for s in self.stop):
            raise InvalidRequest(
                f"each stop string must have 1 to {MAX_STOP_LENGTH} characters.", field="stop"
            )

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken, without a draw."""
        return self.temperature == 0.0

    @property
    def counts_tokens(self) -> bool:
        """Whether a penalty depends on how often a token was written."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def penalises(self) -> bool:
        """Whether any of the three penalties is on."""
        return self.repetition_penalty != 1.0 or self.counts_tokens


def _check_float(
    name: str, value: object, low: float, high: float, *, open_low: bool = False
) -> None:
    bound = "above" if open_low else "from"
    sentence = f"{name} must be a finite number {bound} {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"{sentence}; got {value!r}.", field=name)
    if not math.isfinite(value) or value > high or value < low or (open_low and value == low):
        raise InvalidRequest(f"{sentence}; got {value!r}.", field=name)


def _check_int(name: str, value: object, low: int, high: int | None) -> None:
    limits = f"from {low} to {high}" if high is not None else f"of at least {low}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{name} must be a whole number {limits}; got {value!r}.", field=name)
    if value < low or (high is not None and value > high):
        raise InvalidRequest(f"{name} must be a whole number {limits}; got {value!r}.", field=name)


class SampledLogprob(NamedTuple):
    """Log-probability (natural) of one output token and of the most likely ones at its place."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class ChunkTime(NamedTuple):
    """When one prefill or recompute chunk was computed: step start and duration in seconds."""

    start: float
    duration: float
    tokens: int
    phase: Phase


class Preemption(NamedTuple):
    """When a request lost its slot, and how many positions it had computed by then."""

    time: float
    num_computed_tokens: int


@dataclass(slots=True)
class Timeline:
    """Timestamps of one request in seconds of the engine's monotonic clock; each is written once.

    `token_sampled[i]` is the end of the step that sampled output token i; `token_delivered[i]` is
    when the reader's event loop took it. A request that is not streamed has no delivery times.
    """

    submitted: float
    queued: float | None = None
    scheduled: float | None = None
    finished: float | None = None
    token_sampled: list[float] = field(default_factory=list)
    token_delivered: list[float] = field(default_factory=list)
    chunks: list[ChunkTime] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """One request and its counters. After submission only the engine's thread changes it.

    `token_ids` holds the prompt and then the output. `max_output_tokens` is `params.max_tokens`
    clipped to what the context and the pool leave room for. `cache_salt` keeps prefix blocks
    apart from those of other salts. `priority` counts only where the queue's order goes by it, low
    numbers first. `label` is a name given from outside, such as an
    `X-Request-ID`; it is kept in records and means nothing here. `composition` says what the
    prompt is made of, as (part, tokens), and adds up to the prompt where it is given.
    """

    number: int
    token_ids: list[int]
    params: SamplingParams
    seed: int
    timeline: Timeline
    end_token_ids: frozenset[int] = frozenset()
    cache_salt: str | None = None
    priority: int = 0
    label: str | None = None
    streamed: bool = True
    composition: tuple[tuple[str, int], ...] = ()

    num_prompt_tokens: int = field(init=False)
    max_output_tokens: int = field(init=False)
    arrival: int = -1
    status: RequestStatus = RequestStatus.WAITING
    finish_reason: FinishReason | None = None
    error: str | None = None
    num_computed_tokens: int = 0
    num_computed_at_preemption: int = 0
    num_cached_tokens: int | None = None
    num_recomputed_tokens: int = 0
    block_table: list[int] = field(default_factory=list)
    block_hashes: list[bytes] = field(default_factory=list)
    logprobs: list[SampledLogprob] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.token_ids)
        self.max_output_tokens = self.params.max_tokens

    @property
    def id(self) -> str:
        """The name shown on the page, such as `R18`."""
        return f"R{self.number}"

    @property
    def num_tokens(self) -> int:
        """All known tokens: prompt and output."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        """Known tokens whose keys and values are not in the cache yet."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def prompt_token_ids(self) -> list[int]:
        """The prompt's token ids (a copy)."""
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def output_token_ids(self) -> list[int]:
        """The generated token ids (a copy)."""
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def finished(self) -> bool:
        """Whether the request has ended, for whatever reason."""
        return self.status is RequestStatus.FINISHED

    def phase_at(self, start: int) -> Phase:
        """The phase of a chunk that starts at position `start`."""
        if start < self.num_computed_at_preemption:
            return Phase.RECOMPUTE
        return Phase.PREFILL if start < self.num_prompt_tokens else Phase.DECODE
