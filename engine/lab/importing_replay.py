"""A trace made into a workload for one model: prompts of the lengths and shared beginnings that the
trace tells of, sent at its times. Where it holds no text, the tokens are synthetic.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.core.errors import InvalidRequest
from engine.lab.importing import Trace
from engine.lab.importing_formats import MAX_HEADER_TEXT, ExportHeader, TraceRow
from engine.lab.workload import MAX_PROMPT_TOKENS, MAX_REQUESTS, WorkItem, Workload, shared_share
from engine.lab.workload_arrivals import Arrivals, Poisson, Start
from engine.lab.workload_lengths import check_number
from engine.lab.workload_text import TextCoder, TokenSource

HASH_BLOCK_TOKENS = 512
"""Tokens that one of Mooncake's `hash_ids` stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How a trace is played.

    limit: most requests, from the beginning. speed: how many times as fast; applies to times and
    delays. arrivals: for a trace without times. max_model_len: longer requests are cut to it.
    default_output: answer length where the trace gives none. seed: of synthetic text and arrivals.
    name: what the workload is called in place of the name that its file gives.
    """

    limit: int = 500
    speed: float = 1.0
    arrivals: Arrivals = field(default_factory=lambda: Poisson(1.0))
    max_model_len: int | None = None
    default_output: int = 128
    streamed: bool = True
    seed: int = 0
    name: str | None = None

    def __post_init__(self) -> None:
        check_number("number of requests", self.limit, least=1, most=MAX_REQUESTS)
        check_number("speed factor", self.speed, least=0.0, above=True)
        check_number("default answer length", self.default_output, least=1)


def to_workload(
    trace: Trace, source: TokenSource, replay: Replay, coder: TextCoder | None = None
) -> Workload:
    """The workload of a trace. `coder` is needed where prompts are text.

    Raises InvalidRequest when the prompts are text and no tokenizer is given, or when they are more
    than memory should hold.
    """
    rows = trace.rows[: replay.limit]
    prompts = _Prompts(source, coder, replay)
    notes = list(trace.notes)
    if len(rows) < len(trace.rows):
        notes.append(f"The first {len(rows):,} of {len(trace.rows):,} requests are used.")
    if trace.num_rejected:
        notes.append(f"{trace.num_rejected:,} rows of the file could not be used.")
    starts = _starts(rows, replay)
    items = tuple(
        prompts.item(index, row, start)
        for index, (row, start) in enumerate(zip(rows, starts, strict=True))
    )
    if prompts.num_without_output:
        notes.append(
            f"{prompts.num_without_output:,} requests give no answer length and get "
            f"{replay.default_output:,} tokens."
        )
    timed = any(row.time is not None for row in rows)
    pace = "" if replay.speed == 1.0 else f", {replay.speed:g} times as fast"
    header = trace.header or ExportHeader()
    workload = Workload(
        name=replay.name or header.name or trace.name[:MAX_HEADER_TEXT],
        items=items,
        arrivals=(header.arrivals or f"as in {trace.format}") + pace
        if timed
        else replay.arrivals.describe(),
        streamed=replay.streamed if header.streamed is None else header.streamed,
        shared_share=shared_share([item.token_ids for item in items]),
        notes=tuple(notes),
    )
    return workload if replay.max_model_len is None else workload.clipped(replay.max_model_len)


def _starts(rows: Sequence[TraceRow], replay: Replay) -> list[Start]:
    """When each row is sent: at its time, or after the one before it in its session."""
    timed = any(row.time is not None for row in rows)
    rng = random.Random(f"arrivals:{replay.seed}")
    free = [row for row in rows if not (row.continues or row.delay is not None)]
    drawn = iter([] if timed else replay.arrivals.starts(rng, len(free)))
    drawn_at: list[int] = []
    last: dict[str, int] = {}
    starts: list[Start] = []
    for index, row in enumerate(rows):
        before = row.after if row.session is None else last.get(row.session)
        delay = (row.delay or 0.0) / replay.speed
        if before is not None and row.time is None:
            start = Start(after=before, delay=delay)
        elif timed or row.delay is not None:
            start = Start(time=(row.time or 0.0) / replay.speed)
        else:
            start = next(drawn)
            if start.after is not None:
                start = Start(after=drawn_at[start.after], delay=start.delay)
            drawn_at.append(index)
        if row.session is not None:
            last[row.session] = index
        starts.append(start)
    return starts


class _Prompts:
    """Makes the token ids of rows, one after another; later turns go on from earlier ones."""

    def __init__(self, source: TokenSource, coder: TextCoder | None, replay: Replay) -> None:
        self.num_without_output = 0
        self._source = source
        self._coder = coder
        self._replay = replay
        self._history: dict[str, list[int]] = {}
        self._total = 0

    def item(self, index: int, row: TraceRow, start: Start) -> WorkItem:
        """The work item of one row."""
        ids = self._own(index, row)
        output = self._output(row)
        if row.session is not None:
            if row.continues:
                ids = self._history.get(row.session, []) + ids
            answer = self._source.draw(f"answer:{self._replay.seed}:{index}", output)
            self._history[row.session] = ids + answer
        self._total += len(ids)
        if self._total > MAX_PROMPT_TOKENS:
            raise InvalidRequest(
                f"The prompts of the first {index + 1:,} requests have more than "
                f"{MAX_PROMPT_TOKENS:,} tokens together. Use fewer requests of the trace."
            )
        return WorkItem(tuple(ids), output, start, row.priority)

    def _own(self, index: int, row: TraceRow) -> list[int]:
        if row.token_ids is not None:
            return list(row.token_ids)
        if row.text is not None:
            return self._encode(row.text) or self._source.draw(self._seed(index), 1)
        assert row.num_prompt_tokens is not None, "a row without a prompt is rejected on reading"
        ids: list[int] = []
        for hash_id in row.hash_ids or ():
            left = row.num_prompt_tokens - len(ids)
            block = self._source.draw(f"hash:{self._replay.seed}:{hash_id}", HASH_BLOCK_TOKENS)
            ids += block[:left]
        return ids + self._source.draw(self._seed(index), row.num_prompt_tokens - len(ids))

    def _output(self, row: TraceRow) -> int:
        if row.num_output_tokens is not None:
            return row.num_output_tokens
        if row.output_text is not None:
            return max(1, len(self._encode(row.output_text)))
        self.num_without_output += 1
        return self._replay.default_output

    def _encode(self, text: str) -> list[int]:
        if self._coder is None:
            raise InvalidRequest(
                "The prompts of this file are text; load a model first, whose tokenizer says how "
                "long they are."
            )
        return self._coder.encode(text, add_special_tokens=False)

    def _seed(self, index: int) -> str:
        return f"text:{self._replay.seed}:{index}"
