"""What stands in front of every layer of a series, the first one too.

Needs: the places where bypasses start, one a layer, and where those before them end. Gives: the same layers
with what stands between an end and the next place in the layer behind it, if the first place is made of one
value by the same operators, on weights of the same sizes: a convolution of some places, which are put
together with the others again (CoaT).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from growc.ir.graph import Value


def in_front(places: Sequence[Value], ends: Sequence[Value]) -> list[Value] | None:
    """The ends of layers, and what the first place is made from as each later one is from the end before it;
    None if it is not.
    """
    if len(places) == 1:
        return None
    start, *later = [made_alike(place, places[1], ends[0]) for place in (places[0], *places[2:])]
    if start is None or later != list(ends[1:-1]):
        return None
    same = start.sizes == ends[0].sizes and start.dtype == ends[0].dtype
    return [start, *ends] if same else None


def made_alike(value: Value, model: Value, origin: Value) -> Value | None:
    """The value from which one is made as another is from its origin, by the same operators on weights of
    the same sizes; None if there is none.
    """
    found: set[Value] = set()
    pairs, seen = [(value, model)], set[tuple[Value, Value]]()
    while pairs:
        one, other = pair = pairs.pop()
        if other is origin:
            found.add(one)
        elif one is not other and pair not in seen:
            seen.add(pair)
            given = _taken_alike(one, other)
            if given is None:
                return None
            pairs += given
    return found.pop() if len(found) == 1 else None


def _taken_alike(one: Value, other: Value) -> list[tuple[Value, Value]] | None:
    """What the makers of two values take, pair by pair; nothing for weights; None where these differ."""
    if one.weight is not None and other.weight is not None:
        numbers = one.weight.floating or np.array_equal(one.weight.read(), other.weight.read())
        return [] if one.sizes == other.sizes and one.dtype == other.dtype and numbers else None
    if one.producer is None or other.producer is None:
        return None
    taken = [list(node.operands) for node in (one.producer, other.producer)]
    kinds = [(node.op, dict(node.attributes)) for node in (one.producer, other.producer)]
    same = kinds[0] == kinds[1] and len(taken[0]) == len(taken[1])
    return list(zip(*taken, strict=True)) if same else None
