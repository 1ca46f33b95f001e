"""Frozen dataclasses to plain JSON values and back, by their type annotations.

Named tuples become lists, everything else what JSON calls it. It knows no particular class.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dictionaries, lists, numbers, text, truth values and None only."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], value: Any) -> T:
    """What `to_plain` made plain; raises ValueError, TypeError or KeyError for anything else.

    Fields that are missing get their default, unknown ones are left out: files outlive versions.
    """
    return cast(T, _decode(kind, value))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (inner,) = (item for item in get_args(kind) if item is not type(None))
        return _decode(inner, value)
    if origin is tuple:
        arguments = get_args(kind)
        if arguments[-1] is Ellipsis:
            return tuple(_decode(arguments[0], item) for item in value)
        return tuple(_decode(k, item) for k, item in zip(arguments, value, strict=True))
    if origin is list:
        return [_decode(get_args(kind)[0], item) for item in value]
    if origin is dict:
        return {key: _decode(get_args(kind)[1], item) for key, item in value.items()}
    if kind is Any:
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(cast(Any, kind))
        known = {item.name for item in fields(kind) if item.init}
        chosen = {n: _decode(hints[n], item) for n, item in dict(value).items() if n in known}
        return cast(Any, kind)(**chosen)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = _hints(kind)
        parts = zip(kind._fields, value, strict=False)
        return kind(*(_decode(hints[name], item) for name, item in parts))
    if issubclass(kind, Enum):
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind):
        raise ValueError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value
