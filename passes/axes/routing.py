"""Routing in mixtures of experts: the unit numbers that a ranking of scores gives, and the axes they number.

Needs: a simulated graph. Gives: for every operator that ranks scores, or that such numbers address, the
numbered axes. If the numbers of a ranking are only moved and used for look-ups, the units of all these axes
may change places together, or become fewer: the numbers follow. Numbers with any other use (given out,
calculated with, compared) give no routes, and the axes stay as their operators have them. Units of equal
score are ranked by their places, and nothing is claimed of ties.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from growc.ir.graph import Graph, Node, Value
from growc.ir.notation import AxisTerms, Line
from growc.ir.traits import JOIN, RANK, REPEAT, SAME, SIZES, TAKE, TURN, VIEW

WHOLE = ("int32", "int64")
"""Element types that can hold the number of any unit."""

ROUTED = "u~"
"""The label of axes that routing numbers address (growc.ir.notation)."""

SLOTS = "slots"
"""The label of axes with an element for each number, where numbers and elements stand side by side."""


@dataclass(frozen=True, eq=False)
class Stop:
    """An axis, of an operand or of a result, whose units a ranking numbers.

    ranking: the ranking.
    result: whether the axis is one of a result.
    place: the number of the operand or result.
    axis: the axis in it.
    """

    ranking: Node
    result: bool
    place: int
    axis: int
    compared: bool = False
    """Whether the axis holds the numbers of all units, which others are compared with."""
    numbers: int | None = None
    """The operand that holds the numbers; None for the ranking itself and for comparisons."""


Routes = Mapping[Node, Sequence[Stop]]
"""The stops of each node."""


def find_routes(graph: Graph, compared: Collection[Node] = ()) -> Routes:
    """The stops of every node, for all rankings whose numbers can be followed.

    compared: comparisons of numbers with constants, which follow the numbers
        (growc.passes.axes.unstacked_experts).
    """
    numbers: dict[Node, dict[Value, None]] = {}
    for value, ranking in numbers_of_rankings(graph).items():
        numbers.setdefault(ranking, {})[value] = None
    routes: dict[Node, list[Stop]] = {}
    for ranking, values in numbers.items():
        axis = ranked_axis(ranking)
        if axis is not None and values.keys().isdisjoint(graph.outputs):
            for node, stop in _stops(ranking, axis, values, compared) or ():
                routes.setdefault(node, []).append(stop)
    return routes


def routed(line: Line, stops: Sequence[Stop]) -> Line:
    """The line of a node with the label ROUTED on its numbered axes."""
    sides: tuple[list[AxisTerms | None], list[AxisTerms | None]] = (list(line.inputs), list(line.outputs))
    for stop in stops:
        side = sides[stop.result]
        terms = side[stop.place] if stop.place < len(side) else None
        if line.treatment == "opaque" or terms is None:
            return line
        if terms[stop.axis] not in ("_", "#") and not stop.compared:
            return line
        side[stop.place] = _put(terms, stop.axis, ROUTED)
    for stop in stops:
        _name_slots(sides, stop, written=any(one.result for one in stops))
    return replace(line, inputs=tuple(sides[0]), outputs=tuple(sides[1]))


def _name_slots(sides: Sequence[list[AxisTerms | None]], stop: Stop, *, written: bool) -> None:
    """Name the axis of the numbers in a line, if the elements that they choose, or that are written, have it
    too.
    """
    if stop.numbers is None:
        return
    elements, place = (sides[0], len(sides[0]) - 1) if written else (sides[1], 0)
    numbers, others = sides[0][stop.numbers], elements[place]
    if numbers and others and len(numbers) == len(others) and numbers[stop.axis] == others[stop.axis] == "_":
        sides[0][stop.numbers] = _put(numbers, stop.axis, SLOTS)
        elements[place] = _put(others, stop.axis, SLOTS)


def _put(terms: AxisTerms, axis: int, label: str) -> AxisTerms:
    return (*terms[:axis], label, *terms[axis + 1 :])


def counting(node: Node) -> tuple[int, int] | None:
    """The operand of a comparison that is 0, 1, 2, … along its last axis, and that axis in the result.

    None if the node is no comparison with such an operand.
    """
    for i, value in enumerate(node.inputs if node.laws.signs == {0} else ()):
        if value is None or value.known is None or value.rank != 1 or value.dtype != "int64":
            continue
        if all(k.size > 1 and bool((k == np.arange(k.size)).all()) for k in value.known):
            return i, node.outputs[0].rank - 1
    return None


def fewest(ranking: Node) -> int:
    """The number of units that a ranking gives, which must exist; 1 if it is unknown."""
    count = ranking.input(1)
    if count is None or count.known is None:
        return ranking.integer("k", 1)
    return max(int(k.reshape(-1)[0]) for k in count.known)


def numbers_of_rankings(graph: Graph) -> dict[Value, Node]:
    """The values that hold numbers from a ranking, however moved, each with its ranking."""
    ranking_of: dict[Value, Node] = {}
    for node in graph.nodes:
        if ranked_axis(node) is not None:
            ranking_of[node.outputs[-1]] = node
        carriers = [node.inputs[i] for i in node.taken] if _gives_on(node, 0) else []
        rankings = {None if v is None else ranking_of.get(v) for v in carriers}
        if len(rankings) == 1 and (ranking := rankings.pop()) is not None:
            ranking_of.update(dict.fromkeys(node.outputs, ranking))
    return ranking_of


def ranked_axis(ranking: Node) -> int | None:
    """The axis of its scores that a ranking numbers; None if the node is no ranking, or one that cannot be
    followed.
    """
    scores = ranking.input(0)
    if not ranking.has(RANK) or scores is None or not scores.sizes:
        return None
    last = len(ranking.outputs) > 1  # Rankings that also give the elements rank the last axis by default.
    axis = ranking.integer("axis", -1 if last else 0) % scores.rank
    return axis if len(set(scores.sizes[axis])) == 1 else None


def _stops(
    ranking: Node, axis: int, numbers: Collection[Value], compared: Collection[Node]
) -> list[tuple[Node, Stop]] | None:
    """Every axis whose units the numbers of a ranking mean; None if the numbers have any other use."""
    all_stops = [(ranking, Stop(ranking, False, 0, axis))]
    for node, operand in (user for value in numbers for user in value.users):
        passed_on = _gives_on(node, operand) and node.outputs[0] in numbers
        if not (passed_on or node.has(SIZES) or node in compared):
            stops = list(_numbered(ranking, node, operand))
            if not stops:
                return None
            all_stops += [(node, stop) for stop in stops]
    return all_stops


def _gives_on(node: Node, operand: int) -> bool:
    """Whether a node passes on the numbers of an operand, wherever it puts them."""
    if node.has(SAME):
        return node.outputs[0].dtype in WHOLE
    return node.has(JOIN) or (operand == 0 and node.has(VIEW, TURN, REPEAT, TAKE))


def _numbered(ranking: Node, node: Node, operand: int) -> Iterator[Stop]:
    """The axes that an operand numbers, if each of its elements is a number along them."""
    addresses = [address for address in node.addresses if address.operand == operand]
    if not any(address.end or address.column for address in addresses):
        yield from (Stop(ranking, address.result, 0, address.axis, numbers=operand) for address in addresses)
    counted, axis = counting(node), ranked_axis(ranking)
    if counted is not None and axis is not None and counted[0] != operand:
        scores, numbers, result_sizes = (
            ranking.required(0).sizes,
            node.required(operand).sizes,
            node.outputs[0].sizes,
        )
        if (
            scores
            and numbers
            and result_sizes
            and set(numbers[-1]) == {1}
            and result_sizes[-1] == scores[axis]
        ):
            yield Stop(ranking, True, 0, counted[1], compared=True)
