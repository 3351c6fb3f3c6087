"""Lineage: for every weight of the result, where each of its units comes from.

For freezing, learning rates of their own, and optimizer state. For each axis that changed, in the order in which
they are applied: `from` is the source unit of each unit (-1: none), `factor` what it is multiplied by, `new` the
units that are no original.
"""

from __future__ import annotations

from typing import Any

from growc.fills import new_units
from growc.indexmap import IndexMap
from growc.plan import Plan, WeightPlan


def lineage_of(plan: Plan) -> dict[str, Any]:
    """The lineage of every weight of a plan, as plain data."""
    return {"model": plan.model, "weights": {w.name: weight_lineage(w) for w in plan.weights}}


def weight_lineage(weight: WeightPlan) -> dict[str, Any]:
    """The lineage of one weight."""
    axes: dict[str, Any] = {}
    for axis, made in axis_maps(weight).items():
        axes[str(axis)] = {
            "from": made.index.tolist(),
            "factor": [float(f"{w:.9g}") for w in made.weight],
            "new": [int(j) for j, new in enumerate(new_units(made)) if new],
            "verb": next(s.verb for s in weight.steps if s.axis == axis),
        }
    return {"source": weight.source, "shape": list(weight.after), "axes": axes}


def axis_maps(weight: WeightPlan) -> dict[int, IndexMap]:
    """The composed map of every axis that changes."""
    maps: dict[int, IndexMap] = {}
    for step in weight.steps:
        made = step.layout.as_map()
        maps[step.axis] = made.after(maps[step.axis]) if step.axis in maps else made
    return maps
