"""What a node makes of the ranges of units: by the rule of its operator, or as its other laws say.

Needs: a node, and the ranges of its operands. Gives: the range of its result. An operator that has no rule,
takes no extremes and moves no elements, gives any finite number for finite ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from growc.algebra.indexmap import Bools, Floats
from growc.algebra.unit_ranges import Range
from growc.ir.graph import Clamp, Node, Operands, Value
from growc.ir.traits import MOVES, POLE
from growc.passes.axes.norms import scalar, without_eps

MEANS = ("mean", "extreme")
"""Treatments that give elements that they are given, or means of these."""


def image(node: Node, given: Operands, domain: Bools) -> Range:
    """What an elementwise operator, or one that moves elements, gives.

    domain: rows that are in the domain of the operator since the source's units are: means of its interval.
    """
    wild, ends = (np.logical_or.reduce([getattr(x, of) for x in given.values()]) for of in ("wild", "ends"))
    out = node.outputs[0]
    if out.dtype == "bool":
        return Range.anything(len(wild)).within(0.0, 1.0)
    if node.laws.image is not None:
        made = node.laws.image(node, given, domain)
    elif node.laws.clamp is not None:
        made = _clamped(node, node.laws.clamp(node), given)
    elif gives_on(node) and (moved := [given[i] for i in node.taken if i in given]):
        made = reduce(Range.union, moved)
        if not out.floating:
            made = made.within(np.trunc(made.low), np.trunc(made.high))
    else:
        made = Range.anything(len(wild))
    if out.dtype == "float16":
        made = made.underflowing()
    return replace(made, wild=(made.wild & ~domain) | wild, ends=made.ends | ends)


def _clamped(node: Node, clamp: Clamp, given: Operands) -> Range:
    """The nearest number between bounds, which are numbers or other operands."""
    ranges = {node.inputs[i]: x for i, x in given.items()}

    def ends(one: Value | float) -> tuple[Floats | float, Floats | float]:
        if not isinstance(one, float) and (found := ranges.get(one)) is not None:
            return found.low, found.high
        number = one if isinstance(one, float) else scalar(one)
        return (-np.inf, np.inf) if number is None else (number, number)

    larger = [reduce(np.maximum, end) for end in zip(*map(ends, clamp.largest), strict=True)]
    low, high = (reduce(np.minimum, end) for end in zip(larger, *map(ends, clamp.least), strict=True))
    return given[min(given)].within(low, high)


def gives_on(node: Node) -> bool:
    """Whether a node gives elements that it is given, or means of these."""
    return node.has(*MOVES) or node.treatment in MEANS


def has_pole(node: Node) -> bool:
    """Whether a node may be infinite on finite numbers: by what it computes, or for want of an eps."""
    return node.has(POLE) or without_eps(node)
