"""Lineage: for every weight of the result, the origin of each of its units.

It serves freezing, separate learning rates, and optimizer state. An axis that changed has a number of `maps`.
There, `from` has the source unit of each unit (-1: none), `factor` its factor, and `new` the units that are
no originals. If an axis has a `next`, its new units come from that tensor of the next layer. A weight that is
a `copy` as a whole belongs to a new layer, or to a head that was untied from its table. A weight without a
`source` is a new router.
"""

from __future__ import annotations

from growc.algebra.indexmap import IndexMap
from growc.errors.json_data import Json
from growc.ir.graph import FLOATING
from growc.plans.plan import Plan, WeightPlan
from growc.recipe.fills import new_units


def lineage_of(plan: Plan) -> dict[str, Json]:
    """The lineage of every weight of a plan, as plain data. Weights that share a map share its number."""
    maps: dict[bytes, int] = {}
    maps_data: list[dict[str, Json]] = []
    copies = plan.later_copies

    def number(index_map: IndexMap) -> int:
        key = index_map.index.tobytes() + index_map.weight.tobytes()
        if key not in maps:
            maps[key] = len(maps_data)
            maps_data.append(map_data(index_map))
        return maps[key]

    def weight_data(weight: WeightPlan) -> dict[str, Json]:
        verbs = {s.axis: s.verb for s in weight.steps}
        above = {s.axis: {"next": s.next.source} for s in weight.steps if s.next is not None}
        axes: dict[str, Json] = {
            str(k): {"verb": verbs[k], "map": number(index_map), **above.get(k, {})}
            for k, index_map in axis_maps(weight).items()
        }
        source = "" if weight.new else weight.copy_of or weight.source
        data: dict[str, Json] = {
            "source": source,
            "shape": list(weight.after),
            "factor": weight.scale,
            "axes": axes,
        }
        data |= {"copy": True} if weight.name in copies else {}
        data |= {"mean_of": list(weight.mean_of)} if weight.mean_of else {}
        return data | ({"zero": True} if weight.zero else {})

    weights = {w.name: weight_data(w) for w in plan.weights if w.changed or w.dtype in FLOATING}
    return {"model": plan.model, "weights": weights, "maps": maps_data}


def map_data(index_map: IndexMap) -> dict[str, Json]:
    """One map as plain data."""
    return {
        "from": index_map.index.tolist(),
        "factor": [float(f"{w:.9g}") for w in index_map.weight],
        "new": [int(j) for j, new in enumerate(new_units(index_map)) if new],
    }


def drawn_anew(weight: WeightPlan) -> bool:
    """Whether no entry of a weight comes from the source, as in a new layer that is drawn."""
    return any(bool((index_map.index < 0).all()) for index_map in axis_maps(weight).values())


def axis_maps(weight: WeightPlan) -> dict[int, IndexMap]:
    """The composed map of every axis that changes."""
    maps: dict[int, IndexMap] = {}
    for step in weight.steps:
        index_map = step.layout.as_map()
        maps[step.axis] = index_map.after(maps[step.axis]) if step.axis in maps else index_map
    return maps
