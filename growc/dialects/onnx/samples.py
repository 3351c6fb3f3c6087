"""Choosing the sample points of the symbolic inputs.

Needs: a graph. Gives: sizes of its inputs at which it does not contradict itself, and its simulation there.
Exporters declare dims dynamic that are baked into the graph, and apart that must agree: what they are is
found by trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from growc.dialects.onnx.simulate import Contradiction, Simulation, Simulator, simulate
from growc.graph import Graph, Size, Value

SAMPLES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3, 5), (11, 13), (7, 17), (19, 9), (23, 10), (29, 15), (31, 21), (37, 22)),
    ((3, 5), (7, 6), (9, 11), (13, 8), (17, 10), (19, 12), (15, 23), (21, 25)),
    ((3, 5), (29, 31), (37, 41), (43, 47), (53, 59), (61, 67), (71, 73), (79, 83)),
    ((2, 3), (401, 409), (419, 421), (431, 433), (439, 443), (449, 457), (461, 463), (467, 479)),
)
"""Choices of sample points, tried in order: a pair for each symbol, in order of appearance."""

Assignment = dict[str, Size | str | tuple[str, str]]
"""What is assumed of symbols: a fixed size, the size of another one, or the sum of two others."""


def symbols_of(graph: Graph) -> dict[Value, tuple[int | str, ...] | None]:
    """The dims of every graph input: numbers, and names of symbols (an anonymous dim has one of its own)."""
    found: dict[Value, tuple[int | str, ...] | None] = {}
    for value in graph.inputs:
        shape = value.origin.shape
        dims = None if shape is None else [d if isinstance(d, int) else d.value for d in shape]
        found[value] = None if dims is None else tuple(d or f"{value.name}.{k}" for k, d in enumerate(dims))
    return found


def input_sizes(
    dims: Mapping[Value, tuple[int | str, ...] | None], samples: tuple[Size, ...], assigned: Assignment
) -> dict[Value, tuple[Size, ...] | None]:
    """The sizes of the graph inputs at the sample points; dims with one name have one size."""
    points = len(samples[0])
    names = list(dict.fromkeys(d for row in dims.values() for d in row or () if isinstance(d, str)))
    sizes: dict[str, Size] = {n: samples[k % len(samples)] for k, n in enumerate(names)}

    def of(dim: int | str) -> Size:
        if isinstance(dim, int):
            return (dim,) * points
        rule = assigned.get(dim)
        if rule is None:
            return sizes[dim]
        if isinstance(rule, str):
            return of(rule)
        if isinstance(rule[0], str):
            return tuple(a + b for a, b in zip(*map(of, rule), strict=True))
        return rule

    return {v: None if row is None else tuple(map(of, row)) for v, row in dims.items()}


def settle(graph: Graph, simulator: Simulator) -> tuple[dict[Value, tuple[Size, ...] | None], Simulation]:
    """Sample points at which the model does not contradict itself, and its simulation there.

    Exporters declare dims dynamic that are baked into the graph, and apart that must agree. At a
    contradiction each symbol is tried at the sizes that stand there, as another symbol, as the sum of two,
    and in a branch as zero; what gets furthest stays. Raises Contradiction where nothing helps.
    """
    dims = symbols_of(graph)
    names = list(dict.fromkeys(d for row in dims.values() for d in row or () if isinstance(d, str)))
    order = {n: k for k, n in enumerate(graph.nodes)}

    def attempt(
        samples: tuple[Size, ...], assigned: Assignment, patient: bool = False
    ) -> Simulation | Contradiction:
        try:
            return simulate(graph, simulator, input_sizes(dims, samples, assigned), patient=patient)
        except Contradiction as found:
            return found

    first: Contradiction | None = None
    for samples in SAMPLES:
        assigned: Assignment = {}
        result = attempt(samples, assigned)
        while isinstance(result, Contradiction):
            first = first or result
            trials = [
                {**assigned, n: rule}
                for n in names
                if n not in assigned
                for rule in _rules(n, names, result, samples)
                if not _leads_to(n, rule, assigned)
            ]
            outcomes = [(attempt(samples, t), t) for t in trials]
            reach = [len(order) if isinstance(r, Simulation) else order[r.node] for r, _ in outcomes]
            if not reach or max(reach) <= order[result.node]:
                break
            result, assigned = outcomes[reach.index(max(reach))]
        if isinstance(result, Contradiction) and result.node.guards:
            result = attempt(samples, assigned, patient=True)
        if isinstance(result, Simulation):
            return input_sizes(dims, samples, assigned), result
    assert first is not None
    raise first


def _leads_to(name: str, rule: Any, assigned: Assignment) -> bool:
    """Whether a rule comes back to the symbol that it is for."""
    parts = (rule,) if isinstance(rule, str) else rule
    return any(p == name or (p in assigned and _leads_to(name, assigned[p], assigned)) for p in parts)


def _rules(name: str, names: list[str], at: Contradiction, samples: tuple[Size, ...]) -> list[Any]:
    """What a symbol might be, judging by the node where sizes disagree."""
    literal = {
        int(k)
        for v in at.node.inputs
        if v is not None and v.weight is not None and not v.weight.floating
        for k in np.asarray(v.weight.read()).reshape(-1)[:8]
        if 1 < k < 65536
    }
    literal |= {int(k) for v in at.operands for k in v if 1 < k < 65536}
    fixed: list[Any] = [(k,) * len(samples[0]) for k in sorted(literal)]
    others = [n for n in names if n != name]
    sums = [(a, b) for i, a in enumerate(others) for b in others[i + 1 :]]
    nothing = [(0,) * len(samples[0])] if at.node.guards else []  # what one branch lacks: a cache
    return fixed + others + sums + nothing
