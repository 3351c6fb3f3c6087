"""Axes that a statement on many axes leaves alone, because the model's class has no config for the change.

Needs: the analysed model, and the kept axes by the names of their tensors. Gives: the spaces that stay.
"""

from __future__ import annotations

from growc.algebra.space import Space, atoms_of
from growc.passes.compilation import Request


def spaces_kept(c: Request) -> set[Space]:
    """The atoms of the axes that stay as they are."""
    uses = ((use, use.weight.name) for use in c.graph.uses() if c.kept.axes and use.weight is not None)
    places = ((use, axis, (name, axis)) for use, name in uses for axis in range(len(c.axes.of(use))))
    return {
        atom
        for use, axis, place in places
        if place in c.kept.axes
        for atom in atoms_of(c.axes.of(use)[axis : axis + 1])
    }
