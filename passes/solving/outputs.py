"""What becomes of the axes of model outputs, statement by statement.

Needs: the map that each statement leaves on an axis; where units become means of several, its matrix. Gives:
the composed maps, and for axes with such means the composed matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from growc.algebra.indexmap import Floats, IndexMap

Place = tuple[str, int]
"""An output by name, and one of its axes."""


@dataclass
class Outgoing:
    """`maps` of all axes that change; `blends`: matrices of those on which units are means of several."""

    maps: dict[Place, IndexMap] = field(default_factory=dict)
    blends: dict[Place, Floats] = field(default_factory=dict)

    def follow(self, place: Place, state: IndexMap, matrix: Floats | None = None) -> None:
        """One statement more. `matrix`: what it does where `state` cannot say it."""
        first = self.maps.get(place)
        if matrix is not None or place in self.blends:
            own = np.nan_to_num(state.matrix()) if matrix is None else matrix
            before = None if first is None else np.nan_to_num(first.matrix())
            before = self.blends.get(place, before)
            self.blends[place] = own if before is None else own @ before
        self.maps[place] = state if first is None else state.after(first)
