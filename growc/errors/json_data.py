"""JSON as Python values, and readers that raise TypeError for other types."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

T = TypeVar("T")


def _a(kind: type[T], data: object) -> T:
    if not isinstance(data, kind):
        raise TypeError(f"{data!r} is no {kind.__name__}")
    return data


def fields(data: Json) -> Mapping[str, Json]:
    """The value as an object. Raises TypeError otherwise."""
    return _a(dict, data)


def items(data: Json) -> Sequence[Json]:
    """The value as a list. Raises TypeError otherwise."""
    return data if isinstance(data, tuple) else _a(list, data)


def text(data: Json) -> str:
    """The value as a string. Raises TypeError otherwise."""
    return _a(str, data)


def whole(data: Json) -> int:
    """The value as a whole number. Raises TypeError otherwise."""
    return _a(int, data)


def real(data: Json) -> float:
    """The value as a real number. Raises TypeError otherwise."""
    return float(data) if isinstance(data, int) else _a(float, data)


def wholes(data: Json) -> tuple[int, ...]:
    """The value as a list of whole numbers. Raises TypeError otherwise."""
    return tuple(map(whole, items(data)))


def texts(data: Json) -> tuple[str, ...]:
    """The value as a list of strings. Raises TypeError otherwise."""
    return tuple(map(text, items(data)))


def record(make: Callable[..., T], data: Json, **overrides: object) -> T:
    """A dataclass made from an object.

    Each field that is not in `overrides` is read by its type, or has its default.
    """
    entries, kinds = fields(data), _kinds(make)
    read = {
        name: _read(kinds[name], entries[name]) for name in kinds if name in entries and name not in overrides
    }
    return make(**read, **overrides)


@cache
def _kinds(make: Callable[..., object]) -> dict[str, object]:
    return get_type_hints(make)


def _read(kind: object, data: Json) -> object:
    """A value of a type: a number, a text, an array, a dataclass, a tuple or mapping of these, or None."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if data is None else _read(parts[0], data)
    if origin is tuple:
        return tuple(_read(parts[0], element) for element in items(data))
    if origin is Mapping:
        return {name: _read(parts[1], element) for name, element in fields(data).items()}
    numpy = sys.modules.get(
        "numpy"
    )  # a type with arrays has imported it; not importing it here keeps `growc --help` fast
    if numpy is not None and origin is numpy.ndarray:
        return numpy.asarray(items(data), dtype=get_args(parts[1])[0])
    if origin is Literal or kind is float:
        return text(data) if origin else real(data)
    assert isinstance(kind, type)
    return record(kind, data) if is_dataclass(kind) else _a(kind, data)
