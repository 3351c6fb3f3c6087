"""What a compilation says of the model's inputs and outputs: how resized ones follow from the source's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from growc.axes import find
from growc.graph import Node, Value, static_values
from growc.unitmaps import NumberMap, StateMap, UnitMap

if TYPE_CHECKING:
    from growc.compilation import Compilation
    from growc.indexmap import IndexMap
    from growc.passes.spaces import Instance


def input_maps(c: Compilation) -> dict[str, list[StateMap | NumberMap]]:
    """For every resized axis of a state (a cache), how the input is filled from the source's; and for numbers
    of units that have other numbers now, which.
    """
    states = {s.present.name: s.past.name for s in c.axes.states}
    found: dict[str, list[StateMap | NumberMap]] = {}
    for (name, axis), state in c.outputs.items():
        if _is_state(c, name, axis) and not state.is_identity:
            found.setdefault(states[name], []).append(_state_map(axis, state))
    for name, kept in c.lowered.numbers.items():
        found.setdefault(name, []).append(NumberMap(kept))
    return found


def output_maps(c: Compilation) -> dict[str, list[UnitMap | StateMap]]:
    """For every resized axis of an output, where the source's units stand; all of it, where it is of a state,
    or has lost units.
    """
    found: dict[str, list[UnitMap | StateMap]] = {}
    for (name, axis), state in c.outputs.items():
        if _is_state(c, name, axis) or (state.counts == 0).any():
            if not state.is_identity:
                found.setdefault(name, []).append(_state_map(axis, state))
            continue
        rows = np.flatnonzero(state.copies)
        order = rows[np.argsort(~np.isclose(state.weight[rows], 1.0), kind="stable")]
        units, first = np.unique(state.index[order], return_index=True)
        if len(units) == state.source and not state.is_identity:
            places = order[first]
            found.setdefault(name, []).append(UnitMap(axis, places, state.weight[places]))
    return found


def logits(c: Compilation) -> set[str]:
    """Outputs that look like scores of many units: a weight makes their last axis, which has no name but
    `vocab`.
    """
    by_node = {i.node: i for i in c.axes.instances}
    named = {
        id(find(s)) for n, found in c.roles.axes.items() if n != "vocab" for a in found for s in a.spaces
    }
    static = static_values(c.graph)
    return {
        value.name
        for value in c.graph.outputs
        if value.floating and value.rank > 1 and value not in {s.present for s in c.axes.states}
        if (last := find(c.axes.of(value)[-1])).static and last.size[0] > 1 and id(last) not in named
        if _is_product(value, by_node, static)
    }


def _is_product(value: Value, by_node: Mapping[Node, Instance], static: Collection[Value]) -> bool:
    """Whether a value is the product of something with a weight, but for biases, factors and caps."""
    while (node := value.producer) is not None and (instance := by_node.get(node)) is not None:
        if instance.line.treatment == "contract":
            return any(v in static for v in node.inputs[:2])
        data = [v for v in node.inputs if v is not None and v not in static and v.known is None]
        if len(data) != 1 or instance.line.treatment in ("mean", "sum", "extreme", "opaque"):
            return False
        value = data[0]
    return False


def narrower(c: Compilation) -> bool:
    """Whether units are gone that inputs number, or count by their lengths."""
    stages = c.lowered.stages
    return any(r.drops and r.space.addressed is not None for s in stages for r in s.requests.values())


def _is_state(c: Compilation, output: str, axis: int) -> bool:
    return any(s.present.name == output and axis in s.axes for s in c.axes.states)


def _state_map(axis: int, state: IndexMap) -> StateMap:
    return StateMap(axis, state.index, state.weight, state.mean, state.junk)
