"""Match the stored tensors of two programs by their uses, never by name.

Needs: the graphs of both. Gives: `Matching`, which walks up from the outputs of both in step. Operators,
attributes and constants must be equal. The walk stops at given values of the source (the outputs of networks)
and notes the value of the other program there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from growc.ir.graph import Graph, Node, Value, Weight
from growc.ir.traits import SAME

EqualValues = tuple[Value, Value]


@dataclass
class Matching:
    """The correspondence of two programs.

    stops: values of the source above which the programs may differ. here, there: names of the tensors in the
    source's state and in the other's; other stored tensors are constants. stands: the other program's value
    for each stop. tensors: the source's tensor for each of the other program's. stuck: the pair at which both
    differ.
    """

    stops: Collection[Value]
    here: Collection[str]
    there: Collection[str]
    stands: dict[Value, Value] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)
    seen: set[EqualValues] = field(default_factory=set)
    stuck: EqualValues | None = None

    def whole(self, source: Graph, other: Graph) -> bool:
        """Whether all outputs of the source are computed alike in the other program."""
        by_name = {value.name: value for value in other.outputs}
        return all(
            value.name in by_name and self.match(value, by_name[value.name]) for value in source.outputs
        )

    def match(self, one: Value, other: Value) -> bool:
        """Whether two values are computed alike. A failed match leaves no trace except `stuck`."""
        before = dict(self.stands), dict(self.tensors), set(self.seen)
        pending = [(one, other)]
        while pending:
            pair = _unmoved(*pending.pop())
            if pair in self.seen:
                continue
            self.seen.add(pair)
            above = self.above(*pair)
            if above is None:
                self.stands, self.tensors, self.seen = before
                self.stuck = pair
                return False
            pending += above
        return True

    def above(self, one: Value, other: Value) -> list[EqualValues] | None:
        """The pairs that must be computed alike for these two values to be; None if they are not."""
        if one in self.stops:
            return [] if self.stands.setdefault(one, other) is other else None
        if one.known is not None and other.known is not None:
            return [] if all(map(np.array_equal, one.known, other.known)) else None
        if one.weight is not None or other.weight is not None:
            return [] if self.same_tensor(one.weight, other.weight) else None
        if one.producer is None or other.producer is None:
            return [] if one.producer is other.producer and one.name == other.name else None
        return _operands(one, one.producer, other, other.producer)

    def same_tensor(self, one: Weight | None, other: Weight | None) -> bool:
        """Whether one tensor may correspond to the other, and the other to no third one."""
        if one is None or other is None or one.shape != other.shape:
            return False
        if one.name in self.here and other.name in self.there:
            return self.tensors.setdefault(other.name, one.name) == one.name
        constants = one.name not in self.here and other.name not in self.there
        return constants and np.array_equal(one.read(), other.read())


def _operands(one: Value, node: Node, other: Value, same: Node) -> list[EqualValues] | None:
    """The operands of two equal operators in pairs; None if the operators differ."""
    alike = node.op == same.op and _said(node) == _said(same) and len(node.inputs) == len(same.inputs)
    if not alike or node.outputs.index(one) != same.outputs.index(other):
        return None
    pairs = list(zip(node.inputs, same.inputs, strict=True))
    if any((a is None) != (b is None) for a, b in pairs):
        return None
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _said(node: Node) -> Mapping[str, str]:
    return {name: str(value) for name, value in node.attributes.items()}


def _unmoved(one: Value, other: Value) -> EqualValues:
    """Two values, each replaced by the one that operators with the trait SAME pass on."""
    return _source(one), _source(other)


def _source(value: Value) -> Value:
    while (node := value.producer) is not None and node.has(SAME):
        operand = node.required(0)
        if operand.dtype != value.dtype:
            break
        value = operand
    return value
