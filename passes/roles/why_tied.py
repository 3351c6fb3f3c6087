"""The reasons why axes are tied: paths in a networkx graph of axes.

A vertex is one axis of one tensor. An edge is an operator that makes two of them one space.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from growc.algebra.space import Reason, Space, atoms_of, find, leaves
from growc.ir.graph import Node, Value, readers
from growc.ir.notation import labels
from growc.passes.axes.infer import Axes
from growc.passes.axes.ties import Tie
from growc.passes.roles.name_axes import RoleAxis
from growc.system.delayed_imports import postponed

with postponed("networkx"):
    import networkx as nx

AxisVertex = tuple[Value, int]


@dataclass(frozen=True)
class TiePath:
    """The path that ties a weight axis to a space, from the nearest axis that is explained already.

    vertex: the weight axis. steps: the nodes (or ties) on the path; none for the first weight axis. start:
    the node (or tie) at which the path leaves an earlier path; None where it starts at the first weight.
    """

    vertex: AxisVertex
    steps: tuple[Node | Tie, ...] = ()
    start: Node | Tie | None = None


@dataclass(frozen=True)
class Frozen:
    """An axis of a weight that cannot be resized, with the node and the cause."""

    weight: str
    shape: tuple[int, ...]
    axis: int
    node: Node
    cause: str


def axis_graph(axes: Axes, ties: Sequence[Tie]) -> nx.Graph[AxisVertex]:
    """The graph of all axes of all tensors. Each edge has the node (or the tie) that is its reason."""
    graph: nx.Graph[AxisVertex] = nx.Graph()
    for instance in axes.instances:
        seen: dict[str, AxisVertex] = {}
        for value, axis, term in (*instance.reads(), *instance.makes()):
            for name in labels(term):
                vertex = (value, axis)
                if name in seen and seen[name] != vertex:
                    graph.add_edge(seen[name], vertex, reason=instance.node)
                seen.setdefault(name, vertex)
    for tie in ties:
        for use, turned in zip(tie.uses[1:], tie.turned[1:], strict=True):
            for axis in range(use.rank):
                other = use.rank - 1 - axis if turned else axis
                graph.add_edge((tie.uses[0], axis), (use, other), reason=tie)
    return graph


def bearers(axes: Axes, role: RoleAxis) -> list[AxisVertex]:
    """The weight axes in which the atoms of a named axis stand, in canonical order."""
    atoms = _atoms(role)
    return [(u, k) for u in axes.graph.uses() for k, s in enumerate(axes.of(u)) if _bears(s, atoms)]


def _atoms(role: RoleAxis) -> set[Space]:
    return {find(x) for x in atoms_of(role.spaces)}


def _bears(space: Space, atoms: set[Space]) -> bool:
    return any(find(x) in atoms for x in leaves(space))


def ways(axes: Axes, ties: Sequence[Tie], role: RoleAxis) -> list[TiePath]:
    """For every weight axis of a named axis, the path from the nearest point of an earlier path.

    A stored tensor that serves several uses is listed once.
    """
    weight_axes = bearers(axes, role)
    if not weight_axes:
        return []
    atoms = _atoms(role)
    all_axes = axis_graph(axes, ties)
    graph = all_axes.subgraph([(v, k) for v, k in all_axes if _bears(axes.of(v)[k], atoms)])
    tree = _tree(graph, weight_axes[0])
    arrived: dict[AxisVertex, Node | Tie | None] = {weight_axes[0]: None}
    way_by_place: dict[tuple[str, int], TiePath] = {}
    for vertex in weight_axes:
        steps: list[Node | Tie] = []
        current = vertex
        while current not in arrived and current in tree:
            before = tree[current]
            arrived[current] = reason = graph.edges[before, current]["reason"]
            steps.append(reason)
            current = before
        assert vertex[0].weight is not None
        way = TiePath(vertex, tuple(dict.fromkeys(steps[::-1])), arrived.get(current))
        way_by_place.setdefault((vertex[0].weight.name, vertex[1]), way)
    return list(way_by_place.values())


LENGTH_OF_A_TIE = 10**6
"""The length of a tie in steps: more than any path through operators has."""


def _tree(graph: nx.Graph[AxisVertex], root: AxisVertex) -> dict[AxisVertex, AxisVertex]:
    """For each vertex, the one before it on the shortest path from the root.

    A path takes a tie only where no operator leads on.
    """

    def length(u: AxisVertex, v: AxisVertex, edge: dict[str, object]) -> int:
        return LENGTH_OF_A_TIE if isinstance(edge["reason"], Tie) else 1

    if root not in graph:
        return {}
    before, _ = nx.dijkstra_predecessor_and_distance(graph, root, weight=length)
    return {vertex: predecessors[0] for vertex, predecessors in before.items() if predecessors}


def frozen_axes(axes: Axes) -> Iterator[Frozen]:
    """Yield the weight axes that cannot be resized although one might want to, each with its reason.

    Left out are axes that an input of the model fixes, and axes that the operator reading the weight fixes by
    its nature (the window of a convolution).
    """
    for use, axis, reason in axes.frozen():
        weight, node = use.weight, reason.node
        assert weight is not None
        if not weight.floating or weight.elements < 2 or not isinstance(node, Node):
            continue
        if node in readers(use) and axes.graph.dialect.knows(node.op):
            continue
        yield Frozen(weight.name, weight.shape, axis, node, reason.cause)


def way_to_reason(axes: Axes, space: Space, reason: Reason) -> list[Node]:
    """The operators from the first weight that has a frozen space to the node that froze it."""
    graph = axis_graph(axes, ())
    starts = bearers(axes, RoleAxis((space,)))
    ends = {(v, k) for v in operands(reason.node) for k in range(v.rank)}
    if not starts or starts[0] not in graph:
        return []
    reached = nx.single_source_shortest_path(graph, starts[0])
    ways = [reached[end] for end in ends if end in reached]
    if not ways:
        return []
    way = min(ways, key=len)
    nodes = (graph.edges[a, b]["reason"] for a, b in pairwise(way))
    return [n for n in dict.fromkeys(nodes) if isinstance(n, Node) and n is not reason.node]


def operands(node: object) -> Iterable[Value]:
    """The inputs and outputs of a node; nothing if `node` is not a Node."""
    return [*(v for v in node.inputs if v is not None), *node.outputs] if isinstance(node, Node) else []
