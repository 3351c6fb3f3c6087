"""What a layer's axes and weights were before a statement: draws for a copied layer are those of its source.

Needs: the axis graph and the layers of the result, which know their past. Gives: `Ancestry`. A statement that
stands before `stack` gives copies what it gives the layer that they come from; one behind it gives each layer
draws of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from growc.algebra.space import Space, atoms_of
from growc.ir.graph import Value, Weight
from growc.passes.axes.infer import Axes
from growc.passes.layers.layer_runs import Layers

Place = tuple[int, int]
"""(run, layer)"""


class Ancestry:
    """Only models whose layers moved have one; in others everything is what it was."""

    def __init__(self, axes: Axes, layers: Layers) -> None:
        self.layers = layers
        moved = {number for number, run in enumerate(layers.runs) if run.history.moved}
        self.home = {node: place for node, place in layers.home.items() if place[0] in moved}
        self.atoms: dict[Space, Place | None] = {}
        self.uses: dict[Value, tuple[str, int]] = {}
        count: Counter[Weight] = Counter()
        for use in axes.graph.uses() if self.home else ():
            assert use.weight is not None
            self.uses[use] = (use.weight.root, count[use.weight])
            count[use.weight] += 1
            place = self.place(use)
            for atom in atoms_of(axes.of(use)):
                self.atoms[atom] = place if self.atoms.get(atom, place) == place else None

    def place(self, use: Value) -> Place | None:
        """The layer that reads a weight."""
        return None if use.reader is None else self.home.get(use.reader)

    def before(self, place: Place, moment: int) -> Place:
        """The number of a layer, or of the one that it comes from, before a statement."""
        run, layer = place
        return run, self.layers.runs[run].history.number_before(layer, moment)

    def identity(self, use: Value, moment: int) -> object:
        """Equal for uses of a weight that were one before a statement."""
        place = self.place(use)
        return use if place is None else (self.uses[use], self.before(place, moment))

    def ordinals(self, targets: Sequence[Sequence[Space]], moment: int) -> list[int]:
        """For each axis of a statement the number that it, or what it comes from, had among them."""
        keys: list[tuple[int, int, int]] = []
        seen: Counter[Place] = Counter()
        for target in targets:
            atoms = list(atoms_of(target))
            place = next((p for a in atoms if (p := self.atoms.get(a)) is not None), None)
            if place is None:
                keys.append((-1, 0, len(keys)))
            else:
                keys.append((*self.before(place, moment), seen[place]))
                seen[place] += 1
        found = _in_order(keys)
        return [found[key] for key in keys]


def _in_order(keys: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
    """Numbers in order of appearance; the places of one run in the order of its layers."""
    once = list(dict.fromkeys(keys))
    ranked = {run: iter(list(mine)) for run, mine in groupby(sorted(once), itemgetter(0))}
    return {next(ranked[run]): ordinal for ordinal, (run, _, _) in enumerate(once)}
