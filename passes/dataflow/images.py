"""The range of each unit of a node's result: by the rule of its operator, or by its other laws.

Needs: a node, and the ranges of its operands. Gives: the range of its result. An operator without a rule that
neither clamps, moves nor averages elements gives any finite number for finite operands.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from growc.algebra.indexmap import Bools, Floats
from growc.algebra.unit_ranges import UnitRange
from growc.ir.graph import Clamp, Node, OperandRanges, Value
from growc.ir.traits import MOVES, POLE
from growc.passes.axes.norms import scalar, without_eps

MEANS = ("mean", "extreme")
"""Treatments whose results are elements of their operands, or means of these."""


def image(node: Node, operand_ranges: OperandRanges, domain: Bools) -> UnitRange:
    """The range of the result of an operator that is elementwise or moves elements.

    domain: units that are in the domain of the operator because the source's units are, such as means.
    """
    wild, ends = (
        np.logical_or.reduce([getattr(x, k) for x in operand_ranges.values()]) for k in ("wild", "ends")
    )
    out = node.outputs[0]
    if out.dtype == "bool":
        return UnitRange.anything(len(wild)).within(0.0, 1.0)
    if node.laws.image is not None:
        result = node.laws.image(node, operand_ranges, domain)
    elif node.laws.clamp is not None:
        result = _clamped(node, node.laws.clamp(node), operand_ranges)
    elif gives_on(node) and (operands := [operand_ranges[i] for i in node.taken if i in operand_ranges]):
        result = reduce(UnitRange.union, operands)
        if not out.floating:
            result = result.within(np.trunc(result.low), np.trunc(result.high))
    else:
        result = UnitRange.anything(len(wild))
    if out.dtype == "float16":
        result = result.underflowing()
    return replace(result, wild=(result.wild & ~domain) | wild, ends=result.ends | ends)


def _clamped(node: Node, clamp: Clamp, operand_ranges: OperandRanges) -> UnitRange:
    """The range of operand 0 clamped between bounds, which are numbers or other operands."""
    ranges = {node.inputs[i]: x for i, x in operand_ranges.items()}

    def ends(bound: Value | float) -> tuple[Floats | float, Floats | float]:
        if not isinstance(bound, float) and (interval := ranges.get(bound)) is not None:
            return interval.low, interval.high
        number = bound if isinstance(bound, float) else scalar(bound)
        return (-np.inf, np.inf) if number is None else (number, number)

    larger = [reduce(np.maximum, end) for end in zip(*map(ends, clamp.largest), strict=True)]
    low, high = (reduce(np.minimum, end) for end in zip(larger, *map(ends, clamp.least), strict=True))
    return operand_ranges[min(operand_ranges)].within(low, high)


def gives_on(node: Node) -> bool:
    """Whether the results of a node are elements of its operands, or means of these."""
    return node.has(*MOVES) or node.treatment in MEANS


def has_pole(node: Node) -> bool:
    """Whether a node may be infinite or no number on finite numbers, or is a norm without eps.

    The cube of any number is finite, and so is a third of it: operands that are one known number count.
    """
    if not node.has(POLE) or without_eps(node):
        return without_eps(node)
    ranges = {i: number_or_any(value, 1) for i, value in enumerate(node.inputs) if value is not None}
    return node.laws.image is None or bool(image(node, ranges, np.zeros(1, dtype=bool)).wild.any())


def number_or_any(value: Value, size: int) -> UnitRange:
    """The range of units that are all one known number, or any numbers."""
    number = scalar(value)
    anything = UnitRange.anything(size)
    return anything if number is None or not np.isfinite(number) else anything.within(number, number)
