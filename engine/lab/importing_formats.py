"""What the known trace formats look like: one reader turns a row of any of them into a `TraceRow`.

Fields are found by the names that the formats use for them; a row that cannot be used raises
BadRow with the reason. Nothing here opens files, sorts rows or makes prompts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from engine.core.errors import InvalidRequest
from engine.lab.workload_lengths import MAX_LENGTH

MAX_TEXT = 1_000_000

MAX_HEADER_TEXT = 100
"""Characters of a name or of arrivals that are kept: they stand beside every result."""

# Names of fields, lower case, spaces and hyphens as underscores; the first that a row has counts.
_TIME = ("timestamp", "time", "arrival", "arrival_time", "arrived_at", "ts")
_PROMPT_TOKENS = (
    "input_length",
    "contexttokens",
    "request_tokens",
    "prompt_tokens",
    "num_prompt_tokens",
    "input_tokens",
    "prompt_len",
)
_OUTPUT_TOKENS = (
    "output_length",
    "generatedtokens",
    "response_tokens",
    "output_tokens",
    "num_output_tokens",
    "completion_tokens",
    "max_tokens",
    "output_len",
)
_TEXT = ("text", "prompt")
_UNIT_SUFFIXES = {"_ms": "milliseconds", "_us": "microseconds", "_s": "seconds"}


class BadRow(ValueError):
    """Why one row of a trace cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request of a trace, as far as the trace says.

    line: line of the file (entry of a JSON array, from 1). time: in the file's own unit, a date as
    seconds since 1970. text or token_ids or num_prompt_tokens give the prompt, hash_ids say which
    of its blocks of 512 tokens equal others. delay: in the file's own unit, after the end of the
    row before it in the `session`. `continues`: what was said before in the session is part of the
    prompt. after: index of the row to wait for, in our own export.
    """

    line: int
    time: float | None = None
    num_prompt_tokens: int | None = None
    num_output_tokens: int | None = None
    text: str | None = None
    output_text: str | None = None
    token_ids: tuple[int, ...] | None = None
    hash_ids: tuple[int, ...] | None = None
    session: str | None = None
    delay: float | None = None
    continues: bool = False
    priority: int = 0
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportHeader:
    """What the first line of our own export says; None where it says nothing."""

    name: str | None = None
    arrivals: str | None = None
    streamed: bool | None = None


def read_header(line: int, value: Mapping[str, Any]) -> ExportHeader:
    """The header of our own export, long texts cut; raises InvalidRequest for what is no header."""
    texts = {}
    for field in ("name", "arrivals"):
        text = value.get(field)
        if text is not None and not isinstance(text, str):
            raise _bad_header(line, field, "a text")
        texts[field] = text if text is None else text[:MAX_HEADER_TEXT]
    streamed = value.get("streamed")
    if streamed is not None and not isinstance(streamed, bool):
        raise _bad_header(line, "streamed", "true or false")
    return ExportHeader(**texts, streamed=streamed)


def _bad_header(line: int, field: str, kind: str) -> InvalidRequest:
    return InvalidRequest(
        f"Line {line}: {field} of a PhaseScope workload must be {kind}. Correct or remove it."
    )


def normalise(name: str) -> str:
    """A field's name as the tables above have it."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def detect(fields: Mapping[str, Any]) -> str:
    """The format that a first row with these normalised fields belongs to."""
    names = set(fields)
    if "hash_ids" in names:
        return "Mooncake"
    if {"contexttokens", "generatedtokens"} <= names:
        return "Azure LLM inference trace"
    if {"request_tokens", "response_tokens"} <= names:
        return "BurstGPT"
    if "turns" in names or "text" in names:
        return "AIPerf"
    if "conversations" in names:
        return "ShareGPT"
    if {"token_ids", "after"} <= names:
        return "PhaseScope workload"
    if "prompt" in names:
        return "vLLM custom"
    return "plain table"


def declared_unit(format_name: str, fields: Mapping[str, Any]) -> str | None:
    """The unit of time that a format or a field's name fixes; None when it has to be guessed."""
    if format_name in ("Mooncake", "AIPerf"):
        return "milliseconds"
    if format_name in ("BurstGPT", "PhaseScope workload"):
        return "seconds"
    name = _time_field(fields)
    if name is not None:
        for suffix, unit in _UNIT_SUFFIXES.items():
            if name.endswith(suffix):
                return unit
    return None


def read_rows(line: int, value: Any) -> list[TraceRow]:
    """The requests of one row or entry: one, or the turns of a conversation. Raises BadRow."""
    if not isinstance(value, Mapping):
        raise BadRow(f"expected an object with named fields, got {_kind(value)}")
    fields = {normalise(str(name)): item for name, item in value.items()}
    if "conversations" in fields:
        return [_sharegpt(line, fields["conversations"])]
    if "turns" in fields:
        return _turns(line, fields)
    return [_row(line, fields)]


def _row(line: int, fields: Mapping[str, Any]) -> TraceRow:
    time_field = _time_field(fields)
    text = _first(fields, _TEXT)
    token_ids = _whole_numbers(fields.get("token_ids"), "token_ids")
    row = TraceRow(
        line=line,
        time=None if time_field is None else _time(fields[time_field]),
        num_prompt_tokens=_length(_first(fields, _PROMPT_TOKENS), "prompt length"),
        num_output_tokens=_length(_first(fields, _OUTPUT_TOKENS), "output length"),
        text=None if text is None else _text(text, "prompt"),
        token_ids=token_ids,
        hash_ids=_whole_numbers(fields.get("hash_ids"), "hash_ids"),
        session=_session(fields),
        delay=_duration(fields.get("delay"), "delay"),
        priority=_whole(fields.get("priority"), "priority") or 0,
        after=_whole(fields.get("after"), "after"),
    )
    if row.text is None and row.token_ids is None and row.num_prompt_tokens is None:
        known = ", ".join(sorted(fields)) or "none"
        raise BadRow(f"neither a prompt nor its length is given (fields: {known[:200]})")
    return row


def _sharegpt(line: int, conversation: Any) -> TraceRow:
    if not isinstance(conversation, Sequence) or isinstance(conversation, str):
        raise BadRow(f"conversations must be a list, got {_kind(conversation)}")
    texts = []
    for turn in conversation[:2]:
        if not isinstance(turn, Mapping) or "value" not in turn:
            raise BadRow("a turn of the conversation has no value")
        texts.append(_text(turn["value"], "turn"))
    if len(texts) < 2:
        raise BadRow("a prompt and an answer are needed; the conversation has one turn or none")
    if not texts[1]:
        raise BadRow("the answer is empty")
    return TraceRow(line=line, text=texts[0], output_text=texts[1])


def _turns(line: int, fields: Mapping[str, Any]) -> list[TraceRow]:
    turns = fields["turns"]
    if not isinstance(turns, Sequence) or isinstance(turns, str) or not turns:
        raise BadRow("turns must be a list with at least one turn")
    session = _session(fields) or f"line {line}"
    rows = []
    for number, turn in enumerate(turns):
        if not isinstance(turn, Mapping):
            raise BadRow(f"turn {number + 1} is {_kind(turn)}, not an object")
        own = {normalise(str(name)): item for name, item in turn.items()}
        if number:
            # A turn waits for the one before it, so a time of its own would say it twice.
            own = {name: item for name, item in own.items() if name not in _TIME}
            own.setdefault("delay", 0)
        elif _time_field(own) is None and (name := _time_field(fields)) is not None:
            own[name] = fields[name]
        own["session_id"] = session
        row = _row(line, own)
        rows.append(
            TraceRow(
                line=line,
                time=row.time,
                num_prompt_tokens=row.num_prompt_tokens,
                num_output_tokens=row.num_output_tokens,
                text=row.text,
                token_ids=row.token_ids,
                session=session,
                delay=row.delay if number else None,
                continues=number > 0,
                priority=row.priority,
            )
        )
    return rows


def _time_field(fields: Mapping[str, Any]) -> str | None:
    names = [*_TIME, *(name + suffix for name in _TIME for suffix in _UNIT_SUFFIXES)]
    return next((name for name in names if _given(fields.get(name))), None)


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if _given(fields.get(name))), None)


def _given(value: Any) -> bool:
    return value is not None and value != ""


def _time(value: Any) -> float:
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return _date(value)
    else:
        number = _number(value, "time")
    if not math.isfinite(number) or number < 0:
        raise BadRow(f"the time must be a number of at least 0, got {value!r}")
    return number


def _date(value: str) -> float:
    # Python reads six digits of a second; traces write seven.
    head, dot, tail = value.strip().partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    text = f"{head}{dot}{tail[: min(digits, 6)]}{tail[digits:]}"
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise BadRow(f"the time {value[:40]!r} is neither a number nor a date") from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _duration(value: Any, name: str) -> float | None:
    if not _given(value):
        return None
    number = _number(value, name)
    if number < 0:
        raise BadRow(f"the {name} must be at least 0, got {number:g}")
    return number


def _length(value: Any, name: str) -> int | None:
    number = _whole(value, name)
    if number is not None and not 1 <= number <= MAX_LENGTH:
        raise BadRow(f"the {name} must be from 1 to {MAX_LENGTH:,}, got {number:,}")
    return number


def _whole(value: Any, name: str) -> int | None:
    if not _given(value):
        return None
    number = _number(value, name)
    if number != int(number):
        raise BadRow(f"the {name} must be a whole number, got {value!r}")
    return int(number)


def _whole_numbers(value: Any, name: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise BadRow(f"{name} must be a list of whole numbers, got {_kind(value)}")
    if not all(
        isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value
    ):
        raise BadRow(f"{name} must hold whole numbers of at least 0 only")
    return tuple(value)


def _number(value: Any, name: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f"the {name} must be a finite number, got {value!r:.60}")
    return number


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadRow(f"the {name} must be text, got {_kind(value)}")
    if len(value) > MAX_TEXT:
        raise BadRow(f"the {name} has {len(value):,} characters; the limit is {MAX_TEXT:,}")
    return value


def _session(fields: Mapping[str, Any]) -> str | None:
    value = fields.get("session_id")
    return str(value) if _given(value) else None


def _kind(value: Any) -> str:
    names = {list: "a list", str: "text", int: "a number", float: "a number", bool: "a truth value"}
    return "nothing" if value is None else names.get(type(value), "something else")
