"""What a model costs, as polynomials in the shares of its axes: parameters, those of one token, and others.

Needs: a compilation, the knobs of a budget. Gives: a `Cost`, whose value at today's sizes is what the model
has today.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from growc.budgets.knobs import Knob
from growc.budgets.polynomial import Cost, Polynomial, Shares
from growc.ir.graph import Node, Value
from growc.passes.compilation import Result
from growc.passes.finish.assemble import chain

Home = tuple[int, int]
"""A layer: its run, and its number there."""

Parts = Iterable[tuple[Home | None, Polynomial]]
"""What the parts of a model cost; None: a part of no layer."""


def shares_of(c: Result, knobs: Sequence[Knob]) -> Shares:
    """The shares of all atoms, by the knobs of width in order."""
    wide = [knob for knob in knobs if not knob.kept]
    number = {atom: k for k, knob in enumerate(wide) for atom in knob.atoms}
    return Shares(len(wide), number, c.lowered.sizes.current)


def cost_of(parts: Parts, knobs: Sequence[Knob], count: int) -> Cost:
    """The sum of all parts, with each number of layers."""
    by_home: dict[Home | None, Polynomial] = {}
    for home, part in parts:
        by_home[home] = by_home.get(home, Polynomial()) + part
    levels = next((knob.kept for knob in knobs if knob.kept), ((),))
    made = []
    for kept in levels:
        there = (part.times(_times(home, kept)) for home, part in by_home.items())
        made.append(sum(there, Polynomial()))
    return Cost(tuple(made), count)


def _times(home: Home | None, kept: Sequence[Sequence[int] | None]) -> int:
    """How often a layer stands among those of the result."""
    own = None if home is None or not kept else kept[home[0]]
    return 1 if home is None or own is None else own.count(home[1])


def parameters(c: Result, shares: Shares) -> Parts:
    """The stored float weight elements, as `expect parameters` counts them."""
    for use in counted(c):
        yield home_of(c, use), elements(c, use, shares)


def counted(c: Result) -> list[Value]:
    """The uses of weights that count: ties once, single numbers not, and nothing that no node reads."""
    live = {instance.node for instance in c.axes.instances}
    followers = {use for tie in c.ties for use in tie.uses[1:]}
    found = []
    for use in c.axes.graph.uses():
        used = not use.users or any(node in live for node, _ in use.users)
        weight = use.weight
        if weight is not None and weight.floating and weight.elements > 1 and used and use not in followers:
            found.append(use)
    return found


def elements(c: Result, use: Value, shares: Shares) -> Polynomial:
    """How many numbers a weight has; one whose axes are not told apart stays as it is."""
    assert use.weight is not None
    made = shares.product(shares.of(space) for space in c.axes.of(use))
    today = made.at(shares.ones)
    now = _now(c).get(use, use.weight.elements)
    return made if today == now else Polynomial.constant(now, shares.count)


def _now(c: Result) -> Mapping[Value, int]:
    """How many numbers weights have behind the statements of the compilation."""
    pairs = zip(c.assembled.weights, c.assembled.uses, strict=True)
    return {use: plan.elements for plan, uses in pairs for use in uses}


def home_of(c: Result, use: Value) -> Home | None:
    """The layer that alone reads a weight, in all places where it is tied."""
    tied = next((tie.uses for tie in c.ties if use in tie.uses), (use,))
    found = {c.layers.home.get(node) for one in tied for node in _readers(one)}
    return found.pop() if len(found) == 1 else None


def _readers(use: Value) -> list[Node]:
    """The nodes that read a weight, behind operators that only lay it out."""
    laid_out = list(chain(use))
    last = laid_out[-1].outputs[0] if laid_out else use
    return [node for node, _ in last.users]
