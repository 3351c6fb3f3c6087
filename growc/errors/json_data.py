"""JSON as Python has it, and readers of it, which raise TypeError where something else stands there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

T = TypeVar("T")


def _a(kind: type[T], data: object) -> T:
    if not isinstance(data, kind):
        raise TypeError(f"{data!r} is no {kind.__name__}")
    return data


def fields(data: Json) -> Mapping[str, Json]:
    """An object."""
    return _a(dict, data)


def items(data: Json) -> Sequence[Json]:
    """A list."""
    return data if isinstance(data, tuple) else _a(list, data)


def text(data: Json) -> str:
    """A string."""
    return _a(str, data)


def whole(data: Json) -> int:
    """A whole number."""
    return _a(int, data)


def real(data: Json) -> float:
    """A number."""
    return float(data) if isinstance(data, int) else _a(float, data)


def wholes(data: Json) -> tuple[int, ...]:
    """A list of whole numbers."""
    return tuple(map(whole, items(data)))


def texts(data: Json) -> tuple[str, ...]:
    """A list of strings."""
    return tuple(map(text, items(data)))
