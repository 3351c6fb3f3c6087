"""Why axes are tied: the axis graph of networkx, and paths in it.

A vertex is one axis of one tensor; an edge is an operator that makes two of them one index space.
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
from growc.system.postponed import postponed

with postponed("networkx"):
    import networkx as nx

Vertex = tuple[Value, int]


@dataclass(frozen=True)
class Way:
    """How a weight axis comes to be in a space: the operators from a place that was explained before.

    vertex: the weight axis; steps: nodes (or ties) on the way, none for the first; start: where the way
    leaves what was explained: a node, or None where it leaves the first weight itself.
    """

    vertex: Vertex
    steps: tuple[Node | Tie, ...] = ()
    start: Node | Tie | None = None


@dataclass(frozen=True)
class Frozen:
    """An axis of a weight that cannot be resized, and why."""

    weight: str
    shape: tuple[int, ...]
    axis: int
    node: Node
    cause: str


def axis_graph(axes: Axes, ties: Sequence[Tie]) -> nx.Graph[Vertex]:
    """All axes of all tensors; each edge has the node (or the tie) that is its reason."""
    graph: nx.Graph[Vertex] = nx.Graph()
    for instance in axes.instances:
        seen: dict[str, Vertex] = {}
        for value, axis, term in (*instance.reads(), *instance.makes()):
            for name in labels(term):
                here = (value, axis)
                if name in seen and seen[name] != here:
                    graph.add_edge(seen[name], here, reason=instance.node)
                seen.setdefault(name, here)
    for tie in ties:
        for use, turned in zip(tie.uses[1:], tie.turned[1:], strict=True):
            for axis in range(use.rank):
                other = use.rank - 1 - axis if turned else axis
                graph.add_edge((tie.uses[0], axis), (use, other), reason=tie)
    return graph


def bearers(axes: Axes, role: RoleAxis) -> list[Vertex]:
    """The weight axes in which the atoms of a named axis stand, in canonical order."""
    atoms = _atoms(role)
    return [(u, k) for u in axes.graph.uses() for k, s in enumerate(axes.of(u)) if _bears(s, atoms)]


def _atoms(role: RoleAxis) -> set[Space]:
    return {find(x) for x in atoms_of(role.spaces)}


def _bears(space: Space, atoms: set[Space]) -> bool:
    return any(find(x) in atoms for x in leaves(space))


def ways(axes: Axes, ties: Sequence[Tie], role: RoleAxis) -> list[Way]:
    """For every weight axis of a space: the operators from the nearest place on an earlier way.

    A stored tensor that serves several uses is listed once.
    """
    wanted = bearers(axes, role)
    if not wanted:
        return []
    atoms = _atoms(role)
    whole = axis_graph(axes, ties)
    graph = whole.subgraph([(v, k) for v, k in whole if _bears(axes.of(v)[k], atoms)])
    tree = _tree(graph, wanted[0])
    arrived: dict[Vertex, Node | Tie | None] = {wanted[0]: None}
    found: dict[tuple[str, int], Way] = {}
    for vertex in wanted:
        steps: list[Node | Tie] = []
        at = vertex
        while at not in arrived and at in tree:
            before = tree[at]
            arrived[at] = reason = graph.edges[before, at]["reason"]
            steps.append(reason)
            at = before
        assert vertex[0].weight is not None
        way = Way(vertex, tuple(dict.fromkeys(steps[::-1])), arrived.get(at))
        found.setdefault((vertex[0].weight.name, vertex[1]), way)
    return list(found.values())


def _tree(graph: nx.Graph[Vertex], root: Vertex) -> dict[Vertex, Vertex]:
    """The vertex before each on the shortest way from the root; ties only where nothing else leads on."""

    def length(u: Vertex, v: Vertex, edge: dict[str, object]) -> int:
        return 10**6 if isinstance(edge["reason"], Tie) else 1

    if root not in graph:
        return {}
    before, _ = nx.dijkstra_predecessor_and_distance(graph, root, weight=length)
    return {vertex: found[0] for vertex, found in before.items() if found}


def frozen_axes(axes: Axes) -> Iterator[Frozen]:
    """Weight axes that cannot be resized though one might want to, each with its reason.

    What the outside fixes (axes of inputs) and what is fixed by the nature of the operator that reads the
    weight (the window of a convolution) is no news and left out.
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
    """The operators from the first weight that bears a frozen space to the node that froze it."""
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
    """What a node reads and gives; nothing for what is no node."""
    return [*(v for v in node.inputs if v is not None), *node.outputs] if isinstance(node, Node) else []
