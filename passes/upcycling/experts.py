"""The weights of mixtures that networks become: copies of the network, and new routers.

Needs: a graph with mixtures (growc.passes.edits.Mixture), the statements. Gives: for every stored tensor of a
mixture the steps that make it of the one network, at the moment of the statement.

1. A stack has the network's tensor once for each expert: E_i = W. `noise S` is added to the matrices of every
   expert but the first: N(0, S · std(W)).
2. `reset P` draws floor(P · f) of the f units of every expert, others for each. Matrices that make or read
   these units are N(mean(W), std(W)²) there, with mean and deviation of the whole tensor. Vectors are 0, or 1
   where they multiply (Nakamura et al. 2025, section 3).
3. `in M parts`: experts c·M to c·M + M − 1 are one copy, of which the s-th has the units s·f/M to
   (s + 1)·f/M − 1. It has them in front, and the statement leaves the others out. M times its matrix reads
   them, since each part has the M-th part of the weight of a copy (He et al. 2024, virtual groups).
4. A router is new: R ~ N(0, DEVIATION). Earlier statements have no effect on its rows. All parts of a copy
   have one row, so that they are chosen together.

Every draw is keyed by the statement, the network, its layer, and the number of the tensor within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Bools, Ints
from growc.algebra.space import Space, atoms_of, find
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Upcycled, Value
from growc.ir.lowered_statement import Sizes
from growc.passes.compilation import Request
from growc.passes.layers.layer_runs import Layers
from growc.passes.upcycling.network_units import unit_numbers
from growc.passes.upcycling.networks import parts_of
from growc.plans.plan import DRAWN, ONE, ZERO, AxisStep, Gap, Layout, LeafStep, Noise, Within
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import evaluate
from growc.recipe.scope_keys import scope_key

DEVIATION = 0.02
"""The standard deviation of new routers (Komatsuzaki et al. 2022, section 3)."""

NAME = "experts"
"""The name of the axis that the steps make, as the plan shows it."""


@dataclass(frozen=True)
class Stacked:
    """One use of a stored tensor of a mixture, with the steps that make the tensor.

    spaces: of its axes. inner: the atom in them that counts the network's units, if there is one. draws: for
    the tensor. drawn_units: for all tensors of the network.
    """

    use: Value
    mark: Upcycled
    statement: ast.Upcycle
    spaces: Sequence[Space]
    inner: Space | None
    draws: Draws
    drawn_units: Draws

    @property
    def moment(self) -> int:
        """The number of the statement."""
        return self.mark.statement

    def steps(self, sizes: Sizes) -> Iterator[AxisStep]:
        """Yield the steps of the tensor. sizes: of its axes before them."""
        assert self.use.weight is not None
        order = self.use.weight.order
        assert order is not None
        count = len(order.units)
        ones, none = np.ones(count), np.zeros(count, dtype=np.int64)
        if self.mark.router:
            yield from self.routed(order.axis, count, sizes.of(self.spaces[1 - order.axis])[0])
            return
        weight = ones * self.parts if self.mark.reads else ones
        within = self.within(count, sizes)
        copies = LeafStep(1, order.units, weight, none, noise=self.noise(count), within=within)
        yield self.step(order.axis, copies)

    @property
    def parts(self) -> int:
        """How many experts are one copy together."""
        return parts_of(self.statement)

    def routed(self, axis: int, count: int, rows: int) -> Iterator[AxisStep]:
        """Yield the steps of a router. Its rows are drawn, and all parts of a copy have the same."""
        copies = count // self.parts
        none = np.zeros(count, dtype=np.int64)
        yield self.step(axis, LeafStep(1, none[:copies], np.ones(copies), none[:copies]))
        drawn = np.full(rows, DEVIATION), np.full(rows, DRAWN)
        yield self.step(1 - axis, LeafStep(rows, np.full(rows, -1), *drawn, self.draws.key))
        if self.parts > 1:
            yield self.step(axis, LeafStep(copies, np.arange(count) // self.parts, np.ones(count), none))

    @staticmethod
    def step(axis: int, leaf: LeafStep) -> AxisStep:
        """A step on one axis of the tensor."""
        return AxisStep(axis, Layout("leaf", (), leaf), "makes", NAME)

    def within(self, count: int, sizes: Sizes) -> Within | None:
        """The units of every expert: its part of the network's in front, some of them drawn."""
        if self.inner is None or (not self.statement.reset and self.parts == 1):
            return None
        axis = next(k for k, space in enumerate(self.spaces) if self.inner in atoms_of([space]))
        units = unit_numbers(self.spaces[axis], self.inner, sizes)
        size = sizes.of(self.inner)[0]
        own = size // self.parts
        first = np.arange(count) % self.parts * own
        index = moved_units(units, (np.arange(size) + first[:, None]) % size)
        drawn = np.zeros((count, size), dtype=bool)
        drawn[:, :own] = self.drawn(count, own)
        index[drawn[:, units] & (units >= 0)] = -1
        behind = int(np.prod([sizes.of(space)[0] for space in self.spaces[axis + 1 :]], dtype=np.int64))
        reader = self.use.reader
        scales = reader is not None and reader.treatment == "multiply"
        filler = DRAWN if self.is_matrix else ONE if scales else ZERO
        return Within(index, behind, filler, self.draws.at("reset").key)

    def drawn(self, count: int, size: int) -> Bools:
        """Whether each unit of each expert is drawn: shape (count, size), the same for all tensors."""
        some = int(self.statement.reset * size + 1e-9)
        numbers = self.drawn_units.uniform(0, count * size).reshape(count, size)
        ranks = np.argsort(np.argsort(numbers, axis=1, kind="stable"), axis=1)
        return ranks < some

    @property
    def is_matrix(self) -> bool:
        """Whether each expert has a matrix of real numbers here."""
        weight = self.use.weight
        assert weight is not None
        return weight.floating and sum(size > 1 for size in weight.stored_shape) > 1

    def noise(self, count: int) -> Noise | None:
        """The noise on copies; None for a vector, or where the statement asks for none."""
        if not self.statement.noise or not self.is_matrix:
            return None
        rows = np.arange(count) > 0
        return Noise(self.draws.at("noise").key, self.statement.noise, rows, np.arange(count))


def moved_units(units: Ints, order: Ints) -> Ints:
    """Where the elements of an axis come from, if its units take another order in each row.

    units: for each element its unit, -1 for none. order: shape (rows, units), the unit that each place takes.
    An element keeps its number among those of its unit.
    """
    without = np.count_nonzero(units < 0)
    places = np.argsort(units, kind="stable")[without:].reshape(order.shape[1], -1)
    index = np.tile(np.arange(len(units)), (len(order), 1))
    index[:, places] = places[order]
    return index


def stacked(c: Request) -> list[Stacked]:
    """The stored tensors of all mixtures, with their statements and draws. Raises GrowError (G304)."""
    bound_by_number = {b.number: b for b in c.statements}
    inner = set(atoms_of(s for axis in c.roles.axes.get("ffn", ()) for s in axis.spaces))
    stacks = []
    for use in c.graph.uses():
        mark = None if use.weight is None else use.weight.upcycled
        if mark is None:
            continue
        bound = bound_by_number[mark.statement]
        statement = bound.statement
        assert isinstance(statement, ast.Upcycle)
        seed = 0 if statement.seed is None else evaluate(statement.seed, lambda size: 0)
        scope = scope_key(bound.scopes)
        draws = Draws.of(seed, bound.number, NAME, scope, mark.network)
        layer = _layer(use, c.layers, bound.number)
        spaces = c.axes.of(use)
        units = list(dict.fromkeys(atom for atom in atoms_of(spaces) if atom in inner))
        if len(units) > 1 and (statement.reset or statement.parts):
            message = "several axes number the units of the network: `reset` and `parts` take one"
            raise GrowError(Diagnostic("G304", message, statement.span))
        first = units[0] if units else None
        of_units = draws.at(layer, "units")
        stacks.append(Stacked(use, mark, statement, spaces, first, draws.at(layer, mark.part), of_units))
    return stacks


def _layer(use: Value, layers: Layers, moment: int) -> int:
    """The number that the layer of a use had before a statement, 0 outside of layers."""
    place = None if use.reader is None else layers.home.get(use.reader)
    return 0 if place is None else layers.runs[place[0]].history.number_before(place[1], moment)


def made_here(c: Request) -> set[Space]:
    """The spaces that number the experts of mixtures that statements make."""
    orders = ((use, use.weight.order) for use in c.graph.uses() if use.weight and use.weight.upcycled)
    return {find(c.axes.of(use)[order.axis]) for use, order in orders if order is not None}


def gaps(stacks: Sequence[Stacked]) -> Iterator[Gap]:
    """Where experts differ, the router's choice decides what the model computes."""
    for one in stacks:
        if not one.mark.router:
            continue
        if one.statement.noise:
            message = "noise on experts: what is chosen is not what the network computed"
            yield Gap.at(one.use.reader, message)
        if one.statement.reset:
            message = "units of experts are drawn: what is chosen is not what the network computed"
            yield Gap.at(one.use.reader, message)
