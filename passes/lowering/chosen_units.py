"""Rankings that choose units of a growing axis, and how many they choose afterwards (`top EXPR`).

Needs: the axis graph, the spaces of an axis. Gives: a `Choice` for every ranking that chooses units of the
axis. Raises GrowError (G304, G312) if the number of chosen units cannot change.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from growc.algebra.space import Space, atoms_of, find, leaves
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.ir.graph import Node
from growc.ir.lowered_statement import Choice, Sizes
from growc.passes.axes.infer import Axes
from growc.passes.axes.routing import fewest
from growc.passes.lowering.axis_maps import AxisStatement


def rankings_of(axes: Axes, atoms: AbstractSet[Space]) -> Iterator[Node]:
    """The rankings of these units whose results are used."""
    used = {stop.ranking for node, stops in axes.routes.items() for stop in stops if stop.ranking is not node}
    for ranking, space in axes.ranked.items():
        if ranking in used and not atoms.isdisjoint(leaves(space)):
            yield ranking


def choices_after(axes: Axes, ask: AxisStatement, sizes: Sizes, count: int | None) -> list[Choice]:
    """The choices from an axis that grows. count: how many units are chosen afterwards; None keeps the
    number.

    Raises GrowError (G304, G312) if that many cannot be chosen.
    """
    atoms, top = frozenset(atoms_of(ask.target.spaces)), ask.stage.options.top
    choices = []
    for ranking in rankings_of(axes, atoms):
        slots, before = frozenset(slots_of(axes, ranking)), chosen_now(axes, ranking, sizes)
        after = before if count is None else count
        choices.append(Choice(ranking, find(axes.ranked[ranking]), slots, before, after))
    if top is None or count is None:
        return choices
    if not choices:
        message = f"nothing chooses from `{ask.stage.axis}`: all of them are used"
        raise GrowError(Diagnostic("G304", message, top.span, help="leave `top` out"))
    if not 1 <= count <= ask.after:
        message = f"{count} of {ask.after} units of `{ask.stage.axis}` cannot be chosen"
        raise GrowError(Diagnostic("G312", message, top.span))
    for choice in choices:
        if choice.after != choice.before:
            require_slots(axes, choice, top.span)
    return choices


def chosen_now(axes: Axes, ranking: Node, sizes: Sizes) -> int:
    """The number of units that a ranking chooses after the statements so far."""
    return next((sizes.of(space)[0] for space in slots_of(axes, ranking)), fewest(ranking))


def slots_of(axes: Axes, ranking: Node) -> Iterator[Space]:
    """The axes along which the results of a ranking list several chosen units."""
    scored = axes.ranked[ranking]
    scores = ranking.required(0)
    place = next(k for k, space in enumerate(axes.of(scores)) if find(space) is find(scored))
    for out in ranking.outputs:
        if out.rank == scores.rank and not find(axes.of(out)[place]).unit:
            yield find(axes.of(out)[place])


def require_slots(axes: Axes, choice: Choice, span: Span) -> None:
    """Raise GrowError (G304) if a ranking cannot choose another number of units."""
    name = choice.ranking.name or choice.ranking.kind
    bearing = (use.weight for use in axes.graph.uses() if not choice.slots.isdisjoint(atoms_of(axes.of(use))))
    weight = next(bearing, None)
    cause = ""
    if not choice.slots:
        cause = "it chooses one, and nothing counts that"
    elif any(space.kind != "atom" for space in choice.slots):
        cause = "what it chooses is taken apart again"
    elif any(space.addressed is not None for space in choice.slots):
        cause = "the model takes it in, or gives it out"
    elif weight is not None:
        cause = f"`{weight.name}` has an entry for each of them"
    if cause:
        raise GrowError(Diagnostic("G304", f"`{name}` cannot choose another number of units: {cause}", span))
