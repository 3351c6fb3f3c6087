"""What chooses from units that become more, and how many it chooses from now on (`top EXPR`).

Needs: the axis graph, the spaces of an axis. Gives: a `Choice` for every ranking whose numbers choose units
of them. Raises GrowError (G304) where the number of chosen units is no axis that may change.
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
from growc.passes.lowering.axis_maps import Ask


def rankings_of(axes: Axes, atoms: AbstractSet[Space]) -> Iterator[Node]:
    """The rankings of units whose numbers are used."""
    used = {stop.ranking for node, stops in axes.routes.items() for stop in stops if stop.ranking is not node}
    for ranking, space in axes.ranked.items():
        if ranking in used and not atoms.isdisjoint(leaves(space)):
            yield ranking


def choices_after(axes: Axes, ask: Ask, sizes: Sizes, count: int | None) -> list[Choice]:
    """What chooses from an axis that grows. count: how many from now on (None: as many as now).

    Raises GrowError (G304, G312) where these cannot be chosen.
    """
    atoms, top = frozenset(atoms_of(ask.target.spaces)), ask.stage.options.top
    found = []
    for ranking in rankings_of(axes, atoms):
        slots, now = frozenset(slots_of(axes, ranking)), chosen_now(axes, ranking, sizes)
        after = now if count is None else count
        found.append(Choice(ranking, find(axes.ranked[ranking]), slots, now, after))
    if top is None or count is None:
        return found
    if not found:
        message = f"nothing chooses from `{ask.stage.axis}`: all of them are used"
        raise GrowError(Diagnostic("G304", message, top.span, help="leave `top` out"))
    if not 1 <= count <= ask.after:
        message = f"{count} of {ask.after} units of `{ask.stage.axis}` cannot be chosen"
        raise GrowError(Diagnostic("G312", message, top.span))
    for one in found:
        if one.after != one.before:
            require_slots(axes, one, top.span)
    return found


def chosen_now(axes: Axes, ranking: Node, sizes: Sizes) -> int:
    """How many units a ranking chooses, as statements have left it."""
    return next((sizes.of(space)[0] for space in slots_of(axes, ranking)), fewest(ranking))


def slots_of(axes: Axes, ranking: Node) -> Iterator[Space]:
    """The axes of what a ranking gives along which its choices stand, where they are several."""
    scored = axes.ranked[ranking]
    given = ranking.required(0)
    place = next(k for k, space in enumerate(axes.of(given)) if find(space) is find(scored))
    for out in ranking.outputs:
        if out.rank == given.rank and not find(axes.of(out)[place]).unit:
            yield find(axes.of(out)[place])


def require_slots(axes: Axes, choice: Choice, span: Span) -> None:
    """Raise GrowError (G304) where a ranking cannot choose another number of units."""
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
