"""What stands in mixtures that networks become: copies of the network, and routers that are drawn.

Needs: a graph with mixtures (growc.passes.edits.Mixture), the statements. Gives: for every stored tensor of a
mixture the steps that make it of the one network, at the moment of the statement.

1. A stack has the network's tensor once for each expert: E_i = W. `noise S` is added to the matrices of every
   expert but the first: N(0, S · std(W)).
2. A router is new: R ~ N(0, DEVIATION), whatever the statements before made of its rows.

Every draw is keyed by the statement, the network, its layer, and the number of the tensor within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.space import Space, find
from growc.ir.graph import Graph, Upcycled, Value
from growc.passes.compilation import Request
from growc.passes.layers.layer_runs import Layers
from growc.plans.plan import DRAWN, AxisStep, Gap, Layout, LeafStep, Noise
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import evaluate
from growc.resolve.bound import Bound

DEVIATION = 0.02
"""The standard deviation of new routers (Komatsuzaki et al. 2022, section 3)."""

NAME = "experts"
"""What the plan calls that which the steps make."""


@dataclass(frozen=True)
class Stacked:
    """One use of a stored tensor of a mixture, and how it is made."""

    use: Value
    mark: Upcycled
    statement: ast.Upcycle
    draws: Draws

    @property
    def moment(self) -> int:
        """The number of the statement."""
        return self.mark.statement

    def steps(self, shape: Sequence[int]) -> Iterator[AxisStep]:
        """What is done to a tensor that has this shape by then."""
        assert self.use.weight is not None
        order = self.use.weight.order
        assert order is not None
        count = len(order.units)
        index, ones, none = order.units, np.ones(count), np.zeros(count, dtype=np.int64)
        copies = LeafStep(1, index, ones, none, noise=None if self.mark.router else self.noise(count))
        yield AxisStep(order.axis, Layout("leaf", (), copies), "makes", NAME)
        if self.mark.router:
            rows = shape[1 - order.axis]
            drawn = np.full(rows, DEVIATION), np.full(rows, DRAWN)
            leaf = LeafStep(rows, np.full(rows, -1), *drawn, self.draws.key)
            yield AxisStep(1 - order.axis, Layout("leaf", (), leaf), "makes", NAME)

    def noise(self, count: int) -> Noise | None:
        """What tells copies apart: nothing where it is a vector."""
        weight = self.use.weight
        assert weight is not None
        matrix = sum(size > 1 for size in weight.stored_shape) > 1
        if not self.statement.noise or not matrix:
            return None
        rows = np.arange(count) > 0
        return Noise(self.draws.at("noise").key, self.statement.noise, rows, np.arange(count))


def stacked(graph: Graph, statements: Sequence[Bound], layers: Layers) -> list[Stacked]:
    """How the stored tensors of all mixtures are made."""
    said = {b.number: b for b in statements}
    found = []
    for use in graph.uses():
        mark = None if use.weight is None else use.weight.upcycled
        if mark is None:
            continue
        bound = said[mark.statement]
        statement = bound.statement
        assert isinstance(statement, ast.Upcycle)
        seed = 0 if statement.seed is None else evaluate(statement.seed, lambda size: 0)
        scope = " ".join(map(repr, bound.scopes))
        draws = Draws.of(seed, bound.number, NAME, scope, mark.network)
        draws = draws.at(_layer(use, layers, bound.number), mark.part)
        found.append(Stacked(use, mark, statement, draws))
    return found


def _layer(use: Value, layers: Layers, moment: int) -> int:
    """The number that the layer of a use had before a statement, 0 outside of layers."""
    place = None if use.reader is None else layers.home.get(use.reader)
    return 0 if place is None else layers.runs[place[0]].history.number_before(place[1], moment)


def made_here(c: Request) -> set[Space]:
    """The spaces that number the experts of mixtures that statements make."""
    orders = ((use, use.weight.order) for use in c.graph.uses() if use.weight and use.weight.upcycled)
    return {find(c.axes.of(use)[order.axis]) for use, order in orders if order is not None}


def gaps(found: Sequence[Stacked]) -> Iterator[Gap]:
    """Where experts differ, the router's choice decides what the model computes."""
    for one in found:
        if one.mark.router and one.statement.noise:
            node = one.use.reader
            yield Gap.at(node, "noise on experts: what is chosen is not what the network computed")
