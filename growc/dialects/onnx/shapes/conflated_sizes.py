"""Nodes that make one size of several, by strides or bounds: sizes may agree at the sample points only.

Needs: a graph and its simulation at the sample points. Gives: `merging_nodes`, these nodes; `behind`, the
values that depend on them; `merging_numbers`, nodes whose results further points may tell apart. A number of
these values may be no constant, even if it is the same at all points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.ir.graph import Graph, Node, Value
from growc.ir.traits import REPEAT, SIZES, TAKE, TURN, VIEW
from growc.ir.walk import walk

ELSEWHERE = VIEW, TURN, REPEAT, TAKE
"""Traits of operators whose results are elements of operand 0, at other places."""


def merging_nodes(graph: Graph, simulation: Simulation) -> list[Node]:
    """Return the nodes that make one size, or one integer, of several."""
    return [node for node in graph.nodes if merges_sizes(node, simulation)]


def behind(nodes: Iterable[Node]) -> frozenset[Value]:
    """Return the results of nodes, and all values that depend on them."""
    reached = walk(nodes, lambda node: (user for out in node.outputs for user, _ in out.users))
    return frozenset(out for node in reached for out in node.outputs)


def merges_sizes(node: Node, simulation: Simulation) -> bool:
    """Whether a node makes one size, or one integer, of several."""
    return _merges_sizes(node, simulation) or _merges_numbers(node, simulation)


def _merges_sizes(node: Node, simulation: Simulation) -> bool:
    """Whether a node makes one size of several, as strides may.

    This does not count if axes change places, or if another operand varies, which may have the axis instead.
    """
    first, *others = (simulation.sizes.get(v) or () if v is not None else () for v in node.inputs or (None,))
    result = simulation.sizes.get(node.outputs[0]) or ()
    if node.has(VIEW, TURN, SIZES) or len(first) != len(result) or any(map(varies, chain(*others))):
        return False
    return any(varies(before) and not varies(after) for before, after in zip(first, result, strict=True))


def _merges_numbers(node: Node, simulation: Simulation) -> bool:
    """Whether a node makes one integer of several, element by element."""
    operand = node.input(0)
    before = None if operand is None else simulation.known.get(operand)
    after = simulation.known.get(node.outputs[0])
    if before is None or after is None or before[0].size != after[0].size or after[0].dtype.kind != "i":
        return False
    return _same(after) and not _same(before)


def merging_numbers(graph: Graph, simulation: Simulation) -> list[Node]:
    """Return the nodes whose results show less than their operands at the sample points.

    Such a node makes the same numbers at all points of numbers that differ between the points, or those of
    one of several operands that are computed. Nodes that move elements may choose a fixed one of a list of
    sizes; they count only if the places differ.
    """
    known = simulation.known

    def merges(node: Node) -> bool:
        after = known.get(node.outputs[0])
        given = [known[v] for v in node.inputs[node.has(*ELSEWHERE) :] if v is not None and v in known]
        if after is None or all(map(_same, given)):
            return False
        computed = [known[v] for v in node.inputs if v is not None and v in known and v.weight is None]
        numbers = [arrays for arrays in computed if arrays[0].dtype.kind in "iuf"]
        return _same(after) or (len(numbers) > 1 and any(_equal(after, arrays) for arrays in numbers))

    return [node for node in graph.nodes if merges(node)]


def varies(size: Size) -> bool:
    """Whether a size differs between sample points."""
    return len(set(size)) > 1


def _equal(some: Sequence[Array], others: Sequence[Array]) -> bool:
    return all(map(np.array_equal, some, others))


def _same(arrays: Sequence[Array]) -> bool:
    return all(np.array_equal(array, arrays[0]) for array in arrays)
