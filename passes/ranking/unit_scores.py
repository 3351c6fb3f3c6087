"""Scores of units, and of which spaces they are: numbers along axes of the source, whatever they come from.

A ranking asks for the units of a space as a model has it. Where layers of the model stand elsewhere by now,
an axis of a copy is found again in the source by a weight that bears both.
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
    """The score of each unit of a product of atoms: the sum over tables of the mean of what is the unit's.
    exactly: those tables alone that are of these atoms.
    """
    atoms = [find(s) for s in units]
    total = np.zeros(int(np.prod([a.size[0] for a in atoms], dtype=np.int64)))
    for table in tables.get(atoms[0], ()):
        if exactly and list(table.spaces) != atoms:
            continue
        found = placed(table.spaces, table.values, atoms)
        if found is not None:
            values, unit = found
            inside = unit >= 0
            sums = np.bincount(unit[inside], values[inside], len(total))
            total += sums / np.maximum(np.bincount(unit[inside], minlength=len(total)), 1)
    return total


@dataclass(frozen=True)
class Measured:
    """`source`: for each atom that of the source; None where both are the same. missing: why units have no
    score. exactly: the score of a unit of a product is not that of its parts.
    """

    tables: Tables
    source: Mapping[Space, Space] | None = None
    missing: str = "nothing reads them"
    exactly: bool = False

    def importance(self, units: Sequence[Space]) -> Floats | None:
        """The score of every unit of a product of atoms; None where these are not read."""
        atoms = [a for u in units if (a := find(u)).size[0] > 1] or [find(u) for u in units]
        found = atoms if self.source is None else [self.source.get(a) for a in atoms]
        known = [s for s, a in zip(found, atoms, strict=True) if s is not None and s.size[0] == a.size[0]]
        if len(known) < len(atoms) or any(s not in self.tables for s in known):
            return None
        if self.exactly and not any([*t.spaces] == known for a in known for t in self.tables[a]):
            return None
        return scored(self.tables, known, exactly=self.exactly)


def counterparts(axes: Axes, source: Axes) -> dict[Space, Space]:
    """For each atom that of the source's at the same place of a weight that it uses once."""
    count = Counter(_root(use) for use in source.graph.uses())
    once = {_root(use): use for use in source.graph.uses() if count[_root(use)] == 1}
    found: dict[Space, Space] = {}
    for use in axes.graph.uses():
        other = once.get(_root(use))
        if other is None:
            continue
        for here, there in zip(axes.of(use), source.of(other), strict=True):
            pairs = list(zip(_several(here), _several(there), strict=False))
            if [a.size for a, _ in pairs] == [b.size for _, b in pairs]:
                found.update((a, b) for a, b in pairs if a not in found)
    return found


def _several(space: Space) -> Iterator[Space]:
    """The atoms of an axis that have several units."""
    return (atom for atom in leaves(space) if atom.size[0] > 1)


def _root(use: Value) -> str:
    assert use.weight is not None
    return use.weight.root
