"""JSON that a file holds, as values of our own types: nothing of it is believed before it was checked.

`loads` reads text of bounded depth, `parse` turns what it gave into frozen dataclasses, by the types of their fields.
Ranges are for the dataclasses themselves to check, when they are made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

MAX_VALUES = 2_000_000  # of which each takes some 64 bytes while it is read, however short it is written
_MAX_DEPTH = 32
_INT_DIGITS = 18  # a number of more may not fit into 64 bits

_T = TypeVar("_T")


class SchemaError(ValueError):
    """A value is not of the type that its place asks for; says where and why."""


def loads(text: str | bytes, max_values: int = MAX_VALUES, *, refuses_numbers: bool = False) -> Any:
    """JSON in UTF-8 as Python values. Numbers that are not finite, or that do not fit into 64 bits, come as None.

    Args:
        refuses_numbers: those are refused instead: where None has a meaning, a setting would be another one.

    Raises:
        SchemaError: it is no JSON, nested too deep, or of more than `max_values` values.
    """

    def other(digits: str) -> Any:
        if refuses_numbers:
            raise SchemaError(f"it holds the number {digits:.20}")
        return None

    def whole(digits: str) -> Any:
        return int(digits) if len(digits.lstrip("-")) <= _INT_DIGITS else other(digits)

    def finite(digits: str) -> Any:
        return value if math.isfinite(value := float(digits)) else other(digits)

    try:
        text = text if isinstance(text, str) else text.decode()
        if sum(map(text.count, ",[{")) > max_values:
            raise SchemaError("it holds too many values")
        value = json.loads(text, parse_int=whole, parse_float=finite, parse_constant=other)
    except SchemaError:
        raise
    except (ValueError, RecursionError) as error:
        raise SchemaError("it is no JSON") from error
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            raise SchemaError("it is nested too deep")
        level = [child for parent in level if isinstance(parent, dict | list) for child in _children(parent)]
    return value


def parse(kind: type[_T], value: object, where: str = "it") -> _T:
    """A value of `loads` as an instance of a type.

    Args:
        kind: a dataclass, or any type that its fields may have: bool, int, float, str, a `Literal` of strings,
            `tuple[X, ...]`, `tuple[X, Y]`, `dict[str, X]`, `X | None`, `Any`, `X | Y`: the first that takes it. A
            whole number will do for a float. Every key has to be a field; a field with a default may be missing.
        where: name of the value, for the message.

    Raises:
        SchemaError: it is none.
        OndeviceError: a dataclass refuses its fields.
    """
    parsed: _T = _parse(kind, value, where)
    return parsed


def _parse(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _parse_fields(kind, value, where)
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        *others, last = (argument for argument in arguments if argument is not NoneType)
        for kind in others:
            with suppress(SchemaError):
                return _parse(kind, value, where)
        return _parse(last, value, where)
    if origin is Literal and isinstance(value, str) and value in arguments:
        return value
    if origin is tuple and isinstance(value, list):
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) == len(value):
            return tuple(_parse(kind, item, f"{where}[]") for kind, item in zip(kinds, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {_text(key): _parse(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind is str and isinstance(value, str):
        return _text(value)
    if kind in (bool, int) and type(value) is kind:
        return value
    raise SchemaError(f"{where} is of a wrong type")


def _parse_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise SchemaError(f"{where} is of a wrong type")
    hints, known = _hints(kind), {field.name: field for field in fields(kind)}
    if unknown := value.keys() - known.keys():
        raise SchemaError(f"{where} has a field that is not known: {min(unknown)!r:.40}")
    missing = [name for name in known.keys() - value.keys() if not _has_default(known[name])]
    if missing:
        raise SchemaError(f"{where} lacks {min(missing)!r}")
    return kind(**{name: _parse(hints[name], item, f"{where}.{name}") for name, item in value.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _children(parent: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return parent.values() if isinstance(parent, dict) else parent


def _text(text: str) -> str:
    """The text without halves of characters, which no file and no screen could take."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
