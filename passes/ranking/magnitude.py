"""The ranking `by magnitude`: how large the weights of each unit are.

Needs: the axis graph, the ties. Gives: for every unit of a space the L2 norm over all weights that make or
read it, each tensor divided by its own Frobenius norm. Tied weights count once; running statistics do not
count. Networks that belong to single units count as if their tensors were stacked. Every weight is read once,
and kept no longer than it takes to sum it up.
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
from growc.passes.axes.unstacked_experts import UnstackedExperts

READ, SQUARED = 1 << 20, 1 << 16
"""Elements of a weight that are read at a time, and that are squared: in double precision these fit a
cache."""

AT_ONCE = 2
"""The number of readings of a weight that run in parallel."""

FIRST = 2
"""Sums along this many leading axes of a weight are made in one reading.

Along other axes, such as a kernel's extent, units are hardly ever ranked.
"""


@dataclass
class Magnitudes:
    """Sums of squares along the axes of every weight, cached."""

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
            placed_squares = self._placed(use, atoms)
            if placed_squares is not None:
                norm = placed_squares[0].sum()
                total += _summed(placed_squares, len(total)) / norm if norm > 0 else 0.0
        total += self._networks(atoms, len(total))
        scores: Floats = np.sqrt(total)
        return scores

    def _networks(self, atoms: Sequence[Space], units: int) -> Floats:
        """The share of scores that comes from networks of single units: corresponding tensors count as one
        stack.
        """
        total = np.zeros(units)
        for experts in (e for e in self.axes.experts if e.refusal is None):
            space = find(self.axes.of(experts.whole)[experts.axis])
            uses_by_unit = [self._own(experts, unit) for unit in range(space.size[0])]
            if len({tuple(u.sizes or () for u in uses) for uses in uses_by_unit}) == 1:
                table = np.array([[self._squares(use, ()).sum() for use in uses] for uses in uses_by_unit])
                shares = (table / np.maximum(table.sum(axis=0), np.finfo(float).tiny)).sum(axis=1)
                total += _summed(placed([space], shares, atoms), units)
        return total

    @staticmethod
    def _own(experts: UnstackedExperts, unit: int) -> list[Value]:
        return [u for u in experts.networks.get(unit, ()) if u.weight is not None and u.weight.floating]

    def _placed(self, use: Value, atoms: Sequence[Space]) -> tuple[Floats, Ints] | None:
        spaces = self.axes.of(use)
        bearing = [k for k, s in enumerate(spaces) if any(x in atoms for x in leaves(s))]
        return placed([spaces[k] for k in bearing], self._squares(use, tuple(bearing)), atoms)

    def _squares(self, use: Value, kept: tuple[int, ...]) -> Floats:
        if (use, kept) not in self.sums:
            assert use.weight is not None
            axis_sets = [kept, *((axis,) for axis in range(min(use.rank, FIRST)) if (axis,) != kept)]
            all_sums = squares(use.weight.reader(), use.weight.shape, axis_sets)
            self.sums |= {(use, some): sums for some, sums in zip(axis_sets, all_sums, strict=True)}
        return self.sums[use, kept]

    def _statistics(self) -> set[Value]:
        """The running means and variances of norms."""
        operands = [i.node.inputs[3:] for i in self.axes.instances if i.line.treatment == "per_channel"]
        return {value for values in operands for value in values if value is not None}


def placed(spaces: Sequence[Space], values: Floats, atoms: Sequence[Space]) -> tuple[Floats, Ints] | None:
    """Numbers along some axes, and for each the unit of a product of atoms that it belongs to (-1: none),
    both flat.

    None if the axes lack one of the atoms.
    """
    if not all(any(other_atom is a for other_atom in atoms_of(spaces)) for a in atoms):
        return None
    unit = np.zeros(values.shape, dtype=np.int64)
    present = np.ones(values.shape, dtype=bool)
    for atom in atoms:
        at = np.full(values.shape, -1)
        for k, space in enumerate(spaces):
            coordinate = coordinates(space, atom).reshape([-1 if i == k else 1 for i in range(len(spaces))])
            at = np.where(coordinate >= 0, coordinate, at)
        unit = unit * atom.size[0] + np.maximum(at, 0)
        present &= at >= 0
    return values.reshape(-1), np.where(present, unit, -1).reshape(-1)


def _summed(numbers: tuple[Floats, Ints] | None, units: int) -> Floats:
    """The sum of the numbers of each unit. Shape: (units,)."""
    if numbers is None:
        return np.zeros(units)
    values, unit = numbers
    return np.asarray(np.bincount(unit[unit >= 0], values[unit >= 0], units), dtype=np.float64)


def squares(
    read: Callable[[Index], Array], shape: tuple[int, ...], kept: Sequence[tuple[int, ...]]
) -> list[Floats]:
    """Sums of squares over all axes except those in `kept`, for several such sets in one reading.

    read: reads a few rows at a time.
    """
    full_shape = shape or (1,)
    summed_axes = [tuple(a for a in range(len(full_shape)) if a not in some) for some in kept]
    row = max(prod(full_shape[1:]), 1)

    def summed(some: slice) -> list[list[Floats]]:
        parts: list[list[Floats]] = [[] for _ in kept]
        rows = read((some,)) if shape else read(()).reshape(1)
        for few in _runs(len(rows), SQUARED // row):
            block = wide(rows[few])
            squared = np.square(np.abs(block) if block.dtype.kind == "c" else block)
            for run_sums, axes in zip(parts, summed_axes, strict=True):
                run_sums.append(squared.sum(axis=axes))
        return parts

    runs = list(_runs(full_shape[0], READ // row))
    if len(runs) == 1:
        run_parts = [summed(runs[0])]
    else:
        with ThreadPoolExecutor(AT_ONCE) as threads:  # NumPy releases Python's lock while it computes.
            run_parts = list(threads.map(summed, runs))
    parts_by_kept = [[part for parts in run_parts for part in parts[k]] for k in range(len(kept))]
    return [
        np.concatenate(run_sums) if 0 in some else np.sum(run_sums, axis=0)
        for some, run_sums in zip(kept, parts_by_kept, strict=True)
    ]


def _runs(count: int, step: int) -> Iterator[slice]:
    """Consecutive slices that cover `count` elements; at least one."""
    for start in range(0, max(count, 1), max(step, 1)):
        yield slice(start, start + max(step, 1))


def coordinates(space: Space, atom: Space) -> Ints:
    """The unit of an atom that each element along an axis belongs to; -1 if the element has none."""
    space = find(space)
    if space.kind == "atom":
        n = space.size[0]
        return np.arange(n) if space is atom else np.full(n, -1)
    parts = [coordinates(p, atom) for p in space.parts]
    if space.kind == "sum":
        return np.concatenate(parts)
    combined = parts[0]
    for part in parts[1:]:
        combined = np.maximum(combined[:, None], part[None, :]).reshape(-1)
    return combined
