"""Axes along which a model computes numbers of its own, which no weight of the result can follow.

Needs: a simulated axis graph. Gives: for atoms, what tells their units apart. Such numbers are of places: a
map may leave units away at the end, or put new ones behind them, but not move them.
"""

from __future__ import annotations

from growc.algebra.space import Reason, Space, leaves
from growc.ir.graph import Value
from growc.ir.traits import JOIN, REPEAT, SAME, SIZES, SUM, VIEW, WRITE
from growc.passes.axes.infer import Axes


def computed_along(axes: Axes) -> dict[Space, Reason]:
    """For every atom that a known value which is no weight tells units of apart, where that is."""
    found: dict[Space, Reason] = {}
    for instance in axes.instances:
        for value in instance.node.inputs:
            if value is None or value.known is None or value.weight is not None or _addresses(value):
                continue
            for axis, space in enumerate(axes.of(value)):
                if _differs(value, axis):
                    reason = Reason(instance.node, "numbers are computed that differ along it")
                    found.update((x, reason) for x in leaves(space) if x.static and x not in found)
    return found


GRIDS = (SAME, VIEW, REPEAT, JOIN, SUM)
"""Traits of what an exporter makes the addresses of an assignment with."""


def _addresses(value: Value) -> bool:
    """Whether numbers say nothing but where something is written: mending accounts for those."""
    return bool(value.users) and all(
        node.has(SIZES)
        or (node.has(WRITE) and any(one.operand == i and one.column is not None for one in node.addresses))
        or (node.has(*GRIDS) and all(map(_addresses, node.outputs)))
        for node, i in value.users
    )


def _differs(value: Value, axis: int) -> bool:
    """Whether the elements along an axis are not all alike."""
    known = [k for k in value.known or () if k.ndim > axis and k.shape[axis] > 1]
    return any((k != k.take([0], axis)).any() for k in known)
