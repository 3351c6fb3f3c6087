"""Units that training can never tell apart, and units that get no gradient.

Needs: the steps of every use of a weight, the lowered statements, roles and layers of the result. Gives:
`Alike`, for each axis of a statement on which units of the result are inseparable.

Two units are inseparable, dropout aside, where exchanging them leaves the result unchanged. That is so where
their slices of every weight that makes, scales or reads them are equal (docs/theory.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from growc.algebra.indexmap import Bools, Floats, Ints
from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Value
from growc.ir.lowered_statement import SpaceRequest, Stage
from growc.passes.compilation import Stored
from growc.passes.finish.step_effects import Probe, standing_for
from growc.passes.roles.name_axes import RoleAxis
from growc.passes.solving.solution import Solution
from growc.plans.plan import Alike, AxisStep
from growc.recipe.fills import Entry
from growc.recipe.option_rules import ADDED_UP


@dataclass
class AtomUnits:
    """The units of one atom of the result.

    kinds: a number for each unit; units with equal numbers are alike. dead: units that are zero behind zero
    readers."""

    kinds: Ints
    dead: Bools

    @property
    def different(self) -> int:
        """The number of units, where units that are alike count once. Each dead unit counts."""
        return int(np.count_nonzero(np.bincount(self.kinds[~self.dead])) + self.dead.sum())

    @property
    def alike(self) -> Bools:
        """The units that are like another one."""
        return np.asarray((np.bincount(self.kinds)[self.kinds] > 1) & ~self.dead)


@dataclass
class Symmetry:
    """The units that the plan of a compilation leaves alike."""

    c: Stored
    uses: dict[Space, list[Value]] = field(default_factory=lambda: defaultdict(list))
    """For each atom, the uses of weights that have an axis of it."""

    def __post_init__(self) -> None:
        for use in self.c.graph.uses():
            for atom in set(atoms_of(self.c.axes.of(use))):
                if use not in self.c.lowered.taken.gone:
                    self.uses[atom].append(use)
        self.weights = {w.name: w for w in self.c.graph.weights}
        self.home = self.c.layers.home

    def found(self) -> Iterator[Alike]:
        """Yield one entry for each axis with units that are alike or dead, in the order of the statements."""
        by_atom: dict[Space, list[tuple[Stage, SpaceRequest]]] = defaultdict(list)
        before_move: dict[Space, int] = {}
        for stage in self.c.lowered.stages:
            for atom, request in stage.requests.items():
                by_atom[atom].append((stage, request))
            before_move |= {x: len(by_atom[x]) for one in stage.regroups for x in (one.keys, one.group)}
        grown = {atom: mine for atom, mine in by_atom.items() if any(r.fill for _, r in mine)}
        judged = {atom: self.units(mine[-1][1].space) for atom, mine in grown.items()}
        seen: set[object] = set()
        for atom, mine in grown.items():
            units = judged[atom]
            if units is None or not (units.alike.any() or units.dead.any()):
                continue
            name = next(stage.axis for stage, request in reversed(mine) if request.fill)
            axis = self.axis(name, mine[-1][1].space)
            if axis not in seen:
                seen.add(axis)
                recent = mine[before_move.get(atom, 0) :]  # without maps of units before groups moved
                cure = (
                    remedy(recent, units.alike, self.shares(mine[-1][1].space)) if units.alike.any() else ""
                )
                yield self.entry(name, axis, judged, cure)

    def axis(self, name: str, atom: Space) -> RoleAxis:
        """The axis of a statement that an atom is a factor of."""
        return self.named.get((name, atom)) or RoleAxis((atom,))

    @cached_property
    def named(self) -> dict[tuple[str, Space], RoleAxis]:
        """For each name and atom, the first axis of the name that the atom is a factor of."""
        axis_by_name_and_atom: dict[tuple[str, Space], RoleAxis] = {}
        for name, axes in self.c.roles.axes.items():
            for axis in axes:
                for atom in atoms_of(axis.spaces):
                    axis_by_name_and_atom.setdefault((name, atom), axis)
        return axis_by_name_and_atom

    def entry(self, name: str, axis: RoleAxis, judged: Mapping[Space, AtomUnits | None], cure: str) -> Alike:
        """The entry of one axis."""
        atoms = dict.fromkeys(atoms_of(axis.spaces))
        total = self.c.lowered.sizes.product(axis.spaces)
        different, alive = total, total
        for units in filter(None, (judged.get(atom) for atom in atoms)):
            size = len(units.kinds)
            different = different // size * units.different
            alive = alive // size * (size - int(units.dead.sum()))
        homes = {self.place(use) for atom in atoms for use in self.uses[atom]}
        place = homes.pop() if len(homes) == 1 else None
        scope = "" if place is None else self.c.layers.runs[place[0]].scope
        return Alike(name, total, different, total - alive, scope, None if place is None else place[1], cure)

    def place(self, use: Value) -> tuple[int, int] | None:
        """The run and the layer that a weight works in; None outside of layers."""
        return None if use.reader is None else self.home.get(use.reader)

    def shares(self, atom: Space) -> bool:
        """Whether some weight that reads the units can give copies different shares."""
        uses = self.uses[find(atom)]
        plain = [u for u in uses if u.weight and u.weight.floating and not (u.weight.zero or u.weight.stored)]
        return any(
            step.verb == "reads" and find(atom) in leaves(self.c.axes.of(use)[step.axis])
            for use in plain
            for step in self.c.steps.get(use, ())
        )

    # ---------------------------------------------------------------- one atom

    def units(self, atom: Space) -> AtomUnits | None:
        """The units of an atom. None where callers of the model number them: each unit gets other data."""
        atom = find(atom)
        size = self.c.lowered.sizes.of(atom)[0]
        if atom.addressed is not None:
            return None
        key, dead = np.zeros(size), np.ones(size, dtype=bool)
        random = np.random.default_rng(1)
        for use in self.uses[atom]:
            for axis, space in enumerate(self.c.axes.of(use)):
                occurrences = [x for x in leaves(space) if x is atom]
                if not occurrences:
                    continue
                slices = self.slices(use, axis, atom)
                if slices is None:
                    return None
                key += random.random() * _summed(slices, random)
                if not any(s.axis == axis and s.verb == "scales" for s in self.c.steps.get(use, ())):
                    dead &= ~slices.any(axis=1)
        reached = self.c.heard.get(atom, np.zeros(size, dtype=bool))
        dead &= ~reached
        kinds = np.unique(key, return_inverse=True)[1].reshape(-1)
        return AtomUnits(kinds, dead)

    def slices(self, use: Value, axis: int, atom: Space) -> Floats | None:
        """Numbers that stand for the slice of each unit along an axis of a weight, shape (units, numbers).

        None where the axis is a product in which the atom stands twice.
        """
        weight = use.weight
        assert weight is not None
        place = self.places(self.c.axes.of(use)[axis], atom)
        size = self.c.lowered.sizes.of(atom)[0]
        if place is None:
            return None
        steps: Sequence[AxisStep] = self.c.steps.get(use, ())
        numbers = Probe(axis, weight.zero, self.stored).follow(weight.name, steps)
        order = np.argsort(place, kind="stable")
        return np.ascontiguousarray(numbers[order[(place < 0).sum() :]].reshape(size, -1))

    def stored(self, name: str, axis: int) -> Floats:
        """Numbers that stand for the slices of a stored tensor before any step; zeros for a zero tensor."""
        weight = self.weights[name]
        size = weight.stored_shape[axis]
        return np.zeros(size) if weight.zero else standing_for(weight.root, axis, size)

    def places(self, space: Space, atom: Space) -> Ints | None:
        """For each element of an axis, the unit of the atom that it belongs to, or -1.

        None where the atom stands twice in a product.
        """
        space = find(space)
        if space is atom:
            return np.arange(self.c.lowered.sizes.of(atom)[0])
        if space.kind == "atom":
            return np.full(self.c.lowered.sizes.of(space)[0], -1)
        inner = [self.places(p, atom) for p in space.parts]
        parts = [p for p in inner if p is not None]
        if len(parts) < len(inner):
            return None
        if space.kind == "sum":
            return np.concatenate(parts)
        places = parts[0]
        for part in parts[1:]:
            if (places >= 0).any() and (part >= 0).any():
                return None
            places = np.maximum(places[:, None], part[None, :]).reshape(-1)
        return places


def _summed(slices: Floats, random: np.random.Generator) -> Floats:
    """One number for each slice, equal for equal slices. Rounded, since means of means differ by rounding."""
    summed = (slices * random.random(slices.shape[1])).sum(axis=1)
    return np.asarray(np.round(summed / max(float(np.abs(summed).max(initial=0.0)), 1e-300), 9))


def remedy(mine: Sequence[tuple[Stage, SpaceRequest]], alike: Bools, shares: bool) -> str:
    """The remedy by which a statement on an atom would tell its units apart; empty where there is none.

    `mine`: the statements that map the atom. `shares`: whether readers can give copies different shares.
    """
    rows = np.flatnonzero(alike)
    for stage, request in reversed(mine):
        index_map, options = request.map, stage.options
        rows = rows[rows >= 0]
        means = bool((index_map.mean[rows] != 0).any())
        copied = index_map.counts[index_map.index[rows]][index_map.index[rows] >= 0] > 1
        fresh = bool(request.new[rows].any())
        if stage.choices and copied.any():
            return CHOSEN_TOGETHER if options.noise is None or options.on_readers else ""
        if fresh and options.zero_outputs and request.entries.making is not Entry.DRAWN:
            return "`random fill` draws new units, each for itself"
        if means and options.noise is None:
            size = f"{stage.axis} to {index_map.size // request.unit}"
            return f"`widen {size} with neighbor copy split random` in front of that keeps all apart"
        if shares and copied.any() and not options.split_random and options.noise is None:
            return SHARES
        if fresh and not shares and stage.axis in ADDED_UP:
            return "`random fill with zero outputs` draws new units, each for itself"
        rows = index_map.index[rows]
    return ""


CHOSEN_TOGETHER = "`noise 0.01` lets training tell them apart, and changes the function a little"
SHARES = "`split random` or `noise 0.01 balanced` lets training tell them apart"


def units_that_are_read(solution: Solution, before: Mapping[Space, Bools]) -> dict[Space, Bools]:
    """For each atom that a statement maps, the units that reach a reader with values other than zero."""
    reached: dict[Space, Bools] = {}
    for atom, request in solution.stage.requests.items():
        reached_before = before.get(atom, np.ones(request.map.source, dtype=bool))
        copies = request.map.index >= 0
        reached[atom] = copies & reached_before[np.where(copies, request.map.index, 0)]
    for root, state in solution.read.items():
        atom = find(solution.links.atoms[root])
        if atom in reached and len(reached[atom]) == state.size:
            fresh = solution.stage.requests[atom].map.index < 0
            reached[atom] |= fresh & ~state.zeros
    return {**before, **reached}
