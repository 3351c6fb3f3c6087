"""Sizes that an operand lists: of a Reshape, an Expand.

Needs: the sizes that the result is to have, and the operand's value after the change. Gives: patches of the
operand, the best first. Right elements stay, static sizes are written, and at most one element is -1. A
number that is the same at all sample points is not static if it depends on a node that makes one size of
several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from growc.algebra.space import Size
from growc.dialects.onnx.repair.patch import part_of
from growc.dialects.onnx.shapes.conflated_sizes import varies
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.ir.graph import Node, Value
from growc.passes.edits import Part, Patch

ListedSize = int | Part | None
"""The new element: a number, a part of a number at run time, or None for the present one."""


def listed(
    node: Node, value: Value, wanted: Sequence[Size], sim: Simulation, may_vary: Callable[[int], bool]
) -> list[Patch]:
    """Return patches of the operand `value`; none if no list gives the wanted sizes.

    may_vary: whether an element may differ elsewhere from its value at the sample points.
    """
    i = node.laws.shape
    assert i is not None
    listing = _Listing(node, value, sim, may_vary)
    entries = [listing.entry(axis, size, len(wanted)) for axis, size in enumerate(wanted)]
    inferred = [k for k, size in enumerate(wanted) if listing.is_inferred(k, size)]
    if inferred and -1 in entries:  # only one element may be -1
        entries = [wanted[k][0] if k in inferred else e for k, e in enumerate(entries)]
        inferred = []
    if (not listing.reshapes and -1 in entries) or entries.count(-1) > 1:
        return []
    patches = [Patch({i: tuple(entries)})]
    unchanged = [k for k, e in enumerate(entries) if e is None]
    dynamic = [k for k in unchanged if k in inferred or not listing.is_static(k, wanted[k])]
    if listing.reshapes and len(dynamic) <= 1 and -1 not in entries:
        fixed = [-1 if k in dynamic else 0 if e == 0 else wanted[k][0] for k, e in enumerate(entries)]
        patches.insert(0, Patch({i: tuple(fixed)}))
    return patches


class _Listing:
    """The sizes that an operand lists after the change."""

    def __init__(self, node: Node, value: Value, sim: Simulation, may_vary: Callable[[int], bool]) -> None:
        self.node, self.value, self.sim, self.may_vary = node, value, sim, may_vary
        known = sim.known.get(value)
        self.old = None if known is None else [k.reshape(-1) for k in known]
        read = node.inputs[0] if node.laws.shape else None
        self.source = None if read is None else sim.sizes.get(read)
        self.reshapes = node.op == "Reshape"

    def now(self, axis: int) -> tuple[int, ...] | None:
        """Return the element at each sample point."""
        return None if self.old is None else tuple(int(o[axis]) if axis < o.size else -2 for o in self.old)

    def is_static(self, axis: int, size: Size) -> bool:
        """Whether a size is the same for all inputs."""
        return not varies(size) and not self.may_vary(axis)

    def is_inferred(self, axis: int, size: Size) -> bool:
        """Whether a size is the same at all sample points, and the list leaves it to be inferred."""
        return not varies(size) and self.reshapes and set(self.now(axis) or ()) == {-1}

    def entry(self, axis: int, size: Size, rank: int) -> ListedSize:
        """Return the new element."""
        current, source = self.now(axis), self.source
        at = axis - rank + len(source or ())
        stays = source is not None and at >= 0 and source[at] == size
        if self.node.op == "Expand" and current is not None and set(current) == {1} and stays:
            return None  # a 1 keeps the size of the operand
        zeros = self.reshapes and not self.node.attributes.get("allowzero", 0)
        if zeros and current is not None and not any(current) and (source or ())[axis : axis + 1] == (size,):
            return 0  # a 0 copies the size of the operand
        if current == size or self.is_inferred(axis, size):
            return None  # at other points it may be another size
        part = part_of(self.value, axis, size, self.sim)
        if part is not None and not self.is_static(axis, size):
            return part
        return -1 if varies(size) else size[0]
