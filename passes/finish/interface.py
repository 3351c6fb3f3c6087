"""Inputs and outputs of a result: how they follow from the source's, over several growths too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.space import find
from growc.ir.graph import Node, Value, static_values
from growc.plans.unitmaps import BlendMap, InputMap, NumberMap, OutputMap, StateMap, UnitMap

if TYPE_CHECKING:
    from growc.algebra.indexmap import Floats, IndexMap, Ints
    from growc.passes.axes.infer import Instance
    from growc.passes.compilation import Analysis, Result


@dataclass(frozen=True)
class Ports:
    """How inputs and outputs of a result follow from the source's, by the source's names.

    outputs: what became of an axis of an output, where it changed.
    states: outputs that are the next step's inputs (caches): that input, and the axes that change together.
    numbers: inputs that number units of which some are gone: the old number of every new one.
    renamed: inputs and outputs that have another name in the result, or None for no place there.
    narrower: whether units are gone that inputs number, or count by their lengths.
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
        """For every resized axis of a state, how the input is filled from the source's; and for numbers of
        units that have other numbers now, which.
        """
        found: dict[str, list[InputMap]] = {}
        for (name, axis), state in self.outputs.items():
            if self._is_state(name, axis) and not state.is_identity:
                found.setdefault(self.states[name][0], []).append(self._state(name, axis))
        for name, kept in self.numbers.items():
            found.setdefault(name, []).append(NumberMap(kept))
        return found

    def output_maps(self) -> dict[str, list[OutputMap]]:
        """For every resized axis of an output, where the source's units stand; all of it, where it is of a
        state, or has lost units.
        """
        found: dict[str, list[OutputMap]] = {}
        for (name, axis), state in self.outputs.items():
            if self._is_state(name, axis) or (state.counts == 0).any():
                if not state.is_identity:
                    found.setdefault(name, []).append(self._state(name, axis))
                continue
            rows = np.flatnonzero(state.copies)
            order = rows[np.argsort(~np.isclose(state.weight[rows], 1.0), kind="stable")]
            units, first = np.unique(state.index[order], return_index=True)
            if len(units) == state.source and not state.is_identity:
                places = order[first]
                found.setdefault(name, []).append(UnitMap(axis, places, state.weight[places]))
        return found

    def then(self, later: Ports) -> Ports:
        """Of the source and the result of another growth, whose source is this result."""
        outputs, blends = dict(self.outputs), dict(self.blends)
        for (name, axis), state in later.outputs.items():
            if own := self._origin(name):
                first = outputs.get((own, axis))
                if (name, axis) in later.blends or (own, axis) in blends:
                    blends[own, axis] = later._matrix(name, axis) @ self._matrix(own, axis, state.source)
                outputs[own, axis] = state if first is None else state.after(first)
        states = dict(self.states)
        for name, (past, axes) in later.states.items():
            if (own := self._origin(name)) and (fed := self._origin(past)):
                states.setdefault(own, (fed, axes))
        numbers = dict(self.numbers)
        for name, kept in later.numbers.items():
            if own := self._origin(name):
                numbers[own] = numbers[own][kept] if own in numbers else kept
        renamed = {name: now and later.renamed.get(now, now) for name, now in self.renamed.items()}
        renamed |= {own: now for name, now in later.renamed.items() if (own := self._origin(name))}
        logits = {own for name in later.logits if (own := self._origin(name))}
        narrower = self.narrower or later.narrower
        return Ports(outputs, states, numbers, renamed, narrower, self.logits | logits, blends)

    def _matrix(self, name: str, axis: int, size: int = 0) -> Floats:
        """What became of an axis, as a matrix; of one of this size that is as it was, if nothing did."""
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
        """The source's name for an input or output of the result; None where that is new."""
        before = next((old for old, now in self.renamed.items() if now == name), name)
        return None if before == name and name in self.renamed else before

    def _is_state(self, output: str, axis: int) -> bool:
        return output in self.states and axis in self.states[output][1]


def ports_of(c: Result) -> Ports:
    """What a compilation says of them."""
    widths = Ports(
        outputs=c.outputs,
        states={s.present.name: (s.past.name, s.axes) for s in c.axes.states},
        numbers=c.lowered.numbers,
        blends=c.blends,
        narrower=_narrower(c),
        logits=frozenset() if c.plan.certificate.exact else logits(c),
    )
    return Ports(renamed=c.renamed).then(widths)  # the widths are those of the layers that it has now


def logits(c: Analysis) -> frozenset[str]:
    """Outputs that look like scores of many units: a weight makes their last axis, which has no name but
    `vocab`.
    """
    by_node = {i.node: i for i in c.axes.instances}
    named = {find(s) for n, found in c.roles.axes.items() if n != "vocab" for a in found for s in a.spaces}
    static = static_values(c.graph)
    return frozenset(
        value.name
        for value in c.graph.outputs
        if value.floating and value.rank > 1 and value not in {s.present for s in c.axes.states}
        if (last := find(c.axes.of(value)[-1])).static and last.size[0] > 1 and last not in named
        if _is_product(value, by_node, static)
    )


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


def _narrower(c: Result) -> bool:
    stages = c.lowered.stages
    return any(r.drops and r.space.addressed is not None for s in stages for r in s.requests.values())
