"""Why axes are tied: the axis graph of networkx, and paths in it.

A vertex is one axis of one tensor; an edge is an operator that makes two of them one index space.
"""

from __future__ import annotations

from typing import Any

import networkx as nx

from growc.axes import Space, find, leaves
from growc.graph import Value
from growc.operators import labels
from growc.passes.roles import RoleAxis
from growc.passes.spaces import Axes
from growc.passes.ties import Tie

Vertex = tuple[Value, int]


def axis_graph(axes: Axes, ties: list[Tie]) -> nx.Graph[Any]:
    """All axes of all tensors; each edge has the node (or the tie) that is its reason."""
    graph: nx.Graph[Any] = nx.Graph()
    for instance in axes.instances:
        node, line = instance.node, instance.line
        seen: dict[str, Vertex] = {}
        for values, terms in ((node.inputs, line.inputs), (node.outputs, line.outputs)):
            for value, row in zip(values, terms, strict=False):
                for axis, term in enumerate(row or ()):
                    for name in labels(term):
                        assert value is not None
                        here = (value, axis)
                        if name in seen and seen[name] != here:
                            graph.add_edge(seen[name], here, reason=node)
                        seen.setdefault(name, here)
    for tie in ties:
        for use, turned in zip(tie.uses[1:], tie.turned[1:], strict=True):
            for axis in range(use.rank):
                other = use.rank - 1 - axis if turned else axis
                graph.add_edge((tie.uses[0], axis), (use, other), reason=tie)
    return graph


def bearers(axes: Axes, role: RoleAxis) -> list[Vertex]:
    """The weight axes in which the atoms of a named axis stand, in canonical order."""
    atoms = {id(x) for s in role.spaces for x in leaves(s)}

    def bears(space: Space) -> bool:
        return any(id(find(x)) in atoms for x in leaves(space))

    return [(u, k) for u in axes.graph.uses() for k, s in enumerate(axes.of(u)) if bears(s)]


def paths(axes: Axes, ties: list[Tie], role: RoleAxis) -> list[tuple[str, list[str]]]:
    """For every weight axis of a space: its place, and the operators on the way from the nearest one before it."""
    graph = axis_graph(axes, ties)
    wanted = bearers(axes, role)
    found: list[tuple[str, list[str]]] = []
    if not wanted:
        return found
    tree = nx.bfs_tree(graph, wanted[0]) if wanted[0] in graph else nx.DiGraph()
    listed: set[Vertex] = set()
    for vertex in wanted:
        way: list[str] = []
        at = vertex
        while at in tree and (before := next(iter(tree.predecessors(at)), None)) is not None:
            way.append(_reason(graph.edges[before, at]["reason"]))
            at = before
            if at in listed:
                break
        listed.add(vertex)
        found.append((_place(vertex), list(dict.fromkeys(way[::-1]))))
    return list({place: (place, way) for place, way in reversed(found)}.values())[::-1]


def _place(vertex: Vertex) -> str:
    value, axis = vertex
    assert value.weight is not None
    return f"axis {axis} of {value.weight.name} {list(value.weight.shape)}"


def _reason(reason: Any) -> str:
    if isinstance(reason, Tie):
        return "the tie of embedding and head" if reason.is_head else "a tie"
    return f"{reason.op} {reason.name}".strip()
