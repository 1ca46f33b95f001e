"""Request bodies as strict JSON, refused with a sentence that names the place at fault.

Python's parser takes `NaN` and `Infinity`, which are no JSON and would reach the arithmetic. This
module knows no request and no web framework.
"""

from __future__ import annotations

import json
import math
from typing import Any

from engine.core.errors import InvalidRequest

# Up to here a float holds every whole number.
_EXACT = 2.0**53


class _NotFinite:
    """Stands where the text had a number that JSON cannot hold; `written` is how it was written."""

    def __init__(self, written: str) -> None:
        self.written = written


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body holds; raises InvalidRequest for anything else.

    A field whose value is null is left out: null means absent.
    """
    # Only worth a search where one was met.
    met: list[_NotFinite] = []

    def refuse(written: str) -> _NotFinite:
        met.append(_NotFinite(written))
        return met[-1]

    def finite(written: str) -> float | _NotFinite:
        value = float(written)
        if not math.isfinite(value):
            return refuse(written)
        # JSON has one kind of number: some clients write 16 as 16.0.
        return int(value) if value.is_integer() and abs(value) < _EXACT else value

    try:
        # Python would take UTF-16 and UTF-32 too.
        text = body.decode("utf-8-sig")
        value = json.loads(text, parse_constant=refuse, parse_float=finite)
        where = _path_of(value, met[0]) if met else None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply; send flatter JSON.") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"The body is not UTF-8 at byte {error.start}; JSON has to be."
        ) from None
    except ValueError as error:
        # Covers integers of thousands of digits too.
        raise InvalidRequest(f"The body is not JSON: {error}.") from None
    if met:
        raise InvalidRequest(
            f"{where or 'The body'} is {met[0].written[:20]}, which JSON cannot hold; send a "
            f"finite number.",
            field=where,
        )
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return {name: item for name, item in value.items() if item is not None}


def _path_of(value: object, wanted: object) -> str | None:
    """Where `wanted` is inside `value`, such as `stop[1]`; None where a later key replaced it."""
    pending: list[tuple[str, object]] = [("", value)]
    while pending:
        path, item = pending.pop()
        if item is wanted:
            return path or None
        if isinstance(item, dict):
            pending += [(f"{path}.{key}" if path else str(key), v) for key, v in item.items()]
        elif isinstance(item, list):
            pending += [(f"{path}[{index}]", v) for index, v in enumerate(item)]
    return None
