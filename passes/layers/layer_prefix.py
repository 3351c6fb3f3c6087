"""Operators that stand in front of every layer of a series, including the first one.

Needs: the places where bypasses start, one a layer, and the ends of those before them. Gives: the same
layers, with the operators between an end and the next place as part of the layer behind them. That holds if
the first place is made of one value by the same operators, on weights of the same sizes. An example is a
convolution of some places that are then joined with the others again (CoaT).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from growc.ir.graph import Value


def in_front(places: Sequence[Value], ends: Sequence[Value]) -> list[Value] | None:
    """The ends of the layers, preceded by the value from which the first place is made as the later places
    are made from their ends; None if there is no such value.
    """
    if len(places) == 1:
        return None
    start, *later = [made_alike(place, places[1], ends[0]) for place in (places[0], *places[2:])]
    if start is None or later != list(ends[1:-1]):
        return None
    matches = start.sizes == ends[0].sizes and start.dtype == ends[0].dtype
    return [start, *ends] if matches else None


def made_alike(value: Value, model: Value, origin: Value) -> Value | None:
    """The value from which `value` is made as `model` is made from `origin`: by the same operators on weights
    of the same sizes. None if there is no such value.
    """
    origins: set[Value] = set()
    pairs, seen = [(value, model)], set[tuple[Value, Value]]()
    while pairs:
        one, other = pair = pairs.pop()
        if other is origin:
            origins.add(one)
        elif one is not other and pair not in seen:
            seen.add(pair)
            operand_pairs = _taken_alike(one, other)
            if operand_pairs is None:
                return None
            pairs += operand_pairs
    return origins.pop() if len(origins) == 1 else None


def _taken_alike(one: Value, other: Value) -> list[tuple[Value, Value]] | None:
    """The operands of the makers of two values, pair by pair.

    Weights give no pairs; makers that differ give None.
    """
    if one.weight is not None and other.weight is not None:
        numbers = one.weight.floating or np.array_equal(one.weight.read(), other.weight.read())
        return [] if one.sizes == other.sizes and one.dtype == other.dtype and numbers else None
    if one.producer is None or other.producer is None:
        return None
    taken = [list(node.operands) for node in (one.producer, other.producer)]
    kinds = [(node.op, dict(node.attributes)) for node in (one.producer, other.producer)]
    alike = kinds[0] == kinds[1] and len(taken[0]) == len(taken[1])
    return list(zip(*taken, strict=True)) if alike else None
