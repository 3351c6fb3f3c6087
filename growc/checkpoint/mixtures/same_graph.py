"""Which stored tensors of two programs are the same, found by how they are used, never by name.

Needs: the graphs of both. Gives: `Matching`, which goes up from the outputs of both at once: operators,
attributes and constants must be equal. It stops where the source has one of some values (what networks give),
and notes what stands there in the other program.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from growc.ir.graph import Graph, Node, Value, Weight
from growc.ir.traits import SAME

Pair = tuple[Value, Value]


@dataclass
class Matching:
    """stops: values of the source behind which programs may differ. there, here: the tensors of both classes'
    states; other stored tensors are constants. stands: what stands for a stop. tensors: the source's tensor
    for each of the other program's. stuck: where both differ.
    """

    stops: Collection[Value]
    here: Collection[str]
    there: Collection[str]
    stands: dict[Value, Value] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)
    seen: set[Pair] = field(default_factory=set)
    stuck: Pair | None = None

    def whole(self, source: Graph, other: Graph) -> bool:
        """Whether all outputs of the source are computed alike."""
        made = {value.name: value for value in other.outputs}
        return all(value.name in made and self.match(value, made[value.name]) for value in source.outputs)

    def match(self, one: Value, other: Value) -> bool:
        """Whether two values are computed alike. What did not match leaves no trace but `stuck`."""
        before = dict(self.stands), dict(self.tensors), set(self.seen)
        todo = [(one, other)]
        while todo:
            pair = _unmoved(*todo.pop())
            if pair in self.seen:
                continue
            self.seen.add(pair)
            above = self.above(*pair)
            if above is None:
                self.stands, self.tensors, self.seen = before
                self.stuck = pair
                return False
            todo += above
        return True

    def above(self, one: Value, other: Value) -> list[Pair] | None:
        """What must be computed alike for two values to be; None where they are not."""
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
        """Whether a tensor may stand for the other, and stands for no third one."""
        if one is None or other is None or one.shape != other.shape:
            return False
        if one.name in self.here and other.name in self.there:
            return self.tensors.setdefault(other.name, one.name) == one.name
        known = one.name not in self.here and other.name not in self.there
        return known and np.array_equal(one.read(), other.read())


def _operands(one: Value, node: Node, other: Value, same: Node) -> list[Pair] | None:
    """The operands of two equal operators in pairs."""
    alike = node.op == same.op and _said(node) == _said(same) and len(node.inputs) == len(same.inputs)
    if not alike or node.outputs.index(one) != same.outputs.index(other):
        return None
    pairs = list(zip(node.inputs, same.inputs, strict=True))
    if any((a is None) != (b is None) for a, b in pairs):
        return None
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _said(node: Node) -> Mapping[str, str]:
    return {name: str(value) for name, value in node.attributes.items()}


def _unmoved(one: Value, other: Value) -> Pair:
    """Two values without what only passes them on."""
    return _source(one), _source(other)


def _source(value: Value) -> Value:
    while (node := value.producer) is not None and node.has(SAME):
        given = node.required(0)
        if given.dtype != value.dtype:
            break
        value = given
    return value
