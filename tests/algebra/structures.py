"""Spaces as text: `(4a 16b)` a product, `[4a + 1 + 1]` a sum, atoms by letter, `!` frozen, `#` addressed."""

from __future__ import annotations

from growc.algebra.space import Reason, Space, address, find, freeze, product, sum_of, unify


def atom(size: int) -> Space:
    return Space((size, size))


def times(*parts: Space) -> Space:
    return product(parts)


def plus(*parts: Space) -> Space:
    return sum_of(parts)


def tie(*spaces: Space) -> None:
    """All of these are one axis."""
    for other in spaces[1:]:
        unify(spaces[0], other, None)


def number(space: Space) -> None:
    """The outside numbers the units."""
    address(space, Reason(None, "a table"))


def stop(space: Space) -> None:
    freeze(space, Reason(None, "a softmax"))


def show(space: Space, letters: dict[Space, str] | None = None) -> str:
    letters = {} if letters is None else letters
    space = find(space)
    if space.kind == "atom":
        if space.unit:
            return "1"
        name = letters.setdefault(space, "abcdefghijklmnopqrstuvwxyz"[len(letters)])
        return f"{space.size[0]}{name}{'!' if space.frozen else '#' if space.addressed else ''}"
    if space.kind == "product":
        return "(" + " ".join(show(p, letters) for p in space.parts if not find(p).unit) + ")"
    return "[" + " + ".join(show(p, letters) for p in space.parts) + "]"
