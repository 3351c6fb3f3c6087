"""Assignment of an axis's map to the atoms of its spaces.

Needs: the spaces of an axis, its sizes before and after. Gives: a `SizedAtom` for every atom that is mapped.
Raises GrowError (G304, G305) if no atom can take the map.
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

CUT_APART = "its units are cut apart, one by one, and each has what reads it"
"""Why an axis cannot change if the graph separates its units and each has readers of its own."""


SINGLE = "each has a network of its own, and no stack holds them"
"""Why an axis cannot change if each of its units is a separate network."""


class FixedError(GrowError):
    """An axis that cannot change to any size (G304).

    cause: why, and at which node.
    """

    def __init__(self, diagnostic: Diagnostic, cause: str) -> None:
        super().__init__(diagnostic)
        self.cause = cause


@dataclass(frozen=True)
class SizedAtom:
    """An atom, its size before and after, and the number of its elements in one unit."""

    space: Space
    before: int
    after: int
    unit: int


@dataclass(frozen=True)
class Placing:
    """Finds the atoms that take the map of the axis `name`.

    axis, size: where the recipe names the axis and its size.
    front: whether the outermost factor of a product takes the map if it can; otherwise the innermost one.
    """

    axes: Axes
    sizes: Sizes
    name: str
    axis: Span
    size: Span
    front: bool = False
    at: Node | None = None
    """The attention that the heads belong to."""
    grows: bool = False
    """Whether the axis grows. Rankings that choose units cannot always choose from more."""

    def fixed(self, space: Space) -> Reason | None:
        """Why a space cannot take the map; None if it can."""
        return space.frozen or (space.chosen if self.grows and not self.follows(space) else None)

    def follows(self, space: Space) -> bool:
        """Whether the routers that choose units can choose from more: the units' networks must lie in a
        stack.
        """
        return self.name in CHOSEN and not self.axes.taken_singly(space)

    def resized(self, spaces: Sequence[Space], before: int, after: int, block: int = 1) -> list[SizedAtom]:
        """The atoms that take the map of a row-major product. Raises GrowError (G304, G305) if none can."""
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
        return [SizedAtom(space, before, after, block)]

    def all_of(self, spaces: Sequence[Space]) -> list[SizedAtom]:
        """The atoms of an axis that keeps its size and can take a map.

        Raises FixedError (G304) if there are none.
        """
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
        return [SizedAtom(x, n, n, 1) for x, n in zip(free, sizes, strict=True)]

    def _factor(self, spaces: Sequence[Space], before: int, after: int, block: int) -> list[SizedAtom]:
        order = list(spaces) if self.front else list(spaces)[::-1]
        for space in order:
            size = self.sizes.of(space)[0]
            if all(self.fixed(leaf) is not None for leaf in leaves(space)) or after * size % before:
                continue
            inner = math.prod(self.sizes.of(s)[0] for s in spaces[spaces.index(space) + 1 :])
            if block % inner and inner % block:
                continue
            try:
                return self.resized([space], size, after * size // before, max(block // inner, 1))
            except GrowError:
                continue
        free = [s for s in spaces if not all(self.fixed(leaf) is not None for leaf in leaves(s))]
        if not free:
            raise self.frozen(find(spaces[0]))
        parts = " x ".join(str(self.sizes.of(s)[0]) for s in spaces)
        target = f"{after}" if block == 1 else f"{after} in blocks of {block}"
        message = f"`{self.name}` is made of {parts} units, and {target} keeps none of these factors whole"
        multiple = math.lcm(before // min(self.sizes.of(s)[0] for s in free), block)
        raise GrowError(Diagnostic("G305", message, self.size, help=f"use a multiple of {multiple}"))

    def _segments(self, space: Space, before: int, after: int, block: int) -> list[SizedAtom]:
        places: list[SizedAtom] = []
        for part in space.parts:
            size = self.sizes.of(part)[0]
            if after * size % before:
                cause = f"`{self.name}` has segments, and one of {size} units would not come out whole"
                raise GrowError(Diagnostic("G305", cause, self.size))
            places += self.resized([part], size, after * size // before, block)
        return places

    def apart(self, space: Space) -> FixedError:
        """The error for units that the graph takes apart, with the node that prevents their removal."""
        for experts in self.axes.experts:
            if experts.refusal is not None and find(self.axes.of(experts.whole)[experts.axis]) is find(space):
                node = experts.refusal.node
                assert isinstance(node, Node)
                return self.refused(
                    f"{CUT_APART}; `{node.name or node.kind}` ({node.kind}) {experts.refusal.cause}"
                )
        return self.refused(CUT_APART + self.where(space))

    def where(self, space: Space) -> str:
        """The first node that reads or makes an axis on this space, as text for a message."""
        for node in (instance.node for instance in self.axes.instances):
            values = (*node.operands, *node.outputs)
            if any(find(axis_space) is find(space) for value in values for axis_space in self.axes.of(value)):
                return _at(node)
        return ""

    def uncounted(self) -> FixedError:
        """The error for units that no axis of any tensor counts."""
        where = "" if self.at is None else _at(self.at)
        return self.refused(f"there is one, and nothing counts it{where}")

    def refused(
        self, cause: str, label: str = "", notes: tuple[str, ...] = (), remedy: str = ""
    ) -> FixedError:
        """The error for an axis that cannot change its size."""
        message = f"`{self.name}` cannot change its size: {cause}"
        return FixedError(Diagnostic("G304", message, self.axis, label, notes, remedy), cause)

    def frozen(self, space: Space) -> FixedError:
        """The error for a frozen axis, with the node that froze it."""
        from growc.passes.roles.why_tied import way_to_reason

        frozen_space = next((x for x in [space, *leaves(space)] if self.fixed(x) is not None), space)
        reason = self.fixed(frozen_space)
        if reason is None:
            return self.apart(space)
        node, cause, remedy = reason.node, reason.cause, reason.remedy
        if not isinstance(node, Node):
            return self.refused(cause, "frozen", (), remedy)
        path = [f"{n.kind} {n.name}".rstrip() for n in way_to_reason(self.axes, frozen_space, reason)]
        notes = (f"it comes there by {', '.join(path)}",) if path else ()
        return self.refused(f"{cause}, at `{node.name or node.kind}`", "frozen", notes)


def _at(node: Node) -> str:
    return f", at `{node.name or node.kind}`"
