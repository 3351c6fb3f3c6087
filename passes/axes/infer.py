"""Inference of index spaces: one for each axis of each tensor, unified along every operator's line.

Needs: a simulated graph. Gives: `Axes`, the space of every axis of every value and the line of every live
node. A node whose results are all known at the sample points is shape arithmetic and constrains nothing.
Neither does a value of which only the shape is used.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from growc.algebra.space import (
    Reason,
    Space,
    address,
    atoms_of,
    choose,
    find,
    freeze,
    leaves,
    product,
    sum_of,
    unify,
)
from growc.errors.short_repr import brief
from growc.ir.graph import Graph, Node, Value, Weight
from growc.ir.notation import Line, Operand, Term, labels
from growc.ir.traits import SIZES
from growc.ir.walk import walk
from growc.passes.axes.routing import ROUTED, Routes, find_routes, routed
from growc.passes.axes.unstacked_experts import UnstackedExperts, one_by_one
from growc.passes.raising.experts import find_experts


@dataclass(eq=False)
class LineInstance:
    """A node's line with the space of each label."""

    __repr__ = brief

    node: Node
    line: Line
    spaces: dict[str, Space]

    def operands(self) -> Iterator[tuple[int, Value, int, Term]]:
        """The axes of the operands: (operand, its value, axis, term)."""
        for i, (value, terms) in enumerate(zip(self.node.inputs, self.line.inputs, strict=False)):
            if value is not None:
                yield from ((i, value, axis, term) for axis, term in enumerate(terms or ()))

    def reads(self) -> Iterator[tuple[Value, int, Term]]:
        """The axes of the operands: (value, axis, term)."""
        yield from (place[1:] for place in self.operands())

    def makes(self) -> Iterator[tuple[Value, int, Term]]:
        """The axes of the results: (result, axis, term)."""
        for value, terms in zip(self.node.outputs, self.line.outputs, strict=False):
            yield from ((value, axis, term) for axis, term in enumerate(terms or ()))

    def numbered(self) -> Iterator[tuple[int, Value, int]]:
        """The axes whose units the node addresses by number: (operand, its value, axis)."""
        yield from ((i, value, axis) for i, value, axis, term in self.operands() if term == "#")


@dataclass(frozen=True, eq=False)
class State:
    """A model input that takes what an output gave in the previous step, such as a cache.

    axes: the axes of both that change together.
    """

    __repr__ = brief

    past: Value
    present: Value
    axes: tuple[int, ...]


@dataclass(eq=False)
class Axes:
    """The axis graph: spaces by (value, axis), and the lines that tie them."""

    __repr__ = brief

    graph: Graph
    spaces: dict[Value, tuple[Space, ...]] = field(default_factory=dict)
    instances: list[LineInstance] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    routes: Routes = field(default_factory=dict)
    ranked: dict[Node, Space] = field(default_factory=dict)
    """The space that each ranking of scores chooses from."""
    experts: list[UnstackedExperts] = field(default_factory=list)
    """Axes whose units are taken one by one, including those that cannot change."""

    def of(self, value: Value) -> tuple[Space, ...]:
        """The space of each axis of a value; empty if its rank is unknown."""
        return self.spaces.get(value, ())

    @cached_property
    def cuts(self) -> dict[Node, int]:
        """The nodes that take single units out of an axis, or compare their numbers, each with the axis."""
        return {
            node: experts.axis for experts in self.experts if experts.refusal is None for node in experts.cuts
        }

    def taken_singly(self, space: Space) -> bool:
        """Whether the units of a space are taken one by one, each for a network of its own."""
        return any(find(self.of(experts.whole)[experts.axis]) is find(space) for experts in self.experts)

    @cached_property
    def used_often(self) -> frozenset[Weight]:
        """Stored tensors with several uses."""
        counts = Counter(use.weight for use in self.graph.uses())
        return frozenset(weight for weight, n in counts.items() if weight is not None and n > 1)

    @cached_property
    def asked(self) -> dict[Value, Value | None]:
        """Uses of stored tensors of which only the shape is read, each with another use of its tensor."""
        live = {i.node for i in self.instances}
        uses = list(self.graph.uses())
        others = {u.weight: u for u in reversed(uses) if not u.users or any(n in live for n, _ in u.users)}
        shape_only = (u for u in uses if u.users and not any(n in live for n, _ in u.users))
        return {use: others.get(use.weight) for use in shape_only}

    @cached_property
    def instances_by_atom(self) -> dict[Space, list[LineInstance]]:
        """The lines of the nodes that have an axis of each atom."""
        atoms = {value: set(atoms_of(spaces)) for value, spaces in self.spaces.items()}
        by_atom: dict[Space, list[LineInstance]] = defaultdict(list)
        for instance in self.instances:
            node = instance.node
            values = [v for v in (*node.inputs, *node.outputs) if v is not None]
            for atom in set[Space]().union(*(atoms.get(v, ()) for v in values)):
                by_atom[atom].append(instance)
        return by_atom

    def frozen(self) -> Iterator[tuple[Value, int, Reason]]:
        """Every frozen axis of a weight that is not a mere size, with its reason."""
        for use in self.graph.uses():
            for axis, space in enumerate(self.of(use)):
                for leaf in leaves(space):
                    reason = leaf.frozen
                    if reason is not None:
                        yield use, axis, reason


def infer_spaces(graph: Graph) -> Axes:
    """Build the axis graph of a simulated graph."""
    axes = Axes(graph, experts=find_experts(graph))
    axes.routes = find_routes(graph, axes.cuts)
    for value in graph.values():
        axes.spaces[value] = tuple(Space(s) for s in value.sizes or ())
    live = live_nodes(graph)
    for node in graph.nodes:
        if node in live:
            axes.instances.append(instantiate(axes, node))
    for use, other_use in axes.asked.items():
        for a, b in zip(axes.of(use), () if other_use is None else axes.of(other_use), strict=False):
            unify(a, b, use.users[0][0])
    axes.states = [_carried_on(axes, past, present) for past, present in graph.states]
    given_out = {v.weight for v in graph.outputs if v.weight is not None}
    for use in graph.uses():
        for space in axes.of(use) if use.weight in given_out else ():
            freeze(space, Reason(None, f"the model gives out what `{use.name}` stores"))
    follow = {(v, k) for s in axes.states for v in (s.past, s.present) for k in s.axes}
    for value in graph.inputs:
        for k, space in enumerate(axes.of(value)):
            if (value, k) not in follow:
                freeze(space, _fed(value))
    for value in graph.outputs:
        for k, space in enumerate(axes.of(value)):
            if (value, k) not in follow:
                address(space, Reason(None, f"it is an axis of the model's output `{value.name}`"))
    return axes


def _fed(value: Value) -> Reason:
    """The reason that freezes an axis of an input: the caller decides its size."""
    remedy = f"export the model together with what makes `{value.name}`, and its axes can change"
    if value.floating:
        remedy += "; those of a cache do where the model gives out what is to be fed at the next step"
    return Reason(None, f"it is an axis of the model's input `{value.name}`", remedy)


def _carried_on(axes: Axes, past: Value, present: Value) -> State:
    """Unify the axes of a state with those of the output that carries it on, unless their sizes differ or
    depend on inputs.
    """
    before, after = axes.of(past), axes.of(present)
    if len(before) != len(after):
        return State(past, present, ())
    same = [k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a.static and a.size == b.size]
    for k in same:
        unify(before[k], after[k], None)
    return State(past, present, tuple(same))


def live_nodes(graph: Graph) -> set[Node]:
    """Nodes whose results reach an output as values that sizes do not decide.

    That includes values that decide lengths from data, even if nothing but a shape is read of the result: a
    count of nonzero elements, or the condition of a loop.
    """

    def deciding(node: Node) -> list[Value]:
        return [v for v in node.operands if _decides_length(v, node, graph)]

    def needs(place: tuple[Value, bool]) -> Iterator[tuple[Value, bool]]:
        node, read = place[0].producer, place[1]
        if node is not None:
            for v in node.operands:
                yield v, not node.has(SIZES) if read else _decides_length(v, node, graph)

    live: set[Node] = set()
    for value, read in walk(((v, True) for v in graph.outputs), needs):
        node = value.producer
        if node is not None and any(v.known is None for v in (node.outputs if read else deciding(node))):
            live.add(node)
    return live


def _decides_length(operand: Value, node: Node, graph: Graph) -> bool:
    """Whether the numbers of an operand, and not its sizes alone, may decide the length of a result."""
    known = graph.dialect.knows(node.op) and not node.captured
    scales = None if node.laws.scales is None else node.input(node.laws.scales)
    return not node.has(SIZES) and (not known or not operand.floating or operand is scales)


MANY = 7919
"""The size of counted units at an additional sample point, chosen large to tell it from other sizes."""


def operands_of(
    node: Node, spaces: Callable[[Value], Sequence[Space]] | None = None
) -> tuple[list[Operand | None], list[Operand]]:
    """The operands and results of a node as its rule sees them.

    With `spaces`, they have one more sample point, at which counted units are MANY.
    """

    def operand(value: Value) -> Operand:
        if spaces is None or value.sizes is None:
            return Operand(value.sizes, value.known)
        sizes = tuple((*n, _many(s)) for n, s in zip(value.sizes, spaces(value), strict=True))
        return Operand(sizes, None if value.known is None else (*value.known, value.known[-1]))

    return [None if v is None else operand(v) for v in node.inputs], [operand(v) for v in node.outputs]


def _many(space: Space) -> int:
    space = find(space)
    if space.kind == "atom":
        return MANY if space.counts else space.size[-1]
    sizes = [_many(p) for p in space.parts]
    return math.prod(sizes) if space.kind == "product" else sum(sizes)


def instantiate(axes: Axes, node: Node, *, counted: bool = False, line: Line | None = None) -> LineInstance:
    """Unify the labels of a node's line with the axes of its values.

    line: the line to use; None takes the one of the operator's row.
    counted: whether to infer the line at the additional sample point of MANY units.
    """
    dialect = axes.graph.dialect
    known, (inputs, outputs) = dialect.knows(node.op), operands_of(node, axes.of if counted else None)
    if line is None:
        line = dialect.line(node, inputs, outputs)
        line = routed(line, axes.routes.get(node, ())) if known else line
        if node in axes.cuts and not node.laws.signs:
            line = one_by_one(line, axes.cuts[node])
    by_label: dict[str, Space] = {}
    pairs = [*zip(node.inputs, line.inputs, strict=False), *zip(node.outputs, line.outputs, strict=False)]
    places = [
        (space, term)
        for value, terms in pairs
        if value is not None and terms is not None
        for space, term in zip(axes.of(value), terms, strict=True)
    ]
    for space, term in places:
        names = labels(term) if isinstance(term, str) else ()
        if names and names[0] not in by_label:
            by_label[names[0]] = Space(space.size, counts=find(space).counts)
    for name, size in line.sizes.items():
        size = size[:-1] if counted else size
        several = counted and line.sizes[name][-1] == MANY
        by_label.setdefault(name, Space(size, counts=several or name in line.counted))
    for label, alias in line.alike:
        unify(by_label[label], by_label[alias], node)
    blind = any(o is not None and o.sizes is None for o in [*inputs, *outputs])
    cause = f"{node.kind} reads this axis as a whole" if known else f"the operator {node.kind} is not known"
    if line.because:
        cause = f"{node.kind} {line.because}"
    if blind and known:
        cause = "the shapes here cannot be found: a node in front of it is not known"
    if line.treatment in ("lookup", "layout") and node in axes.routes:
        cause = f"{node.kind} takes of it what a ranking chose"
    reason = Reason(node, cause)
    for space, term in places:
        _place(space, term, by_label, node, reason)
    for stop in axes.routes.get(node, ()) if ROUTED.rstrip("~") in by_label else ():
        units = by_label[ROUTED.rstrip("~")]
        unify(axes.ranked.setdefault(stop.ranking, Space(units.size)), units, node)
    for value in node.captured:
        for space in axes.of(value):
            freeze(space, Reason(node, f"the body of {node.kind} reads it"))
    return LineInstance(node, line, by_label)


def _place(space: Space, term: Term, spaces: dict[str, Space], node: Node, opaque_here: Reason) -> None:
    if term == "_":
        freeze(space, opaque_here)
    elif term == "#":
        address(space, Reason(node, f"{node.kind} addresses it by number"))
    elif term != "1":
        unify(space, space_of(term, spaces), node)
        if isinstance(term, str) and term.endswith("~"):
            choose(space, opaque_here)
        for name in _frozen_labels(term):
            freeze(spaces[name], Reason(node, f"{node.kind} takes it with a stride"))


@cache
def _frozen_labels(term: Term) -> tuple[str, ...]:
    if isinstance(term, str):
        return (term.rstrip("!"),) if term.endswith("!") else ()
    return tuple(name for part in term[1] for name in _frozen_labels(part))


def space_of(term: Term, spaces: dict[str, Space]) -> Space:
    """The space that a term of a line describes."""
    if isinstance(term, str):
        return find(spaces[term.rstrip("!~")])
    kind, parts = term
    inner = [space_of(p, spaces) for p in parts if p != "1"]
    return product(inner) if kind == "*" else sum_of(inner)
