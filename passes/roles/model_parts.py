"""Encoder, decoder, towers: the parts of a model, and the parts that each axis belongs to.

Needs: the flow of the axis graph. Gives: `Scopes`.

A residual sum whose base another sum reaches belongs to the same *part* of the model, further down or in a
later stage. A part that reaches another one only in its branches (as keys and values of attention) is an
`encoder`, and the other is a `decoder`. Parts that no other part reaches, and that reach no other, are
`tower 0`, `tower 1`, … in topological order. A model of one part has no scopes.

A weight works for the parts of the sums that it feeds next; behind the last sum, for those that feed it. An
axis lies in the parts for which the weights that make it, and the tables that have it, work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from growc.algebra.space import Space, atoms_of
from growc.errors.short_repr import brief
from growc.ir.graph import Node, Value
from growc.ir.traits import SIZES
from growc.passes.axes.queries import AxisQueries
from growc.passes.roles.residual_streams import Residual

SubmodelNumbers = frozenset[int]
NONE: SubmodelNumbers = frozenset()


@dataclass
class Scopes:
    """The names of a model's scopes, those that each atom lies in, and the one of each residual sum."""

    __repr__ = brief

    names: tuple[str, ...] = ()
    of_atom: dict[Space, frozenset[str]] = field(default_factory=dict)
    of_sum: dict[Node, str] = field(default_factory=dict)

    def of(self, spaces: Iterable[Space]) -> frozenset[str]:
        """The scopes that spaces lie in."""
        nothing: frozenset[str] = frozenset()
        return nothing.union(*(self.of_atom.get(x, nothing) for x in atoms_of(spaces)))


def find_scopes(flow: AxisQueries, sums: Mapping[Node, Residual]) -> Scopes:
    """Name the parts of a model, and list the parts of each atom."""
    parts = _Parts(flow, sums)
    names = parts.names()
    scopes_of_atom: dict[Space, frozenset[str]] = {}
    for value, owner in parts.makers() if names else ():
        scopes = frozenset(names[p] for p in parts.roots(owner) if p in names)
        for atom in atoms_of(flow.axes.of(value)):
            scopes_of_atom[atom] = scopes_of_atom.get(atom, frozenset()) | scopes
    of_sum = {node: names.get(parts.root(number), "") for node, number in parts.number.items()}
    return Scopes(tuple(sorted(set(names.values()))), scopes_of_atom, of_sum)


class _Parts:
    """The parts of a model. A part is given by the number of one residual sum in it (see `root`)."""

    def __init__(self, flow: AxisQueries, sums: Mapping[Node, Residual]) -> None:
        self.flow, self.sums = flow, sums
        self.number = {node: k for k, node in enumerate(self.sums)}
        self.parent = list(range(len(self.sums)))
        self.feeds: set[tuple[int, int]] = set()
        self.above = self.downwards()
        self.below = self.upwards()

    def root(self, part: int) -> int:
        """The number that stands for a part."""
        while self.parent[part] != part:
            self.parent[part] = part = self.parent[self.parent[part]]
        return part

    def roots(self, parts: Iterable[int]) -> SubmodelNumbers:
        """The numbers that stand for several parts."""
        return frozenset(map(self.root, parts))

    def downwards(self) -> dict[Value, SubmodelNumbers]:
        """The parts that reach each value. Also joins sums to parts, and notes which part feeds which."""
        above: dict[Value, SubmodelNumbers] = {}
        for instance in self.flow.axes.instances:
            node = instance.node
            if node.has(SIZES):
                continue  # a size carries no data from part to part
            reached = self.roots(NONE.union(*(above.get(v, NONE) for v in node.operands)))
            if node in self.sums:
                base, own = self.sums[node].base, self.number[node]
                for part in above.get(base, NONE):
                    self.parent[self.root(part)] = self.root(own)
                self.feeds.update((part, own) for part in reached)
                reached = frozenset({own})
            above.update((out, reached) for out in node.outputs)
        return above

    def upwards(self) -> dict[Value, SubmodelNumbers]:
        """The parts that each value works for."""
        below: dict[Value, SubmodelNumbers] = {}
        for instance in reversed(self.flow.axes.instances):
            node = instance.node
            parts = NONE.union(*(below.get(o, NONE) for o in node.outputs))
            if node in self.sums:
                parts = frozenset({self.root(self.number[node])})
            elif not parts:
                parts = self.roots(NONE.union(*(self.above.get(o, NONE) for o in node.outputs)))
            for value in node.operands:
                below[value] = self.roots(below.get(value, NONE) | parts)
        return below

    def names(self) -> dict[int, str]:
        """The name of each part that has one."""
        parts = list(dict.fromkeys(self.root(k) for k in range(len(self.parent))))
        feeds = {(self.root(a), self.root(b)) for a, b in self.feeds}
        feeding = {a for a, b in feeds if a != b}
        fed = {b for a, b in feeds if a != b}
        names = {p: "encoder" for p in parts if p in feeding - fed}
        names |= {p: "decoder" for p in parts if p in fed - feeding}
        alone = [p for p in parts if p not in feeding | fed]
        if len(parts) > 1:
            names |= {p: f"tower {k}" for k, p in enumerate(alone)}
        return names

    def makers(self) -> Iterator[tuple[Value, SubmodelNumbers]]:
        """Yield the results of weights, and the tables, each with the parts that it works for."""
        for instance in self.flow.maps:
            out = instance.node.outputs[0]
            yield out, self.below.get(instance.node.inputs[self.flow.weight_of(instance) or 0] or out, NONE)
        for instance in self.flow.axes.instances:
            table = instance.node.input(0)
            if table in self.flow.parameters and "#" in (instance.line.inputs[0] or ()):
                yield table, self.below.get(table, NONE)
