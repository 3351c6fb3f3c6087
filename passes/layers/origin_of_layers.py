"""The origin of a layer's axes and weights before a statement, so that copies draw the numbers of their
source.

Needs: the axis graph and the layers of the result, which know their history. Gives: `Ancestry`. A statement
before `stack` gives copies the same draws as the layer that they come from. A statement after it gives each
layer draws of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from growc.algebra.space import Space, atoms_of
from growc.ir.graph import Value, Weight
from growc.passes.axes.infer import Axes
from growc.passes.layers.layer_runs import LayerPlace, Layers


class Ancestry:
    """The origins of the layers, in models whose layers moved.

    In other models everything is its own origin.
    """

    def __init__(self, axes: Axes, layers: Layers) -> None:
        self.layers = layers
        moved = {number for number, run in enumerate(layers.runs) if run.history.moved}
        self.home = {node: place for node, place in layers.home.items() if place[0] in moved}
        self.atoms: dict[Space, LayerPlace | None] = {}
        self.uses: dict[Value, tuple[str, int]] = {}
        count: Counter[Weight] = Counter()
        for use in axes.graph.uses() if self.home else ():
            assert use.weight is not None
            self.uses[use] = (use.weight.root, count[use.weight])
            count[use.weight] += 1
            place = self.place(use)
            for atom in atoms_of(axes.of(use)):
                self.atoms[atom] = place if self.atoms.get(atom, place) == place else None

    def place(self, use: Value) -> LayerPlace | None:
        """The layer that reads a weight."""
        return None if use.reader is None else self.home.get(use.reader)

    def before(self, place: LayerPlace, moment: int) -> LayerPlace:
        """The number of a layer, or of the layer it comes from, before the statement `moment`."""
        run, layer = place
        return run, self.layers.runs[run].history.number_before(layer, moment)

    def identity(self, use: Value, moment: int) -> object:
        """A value that is equal for uses of a weight that were one use before the statement `moment`."""
        place = self.place(use)
        return use if place is None else (self.uses[use], self.before(place, moment))

    def ordinals(self, targets: Sequence[Sequence[Space]], moment: int) -> list[int]:
        """For each axis of a statement, the ordinal that it or its origin had among them."""
        keys: list[tuple[int, int, int]] = []
        seen: Counter[LayerPlace] = Counter()
        for target in targets:
            atoms = list(atoms_of(target))
            place = next((p for a in atoms if (p := self.atoms.get(a)) is not None), None)
            if place is None:
                keys.append((-1, 0, len(keys)))
            else:
                keys.append((*self.before(place, moment), seen[place]))
                seen[place] += 1
        ordinals = _in_order(keys)
        return [ordinals[key] for key in keys]


def _in_order(keys: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
    """Ordinals in order of appearance; within a run, the places follow the order of its layers."""
    once = list(dict.fromkeys(keys))
    ranked = {run: iter(list(places)) for run, places in groupby(sorted(once), itemgetter(0))}
    return {next(ranked[run]): ordinal for ordinal, (run, _, _) in enumerate(once)}
