"""Between which bounds the numbers of a tensor lie.

Needs: a simulated graph, and a rule for each operator, by name (growc.dialects.onnx.operators.number_ranges).
Gives: `Ranges`, the range of any value, found when it is asked for.

Integers of model inputs are taken to be not negative, and a range says on which inputs its lower bound rests.
Integers do not overflow, nor where they are cast. What has no rule can be any number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from growc.ir.graph import Clamp, Value, Weight, backward
from growc.ir.traits import SAME, SIZES, TAKE, VIEW
from growc.passes.dataflow.intervals import (
    ANY,
    NOTHING,
    At,
    Range,
    Seen,
    UnknownRangeError,
    of_array,
    of_type,
    union,
)

Rule = Callable[[At], Range]

FEW = 1024
"""Real weights of more elements are not read."""


@dataclass
class Ranges:
    """The ranges of one graph, as far as they were asked for."""

    rules: Mapping[str, Rule]
    found: dict[tuple[Value, Seen], Range] = field(default_factory=dict)
    stored: dict[Weight, Range] = field(default_factory=dict)

    def of(self, value: Value) -> Range:
        """The range of a value; without recursion, for graphs are deep."""
        pending = [(value, NOTHING)]
        while pending:
            key = pending[-1]
            try:
                if key not in self.found:
                    self.found[key] = self._made(*key)
                pending.pop()
            except UnknownRangeError as missing:
                pending.append(missing.key)
        return self.found[value, NOTHING]

    def _made(self, value: Value, seen: Seen) -> Range:
        made = self._source(value)
        if made is None:
            node = value.producer
            assert node is not None
            at, rule, clamp = At(self.found, node, value, seen), self.rules.get(node.op), node.laws.clamp
            made = ANY if rule is None else rule(at)
            made = made if clamp is None else _clamped(at, clamp(node))
            made = made.meet(of_type(value.dtype))
        for known, told in seen:
            made = made.meet(told) if known is value else made
        return made

    def _source(self, value: Value) -> Range | None:
        """The range of what no operator computes, and of sizes; None of all else."""
        if value.weight is not None:
            return self._weight(value.weight)
        if value.known is not None and _is_size(value):
            return of_array(value.known[0])
        if value.producer is not None:
            return None
        whole = of_type(value.dtype)
        return Range(0, whole.high, frozenset([value])) if -math.inf < whole.low < 0 else whole

    def _weight(self, weight: Weight) -> Range:
        if weight not in self.stored:
            read = weight.dtype != "string" and (not weight.floating or weight.elements <= FEW)
            self.stored[weight] = of_array(np.asarray(weight.read())) if read else ANY
        return self.stored[weight]


def _clamped(at: At, clamp: Clamp) -> Range:
    """The largest of some, then the least of that and others."""

    def of(one: Value | float) -> Range:
        return Range(one, one) if isinstance(one, float) else at.of(one, at.seen)

    given = [*map(of, clamp.largest)]
    low = max(r.low for r in given)
    firm = any(r.low == low and not r.rests for r in given)
    rests = frozenset[Value]() if firm else union(*given).rests
    larger = Range(low, max(r.high for r in given), rests, any(r.wild for r in given))
    both = [larger, *map(of, clamp.least)]
    return replace(union(*both), high=min(r.high for r in both))


def _is_size(value: Value) -> bool:
    """Whether numbers are elements of a shape that are the same for all inputs."""
    known = value.known or ()
    if any(not np.array_equal(k, known[0]) for k in known):
        return False
    node = backward(value, lambda node: node.has(SAME, VIEW, TAKE)).producer
    return node is not None and node.has(SIZES)
