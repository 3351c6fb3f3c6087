"""Routing: numbers that a ranking of scores gives, and what they choose from (mixtures of experts).

Needs: a simulated graph. Gives: for every operator that ranks scores, or is told by such numbers where to
look, the axes that are numbered. Where the numbers of a ranking are only moved and looked up by, the units of
all these axes may change places together, or become fewer: the numbers follow. Where they do anything else
(they are given out, counted with, compared), nothing is found, and the axes stay as their operators have
them. Units of equal score are ranked by their places: of ties nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from growc.graph import Graph, Node, Value
from growc.operators import Axes, Line

RANKED = {"TopK": 1, "ArgMax": 0, "ArgMin": 0}
"""Operators that rank the units of an axis, and which of their results has the numbers."""

MOVING = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile", "Identity"})
"""Operators that give the numbers of their first operand on as they are."""

ROUTED = "u~"
"""The label of what is numbered (growc.operators)."""


@dataclass(frozen=True, eq=False)
class Stop:
    """An axis whose units a ranking numbers: of an operand, or of a result."""

    ranking: Node
    result: bool
    place: int
    axis: int


Routes = Mapping[Node, Sequence[Stop]]


def find_routes(graph: Graph, compared: Collection[Node] = ()) -> Routes:
    """The stops of every node, of all rankings whose numbers can be followed.

    `compared`: comparisons of numbers with constants, which follow them (growc.passes.apart).
    """
    found: dict[Node, list[Stop]] = {}
    outputs = set(graph.outputs)
    for node in graph.nodes:
        stops = _stops(node, outputs, compared) if node.op in RANKED else None
        for at, stop in stops or ():
            found.setdefault(at, []).append(stop)
    return found


def routed(line: Line, stops: Sequence[Stop]) -> Line:
    """A node's line, in which the axes that are numbered have the label ROUTED."""
    sides: tuple[list[Axes | None], list[Axes | None]] = (list(line.inputs), list(line.outputs))
    for stop in stops:
        side = sides[stop.result]
        terms = side[stop.place] if stop.place < len(side) else None
        if line.treatment == "opaque" or terms is None or terms[stop.axis] not in ("_", "#"):
            return line
        side[stop.place] = (*terms[: stop.axis], ROUTED, *terms[stop.axis + 1 :])
    return replace(line, inputs=tuple(sides[0]), outputs=tuple(sides[1]))


def fewest(ranking: Node) -> int:
    """How many units a ranking gives, which must be there; 1 where it cannot be told."""
    count = ranking.input(1)
    if ranking.op != "TopK":
        return 1
    if count is None or count.known is None:
        return int(ranking.attributes.get("k", 1))
    return max(int(k.reshape(-1)[0]) for k in count.known)


def numbers_of(value: Value) -> tuple[Node, int] | None:
    """The ranking that numbers are of, however moved, and the axis of the scores that it numbers."""
    while (node := value.producer) is not None and node.op not in RANKED:
        if not (node.op in MOVING or _is_whole(node)) or node.inputs[0] is None:
            return None
        value = node.inputs[0]
    ranks = node is not None and value in node.outputs[RANKED[node.op] :]
    return (node, axis) if node is not None and ranks and (axis := _ranked_axis(node)) is not None else None


def _ranked_axis(ranking: Node) -> int | None:
    scores = ranking.inputs[0]
    if scores is None or not scores.sizes:
        return None
    axis = int(ranking.attributes.get("axis", -1 if ranking.op == "TopK" else 0)) % scores.rank
    return axis if len(set(scores.sizes[axis])) == 1 else None


def _stops(ranking: Node, outputs: set[Value], compared: Collection[Node]) -> list[tuple[Node, Stop]] | None:
    """Every place where the numbers of a ranking mean units; None where they mean anything else."""
    axis = _ranked_axis(ranking)
    if axis is None:
        return None
    found = [(ranking, Stop(ranking, False, 0, axis))]
    place = RANKED[ranking.op]
    pending = list(ranking.outputs[place : place + 1])
    while pending:
        value = pending.pop()
        if value in outputs:
            return None
        for node, operand in value.users:
            if (node.op in MOVING and operand == 0) or _is_whole(node):
                pending += node.outputs
            elif node.op not in ("Shape", "Size") and node not in compared:
                stops = list(_numbered(ranking, node, operand))
                if not stops:
                    return None
                found += [(node, stop) for stop in stops]
    return found


def _is_whole(node: Node) -> bool:
    """Whether a node makes other integers of integers, which mean the same."""
    return node.op == "Cast" and int(node.attributes.get("to", 0)) in (6, 7)


def _numbered(ranking: Node, node: Node, operand: int) -> Iterator[Stop]:
    """The axes that a look-up by numbers means."""
    table, index = node.input(0), node.input(1)
    if node.op == "OneHot" and operand == 0:
        yield Stop(ranking, True, 0, int(node.attributes.get("axis", -1)) % node.outputs[0].rank)
    if operand != 1 or table is None or index is None or table.sizes is None or index.sizes is None:
        return
    axis = int(node.attributes.get("axis", 0)) % max(table.rank, 1)
    if node.op in ("Gather", "GatherElements"):
        yield Stop(ranking, False, 0, axis)
    elif node.op == "GatherND" and not node.attributes.get("batch_dims", 0) and set(index.sizes[-1]) == {1}:
        yield Stop(ranking, False, 0, 0)
    elif node.op == "ScatterElements" and node.attributes.get("reduction", "none") in ("none", "add"):
        yield Stop(ranking, False, 0, axis)
        yield Stop(ranking, True, 0, axis)
