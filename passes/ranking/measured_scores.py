"""What was measured on the source, for the units of the model whose layers may stand elsewhere by now.

Needs: the readings of the source and their means; the axis graph that rankings ask about. Gives: `Measured`.
Where layers have moved, an axis of a copy is found again in the source by a weight that bears both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, find, leaves
from growc.ir.graph import Value
from growc.passes.axes.infer import Axes
from growc.passes.ranking.activation_sites import Activations


@dataclass(frozen=True)
class Measured:
    """`source`: for each atom that of the source; None where both are the same."""

    activations: Activations
    means: Sequence[Floats]
    source: Mapping[Space, Space] | None = None

    def importance(self, units: Sequence[Space]) -> Floats | None:
        """The score of every unit of a product of atoms; None where these are not read."""
        atoms = [a for u in units if (a := find(u)).size[0] > 1] or [find(u) for u in units]
        found = atoms if self.source is None else [self.source.get(a) for a in atoms]
        known = [s for s, a in zip(found, atoms, strict=True) if s is not None and s.size[0] == a.size[0]]
        if len(known) < len(atoms) or any(s not in self.activations.of_atom for s in known):
            return None
        return self.activations.scores(self.means, known)


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
