"""Bypasses: places of a stream where a value goes around a branch and is added to it.

Needs: the axis graph (treatments of nodes), data values, the tree of post-dominators. Gives: `Bypass`es, each
with a token, and `stretches` of consecutive bypasses on one stream.

A value starts a bypass if the next vertex that all of it must pass is a sum. It must reach that sum
untouched, except for casts, layout and constant factors. The other way to the sum must bear parameters, or
make elements of several elements, as a Fourier transform does. The cube in an approximated GELU does neither.
A token is coarse: the shapes of the matrices inside, and whether they work on the stream. So a first layer
without a norm, or every fourth without rotation, still equals the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from growc.algebra.space import Space, find, leaves
from growc.ir.graph import Node, Value
from growc.ir.notation import FACTORS, names_of
from growc.ir.traits import DEQUANTISE, QUANTISE, SAME, SUM, TURN, VIEW
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes
from growc.passes.dataflow.post_dominators import PostDominators
from growc.passes.dataflow.reachability import users

Token = tuple[tuple[tuple[int, ...], bool], ...]
"""The shapes of the matrices of a bypass, each with whether it works on the stream."""
UNTOUCHED = (SAME, VIEW, TURN, QUANTISE, DEQUANTISE)
"""Traits of operators that leave a stream as it is, except that they may round or move it."""
MATRICES = frozenset({"contract", "lookup", "recurrent"})
"""Treatments of operators that multiply with matrices or look up in them."""
MIXING = frozenset({"attention", "recurrent", "opaque"})
"""Treatments of operators that may make positions depend on each other."""
ALONE = ("pointwise", "add", "multiply", "divide", "remainder", "select", "layout", "per_channel")
"""Prefixes of treatments that make each element from one element of an operand."""


@dataclass(eq=False)
class Bypass:
    """A path from `start` around a branch to `sum`.

    nodes: the nodes of the branch, and side nodes that only they use.
    works: whether the branch is more than a function of each element.
    mixes: whether the branch makes positions depend on each other.
    """

    start: Value
    sum: Node
    nodes: list[Node] = field(default_factory=list, repr=False)
    token: Token = ()
    works: bool = False
    mixes: bool = False
    reads: frozenset[int] = frozenset()
    """The axes of the stream that the branch's matrices read."""

    @property
    def end(self) -> Value:
        """The sum as a value."""
        return self.sum.outputs[0]

    @property
    def coarse(self) -> tuple[object, ...]:
        """A token for layers whose widths differ: the ranks instead of the shapes."""
        return (self.mixes, self.reads, *((len(shape), on) for shape, on in self.token))


class Streams:
    """The bypasses below one output."""

    def __init__(self, axes: Axes, data: frozenset[Value], tree: PostDominators) -> None:
        self.data, self.tree = data, tree
        self.static = axes.graph.static - data
        self.axes = axes
        self.instances = {i.node: i for i in axes.instances}
        self.treatment = {i.node: i.line.treatment for i in axes.instances}
        self.order = {n: k for k, n in enumerate(axes.graph.nodes)}
        self.between: dict[Value, list[Node]] = {}
        candidates = list(self.candidates())
        self.describe(candidates)
        self.bypasses = self.outermost([b for b in candidates if b.works])
        if len(self.bypasses) < len(candidates):
            self.describe(self.bypasses)

    def candidates(self) -> Iterator[Bypass]:
        """Values that reach their next vertex untouched, which is a sum."""
        for vertex, parent in reversed(self.tree.parent.items()):
            if isinstance(vertex, Value) and isinstance(parent, Node) and parent.has(SUM):
                reading = [n for n in users(vertex, self.data) if n in self.tree.parent]
                if len(reading) > 1 and self.reaches(vertex, parent):
                    yield Bypass(vertex, parent)

    def reaches(self, value: Value, goal: Node) -> bool:
        """Whether a value arrives at a sum untouched."""

        def kept(unchanged: Value) -> Iterator[Value]:
            yield from (v for n in users(unchanged, self.data) if self.keeps(n) for v in n.outputs)

        return any(goal in users(one, self.data) for one in walk([value], kept))

    def keeps(self, node: Node) -> bool:
        """Whether the result of a node is still the stream that it reads."""
        if node.treatment in FACTORS:
            return any(v in self.static or v.known is not None for v in node.operands)
        data = sum(v in self.data for v in node.operands)
        return node.has(*UNTOUCHED) or (node.has(SUM) and data > 1)

    def outermost(self, bypasses: list[Bypass]) -> list[Bypass]:
        """The bypasses that do not lie on the branch of another one."""
        starts, sums = {b.start: b for b in bypasses}, {b.sum: b for b in bypasses}
        inner: set[Bypass] = set()
        for bypass in reversed(bypasses):
            for vertex in self.tree.way(bypass.end):
                after = starts.get(vertex) if isinstance(vertex, Value) else None
                outer = sums.get(vertex) if isinstance(vertex, Node) else None
                if after in inner or (outer is not None and self.comes_from(bypass.start, outer.start)):
                    inner.add(bypass)
                if after is not None or outer is not None:
                    break
        return [b for b in bypasses if b not in inner]

    def comes_from(self, value: Value, source: Value) -> bool:
        """Whether a value is made from another one."""
        first = -1 if source.producer is None else self.order[source.producer]

        def above(result: Value) -> Iterator[Value]:
            if result.producer is not None and self.order[result.producer] > first:
                yield from (v for v in result.producer.operands if v in self.data)

        return source in walk([value], above)

    # ---------------------------------------------------------------- what a bypass holds

    def describe(self, bypasses: list[Bypass]) -> None:
        """Fill in the nodes and tokens of bypasses, and the fields that follow from them."""
        for bypass in bypasses:
            bypass.nodes = []
        self.between = {b.start: [] for b in bypasses}
        owners = self.owners(bypasses)
        for node in self.tree.nodes:
            owner = owners.get(node)
            if isinstance(owner, Bypass):
                owner.nodes.append(node)
            elif isinstance(owner, Value):
                self.between[owner].append(node)
        for bypass in bypasses:
            bypass.token = self.token(bypass)
            bypass.works = any(self.working(n) for n in bypass.nodes)
            products = (n for n in bypass.nodes if self.treatment.get(n) == "contract" and self.matrices(n))
            summed = set().union(*map(self.summed, products))
            axes = enumerate(self.axes.of(bypass.start))
            bypass.reads = frozenset(k for k, space in axes if not summed.isdisjoint(atoms([space])))
            places = [s for k, s in enumerate(self.axes.of(bypass.start)) if k not in bypass.reads]
            positions = atoms(places)
            bypass.mixes = any(self.mixing(n, positions) for n in bypass.nodes)

    def owners(self, bypasses: list[Bypass]) -> Mapping[Node, object]:
        """For each node, the bypass or the start of a bypass that all its results lead to; None if they lead
        to several.
        """
        sums = {b.sum: b for b in bypasses}
        starts: dict[Value, object] = {b.start: b.start for b in bypasses}
        owners: dict[Node, object] = {}
        for node in reversed(self.tree.nodes):
            owner: object = sums.get(node) or next((starts[v] for v in node.outputs if v in starts), None)
            if owner is None:
                after = {owners.get(n) for v in node.outputs for n in users(v, self.data) if n in owners}
                owner = after.pop() if len(after) == 1 else None
            owners[node] = owner
        return owners

    def token(self, bypass: Bypass) -> Token:
        """The shapes of the matrices of a bypass, sorted, each with whether it works on the stream."""
        stream = {bypass.start}
        shapes = []
        for node in bypass.nodes:
            on = any(v in stream for v in node.operands)
            stream.update(node.outputs if on else ())
            shapes += [(shape_of(v), on) for v in self.matrices(node)]
        return tuple(sorted(shapes))

    def working(self, node: Node) -> bool:
        """Whether a branch with this node is more than a function of each element."""
        elementwise = self.treatment.get(node, "opaque").startswith(ALONE) and not node.laws.mixes
        return not elementwise or any(self.bears(v) for v in node.operands)

    def bears(self, value: Value) -> bool:
        """Whether a value is a parameter with an element for each unit."""
        return value in self.static and value.floating and prod(shape_of(value)) > 1

    def summed(self, node: Node) -> set[Space]:
        """The atoms over which a product sums."""
        instance = self.instances[node]
        output_names = set(names_of(instance.line.outputs[0]))
        names = [n for terms in instance.line.inputs for n in names_of(terms) if n not in output_names]
        return atoms(instance.spaces[n] for n in names)

    def mixing(self, node: Node, positions: set[Space]) -> bool:
        """Whether a node makes positions of the stream depend on each other."""
        treatment = self.treatment.get(node)
        if treatment == "contract":
            statics = [v for v in node.operands if v in self.static]
            window = any(v.rank > 2 and max(shape_of(v)[2:]) > 1 for v in statics)
            return bool(self.summed(node) & positions) if not statics else window
        return treatment in MIXING or node.laws.mixes

    # ---------------------------------------------------------------- streams

    def chain(self) -> list[Bypass]:
        """For a model without bypasses: the matrix products, without convolutions, that all data passes."""
        inputs = [v for v in self.axes.graph.inputs if v in self.tree.parent]
        ways = [list(self.tree.way(v)) for v in inputs]
        longest = max(ways, key=len, default=[])
        links = []
        for before, node in pairwise(longest):
            instance = self.instances.get(node) if isinstance(node, Node) else None
            plain = (
                instance is not None and instance.line.treatment == "contract" and not instance.line.slides
            )
            if plain and isinstance(before, Value) and isinstance(node, Node) and self.matrices(node):
                link = Bypass(before, node, [node])
                link.token = self.token(link)
                links.append(link)
        return links

    def stretches(self) -> list[list[Bypass]]:
        """Sequences of consecutive bypasses with only norms and similar operators between them."""
        by_start = {b.start: b for b in self.bypasses}
        following = {b: self.following(b, by_start) for b in self.bypasses}
        before: dict[Bypass, list[Bypass]] = {b: [] for b in self.bypasses}
        for bypass, after in following.items():
            if after is not None:
                before[after].append(bypass)
        stretches: list[list[Bypass]] = []
        for bypass in self.bypasses:
            if len(before[bypass]) == 1:
                continue
            stretch: list[Bypass] = []
            after = bypass
            while after is not None and (after is bypass or len(before[after]) == 1):
                stretch.append(after)
                after = following[after]
            stretches.append(stretch)
        return stretches

    def following(self, bypass: Bypass, by_start: Mapping[Value, Bypass]) -> Bypass | None:
        """The bypass that starts next on the same stream."""
        for vertex in self.tree.way(bypass.end):
            if isinstance(vertex, Value) and vertex in by_start:
                same_size = elements(vertex) == elements(bypass.start)
                return by_start[vertex] if same_size and not self.worked_on(bypass.end, vertex) else None
            if isinstance(vertex, Node) and self.matrices(vertex):
                return None
        return None

    def worked_on(self, value: Value, start: Value) -> bool:
        """Whether a product with a matrix lies between a value and the start of a bypass."""
        stream = {value}
        for node in self.between[start]:
            if any(v in stream for v in node.operands):
                if self.matrices(node):
                    return True
                stream.update(node.outputs)
        return False

    def matrices(self, node: Node) -> list[Value]:
        """The matrices that a node works with."""
        works = self.treatment.get(node) in MATRICES
        return [v for v in node.operands if v in self.static and v.rank >= 2] if works else []


def atoms(spaces: Iterable[Space]) -> set[Space]:
    """The representatives of spaces and their leaves; a sum whose places are separate has no leaves."""
    return {x for s in spaces for x in (find(s), *leaves(s))}


def shape_of(value: Value) -> tuple[int, ...]:
    """The sizes of a value at the first sample point."""
    return tuple(s[0] for s in value.sizes or ())


def elements(value: Value) -> tuple[int, ...]:
    """The number of elements of a value at each sample point."""
    return tuple(prod(sizes) for sizes in zip(*(value.sizes or ((1,),)), strict=True))
