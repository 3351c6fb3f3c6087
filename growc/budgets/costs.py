"""The cost of a model as polynomials in the shares of its axes: parameters, parameters of one token, and
others.

Needs: a compilation and the knobs of a budget. Gives: a `Cost`, whose value at today's sizes is the model's
cost today.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from growc.budgets.knobs import BudgetAxis
from growc.budgets.polynomial import Cost, Polynomial, Shares
from growc.ir.graph import Node, Value
from growc.passes.compilation import Result
from growc.passes.finish.assemble import chain, counted_uses
from growc.passes.layers.layer_runs import LayerPlace

PartCosts = Iterable[tuple[LayerPlace | None, Polynomial]]
"""The costs of a model's parts, each with its layer; None for a part outside of layers."""


def shares_of(c: Result, knobs: Sequence[BudgetAxis]) -> Shares:
    """The shares of all atoms, numbered by the width knobs in order."""
    wide = [knob for knob in knobs if not knob.kept]
    number = {atom: k for k, knob in enumerate(wide) for atom in knob.atoms}
    return Shares(len(wide), number, c.lowered.sizes.current)


def cost_of(parts: PartCosts, knobs: Sequence[BudgetAxis], count: int) -> Cost:
    """The sum of all parts, for each number of layers."""
    by_home: dict[LayerPlace | None, Polynomial] = {}
    for home, part in parts:
        by_home[home] = by_home.get(home, Polynomial()) + part
    levels = next((knob.kept for knob in knobs if knob.kept), ((),))
    costs = []
    for kept in levels:
        repeated = (part.times(_times(home, kept)) for home, part in by_home.items())
        costs.append(sum(repeated, Polynomial()))
    return Cost(tuple(costs), count)


def _times(home: LayerPlace | None, kept: Sequence[Sequence[int] | None]) -> int:
    """The number of times that a layer occurs in the result."""
    layers = None if home is None or not kept else kept[home[0]]
    return 1 if home is None or layers is None else layers.count(home[1])


def parameters(c: Result, shares: Shares) -> PartCosts:
    """The stored float weight elements, as `expect parameters` counts them."""
    for use in counted(c):
        yield home_of(c, use), elements(c, use, shares)


def counted(c: Result) -> list[Value]:
    """The uses of weights that count."""
    return [use for use, _ in counted_uses(c.axes, c.ties)]


def elements(c: Result, use: Value, shares: Shares) -> Polynomial:
    """The number of elements of a weight; constant if its axes are not told apart."""
    assert use.weight is not None
    product = shares.product(shares.of(space) for space in c.axes.of(use))
    today = product.at(shares.ones)
    planned_elements = _now(c).get(use, use.weight.elements)
    return product if today == planned_elements else Polynomial.constant(planned_elements, shares.count)


def _now(c: Result) -> Mapping[Value, int]:
    """The number of elements of each weight after the statements of the compilation."""
    pairs = zip(c.assembled.weights, c.assembled.uses, strict=True)
    return {use: plan.elements for plan, uses in pairs for use in uses}


def home_of(c: Result, use: Value) -> LayerPlace | None:
    """The only layer that reads a weight, in all places where it is tied; None if there are several or
    none.
    """
    tied = next((tie.uses for tie in c.ties if use in tie.uses), (use,))
    homes = {c.layers.home.get(node) for alias in tied for node in _readers(alias)}
    return homes.pop() if len(homes) == 1 else None


def _readers(use: Value) -> list[Node]:
    """The nodes that read a weight, after operators that only change its layout."""
    laid_out = list(chain(use))
    last = laid_out[-1].outputs[0] if laid_out else use
    return [node for node, _ in last.users]
