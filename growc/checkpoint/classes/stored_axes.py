"""The axes of stored tensors: their spaces, what a recipe calls them, and which statement resized them.

Needs: a compilation of a class with weights. Gives: `StoredAxes`, by names that the result's class has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from growc.algebra.space import Space, factors, find
from growc.checkpoint.classes.model import held_model
from growc.passes.compilation import Result
from growc.resolve.bound import Bound

Place = tuple[str, int]
"""A tensor's name and the number of an axis."""


@dataclass(frozen=True)
class StoredAxes:
    """first: of all names of a tensor the first, by which the graph knows it."""

    c: Result
    spaces: dict[Place, Space]
    first: Callable[[str], str]

    @staticmethod
    def of(c: Result) -> StoredAxes:
        """Those of a compilation."""
        names = held_model(c).holder.first
        found: dict[Place, Space] = {}
        for use in c.graph.uses():
            assert use.weight is not None
            for axis, space in enumerate(c.axes.of(use)):
                found[use.weight.name, axis] = space
        return StoredAxes(c, found, lambda name: names.get(name, name))

    def at(self, place: Place) -> Space | None:
        """The space of an axis; nothing for a tensor that the program does not use."""
        space = self.spaces.get((self.first(place[0]), place[1]))
        return None if space is None else find(space)

    def called(self, name: str, axis: int) -> tuple[str, int] | None:
        """What a recipe calls an axis, or its outermost factors, and their planned size."""
        return next(iter(self.named(name, axis)), None)

    def named(self, name: str, axis: int) -> list[tuple[str, int]]:
        """What a recipe calls an axis, its outermost factors and its innermost, and their planned sizes."""
        space = self.at((name, axis))
        if space is None:
            return []
        named: dict[tuple[Space, ...], str] = {}
        for role, axes in self.c.roles.axes.items():
            for one in axes:
                named.setdefault(_identity(one.spaces), role)
        parts = factors(space)
        outer = (parts[:n] for n in range(len(parts), 0, -1))
        inner = (parts[n:] for n in range(1, len(parts)))
        found = (some for some in ([space], *outer, *inner) if _identity(some) in named)
        sizes = {named[_identity(some)]: self.c.lowered.sizes.product(some) for some in found}
        return [*sizes.items()]

    def resized(self, place: Place) -> Bound | None:
        """The last statement that resizes an axis as a whole."""
        space = self.at(place)
        whole = [] if space is None else [space, *factors(space)]  # a factor takes the map of a product
        for stage in reversed(self.c.lowered.stages):
            if any(part in stage.requests for part in whole):
                return next((b for b in self.c.statements if b.number == stage.number), None)
        return None


def _identity(spaces: Sequence[Space]) -> tuple[Space, ...]:
    return tuple(map(find, spaces))
