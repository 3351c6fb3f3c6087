"""Negative unit numbers, which count from the end of an axis: the end moves when units are appended.

Needs: the axis graph, one lowered statement. Gives: a gap for each look-up on a resized axis whose numbers
may be negative, and the model inputs that are assumed to hold no negative numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from growc.algebra.space import Space, atoms_of
from growc.ir.graph import Node, Value
from growc.ir.lowered_statement import Stage
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.dataflow.ranges import Ranges
from growc.plans.plan import Gap

REMEDY = "numbers modulo the source's size, or clamped at zero where they are never below, are exact"


@dataclass
class BelowZero:
    """The look-ups of a graph. `constants`: look-ups by stored numbers, which the result rewrites."""

    axes: Axes
    constants: Mapping[Node, object]
    ranges: Ranges
    assumed: dict[str, None] = field(default_factory=dict)
    """The names of the inputs that are assumed to hold no negative numbers."""

    def gaps(self, stage: Stage) -> Iterator[Gap]:
        """Yield the gaps of a statement."""
        resized = {k for k, r in stage.requests.items() if r.map.size != r.map.source}
        for instance in self.axes.instances:
            node = instance.node
            if node not in self.constants and self._numbers(instance, resized):
                yield from self._judged(node, stage.axis)

    def _numbers(self, instance: LineInstance, resized: set[Space]) -> bool:
        """Whether a node numbers units of an axis that changes its size."""
        numbered_spaces = (self.axes.of(value)[axis] for i, value, axis in instance.numbered() if i == 0)
        return any(leaf in resized for leaf in atoms_of(numbered_spaces))

    def _judged(self, node: Node, axis: str) -> Iterator[Gap]:
        for i in dict.fromkeys(address.operand for address in node.addresses):
            value = node.input(i)
            interval = None if value is None else self.ranges.of(value)
            if interval is not None and interval.low < 0:
                cause = f"the numbers by which {node.kind} takes units of {axis} may be negative, "
                cause += "and would count from an end that moves"
                yield Gap.at(node, cause, REMEDY)
                return
            inputs: frozenset[Value] = frozenset() if interval is None else interval.rests
            self.assumed.update((v.name, None) for v in sorted(inputs, key=lambda v: v.name))

    @property
    def notes(self) -> Iterator[str]:
        """Yield the assumption about inputs, as a note."""
        if self.assumed:
            listed = ", ".join(f"`{name}`" for name in self.assumed)
            are = "is" if len(self.assumed) == 1 else "are"
            yield f"{listed} {are} taken to hold no negative numbers: they would count from an end that moves"
