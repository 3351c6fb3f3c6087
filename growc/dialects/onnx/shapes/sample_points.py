"""The choice of sample points for the symbolic inputs.

Needs: a graph. Gives: sizes of its inputs at which it does not contradict itself, and its simulation there.
Exporters declare dims dynamic that are fixed in the graph, and dims different that must agree. Their sizes
are found by trial.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from itertools import chain
from typing import NamedTuple

from growc.algebra.space import Size
from growc.dialects.onnx.origins import value_of
from growc.dialects.onnx.shapes.assumptions import (
    Assignment,
    DimsByInput,
    InputDims,
    input_sizes,
    symbol_names,
    trials,
)
from growc.dialects.onnx.shapes.conflated_sizes import (
    merges_sizes,
    merging_nodes,
    merging_numbers,
    varies,
)
from growc.dialects.onnx.shapes.data_dependent import counted
from growc.dialects.onnx.shapes.simulate import MAX_INTEGERS, simulate
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.dialects.onnx.shapes.simulator import ContradictionError, SettledPoints, Simulator
from growc.ir.graph import Graph, Node, Value, makers
from growc.ir.walk import walk

SAMPLES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3, 5), (11, 13), (7, 17), (19, 9), (23, 10), (29, 15), (31, 21), (37, 22)),
    ((3, 5), (7, 6), (9, 11), (13, 8), (17, 10), (19, 12), (15, 23), (21, 25)),
    ((3, 5), (29, 31), (37, 41), (43, 47), (53, 59), (61, 67), (71, 73), (79, 83)),
    ((32, 96), (64, 160), (128, 192), (224, 256), (288, 320), (352, 384), (416, 448), (480, 512)),
    ((2, 3), (401, 409), (419, 421), (431, 433), (439, 443), (449, 457), (461, 463), (467, 479)),
)
"""Choices of sample points, tried in order: a pair for each symbol, in order of appearance.

The fourth has multiples of 32. Sizes that are halved and then doubled return to their value if they are
multiples of the strides.
"""

FAR: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3, 5), (11, 141), (7, 167), (19, 137), (23, 149), (29, 151), (31, 157), (37, 163)),
    SAMPLES[3],
)
"""Choices at which strides keep sizes apart that they merge at points near each other."""

FURTHER: tuple[tuple[int, ...], ...] = (
    (1, 1, 1, 1, 1, 1, 1, 1),
    (2, 2, 2, 2, 2, 2, 2, 2),
    (4, 8, 12, 16, 20, 24, 28, 32),
    (60, 50, 40, 30, 20, 18, 16, 14),
    (200, 180, 160, 140, 120, 110, 100, 90),
    (1000, 1200, 1400, 1600, 1800, 2000, 2200, 2400),
    (5000, 4000, 3000, 2900, 2800, 2700, 2600, 2500),
)
"""Sizes of further points, one for each symbol.

They are tried where numbers are the same at all points so far though they are computed of sizes that differ:
remainders, bounds, comparisons.
"""


class SettledSizes(NamedTuple):
    """Sizes of the inputs, the simulation there, and the nodes that make one size of several in it."""

    inputs: dict[Value, tuple[Size, ...] | None]
    simulation: Simulation
    merging_nodes: list[Node]


def symbols_of(graph: Graph) -> dict[Value, InputDims | None]:
    """Return the dims of every graph input: numbers, and names of symbols. Anonymous dims get one each."""
    rows: dict[Value, InputDims | None] = {}
    for value in graph.inputs:
        shape = value_of(value).shape
        dims = None if shape is None else [d if isinstance(d, int) else d.value for d in shape]
        rows[value] = None if dims is None else tuple(d or f"{value.name}.{k}" for k, d in enumerate(dims))
    return rows


def settle(graph: Graph, simulator: Simulator) -> SettledSizes:
    """Return sample points at which the model does not contradict itself, and its simulation there.

    Nothing is assumed if some choice of samples works without: a table may only be too short for the others.
    Exporters declare dims dynamic that are fixed in the graph, and dims different that must agree.

    At a contradiction, assumptions are tried in this order. First: inputs of one shape and use (the caches)
    agree. Then, for the symbols among the sizes that meet there: a symbol is a size that stands there,
    another symbol, the sum of two, or, in a branch, zero. If two sums meet, their summands agree. Then the
    same rules are tried for all symbols. Last: an image has one height and width. The assumption that gets
    furthest is kept.

    If points near each other come to one size, points further apart are taken if these show more. If numbers
    computed of several sizes are the same, further points are added that tell them apart. An edited
    model keeps the points of the model before the edit. Raises ContradictionError if no assumption helps.
    """
    dims = symbols_of(graph) | counted(graph)
    names = symbol_names(dims, of_counts=False) + symbol_names(dims, of_counts=True)
    order = {n: k for k, n in enumerate(graph.nodes)}

    def attempt(
        samples: tuple[Size, ...],
        assigned: Assignment,
        patient: bool = False,
        only: Container[Node] | None = None,
        most: float = math.inf,
    ) -> Simulation | ContradictionError:
        try:
            given = _given(dims, samples, assigned)
            return simulate(graph, simulator, *given, patient=patient, only=only, most=most)
        except ContradictionError as contradiction:
            return contradiction

    def reach(result: Simulation | ContradictionError) -> int:
        return len(order) if isinstance(result, Simulation) else order[result.node]

    def telling(samples: tuple[Size, ...], assigned: Assignment, simulation: Simulation) -> SettledSizes:
        several = merging_nodes(graph, simulation)
        leading = set(walk(several, lambda node: makers((*node.operands, *(c for c, _ in node.guards)))))
        for apart in FAR if several else ():
            part = attempt(apart, assigned, only=leading)
            if isinstance(part, ContradictionError) or all(merges_sizes(node, part) for node in several):
                continue
            other = attempt(apart, assigned)
            if isinstance(other, Simulation) and _varying(other) > _varying(simulation):
                return further(apart, assigned, other, merging_nodes(graph, other))
        return further(samples, assigned, simulation, several)

    def further(
        samples: tuple[Size, ...], assigned: Assignment, simulation: Simulation, several: list[Node]
    ) -> SettledSizes:
        same = merging_numbers(graph, simulation)
        for point in FURTHER if same else ():
            more = tuple((*sizes, point[k % len(point)]) for k, sizes in enumerate(samples))
            assumed = {name: _one_more(rule) for name, rule in assigned.items()}
            outcome = attempt(more, assumed, most=MAX_INTEGERS)
            if isinstance(outcome, Simulation):
                left = merging_numbers(graph, outcome)
                if not set(same) <= set(left):
                    samples, assigned, simulation, same = more, assumed, outcome, left
                    several = merging_nodes(graph, outcome)
        return settled(samples, assigned, simulation, several)

    def settled(
        samples: tuple[Size, ...], assigned: Assignment, simulation: Simulation, several: list[Node]
    ) -> SettledSizes:
        simulator.settled = SettledPoints(samples, assigned)
        return SettledSizes(_given(dims, samples, assigned)[0], simulation, several)

    if simulator.settled is not None:
        samples, assumed = simulator.settled
        known = {name: rule for name, rule in assumed.items() if _named({name: rule}) <= set(names)}
        if isinstance(again := attempt(samples, known), Simulation):
            return settled(samples, known, again, merging_nodes(graph, again))
    for samples in SAMPLES:
        if isinstance(unassumed := attempt(samples, {}), Simulation):
            return telling(samples, {}, unassumed)
    first: ContradictionError | None = None
    for samples in SAMPLES:
        assigned: Assignment = {}
        result = attempt(samples, assigned)
        while isinstance(result, ContradictionError):
            first = first or result
            before = reach(result)
            for group in trials(dims, names, samples, assigned, result):
                for trial in group:
                    outcome = attempt(samples, trial)
                    if reach(outcome) > reach(result):
                        result, assigned = outcome, trial
                    if isinstance(outcome, Simulation):
                        break
                if reach(result) > before:
                    break
            else:
                break
        if isinstance(result, ContradictionError) and result.node.guards:
            result = attempt(samples, assigned, patient=True)
        if isinstance(result, Simulation):
            return telling(samples, assigned, result)
    assert first is not None
    raise first


def _one_more(rule: Size | str | tuple[str, str]) -> Size | str | tuple[str, str]:
    """Return an assumption with one more sample point, at which a fixed size is the same."""
    return rule if isinstance(rule, str) or isinstance(rule[0], str) else (*rule, rule[0])


def _named(assumed: Mapping[str, Size | str | tuple[str, str]]) -> set[str]:
    """Return all symbols that assumptions are about."""
    parts = (part for rule in assumed.values() for part in ((rule,) if isinstance(rule, str) else rule))
    return {*assumed, *(part for part in parts if isinstance(part, str))}


def _varying(simulation: Simulation) -> int:
    """Count the sizes that differ between points."""
    return sum(map(varies, chain.from_iterable(sizes or () for sizes in simulation.sizes.values())))


def _given(
    dims: DimsByInput, samples: tuple[Size, ...], assigned: Assignment
) -> tuple[dict[Value, tuple[Size, ...] | None], dict[Value, Size]]:
    """Return the sizes of the graph inputs, and the lengths that depend on data."""
    sizes = input_sizes(dims, samples, assigned)
    counts = {v: shape[0] for v, shape in sizes.items() if v.producer is not None and shape}
    return {v: shape for v, shape in sizes.items() if v not in counts}, counts
