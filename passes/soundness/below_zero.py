"""Numbers below zero, which count from the end of an axis: that moves when units are appended.

Needs: the axis graph, one lowered statement. Gives: a gap for each look-up on an axis that changes its size
whose numbers cannot be shown to be not negative, and the model inputs that were taken to hold none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from growc.algebra.space import Space, atoms_of
from growc.ir.graph import Node, Value
from growc.ir.lowered_statement import Stage
from growc.passes.axes.infer import Axes, Instance
from growc.passes.dataflow.ranges import Ranges
from growc.plans.plan import Gap

REMEDY = "numbers modulo the source's size, or clamped at zero where they are never below, are exact"


@dataclass
class BelowZero:
    """All look-ups of a graph. `constants`: those by stored numbers, which are written anew."""

    axes: Axes
    constants: Mapping[Node, object]
    ranges: Ranges
    assumed: dict[str, None] = field(default_factory=dict)
    """The inputs on which something rests, by name."""

    def gaps(self, stage: Stage) -> Iterator[Gap]:
        """What a statement makes of them."""
        resized = {k for k, r in stage.requests.items() if r.map.size != r.map.source}
        for instance in self.axes.instances:
            node = instance.node
            if node not in self.constants and self._numbers(instance, resized):
                yield from self._judged(node, stage.axis)

    def _numbers(self, instance: Instance, resized: set[Space]) -> bool:
        """Whether a node numbers units of an axis that changes its size."""
        taken = (self.axes.of(value)[axis] for i, value, axis in instance.numbered() if i == 0)
        return any(leaf in resized for leaf in atoms_of(taken))

    def _judged(self, node: Node, axis: str) -> Iterator[Gap]:
        for i in dict.fromkeys(address.operand for address in node.addresses):
            value = node.input(i)
            found = None if value is None else self.ranges.of(value)
            if found is not None and found.low < 0:
                cause = f"the numbers by which {node.kind} takes units of {axis} may be negative, "
                cause += "and would count from an end that moves"
                yield Gap.at(node, cause, REMEDY)
                return
            inputs: frozenset[Value] = frozenset() if found is None else found.rests
            self.assumed.update((v.name, None) for v in sorted(inputs, key=lambda v: v.name))

    @property
    def notes(self) -> Iterator[str]:
        """The assumption, in words."""
        if self.assumed:
            listed = ", ".join(f"`{name}`" for name in self.assumed)
            are = "is" if len(self.assumed) == 1 else "are"
            yield f"{listed} {are} taken to hold no negative numbers: they would count from an end that moves"
