"""The inputs and outputs of a result in terms of the source's, also over several growths."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.space import find
from growc.ir.graph import Node, Value
from growc.plans.unitmaps import BlendMap, InputMap, NumberMap, OutputMap, StateMap, UnitMap

if TYPE_CHECKING:
    from growc.algebra.indexmap import Floats, IndexMap, Ints
    from growc.passes.axes.infer import LineInstance
    from growc.passes.compilation import Analysis, Result


@dataclass(frozen=True)
class Ports:
    """The relation of a result's inputs and outputs to the source's, by the source's names.

    outputs: the index map of each axis of an output that changed.
    states: outputs that are inputs of the next step (caches): that input, and the axes that change together.
    numbers: inputs that hold numbers of units of which some are dropped: the old number of every new one.
    renamed: inputs and outputs that have another name in the result, or None if the result lacks them.
    narrower: whether units are dropped that inputs number, or count by their lengths.
    logits: outputs that look like scores, of a result that is not exact.
    blends: axes of outputs whose units are means of several: the whole map, as a matrix.
    """

    outputs: Mapping[tuple[str, int], IndexMap] = field(default_factory=dict)
    states: Mapping[str, tuple[str, Collection[int]]] = field(default_factory=dict)
    numbers: Mapping[str, Ints] = field(default_factory=dict)
    renamed: Mapping[str, str | None] = field(default_factory=dict)
    narrower: bool = False
    logits: frozenset[str] = frozenset()
    blends: Mapping[tuple[str, int], Floats] = field(default_factory=dict)

    def input_maps(self) -> dict[str, list[InputMap]]:
        """The maps that make the result's inputs from the source's.

        They fill every resized axis of a state, and renumber units whose numbers changed.
        """
        maps_by_input: dict[str, list[InputMap]] = {}
        for (name, axis), state in self.outputs.items():
            if self._is_state(name, axis) and not state.is_identity:
                maps_by_input.setdefault(self.states[name][0], []).append(self._state(name, axis))
        for name, old_numbers in self.numbers.items():
            maps_by_input.setdefault(name, []).append(NumberMap(old_numbers))
        return maps_by_input

    def output_maps(self) -> dict[str, list[OutputMap]]:
        """The maps of every resized axis of an output: the places of the source's units in it.

        For an axis of a state, or an axis that lost units, the whole map.
        """
        maps_by_output: dict[str, list[OutputMap]] = {}
        for (name, axis), state in self.outputs.items():
            if self._is_state(name, axis) or (state.counts == 0).any():
                if not state.is_identity:
                    maps_by_output.setdefault(name, []).append(self._state(name, axis))
                continue
            rows = np.flatnonzero(state.copies)
            order = rows[np.argsort(~np.isclose(state.weight[rows], 1.0), kind="stable")]
            units, first = np.unique(state.index[order], return_index=True)
            if len(units) == state.source and not state.is_identity:
                places = order[first]
                maps_by_output.setdefault(name, []).append(UnitMap(axis, places, state.weight[places]))
        return maps_by_output

    def then(self, later: Ports) -> Ports:
        """The ports of this growth followed by a later one, whose source is this result."""
        outputs, blends = dict(self.outputs), dict(self.blends)
        for (name, axis), state in later.outputs.items():
            if origin := self._origin(name):
                first = outputs.get((origin, axis))
                if (name, axis) in later.blends or (origin, axis) in blends:
                    blends[origin, axis] = later._matrix(name, axis) @ self._matrix(
                        origin, axis, state.source
                    )
                outputs[origin, axis] = state if first is None else state.after(first)
        states = dict(self.states)
        for name, (past, axes) in later.states.items():
            if (origin := self._origin(name)) and (input_origin := self._origin(past)):
                states.setdefault(origin, (input_origin, axes))
        numbers = dict(self.numbers)
        for name, old_numbers in later.numbers.items():
            if origin := self._origin(name):
                numbers[origin] = numbers[origin][old_numbers] if origin in numbers else old_numbers
        renamed = {name: new and later.renamed.get(new, new) for name, new in self.renamed.items()}
        renamed |= {origin: new for name, new in later.renamed.items() if (origin := self._origin(name))}
        logits = {origin for name in later.logits if (origin := self._origin(name))}
        narrower = self.narrower or later.narrower
        return Ports(outputs, states, numbers, renamed, narrower, self.logits | logits, blends)

    def _matrix(self, name: str, axis: int, size: int = 0) -> Floats:
        """The map of an axis as a matrix; the identity of `size` if the axis did not change."""
        if (name, axis) in self.blends:
            return self.blends[name, axis]
        state = self.outputs.get((name, axis))
        return np.eye(size) if state is None else np.nan_to_num(state.matrix())

    def _state(self, name: str, axis: int) -> StateMap | BlendMap:
        blend, state = self.blends.get((name, axis)), self.outputs[name, axis]
        if blend is not None:
            return BlendMap(axis, blend)
        return StateMap(axis, state.index, state.weight, state.mean, state.junk)

    def _origin(self, name: str) -> str | None:
        """The source's name of an input or output of the result; None where it is new."""
        before = next((old for old, new_name in self.renamed.items() if new_name == name), name)
        return None if before == name and name in self.renamed else before

    def _is_state(self, output: str, axis: int) -> bool:
        return output in self.states and axis in self.states[output][1]


def ports_of(c: Result) -> Ports:
    """The ports of a compilation."""
    widths = Ports(
        outputs=c.outputs,
        states={s.present.name: (s.past.name, s.axes) for s in c.axes.states},
        numbers=c.lowered.numbers,
        blends=c.blends,
        narrower=_narrower(c),
        logits=frozenset() if c.plan.certificate.exact else logits(c),
    )
    return Ports(renamed=c.renamed).then(widths)  # widths are by the new names


def logits(c: Analysis) -> frozenset[str]:
    """The outputs that look like scores of many units.

    A weight makes their last axis, which has no name except `vocab`.
    """
    by_node = {i.node: i for i in c.axes.instances}
    named = {find(s) for n, axes in c.roles.axes.items() if n != "vocab" for a in axes for s in a.spaces}
    static = c.graph.static
    return frozenset(
        value.name
        for value in c.graph.outputs
        if value.floating and value.rank > 1 and value not in {s.present for s in c.axes.states}
        if (last := find(c.axes.of(value)[-1])).static and last.size[0] > 1 and last not in named
        if _is_product(value, by_node, static)
    )


def _is_product(value: Value, by_node: Mapping[Node, LineInstance], static: Collection[Value]) -> bool:
    """Whether a value is a product with a weight, apart from biases, factors and caps."""
    while (node := value.producer) is not None and (instance := by_node.get(node)) is not None:
        if instance.line.treatment == "contract":
            return any(v in static for v in node.inputs[:2])
        data = [v for v in node.inputs if v is not None and v not in static and v.known is None]
        if len(data) != 1 or instance.line.treatment in ("mean", "sum", "extreme", "opaque"):
            return False
        value = data[0]
    return False


def _narrower(c: Result) -> bool:
    stages = c.lowered.stages
    return any(r.drops and r.space.addressed is not None for s in stages for r in s.requests.values())
