"""Scores of units, as numbers along axes of the source, and the spaces that they belong to.

A ranking asks for the units of a space in the current model. If its layers have moved, an axis of a copied
layer is found in the source by a weight that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, find, leaves
from growc.ir.graph import Value
from growc.passes.axes.infer import Axes
from growc.passes.ranking.magnitude import placed


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers along some axes."""

    spaces: Sequence[Space]
    values: Floats


Tables = Mapping[Space, Sequence[Table]]
"""For each atom, the tables whose sum is the score of its units."""


def scored(tables: Tables, units: Sequence[Space], *, exactly: bool = False) -> Floats:
    """The score of each unit of a product of atoms: the sum over tables of the mean of the unit's numbers.

    exactly: whether to use only tables of exactly these atoms.
    """
    atoms = [find(s) for s in units]
    total = np.zeros(int(np.prod([a.size[0] for a in atoms], dtype=np.int64)))
    for table in tables.get(atoms[0], ()):
        if exactly and list(table.spaces) != atoms:
            continue
        numbers_and_units = placed(table.spaces, table.values, atoms)
        if numbers_and_units is not None:
            values, unit = numbers_and_units
            inside = unit >= 0
            sums = np.bincount(unit[inside], values[inside], len(total))
            total += sums / np.maximum(np.bincount(unit[inside], minlength=len(total)), 1)
    return total


@dataclass(frozen=True)
class MeasuredScores:
    """Measured scores.

    source: for each atom, its counterpart in the source; None if the model is the source.
    missing: why units have no score.
    exactly: whether the score of a unit of a product is not that of its parts.
    """

    tables: Tables
    source: Mapping[Space, Space] | None = None
    missing: str = "nothing reads them"
    exactly: bool = False

    def importance(self, units: Sequence[Space]) -> Floats | None:
        """The score of every unit of a product of atoms; None if they have no measurement."""
        atoms = [a for u in units if (a := find(u)).size[0] > 1] or [find(u) for u in units]
        source_atoms = atoms if self.source is None else [self.source.get(a) for a in atoms]
        matching = [
            s for s, a in zip(source_atoms, atoms, strict=True) if s is not None and s.size[0] == a.size[0]
        ]
        if len(matching) < len(atoms) or any(s not in self.tables for s in matching):
            return None
        if self.exactly and not any([*t.spaces] == matching for a in matching for t in self.tables[a]):
            return None
        return scored(self.tables, matching, exactly=self.exactly)


def counterparts(axes: Axes, source: Axes) -> dict[Space, Space]:
    """For each atom, the atom of the source at the same place of a weight that the source uses once."""
    count = Counter(_root(use) for use in source.graph.uses())
    once = {_root(use): use for use in source.graph.uses() if count[_root(use)] == 1}
    counterpart: dict[Space, Space] = {}
    for use in axes.graph.uses():
        source_use = once.get(_root(use))
        if source_use is None or len(axes.of(use)) != len(source.of(source_use)):
            continue  # a network that became a mixture is a stack now
        for own_space, source_space in zip(axes.of(use), source.of(source_use), strict=True):
            pairs = list(zip(_several(own_space), _several(source_space), strict=False))
            if [a.size for a, _ in pairs] == [b.size for _, b in pairs]:
                counterpart.update((a, b) for a, b in pairs if a not in counterpart)
    return counterpart


def _several(space: Space) -> Iterator[Space]:
    """The atoms of an axis that have several units."""
    return (atom for atom in leaves(space) if atom.size[0] > 1)


def _root(use: Value) -> str:
    assert use.weight is not None
    return use.weight.root
