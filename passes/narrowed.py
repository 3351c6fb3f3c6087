"""Casts to fewer digits: they round what is scaled in other places than what is not.

Needs: solved states. Gives: gaps where units that are no copies times a power of two are rounded to fewer
digits than any weight of the model has. Where weights themselves have as few, that lies under the model's
own rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from growc.graph import Node, Weight
from growc.indexmap import IndexMap
from growc.passes.settled import CASTS, FORMATS, REAL, widens
from growc.passes.solution import Solution
from growc.plans import Gap
from growc.stage import Stage


def narrowed(solution: Solution, stage: Stage) -> Iterator[Gap]:
    """The gaps, one for each cast."""
    flows = [flow for flow in solution.links.flows if _narrows(flow.node)]
    digits = _digits(solution.links.axes.graph.weights) if flows else 0
    for flow in flows:
        dtype = flow.node.outputs[0].dtype
        states = [solution.of(var) for place, var in flow.sources.items() if place == 0]
        if FORMATS[dtype].bits < digits and any(
            _rounds_otherwise(state, unread=stage.options.zero_outputs) for state in states
        ):
            cause = f"it rounds units to {dtype} that are other multiples of the source's than powers of two"
            yield Gap(flow.node.name, flow.node.kind, cause)


def _narrows(node: Node) -> bool:
    given = node.inputs[0] if node.op in CASTS else None
    real = given is not None and {given.dtype, node.outputs[0].dtype} <= REAL
    return real and not widens(node)


def _digits(weights: Sequence[Weight]) -> int:
    """How many binary digits the coarsest real weights have."""
    return min((FORMATS[w.dtype].bits for w in weights if w.elements > 1 and w.dtype in REAL), default=0)


def _rounds_otherwise(state: IndexMap, *, unread: bool) -> bool:
    """`unread`: nobody reads new units, which means are."""
    powers = np.frexp(np.abs(state.weight))[0] == 0.5
    means = (state.mean != 0) & ~state.junk
    return bool((state.copies & ~powers).any() or (means.any() and not unread))
