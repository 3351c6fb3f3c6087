"""Whether zeros hide what they are multiplied with: zero times a number is zero, times infinity it is not.

Needs: solved states, and where units go. Gives: gaps where a unit that is no copy may be infinite or no
number, and meets a zero or is contracted. Nothing is done in models without a function that has a pole or a
domain (growc.passes.dataflow.images).

A weight is any number that no such function minds. A unit that weights make of activations, and a mean of
units, take no value on more than a null set. Means of what lies in an interval lie in it, so they are in the
domain of a function if all units are; so is what increasing functions make of them, since it lies between
what they make of the units.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from growc.algebra.indexmap import Bools, IndexMap
from growc.algebra.space import find
from growc.algebra.unit_ranges import MOVES, STILL, VARIES, Range
from growc.ir.graph import Node, Value, Weight, wide
from growc.passes.dataflow.images import has_pole, image
from growc.passes.solving.constraints import Flow, Link, Var
from growc.passes.solving.solution import PRIMAL, Solution
from growc.plans.plan import Gap

REMEDY = "copies of units are finite where the units are"


def infinite(solution: Solution, carriers: set[Value]) -> list[Gap]:
    """The gaps. `carriers`: weights and their layouts."""
    flows = solution.links.flows
    if not any(flow.bare or has_pole(flow.node) for flow in flows):
        return []
    found = _Finite(solution, carriers)
    for flow in flows:
        found.through(flow)
    for link in solution.links.links:
        if link.kind == "pair":
            found.contracted(link)
    return list(dict.fromkeys(found.gaps))


class _Finite:
    def __init__(self, solution: Solution, carriers: set[Value]) -> None:
        self.solution, self.carriers = solution, carriers
        self.ranges: dict[Var, Range] = {}
        self.sources: dict[Var, Node] = {}
        """Where a unit became wild."""
        self.between: dict[Var, Bools] = {}
        """Which units lie between the least and the largest of the source's, at every place."""
        self.gaps: list[Gap] = []

    def of(self, var: Var) -> Range:
        """The range of a variable: that of a weight or an input where no operator made it."""
        if var not in self.ranges:
            root = self.solution.links.root(var)
            state = self.solution.given_up.get(root, self.solution.of(var))
            zeros = state.zeros & (self.solution.verbs[root] == PRIMAL)
            owner = self.solution.links.owner[var]
            motion = STILL if owner in self.carriers else MOVES
            weight = None if owner is None else owner.unmoved.weight
            made = Range.anything(state.size, motion)
            if weight is not None and sum(d > 1 for d in weight.shape) < 2:
                primal = self.solution.verbs[root] == PRIMAL
                zeros = zeros | (state.junk & primal)  # of what is drawn these are zero
                made = _averaged(made, weight, state) if primal and state.mean.any() else made
            self.ranges[var] = made.put(zeros, 0.0, 0.0, STILL)
        return self.ranges[var]

    def through(self, flow: Flow) -> None:
        """What an operator makes of its operands, with what is known of the states behind it."""
        given = {i: self.of(v) for i, v in flow.sources.items()}
        if not given or any(v in self.ranges for v in flow.targets):
            return
        states = [self.solution.of(v) for v in flow.sources.values()]
        between = [self.lies_between(v) for v in flow.sources.values()]
        domain = np.logical_and.reduce(
            [
                s.copies | (b & _beside_zero(x))
                for s, b, x in zip(states, between, given.values(), strict=True)
            ]
        )
        laws = flow.node.laws
        if len(between) == 1 and (laws.increasing or laws.clamp is not None):
            self.between |= dict.fromkeys(flow.targets, between[0])
        made = self.made(flow, given)
        made = image(flow.node, given, domain) if made is None else made
        for target in flow.targets:
            state = self.solution.of(target)
            if len(made.low) != state.size:
                return
            if (made.wild & state.zeros).any():
                self.gap(flow.node, target, flow)
            units = state.copies | ((state.mean != 0) & (made.motion != STILL))
            known = made.put(state.zeros, 0.0, 0.0, STILL).put(units, -np.inf, np.inf, MOVES)
            self.ranges[target] = known
            if known.wild.any():
                first = next((self.sources[v] for v in flow.sources.values() if v in self.sources), flow.node)
                self.sources[target] = first

    def lies_between(self, var: Var) -> Bools:
        """Which units are copies or means, or follow from these by increasing functions."""
        state = self.solution.of(var)
        units: Bools = state.copies | ((state.mean != 0) & (self.of(var).motion != STILL))
        return np.logical_or(units, self.between.get(var, False))

    def made(self, flow: Flow, given: dict[int, Range]) -> Range | None:
        """What is not elementwise: what weights make, and norms over other axes."""
        owners = [self.solution.links.owner[v] for i, v in flow.sources.items() if i < 2]
        one = next(iter(given.values()))
        if flow.bare is not None:
            return Range.anything(len(one.low)).bad(one.wild | one.flat(centred=flow.bare.centred))
        if flow.treatment == "contract" and len(owners) == 1 and owners[0] in self.carriers:
            return replace(Range.anything(len(one.low), MOVES), wild=one.wild)
        return None

    def contracted(self, link: Link) -> None:
        """Whatever stands opposite a wild unit, the sum is no number."""
        for var in link.sources:
            if self.of(var).wild.any() and link.node is not None:
                self.gap(link.node, var, None)

    def gap(self, node: Node, var: Var, flow: Flow | None) -> None:
        """Say that a unit may be infinite where it meets a zero."""
        stage, links = self.solution.stage, self.solution.links
        mapped = find(links.atoms[var]) in stage.requests
        axis = stage.axis if mapped else "an axis"
        sources = [var] if flow is None else list(flow.sources.values())
        first = next((self.sources[v] for v in sources if v in self.sources), node)
        cause = f"new units of {axis} may be infinite behind the {first.kind} `{first.name}`, where a zero"
        cause += " does not hide them"
        self.gaps.append(Gap.at(node, cause, REMEDY))


def _averaged(made: Range, weight: Weight, state: IndexMap) -> Range:
    """Rows of a stored vector that are means of all its elements or of some, which symmetry may make zero."""
    stored, rows = wide(weight.read()).real.reshape(-1), state.mean != 0
    if len(stored) == state.source:
        return made.put(rows, stored.mean() * state.mean, stored.mean() * state.mean, STILL)
    return made.put(rows, stored.min() * state.mean, stored.max() * state.mean, VARIES)


def _beside_zero(units: Range) -> Bools:
    """Which units, between others that are not zero, are not zero but on a null set."""
    return np.asarray((units.motion == MOVES) | (units.low >= 0) | (units.high <= 0))
