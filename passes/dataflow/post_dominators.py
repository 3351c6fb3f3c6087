"""Post-dominators: the values and nodes that all data from a place must pass on its way to an output.

Needs: a graph, its data values, one output. Gives: `PostDominators`, the tree in which the parent of a vertex
(a value or a node) is its immediate post-dominator. The ancestors of a value are the places where one tensor
cuts the graph. Side inputs (masks, rotary tables, an encoder's output) are on other branches of the tree.

Source: Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm" (2001), which needs one pass on a
graph without cycles. Common ancestors are found by jump pointers (Myers, "An applicative random-access
stack", 1983).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from growc.ir.graph import Graph, Node, Value
from growc.passes.dataflow.reachability import users

DataVertex = Value | Node
Edge = tuple[Value, Node]


class PostDominators:
    """The tree below one output. `beside`: pairs (value, node) in which the node does not count as a user."""

    def __init__(
        self, graph: Graph, data: frozenset[Value], root: Value, beside: frozenset[Edge] = frozenset()
    ) -> None:
        self.root, self.data, self.beside = root, data, beside
        self.parent: dict[DataVertex, DataVertex] = {root: root}
        self._depth: dict[DataVertex, int] = {root: 0}
        self._jump: dict[DataVertex, DataVertex] = {root: root}
        self.nodes = self._grow(graph)

    def _grow(self, graph: Graph) -> list[Node]:
        """Add every vertex that reaches the root to the tree. Return the nodes among them, in order."""
        nodes: list[Node] = []
        for node in reversed(graph.nodes):
            for value in node.outputs:
                self._place(value)
            if self._hang(node, [v for v in node.outputs if v in self.parent]):
                nodes.append(node)
        for value in graph.values():
            if value not in self.parent:
                self._place(value)
        return nodes[::-1]

    def _place(self, value: Value) -> None:
        if value in self.data and value is not self.root:
            after = (n for n in users(value, self.data) if n in self.parent)
            self._hang(value, (n for n in after if (value, n) not in self.beside))

    def _hang(self, vertex: DataVertex, after: Iterable[DataVertex]) -> bool:
        parent: DataVertex | None = None
        for next_vertex in after:
            parent = next_vertex if parent is None else self.meet(parent, next_vertex)
        if parent is None:
            return False
        jump, depth = self._jump, self._depth
        two_jumps = jump[jump[parent]]
        even = depth[parent] - depth[jump[parent]] == depth[jump[parent]] - depth[two_jumps]
        self.parent[vertex], depth[vertex] = parent, depth[parent] + 1
        jump[vertex] = two_jumps if even else parent
        return True

    def meet(self, a: DataVertex, b: DataVertex) -> DataVertex:
        """The nearest common ancestor of two vertices."""
        parent, depth, jump = self.parent, self._depth, self._jump
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = jump[a] if depth[jump[a]] >= depth[b] else parent[a]
        while a is not b:
            if jump[a] is jump[b]:
                a, b = parent[a], parent[b]
            else:
                a, b = jump[a], jump[b]
        return a

    def way(self, vertex: DataVertex) -> Iterator[DataVertex]:
        """Yield a vertex and its ancestors, in order, up to the root."""
        yield vertex
        while vertex is not self.root:
            vertex = self.parent[vertex]
            yield vertex
