"""The choice of sample points for the symbolic inputs.

Needs: a graph. Gives: sizes of its inputs at which it does not contradict itself, and its simulation there.
Exporters declare dims dynamic that are fixed in the graph, and dims different that must agree. Their sizes
are found by trial.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from itertools import chain, combinations, permutations, product
from typing import Any, NamedTuple

import numpy as np

from growc.algebra.space import Size
from growc.dialects.onnx.origins import value_of
from growc.dialects.onnx.shapes.conflated_sizes import (
    merges_sizes,
    merging_nodes,
    merging_numbers,
    varies,
)
from growc.dialects.onnx.shapes.data_dependent import counted, sizes_of
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

NEAR = 0.25
"""The largest relative distance of an image's size from the size that its number of pixels suggests."""

CLOSEST = 40
"""The number of sizes of an image that are tried for one number of pixels."""

LITERALS, LARGEST_LITERAL = 8, 65536
"""Of each tensor of integers so many are tried as sizes, and only those below the largest size of an axis."""

Assignment = dict[str, Size | str | tuple[str, str]]
"""The assumptions about symbols: a fixed size, the size of another symbol, or the sum of two others."""


InputDims = tuple[int | str, ...]
"""The dims of an input."""

DimsByInput = Mapping[Value, InputDims | None]


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


def input_sizes(
    dims: DimsByInput, samples: tuple[Size, ...], assigned: Assignment
) -> dict[Value, tuple[Size, ...] | None]:
    """Return the sizes of the dims at the sample points. Dims of one name have one size."""
    points = len(samples[0])
    fed, counts = (
        [n for n in _names(dims, of_counts=of_counts) if n not in assigned] for of_counts in (False, True)
    )
    sizes: dict[str, Size] = {n: samples[k % len(samples)] for k, n in enumerate(fed)}
    sizes |= sizes_of(counts, points)

    def of(dim: int | str) -> Size:
        if isinstance(dim, int):
            return (dim,) * points
        rule = _root(dim, assigned)
        if isinstance(rule, str):
            return sizes[rule]
        if isinstance(rule[0], str):
            return tuple(a + b for a, b in zip(*map(of, rule), strict=True))
        return tuple(map(int, rule))

    return {v: None if row is None else tuple(map(of, row)) for v, row in dims.items()}


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
    names = _names(dims, of_counts=False) + _names(dims, of_counts=True)
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
                return further(apart, assigned, other)
        return further(samples, assigned, simulation)

    def further(samples: tuple[Size, ...], assigned: Assignment, simulation: Simulation) -> SettledSizes:
        same = merging_numbers(graph, simulation)
        for point in FURTHER if same else ():
            more = tuple((*sizes, point[k % len(point)]) for k, sizes in enumerate(samples))
            assumed = {name: _one_more(rule) for name, rule in assigned.items()}
            outcome = attempt(more, assumed, most=MAX_INTEGERS)
            if isinstance(outcome, Simulation):
                left = merging_numbers(graph, outcome)
                if not set(same) <= set(left):
                    samples, assigned, simulation, same = more, assumed, outcome, left
        return settled(samples, assigned, simulation, merging_nodes(graph, simulation))

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
            for trials in _trials(dims, names, samples, assigned, result):
                for trial in trials:
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


def _names(dims: DimsByInput, *, of_counts: bool) -> list[str]:
    """Return the symbols of inputs, or (`of_counts`) those of lengths that nodes count."""
    rows = [row for value, row in dims.items() if (value.producer is not None) is of_counts]
    return list(dict.fromkeys(d for row in rows for d in row or () if isinstance(d, str)))


def _given(
    dims: DimsByInput, samples: tuple[Size, ...], assigned: Assignment
) -> tuple[dict[Value, tuple[Size, ...] | None], dict[Value, Size]]:
    """Return the sizes of the graph inputs, and the lengths that depend on data."""
    sizes = input_sizes(dims, samples, assigned)
    counts = {v: shape[0] for v, shape in sizes.items() if v.producer is not None and shape}
    return {v: shape for v, shape in sizes.items() if v not in counts}, counts


def _trials(
    dims: DimsByInput,
    names: list[str],
    samples: tuple[Size, ...],
    assigned: Assignment,
    at: ContradictionError,
) -> Iterator[list[Assignment]]:
    """Yield groups of assumptions that might resolve a contradiction, the most plausible first."""
    alike = {**assigned, **_alike(dims, assigned)}
    yield [alike]
    showing = _showing(names, assigned, dims, samples, at)
    for base in (alike, assigned):
        near = [n for n in dict.fromkeys(_root(n, base) for n in showing) if n in names and n not in base]
        yield [{**base, n: r} for n in near for r in _rules(n, near, at, samples)] + [
            {**base, **_like(own, other, base)}
            for own, other in permutations([r for r in dims.values() if r], 2)
            if _pattern(own) == _pattern(other) and set(own) & set(showing)
        ]
    for base in (alike, assigned):
        sums = combinations(_sums(_now(base, dims, samples), at), 2)
        apart = [(a, b) for a, b in sums if not set(a) & set(b)]
        yield [{**base, **dict(zip(a, c, strict=True))} for a, b in apart for c in (b, b[::-1])]
    for base in (alike, assigned):
        free = [n for n in _names(dims, of_counts=False) if n not in base]
        yield [{**base, n: rule} for n in free for rule in _rules(n, free, at, samples)]
    for base in (alike, assigned):
        yield list(_squares(dims, samples, base, at))


def _leads_to(name: str, rule: Any, assigned: Assignment) -> bool:
    """Whether a rule leads back to the symbol that it is for."""
    parts = (rule,) if isinstance(rule, str) else rule
    return any(p == name or (p in assigned and _leads_to(name, assigned[p], assigned)) for p in parts)


def _root(name: Any, assigned: Assignment) -> Any:
    """Return what a symbol stands for: another symbol, a sum, a size."""
    while isinstance(name, str) and name in assigned:
        name = assigned[name]
    return name


def _pattern(row: InputDims) -> tuple[object, ...]:
    return tuple(d if isinstance(d, int) else "" for d in row)


def _like(own: InputDims, other: InputDims, assigned: Assignment) -> Assignment:
    """Assume that the free symbols of one input equal those of another input of the same shape."""
    pairs = [(a, _root(b, assigned)) for a, b in zip(own, other, strict=True) if isinstance(a, str)]
    return {a: rule for a, rule in pairs if a not in assigned and not _leads_to(a, rule, assigned)}


def _alike(dims: DimsByInput, assigned: Assignment) -> Assignment:
    """Assume that the free symbols of inputs of one shape and use equal those of the first such input."""
    first: dict[tuple[object, ...], InputDims] = {}
    assumed: Assignment = {}
    for value, row in dims.items():
        if row and any(isinstance(d, int) for d in row):
            users = frozenset(node.op for node, _ in value.users) - {"Shape", "Size"}
            key = (value.floating, users, *_pattern(row))
            assumed |= _like(row, first.setdefault(key, row), {**assigned, **assumed})
    return assumed


def _showing(
    names: list[str],
    assigned: Assignment,
    dims: DimsByInput,
    samples: tuple[Size, ...],
    at: ContradictionError,
) -> list[str]:
    """Return the free symbols that are one of the sizes that meet, or a summand of one."""
    current, met = _now(assigned, dims, samples), set(at.sizes)
    summands = {n for pair in _sums(current, at) for n in pair}
    return [n for n in names if n in current and (current[n] in met or n in summands)]


def _sums(now: Mapping[str, Size], at: ContradictionError) -> list[tuple[str, str]]:
    """Return the pairs of free symbols whose sum is one of the sizes that meet."""
    met = set(at.sizes)
    pairs = combinations(now, 2)
    return [(a, b) for a, b in pairs if tuple(map(sum, zip(now[a], now[b], strict=True))) in met]


def _now(assigned: Assignment, dims: DimsByInput, samples: tuple[Size, ...]) -> dict[str, Size]:
    """Return the sizes of the free symbols."""
    sizes = input_sizes(dims, samples, assigned)
    rows = [(d, s) for v, row in dims.items() for d, s in zip(row or (), sizes[v] or (), strict=True)]
    return {d: s for d, s in rows if isinstance(d, str) and d not in assigned}


def _squares(
    dims: DimsByInput, samples: tuple[Size, ...], assigned: Assignment, at: ContradictionError
) -> Iterator[Assignment]:
    """Assume one fixed size for two symbols of an input, or for one.

    A size that depends on them must meet a fixed one: the pixels of an image are read as a whole. The ratio
    of the number of pixels that is read to that of the sample suggests the image's height and width, up to
    strides and borders.
    """
    current = input_sizes(dims, samples, assigned)
    lengths = {s for v, row in dims.items() for d, s in zip(row or (), current[v] or (), strict=True)}
    sums = {tuple(map(sum, zip(a, b, strict=True))) for a, b in combinations(lengths, 2)}
    fixed = {s[0] for s in at.sizes if len(set(s)) == 1 and s[0] > 1}
    pixels = {s[0] for s in set(at.sizes) - lengths - sums if len(set(s)) > 1}
    for value, row in dims.items():
        first = {d: s[0] for d, s in zip(row or (), current[value] or (), strict=True)}
        fed = value.floating and value.producer is None
        free = [d for d in first if isinstance(d, str) and d not in assigned] if fed else []
        for group in (*list(combinations(free, 2))[::-1], *((d,) for d in free[::-1])):
            measure = math.prod(first[d] for d in group)
            for fixed_size, count in product(sorted(fixed), sorted(pixels)):
                about = (fixed_size * measure / count) ** (1 / len(group))
                near = range(max(1, int(about * (1 - NEAR)) - 1), int(about * (1 + NEAR)) + 2)
                for size in sorted(near, key=lambda k: abs(k - about))[:CLOSEST]:
                    yield {**assigned, **dict.fromkeys(group, (size,) * len(samples[0]))}


def _rules(name: str, names: list[str], at: ContradictionError, samples: tuple[Size, ...]) -> list[Any]:
    """Return what a symbol might be, judging by the node where sizes disagree."""
    literal = {
        int(k)
        for v in at.node.inputs
        if v is not None and v.weight is not None and not v.weight.floating
        for k in np.asarray(v.weight.read()).reshape(-1)[:LITERALS]
        if 1 < k < LARGEST_LITERAL
    }
    literal |= {int(k) for v in at.operands for k in v if 1 < k < LARGEST_LITERAL}
    literal |= {s[0] for s in at.sizes if len(set(s)) == 1 and 1 < s[0] < LARGEST_LITERAL}
    fixed: list[Any] = [(k,) * len(samples[0]) for k in sorted(literal)]
    others = [n for n in names if n != name]
    sums = [(a, b) for i, a in enumerate(others) for b in others[i + 1 :]]
    nothing = [(0,) * len(samples[0])] if at.node.guards else []  # a branch may lack a cache
    return fixed + others + sums + nothing
