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

import numpy as np

from growc.ir.graph import Graph, Node, Value
from growc.ir.notation import Axes, Line
from growc.ir.traits import JOIN, RANK, REPEAT, SAME, SIZES, TAKE, TURN, VIEW

WHOLE = ("int32", "int64")
"""Element types that hold every number of a unit."""

ROUTED = "u~"
"""The label of what is numbered (growc.ir.notation)."""


@dataclass(frozen=True, eq=False)
class Stop:
    """An axis whose units a ranking numbers: of an operand, or of a result."""

    ranking: Node
    result: bool
    place: int
    axis: int
    compared: bool = False
    """Whether it is the numbers of all units, with which others are compared."""


Routes = Mapping[Node, Sequence[Stop]]


def find_routes(graph: Graph, compared: Collection[Node] = ()) -> Routes:
    """The stops of every node, of all rankings whose numbers can be followed.

    `compared`: comparisons of numbers with constants, which follow them
    (growc.passes.axes.unstacked_experts).
    """
    numbers: dict[Node, dict[Value, None]] = {}
    for value, ranking in numbers_of_rankings(graph).items():
        numbers.setdefault(ranking, {})[value] = None
    found: dict[Node, list[Stop]] = {}
    for ranking, values in numbers.items():
        axis = ranked_axis(ranking)
        if axis is not None and values.keys().isdisjoint(graph.outputs):
            for at, stop in _stops(ranking, axis, values, compared) or ():
                found.setdefault(at, []).append(stop)
    return found


def routed(line: Line, stops: Sequence[Stop]) -> Line:
    """A node's line, in which the axes that are numbered have the label ROUTED."""
    sides: tuple[list[Axes | None], list[Axes | None]] = (list(line.inputs), list(line.outputs))
    for stop in stops:
        side = sides[stop.result]
        terms = side[stop.place] if stop.place < len(side) else None
        if line.treatment == "opaque" or terms is None:
            return line
        if terms[stop.axis] not in ("_", "#") and not stop.compared:
            return line
        side[stop.place] = (*terms[: stop.axis], ROUTED, *terms[stop.axis + 1 :])
    return replace(line, inputs=tuple(sides[0]), outputs=tuple(sides[1]))


def counting(node: Node) -> tuple[int, int] | None:
    """The operand of a comparison that is 0, 1, 2, … along the last of its axes, and which axis of the result
    that is.
    """
    for i, value in enumerate(node.inputs if node.laws.signs == {0} else ()):
        if value is None or value.known is None or value.rank != 1 or value.dtype != "int64":
            continue
        if all(k.size > 1 and bool((k == np.arange(k.size)).all()) for k in value.known):
            return i, node.outputs[0].rank - 1
    return None


def fewest(ranking: Node) -> int:
    """How many units a ranking gives, which must be there; 1 where it cannot be told."""
    count = ranking.input(1)
    if count is None or count.known is None:
        return ranking.integer("k", 1)
    return max(int(k.reshape(-1)[0]) for k in count.known)


def numbers_of_rankings(graph: Graph) -> dict[Value, Node]:
    """The values that are numbers from a ranking, however moved, each with its ranking."""
    found: dict[Value, Node] = {}
    for node in graph.nodes:
        if ranked_axis(node) is not None:
            found[node.outputs[-1]] = node
        given = [node.inputs[i] for i in node.taken] if _gives_on(node, 0) else []
        rankings = {None if v is None else found.get(v) for v in given}
        if len(rankings) == 1 and (ranking := rankings.pop()) is not None:
            found.update(dict.fromkeys(node.outputs, ranking))
    return found


def ranked_axis(ranking: Node) -> int | None:
    """The axis of its scores that a ranking numbers; None where it cannot be followed, or there is none."""
    scores = ranking.input(0)
    if not ranking.has(RANK) or scores is None or not scores.sizes:
        return None
    last = len(ranking.outputs) > 1  # those that give the elements too count from the last axis
    axis = ranking.integer("axis", -1 if last else 0) % scores.rank
    return axis if len(set(scores.sizes[axis])) == 1 else None


def _stops(
    ranking: Node, axis: int, numbers: Collection[Value], compared: Collection[Node]
) -> list[tuple[Node, Stop]] | None:
    """Every place where the numbers of a ranking mean units; None where they mean anything else."""
    found = [(ranking, Stop(ranking, False, 0, axis))]
    for node, operand in (user for value in numbers for user in value.users):
        moved = _gives_on(node, operand) and node.outputs[0] in numbers
        if not (moved or node.has(SIZES) or node in compared):
            stops = list(_numbered(ranking, node, operand))
            if not stops:
                return None
            found += [(node, stop) for stop in stops]
    return found


def _gives_on(node: Node, operand: int) -> bool:
    """Whether a node gives the numbers of an operand on, wherever it puts them."""
    if node.has(SAME):
        return node.outputs[0].dtype in WHOLE
    return node.has(JOIN) or (operand == 0 and node.has(VIEW, TURN, REPEAT, TAKE))


def _numbered(ranking: Node, node: Node, operand: int) -> Iterator[Stop]:
    """The axes that an operand numbers, if each of its elements is a number of these."""
    found = [one for one in node.addresses if one.operand == operand]
    if not any(one.end or one.column for one in found):
        yield from (Stop(ranking, one.result, 0, one.axis) for one in found)
    every, axis = counting(node), ranked_axis(ranking)
    if every is not None and axis is not None and every[0] != operand:
        scores, numbers, made = ranking.required(0).sizes, node.required(operand).sizes, node.outputs[0].sizes
        if scores and numbers and made and set(numbers[-1]) == {1} and made[-1] == scores[axis]:
            yield Stop(ranking, True, 0, every[1], compared=True)
