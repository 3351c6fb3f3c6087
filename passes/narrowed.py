"""Casts to fewer digits: they round what is scaled in other places than what is not.

Needs: solved states. Gives: gaps where units that are no copies times a power of two are rounded to fewer
digits than any weight of the model has. Where weights themselves have as few, that lies under the model's
own rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from growc.graph import Node, Weight
from growc.indexmap import Bools, IndexMap
from growc.passes.settled import FORMATS, REAL
from growc.passes.settling import CASTS, widens
from growc.passes.solution import Solution
from growc.plans import Gap


def narrowed(solution: Solution) -> Iterator[Gap]:
    """The gaps, one for each cast."""
    flows = [flow for flow in solution.links.flows if _narrows(flow.node)]
    if not flows:
        return
    digits, met = _digits(solution.links.axes.graph.weights), means_are_met(solution)
    for flow in flows:
        dtype = flow.node.outputs[0].dtype
        states = [solution.of(var) for place, var in flow.sources.items() if place == 0]
        if FORMATS[dtype].bits < digits and any(_rounds_otherwise(state, met) for state in states):
            cause = f"it rounds to {dtype} units that are means, or multiples other than by powers of two"
            yield Gap(flow.node.name, flow.node.kind, cause)


def _narrows(node: Node) -> bool:
    given = node.inputs[0] if node.op in CASTS else None
    real = given is not None and {given.dtype, node.outputs[0].dtype} <= REAL
    return real and not widens(node)


def _digits(weights: Sequence[Weight]) -> int:
    """How many binary digits the coarsest real weights have."""
    return min((FORMATS[w.dtype].bits for w in weights if w.elements > 1 and w.dtype in REAL), default=0)


def means_are_met(solution: Solution) -> bool:
    """Whether a norm or a reduction runs over units with means, or an output has any; all else reads none."""
    links = [link for link in solution.links.links if link.kind in ("norm", "statistic", "output", "state")]
    return any(_means(solution.of(var)).any() for link in links for var in link.sources)


def _rounds_otherwise(state: IndexMap, means_are_met: bool) -> bool:
    powers = np.frexp(np.abs(state.weight))[0] == 0.5
    return bool((state.copies & ~powers).any() or (means_are_met and _means(state).any()))


def _means(state: IndexMap) -> Bools:
    means: Bools = (state.mean != 0) & ~state.junk
    return means
