"""The check that units are finite where they meet a zero: zero times a number is zero, zero times infinity
not.

Needs: solved states, and the flows of units. Gives: gaps where a unit that is no copy may be infinite or NaN,
and meets a zero or is contracted. Models without a function that has a pole or a domain need no check
(growc.passes.dataflow.images).

A weight is assumed to be a number in the domain of all such functions. A unit that weights make of
activations, and a mean of units, take any one value on a null set at most. Means of numbers in an interval
lie in it, so they are in the domain of a function if all units are. So are increasing functions of means,
since they lie between those of the units.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from growc.algebra.indexmap import Bools, IndexMap
from growc.algebra.space import find
from growc.algebra.unit_ranges import MOVES, STILL, VARIES, UnitRange
from growc.ir.graph import Node, Value, Weight, wide
from growc.passes.dataflow.images import has_pole, image
from growc.passes.solving.constraints import Flow, Link, Var
from growc.passes.solving.solution import MAKES, Solution
from growc.plans.plan import Gap

REMEDY = "copies of units are finite where the units are"


def gaps_of_infinite_units(solution: Solution, carriers: set[Value]) -> list[Gap]:
    """The gaps. `carriers`: weights and their layouts."""
    flows = solution.links.flows
    if not any(flow.bare or has_pole(flow.node) for flow in flows):
        return []
    finite = _Finite(solution, carriers)
    for flow in flows:
        finite.through(flow)
    for link in solution.links.links:
        if link.kind == "pair":
            finite.contracted(link)
    return list(dict.fromkeys(finite.gaps))


class _Finite:
    def __init__(self, solution: Solution, carriers: set[Value]) -> None:
        self.solution, self.carriers = solution, carriers
        self.ranges: dict[Var, UnitRange] = {}
        self.sources: dict[Var, Node] = {}
        """The node at which a unit of a variable first became wild."""
        self.between: dict[Var, Bools] = {}
        """The units that lie between the least and the largest unit of the source, at every place."""
        self.gaps: list[Gap] = []

    def of(self, var: Var) -> UnitRange:
        """The range of a variable. Where no operator made one, it is that of a weight or an input."""
        if var not in self.ranges:
            root = self.solution.links.root(var)
            state = self.solution.given_up.get(root, self.solution.of(var))
            zeros = state.zeros & (self.solution.verbs[root] == MAKES)
            owner = self.solution.links.owner[var]
            motion = STILL if owner in self.carriers else MOVES
            weight = None if owner is None else owner.unmoved.weight
            interval = UnitRange.anything(state.size, motion)
            if weight is not None and sum(d > 1 for d in weight.shape) < 2:
                primal = self.solution.verbs[root] == MAKES
                zeros = zeros | (state.junk & primal)  # new elements of vectors are zero, not drawn
                interval = _averaged(interval, weight, state) if primal and state.mean.any() else interval
            self.ranges[var] = interval.put(zeros, 0.0, 0.0, STILL)
        return self.ranges[var]

    def through(self, flow: Flow) -> None:
        """Set the ranges of an operator's results, from its operands and the states of the results."""
        ranges = {i: self.of(v) for i, v in flow.sources.items()}
        if not ranges or any(v in self.ranges for v in flow.targets):
            return
        states = [self.solution.of(v) for v in flow.sources.values()]
        between = [self.lies_between(v) for v in flow.sources.values()]
        domain = np.logical_and.reduce(
            [
                s.copies | (b & _beside_zero(x))
                for s, b, x in zip(states, between, ranges.values(), strict=True)
            ]
        )
        laws = flow.node.laws
        if len(between) == 1 and (laws.increasing or laws.clamp is not None):
            self.between |= dict.fromkeys(flow.targets, between[0])
        result = self.made(flow, ranges)
        result = image(flow.node, ranges, domain) if result is None else result
        for target in flow.targets:
            state = self.solution.of(target)
            if len(result.low) != state.size:
                return
            if (result.wild & state.zeros).any():
                self.gap(flow.node, target, flow)
            units = state.copies | ((state.mean != 0) & (result.motion != STILL))
            known = result.put(state.zeros, 0.0, 0.0, STILL).put(units, -np.inf, np.inf, MOVES)
            self.ranges[target] = known
            if known.wild.any():
                first = next((self.sources[v] for v in flow.sources.values() if v in self.sources), flow.node)
                self.sources[target] = first

    def lies_between(self, var: Var) -> Bools:
        """The units that are copies or means, or increasing functions of these."""
        state = self.solution.of(var)
        units: Bools = state.copies | ((state.mean != 0) & (self.of(var).motion != STILL))
        return np.logical_or(units, self.between.get(var, False))

    def made(self, flow: Flow, operand_ranges: dict[int, UnitRange]) -> UnitRange | None:
        """The range of results of weights, and of norms over other axes; None for elementwise operators."""
        owners = [self.solution.links.owner[v] for i, v in flow.sources.items() if i < 2]
        first = next(iter(operand_ranges.values()))
        if flow.bare is not None:
            return UnitRange.anything(len(first.low)).bad(first.wild | first.flat(centred=flow.bare.centred))
        if flow.treatment == "contract" and len(owners) == 1 and owners[0] in self.carriers:
            return replace(UnitRange.anything(len(first.low), MOVES), wild=first.wild)
        return None

    def contracted(self, link: Link) -> None:
        """Record a gap where a contraction sums over a wild unit: the sum is not finite."""
        for var in link.sources:
            if self.of(var).wild.any() and link.node is not None:
                self.gap(link.node, var, None)

    def gap(self, node: Node, var: Var, flow: Flow | None) -> None:
        """Record a gap: a unit may be infinite where it meets a zero."""
        stage, links = self.solution.stage, self.solution.links
        mapped = find(links.atoms[var]) in stage.requests
        axis = stage.axis if mapped else "an axis"
        sources = [var] if flow is None else list(flow.sources.values())
        first = next((self.sources[v] for v in sources if v in self.sources), node)
        cause = f"new units of {axis} may be infinite behind the {first.kind} `{first.name}`, where a zero"
        cause += " does not hide them"
        self.gaps.append(Gap.at(node, cause, REMEDY))


def _averaged(result_range: UnitRange, weight: Weight, state: IndexMap) -> UnitRange:
    """The range where rows of a stored vector are means of all its elements, or of some.

    Symmetry may make a mean of some elements zero.
    """
    stored, rows = wide(weight.read()).real.reshape(-1), state.mean != 0
    if not np.isfinite(stored).all():  # no mean of these is written
        return result_range
    if len(stored) == state.source:
        return result_range.put(rows, stored.mean() * state.mean, stored.mean() * state.mean, STILL)
    return result_range.put(rows, stored.min() * state.mean, stored.max() * state.mean, VARIES)


def _beside_zero(units: UnitRange) -> Bools:
    """The units that are zero on a null set only, if they lie between units that are not zero."""
    return np.asarray((units.motion == MOVES) | (units.low >= 0) | (units.high <= 0))
