"""What becomes of the units that are taken out of an axis one by one (growc.passes.axes.unstacked_experts).

Needs: a simulated graph. Gives: for every such axis whose units have networks of their own, the values that
vanish with each unit, and the nodes that serve it alone; where units meet in anything but sums, a refusal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

from growc.algebra.space import Reason
from growc.ir.graph import Graph, Node, Value, Weight, static_values
from growc.ir.traits import SIZES, SUM, WRITE
from growc.ir.walk import walk
from growc.passes.axes.unstacked_experts import Apart, Units
from growc.passes.raising.experts import cut_singly, is_zero, multiplies, negates


def find_apart(graph: Graph) -> list[Apart]:
    """Every axis whose units have networks of their own, those that cannot change included."""
    order = {node: k for k, node in enumerate(graph.nodes)}
    static = static_values(graph)
    found = (
        _Tracing(graph, order, static, *place, cuts).found() for place, cuts in cut_singly(graph, static)
    )
    return [apart for apart in found if apart is not None]


class _Tracing:
    """What becomes of the units that are cut out of one axis."""

    def __init__(
        self,
        graph: Graph,
        order: Mapping[Node, int],
        static: Collection[Value],
        whole: Value,
        axis: int,
        cuts: Mapping[Node, tuple[int, ...]],
    ) -> None:
        self.order, self.static, self.whole, self.axis, self.cuts = order, static, whole, axis, cuts
        self.outputs = set(graph.outputs)
        self.every = frozenset(range((whole.sizes or ())[axis][0]))
        self.fates: dict[Value, Units] = {}
        self.refusal: Reason | None = None
        self.offsets: dict[int, int] = defaultdict(int)
        """How many constants are added to what each unit gives."""

    def found(self) -> Apart | None:
        """None where the units have no networks of their own."""
        for node, units in self.cuts.items():
            self.fates.update((out, frozenset({unit})) for out, unit in zip(node.outputs, units, strict=True))
        self.forward()
        if len({self.offsets[u] for units in self.cuts.values() for u in units}) > 1:
            self.refuse(next(iter(self.cuts)), "gives units of which not all have constants added to them")
        made = Apart(self.whole, self.axis, self.cuts, self.fates, self.backward(), self.refusal)
        taken = sorted({unit for units in self.cuts.values() for unit in units})
        behind = [self.matrices(made, unit) for unit in taken]
        own = [one - frozenset.intersection(*behind) for one in behind]
        alone = all(own) and len(frozenset.union(*own)) == sum(map(len, own))
        return made if alone else None

    def matrices(self, made: Apart, unit: int) -> frozenset[Weight | None]:
        """The matrices that serve one unit, and those next above what it is multiplied with."""
        found = {v.weight for v in made.networks.get(unit, ()) if v.rank > 1}
        nodes = {v.producer for v, units in self.fates.items() if units == {unit} and v.producer}
        beside = [v for node in nodes - set(self.cuts) for v in node.inputs if v and v not in self.fates]

        def above(value: Value) -> list[Value]:
            return [] if value.producer is None else [v for v in value.producer.inputs if v is not None]

        def weights(value: Value) -> set[Weight]:
            near = [value, *above(value)]
            return {w for v in near if self.constant(v) and v.rank > 1 and (w := stored(v))}

        for value in walk(beside, lambda v: () if weights(v) else above(v)):
            found |= weights(value)
        return frozenset(found)

    def forward(self) -> None:
        """Follow what the units give until it is all of them together, or more."""
        pending = {self.order[n]: n for n in self.users(list(self.fates))}
        waiting = list(pending)
        heapify(waiting)
        while waiting:
            node = pending[heappop(waiting)]
            units = self.fate(node)
            if units is None or self.every <= units:
                continue
            self.fates.update(dict.fromkeys(node.outputs, units))
            if not self.outputs.isdisjoint(node.outputs):
                self.refuse(node, "gives some of them out")
            for n in self.users(node.outputs):
                if self.order[n] not in pending:
                    pending[self.order[n]] = n
                    heappush(waiting, self.order[n])

    def refuse(self, node: Node, cause: str) -> Units | None:
        """Units cannot go; what a node makes of them is followed no further."""
        self.refusal = self.refusal or Reason(node, cause)
        return None

    @staticmethod
    def users(values: Sequence[Value]) -> Iterator[Node]:
        return (node for value in values for node, _ in value.users)

    def fate(self, node: Node) -> Units | None:
        """The units that a node's result vanishes with; None where it never does."""
        if node.has(SIZES):
            return None
        if any(v in self.fates for v in node.captured) or negates(node):
            return self.refuse(node, "makes something else of them")
        given = [self.fates.get(v) for v in node.inputs if v is not None]
        met = [units for units in given if units is not None]
        if node.has(SUM):
            return self.added(node, met)
        if node.has(WRITE):
            return self.written(node, met)
        if any(units != met[0] for units in met):
            return self.refuse(node, "joins what several of them give")
        beside = [v for v in node.inputs if v is not None and v not in self.fates and not self.constant(v)]
        if beside and not (multiplies(node) or (node.treatment == "select" and self.chosen(node))):
            return self.refuse(node, "joins them with something else")
        return met[0]

    def added(self, node: Node, met: Sequence[Units]) -> Units | None:
        """A sum vanishes with all of its terms. Constants belong to the one unit that they are added to."""
        others = [v for v in node.inputs if v is not None and v not in self.fates and not is_zero(v)]
        if all(map(self.constant, others)):
            units = frozenset().union(*met)
            if others and len(units) > 1:
                return self.refuse(node, "adds a constant to several of them")
            for unit in units if others else ():
                self.offsets[unit] += 1
            if len(node.inputs) - len(met) - len(others) or others:
                return units
        if any(v is not None and v.sizes != node.outputs[0].sizes for v in node.inputs):
            return self.refuse(node, "stretches what one of them gives")
        return None if others else frozenset().union(*met)

    def written(self, node: Node, met: Sequence[Units]) -> Units | None:
        """Into its first operand, which stays, a node writes what vanishes."""
        base = self.fates.get(node.required(0))
        writes = {
            units for v in node.inputs[1:] if v is not None and (units := self.fates.get(v)) is not None
        }
        if len(writes) > 1:
            return self.refuse(node, "joins what several of them give")
        return None if base is None else frozenset().union(*met)

    def chosen(self, node: Node) -> bool:
        """Whether a choice gives zero where there is nothing."""
        return all(v in self.fates or is_zero(v) for v in node.inputs[2:] if v is not None)

    def constant(self, value: Value) -> bool:
        return value in self.static or value.known is not None

    def backward(self) -> dict[Node, int]:
        """The nodes all of whose results are for one unit."""
        alone = {v: min(units) for v, units in self.fates.items() if len(units) == 1}
        owners: dict[Node, int] = {}
        pending = {self.order[v.producer]: v.producer for v in alone if v.producer}
        waiting = [-k for k in pending]
        heapify(waiting)
        while waiting:
            node = pending[-heappop(waiting)]
            wanted = {self.owner(v, alone, owners) for v in node.outputs if v.users or v in self.outputs}
            unit = wanted.pop() if len(wanted) == 1 else None
            if unit is None:
                continue
            owners[node] = unit
            above = {v.producer for v in node.operands if v.producer is not None} - set(self.cuts)
            for n in above:
                if self.order[n] not in pending:
                    pending[self.order[n]] = n
                    heappush(waiting, -self.order[n])
        return dict(sorted(owners.items(), key=lambda pair: self.order[pair[0]]))

    def owner(self, value: Value, alone: Mapping[Value, int], owners: Mapping[Node, int]) -> int | None:
        if value in alone or value in self.outputs:
            return alone.get(value)
        found = {owners.get(node) for node, _ in value.users}
        return found.pop() if len(found) == 1 else None


def stored(value: Value) -> Weight | None:
    """The stored tensor that a constant is, but for its layout."""
    weight = value.unmoved.weight
    return weight if weight is not None and weight.floating else None
