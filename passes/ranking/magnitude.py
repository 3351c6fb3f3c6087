"""How large the weights of each unit are: the ranking `by magnitude`.

Needs: the axis graph, the ties. Gives: for every unit of a space the L2 norm over all weights that make or
read it, each tensor divided by its own Frobenius norm. Tied weights are one; running statistics are none.
Networks of which each unit has one of its own count as if their tensors were stacked.
Every weight is read once, and kept no longer than it is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod

import numpy as np

from growc.algebra.indexmap import Array, Floats, Ints
from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Index, Value, wide
from growc.passes.axes.infer import Axes
from growc.passes.axes.ties import Tie
from growc.passes.axes.unstacked_experts import Experts

READ, SQUARED = 1 << 20, 1 << 16
"""Elements of a weight that are read at a time, and that are squared: in double precision these fit a
cache."""

AT_ONCE = 2
"""So many of these readings go on at once."""

FIRST = 2
"""The sums along so many axes of a weight are made in one reading: along others, a kernel's extent, units are
hardly ever ranked."""


@dataclass
class Magnitudes:
    """Sums of squares along the axes of every weight, remembered."""

    axes: Axes
    ties: Sequence[Tie] = ()
    sums: dict[tuple[Value, tuple[int, ...]], Floats] = field(default_factory=dict)
    uses: dict[Space, list[Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        left_out = {use for tie in self.ties for use in tie.uses[1:]} | self._statistics()
        for use in self.axes.graph.uses():
            if use.weight is None or not use.weight.floating or use in left_out:
                continue
            for atom in set(atoms_of(self.axes.of(use))):
                self.uses.setdefault(atom, []).append(use)

    def of(self, units: Sequence[Space]) -> Floats:
        """The score of each unit of a row-major product of atoms."""
        atoms = [find(s) for s in units]
        sizes = [a.size[0] for a in atoms]
        total = np.zeros(int(np.prod(sizes, dtype=np.int64)))
        for use in self.uses.get(atoms[0], []):
            found = self._placed(use, atoms)
            if found is not None:
                norm = found[0].sum()
                total += _summed(found, len(total)) / norm if norm > 0 else 0.0
        total += self._networks(atoms, len(total))
        scores: Floats = np.sqrt(total)
        return scores

    def _networks(self, atoms: Sequence[Space], units: int) -> Floats:
        """What networks of their own add to the scores of units: corresponding tensors count as one stack."""
        total = np.zeros(units)
        for experts in (e for e in self.axes.experts if e.refusal is None):
            space = find(self.axes.of(experts.whole)[experts.axis])
            own = [self._own(experts, unit) for unit in range(space.size[0])]
            if len({tuple(u.sizes or () for u in uses) for uses in own}) == 1:
                table = np.array([[self._squares(use, ()).sum() for use in uses] for uses in own])
                shares = (table / np.maximum(table.sum(axis=0), np.finfo(float).tiny)).sum(axis=1)
                total += _summed(placed([space], shares, atoms), units)
        return total

    @staticmethod
    def _own(experts: Experts, unit: int) -> list[Value]:
        return [u for u in experts.networks.get(unit, ()) if u.weight is not None and u.weight.floating]

    def _placed(self, use: Value, atoms: Sequence[Space]) -> tuple[Floats, Ints] | None:
        spaces = self.axes.of(use)
        bearing = [k for k, s in enumerate(spaces) if any(x in atoms for x in leaves(s))]
        return placed([spaces[k] for k in bearing], self._squares(use, tuple(bearing)), atoms)

    def _squares(self, use: Value, kept: tuple[int, ...]) -> Floats:
        if (use, kept) not in self.sums:
            assert use.weight is not None
            asked = [kept, *((axis,) for axis in range(min(use.rank, FIRST)) if (axis,) != kept)]
            found = squares(use.weight.reader(), use.weight.shape, asked)
            self.sums |= {(use, some): sums for some, sums in zip(asked, found, strict=True)}
        return self.sums[use, kept]

    def _statistics(self) -> set[Value]:
        """Means and variances that norms have seen."""
        found = [i.node.inputs[3:] for i in self.axes.instances if i.line.treatment == "per_channel"]
        return {value for values in found for value in values if value is not None}


def placed(spaces: Sequence[Space], values: Floats, atoms: Sequence[Space]) -> tuple[Floats, Ints] | None:
    """Numbers along some axes, and the unit of a product of atoms that each belongs to (-1: none), both flat.

    None where the axes lack one of the atoms.
    """
    if not all(any(x is a for x in atoms_of(spaces)) for a in atoms):
        return None
    unit = np.zeros(values.shape, dtype=np.int64)
    present = np.ones(values.shape, dtype=bool)
    for atom in atoms:
        at = np.full(values.shape, -1)
        for k, space in enumerate(spaces):
            own = coordinates(space, atom).reshape([-1 if i == k else 1 for i in range(len(spaces))])
            at = np.where(own >= 0, own, at)
        unit = unit * atom.size[0] + np.maximum(at, 0)
        present &= at >= 0
    return values.reshape(-1), np.where(present, unit, -1).reshape(-1)


def _summed(numbers: tuple[Floats, Ints] | None, units: int) -> Floats:
    """The sum of the numbers of each unit."""
    if numbers is None:
        return np.zeros(units)
    values, unit = numbers
    return np.asarray(np.bincount(unit[unit >= 0], values[unit >= 0], units), dtype=np.float64)


def squares(
    read: Callable[[Index], Array], shape: tuple[int, ...], kept: Sequence[tuple[int, ...]]
) -> list[Floats]:
    """Sums of squares over all axes but some that are kept, for several of these, in one reading: a few rows
    at a time, which `read` brings.
    """
    whole = shape or (1,)
    gone = [tuple(a for a in range(len(whole)) if a not in some) for some in kept]
    row = max(prod(whole[1:]), 1)

    def summed(some: slice) -> list[list[Floats]]:
        parts: list[list[Floats]] = [[] for _ in kept]
        rows = read((some,)) if shape else read(()).reshape(1)
        for few in _runs(len(rows), SQUARED // row):
            block = wide(rows[few])
            squared = np.square(np.abs(block) if block.dtype.kind == "c" else block)
            for own, axes in zip(parts, gone, strict=True):
                own.append(squared.sum(axis=axes))
        return parts

    runs = list(_runs(whole[0], READ // row))
    if len(runs) == 1:
        found = [summed(runs[0])]
    else:
        with ThreadPoolExecutor(AT_ONCE) as threads:  # numpy computes without Python's lock
            found = list(threads.map(summed, runs))
    made = [[one for parts in found for one in parts[k]] for k in range(len(kept))]
    return [
        np.concatenate(own) if 0 in some else np.sum(own, axis=0)
        for some, own in zip(kept, made, strict=True)
    ]


def _runs(count: int, step: int) -> Iterator[slice]:
    """Slices that follow each other, one at least."""
    for start in range(0, max(count, 1), max(step, 1)):
        yield slice(start, start + max(step, 1))


def coordinates(space: Space, atom: Space) -> Ints:
    """Which unit of an atom each element along an axis belongs to; -1 where the atom is not in it."""
    space = find(space)
    if space.kind == "atom":
        n = space.size[0]
        return np.arange(n) if space is atom else np.full(n, -1)
    parts = [coordinates(p, atom) for p in space.parts]
    if space.kind == "sum":
        return np.concatenate(parts)
    made = parts[0]
    for part in parts[1:]:
        made = np.maximum(made[:, None], part[None, :]).reshape(-1)
    return made
