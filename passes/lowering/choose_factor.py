"""Where the map of a named axis goes: which atoms of its spaces take which part of it.

Needs: the spaces of an axis, its sizes before and after. Gives: a `Place` for every atom that is mapped.
Raises GrowError (G304, G305) where no atom can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from growc.algebra.space import Reason, Space, atoms_of, find, leaves
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.ir.graph import Node
from growc.ir.lowered_statement import Sizes
from growc.passes.axes.infer import Axes
from growc.recipe.option_rules import CHOSEN

APART = "its units are cut apart, one by one, and each has what reads it"


SINGLE = "each has a network of its own, and no stack holds them"


class FixedError(GrowError):
    """An axis cannot change its size (G304), whatever the size. cause: why, and at which node."""

    def __init__(self, diagnostic: Diagnostic, cause: str) -> None:
        super().__init__(diagnostic)
        self.cause = cause


@dataclass(frozen=True)
class Place:
    """An atom, its size before and after, and how many of its elements one unit has."""

    space: Space
    before: int
    after: int
    unit: int


@dataclass(frozen=True)
class Placing:
    """Places of the axis `name`, which the recipe names at `axis` and gives a size at `size`.

    `front`: of a product, the outermost factor that can takes the map, else the innermost one.
    """

    axes: Axes
    sizes: Sizes
    name: str
    axis: Span
    size: Span
    front: bool = False
    at: Node | None = None
    """The attention whose heads they are."""
    grows: bool = False
    """Whether units are to be more, which what chooses from them does not follow."""

    def fixed(self, space: Space) -> Reason | None:
        """Why a space cannot take the map."""
        return space.frozen or (space.chosen if self.grows and not self.follows(space) else None)

    def follows(self, space: Space) -> bool:
        """Whether what chooses from units can be told to choose from more: their networks lie in a stack."""
        return self.name in CHOSEN and not self.axes.taken_singly(space)

    def resized(self, spaces: Sequence[Space], before: int, after: int, block: int = 1) -> list[Place]:
        """The atoms that take the map of a row-major product."""
        if not spaces:
            raise self.uncounted()
        if len(spaces) > 1:
            return self._factor(spaces, before, after, block)
        space = find(spaces[0])
        if space.frozen is None and self.grows and self.name in CHOSEN and self.axes.taken_singly(space):
            raise self.refused(SINGLE)
        if self.fixed(space) is not None:
            raise self.frozen(space)
        if space.kind == "sum" and not any(True for _ in leaves(space)):
            raise self.apart(space)
        if space.kind == "sum":
            return self._segments(space, before, after, block)
        if space.kind == "product":
            return self.resized(list(space.parts), before, after, block)
        if space.unit:
            raise self.refused(f"a part of it is a single unit{self.where(space)}")
        if before % block or after % block:
            sizes = f"goes from {before} to {after} units, and blocks of {block} cut it"
            raise GrowError(Diagnostic("G305", f"a part of `{self.name}` {sizes}", self.size))
        return [Place(space, before, after, block)]

    def all_of(self, spaces: Sequence[Space]) -> list[Place]:
        """Every atom of an axis that keeps its size."""
        atoms = dict.fromkeys(atoms_of(spaces))
        free = [x for x in atoms if self.fixed(x) is None]
        if not free:
            apart = len(spaces) == 1 and find(spaces[0]).kind == "sum"
            raise (
                self.frozen(find(spaces[0]))
                if atoms
                else self.apart(spaces[0])
                if apart
                else self.uncounted()
            )
        sizes = [self.sizes.of(x)[0] for x in free]
        return [Place(x, n, n, 1) for x, n in zip(free, sizes, strict=True)]

    def _factor(self, spaces: Sequence[Space], before: int, after: int, block: int) -> list[Place]:
        order = list(spaces) if self.front else list(spaces)[::-1]
        for space in order:
            size = self.sizes.of(space)[0]
            if all(self.fixed(x) is not None for x in leaves(space)) or after * size % before:
                continue
            inner = math.prod(self.sizes.of(s)[0] for s in spaces[spaces.index(space) + 1 :])
            if block % inner and inner % block:
                continue
            try:
                return self.resized([space], size, after * size // before, max(block // inner, 1))
            except GrowError:
                continue
        free = [s for s in spaces if not all(self.fixed(x) is not None for x in leaves(s))]
        if not free:
            raise self.frozen(find(spaces[0]))
        parts = " x ".join(str(self.sizes.of(s)[0]) for s in spaces)
        wanted = f"{after}" if block == 1 else f"{after} in blocks of {block}"
        message = f"`{self.name}` is made of {parts} units, and {wanted} keeps none of these factors whole"
        multiple = math.lcm(before // min(self.sizes.of(s)[0] for s in free), block)
        raise GrowError(Diagnostic("G305", message, self.size, help=f"use a multiple of {multiple}"))

    def _segments(self, space: Space, before: int, after: int, block: int) -> list[Place]:
        found: list[Place] = []
        for part in space.parts:
            size = self.sizes.of(part)[0]
            if after * size % before:
                cause = f"`{self.name}` has segments, and one of {size} units would not come out whole"
                raise GrowError(Diagnostic("G305", cause, self.size))
            found += self.resized([part], size, after * size // before, block)
        return found

    def apart(self, space: Space) -> FixedError:
        """Units that are cut apart cannot go, and what would be left behind."""
        for one in self.axes.experts:
            if one.refusal is not None and find(self.axes.of(one.whole)[one.axis]) is find(space):
                node = one.refusal.node
                assert isinstance(node, Node)
                return self.refused(f"{APART}; `{node.name or node.kind}` ({node.kind}) {one.refusal.cause}")
        return self.refused(APART + self.where(space))

    def where(self, space: Space) -> str:
        """The first node that reads or makes an axis which is this space, for what is said."""
        for node in (instance.node for instance in self.axes.instances):
            values = (*node.operands, *node.outputs)
            if any(find(one) is find(space) for value in values for one in self.axes.of(value)):
                return _at(node)
        return ""

    def uncounted(self) -> FixedError:
        """No axis of any tensor counts them."""
        where = "" if self.at is None else _at(self.at)
        return self.refused(f"there is one, and nothing counts it{where}")

    def refused(
        self, cause: str, label: str = "", notes: tuple[str, ...] = (), remedy: str = ""
    ) -> FixedError:
        """The axis cannot change."""
        message = f"`{self.name}` cannot change its size: {cause}"
        return FixedError(Diagnostic("G304", message, self.axis, label, notes, remedy), cause)

    def frozen(self, space: Space) -> FixedError:
        """The axis cannot change, and where it was frozen."""
        from growc.passes.roles.why_tied import way_to_reason

        found = next((x for x in [space, *leaves(space)] if self.fixed(x) is not None), space)
        reason = self.fixed(found)
        if reason is None:
            return self.apart(space)
        node, cause, remedy = reason.node, reason.cause, reason.remedy
        if not isinstance(node, Node):
            return self.refused(cause, "frozen", (), remedy)
        way = [f"{n.kind} {n.name}".rstrip() for n in way_to_reason(self.axes, found, reason)]
        notes = (f"it comes there by {', '.join(way)}",) if way else ()
        return self.refused(f"{cause}, at `{node.name or node.kind}`", "frozen", notes)


def _at(node: Node) -> str:
    return f", at `{node.name or node.kind}`"
