"""The axes of stored tensors: their spaces, their names in a recipe, and the statements that resize them.

Needs: a compilation of a class with weights. Gives: `StoredAxes`, by names of the result's class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from growc.algebra.space import Space, factors, find
from growc.checkpoint.classes.model import class_model
from growc.passes.compilation import Result
from growc.resolve.bound import Bound

StoredAxis = tuple[str, int]
"""A tensor's name and the number of an axis."""


@dataclass(frozen=True)
class StoredAxes:
    """The axes of stored tensors. first: maps a tensor's name to its first name, by which the graph
    knows it.
    """

    c: Result
    spaces: dict[StoredAxis, Space]
    first: Callable[[str], str]

    @staticmethod
    def of(c: Result) -> StoredAxes:
        """The stored axes of a compilation."""
        names = class_model(c).class_weights.first
        spaces: dict[StoredAxis, Space] = {}
        for use in c.graph.uses():
            assert use.weight is not None
            for axis, space in enumerate(c.axes.of(use)):
                spaces[use.weight.name, axis] = space
        return StoredAxes(c, spaces, lambda name: names.get(name, name))

    def at(self, place: StoredAxis) -> Space | None:
        """The space of an axis; None for a tensor that the program does not use."""
        space = self.spaces.get((self.first(place[0]), place[1]))
        return None if space is None else find(space)

    def called(self, name: str, axis: int) -> tuple[str, int] | None:
        """The role and planned size of an axis, or of its outermost factors, if it has a role."""
        return next(iter(self.named(name, axis)), None)

    def named(self, name: str, axis: int) -> list[tuple[str, int]]:
        """The roles, with planned sizes, of an axis, of its outermost factors and of its innermost
        factors.
        """
        space = self.at((name, axis))
        if space is None:
            return []
        named: dict[tuple[Space, ...], str] = {}
        for role, axes in self.c.roles.axes.items():
            for axis_spaces in axes:
                named.setdefault(_identity(axis_spaces.spaces), role)
        parts = factors(space)
        outer = (parts[:n] for n in range(len(parts), 0, -1))
        inner = (parts[n:] for n in range(1, len(parts)))
        runs = (run for run in ([space], *outer, *inner) if _identity(run) in named)
        sizes = {named[_identity(run)]: self.c.lowered.sizes.product(run) for run in runs}
        return [*sizes.items()]

    def resized(self, place: StoredAxis) -> Bound | None:
        """The last statement that resizes an axis as a whole."""
        space = self.at(place)
        whole = [] if space is None else [space, *factors(space)]  # a product's map acts on its factors
        for stage in reversed(self.c.lowered.stages):
            if any(part in stage.requests for part in whole):
                return next((b for b in self.c.statements if b.number == stage.number), None)
        return None


def _identity(spaces: Sequence[Space]) -> tuple[Space, ...]:
    return tuple(map(find, spaces))
