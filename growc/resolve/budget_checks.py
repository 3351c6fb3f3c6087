"""What is wrong with a budget whatever the model: its relation, its axes, what it is measured by."""

from __future__ import annotations

from collections.abc import Iterator

from growc.errors.diagnostic import Diagnostic
from growc.recipe import syntax_tree as rc
from growc.recipe.expression import Int, names
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.ranking_rules import RANKINGS
from growc.resolve.number_checks import at_least, fixed

SIZE = Int(1)
"""Stands for a size that is still to be found."""


def order_of(statement: rc.Budget) -> rc.Order | None:
    """The order of the layers: the one that is named, else the ranking where it orders layers too."""
    ranking = statement.ranking
    if statement.order is None and ranking.name in SHALLOWER:
        return rc.Order(ranking.name, span=ranking.span)
    return statement.order


def parts_of_budget(statement: rc.Undecided) -> Iterator[rc.Statement]:
    """The plain statements that a budget may come to, with no size yet: a mistake in these is one in it."""
    if isinstance(statement, rc.SubcloneTotal):
        yield rc.Subclone(statement.axis, SIZE, statement.ranking, statement.options, span=statement.span)
        return
    for axis in statement.axes:
        if axis.name == "layers":
            yield from _layers(statement)
        elif isinstance(statement, rc.Budget):
            options = options_on(axis, statement.options)
            yield rc.Subclone(axis, SIZE, statement.ranking, options, span=statement.span)
        else:
            options = options_on(axis, statement.options)
            yield rc.Widen(axis, SIZE, statement.fill, options, span=statement.span)


def _layers(statement: rc.Budget | rc.Proportion) -> Iterator[rc.Statement]:
    if isinstance(statement, rc.Budget) and (order := order_of(statement)):
        yield rc.SubcloneLayers(SIZE, order, span=statement.span)
    elif isinstance(statement, rc.Proportion) and statement.order:
        new = (statement.layer_fill, statement.zero_outputs)
        yield rc.Stack(SIZE, statement.order, *new, span=statement.span)


def options_on(axis: rc.AxisRef, options: tuple[rc.Option, ...]) -> tuple[rc.Option, ...]:
    """The options that mean anything on an axis; of a statement on many, the others fall away."""
    from growc.recipe.option_rules import OPTIONS

    named = isinstance(axis, rc.NamedAxis)
    rules = ((one, OPTIONS[one.name].axes) for one in options)
    return tuple(one for one, axes in rules if not (named and axes and axis.name not in axes))


def check_budget(statement: rc.Undecided, scopes: tuple[rc.Scope, ...]) -> Iterator[Diagnostic]:
    """Everything that is wrong with a budget itself."""
    if not all(isinstance(scope, rc.RoleScope) for scope in scopes):
        message = "this version does not find sizes in `in layers` or in a glob yet"
        remedy = "write it outside of the scope, or for an encoder or decoder"
        yield Diagnostic("G209", message, statement.span, help=remedy)
    if not isinstance(statement, rc.Proportion):
        yield from _sizes_are_free(statement.ranking)
    if isinstance(statement, rc.SubcloneTotal):
        yield from _lies_in_layers(statement.axis)
        return
    yield from _relation(statement)
    yield from _axes(statement)
    yield from _held(statement.limit)
    yield from _amounts(statement)
    yield from at_least(1, statement.multiples, "a multiple")
    if isinstance(statement, rc.Budget):
        yield from at_least(1, statement.candidates, "a number of candidates")
        yield from fixed(statement.candidates, "a number of candidates")


def _relation(statement: rc.Budget | rc.Proportion) -> Iterator[Diagnostic]:
    shrinks = isinstance(statement, rc.Budget)
    right, verb = ("<=", "subclone to") if shrinks else (">=", "widen to")
    if statement.limit.relation != right:
        message = f"`{verb} {statement.limit.quantity}` takes `{right}`, and not `{statement.limit.relation}`"
        remedy = f"write `{verb} {statement.limit.quantity} {right} …`"
        yield Diagnostic("G204", message, statement.limit.span, help=remedy)


def _axes(statement: rc.Budget | rc.Proportion) -> Iterator[Diagnostic]:
    seen: dict[str, rc.AxisRef] = {}
    for axis in statement.axes:
        if (first := seen.setdefault(axis.name, axis)) is not axis:
            message = f"`{axis.name}` stands here twice"
            yield Diagnostic("G204", message, axis.span, related=((first.span, "the first one"),))
    if "heads" in seen and "kv_heads" in seen:
        message = "`heads` follow `kv_heads`, so a budget is over one of them"
        yield Diagnostic("G204", message, seen["kv_heads"].span, help="leave one of the two out")
    layers = seen.get("layers")
    if isinstance(statement, rc.Budget):
        ordered, orders, named = order_of(statement) is not None, SHALLOWER, f"`by {statement.ranking.name}`"
    else:
        ordered, orders, named = statement.order is not None, DEEPER, "the fill"
    if layers is not None and not ordered:
        message = f"{named} orders no layers"
        orders_of = ", ".join(f"`layers by {one.spelling}`" for one in orders.values())
        yield Diagnostic("G210", message, layers.span, help=f"write {orders_of} behind it")
    if layers is None and statement.order is not None:
        message = "`layers` are none of the axes that this is over"
        yield Diagnostic("G210", message, statement.order.span, help="write `over …, layers`")


def _held(limit: rc.Limit) -> Iterator[Diagnostic]:
    """Memory is that of a batch of sequences of a length; nothing else has these."""
    example, held = "`memory <= 4B at batch 1 length 4096`", limit.sequences
    if limit.quantity == "memory" and held is None:
        yield Diagnostic("G204", "`memory` needs a batch and a length", limit.span, help=f"write {example}")
    if limit.quantity != "memory" and held is not None:
        message = f"`{limit.quantity}` do not depend on a batch"
        yield Diagnostic("G204", message, held.span, help=f"it is for {example}")
    if held is not None:
        yield from at_least(1, held.batch, "a batch")
        yield from at_least(1, held.length, "a length")


def _amounts(statement: rc.Budget | rc.Proportion) -> Iterator[Diagnostic]:
    """Amounts of the model stand in the budget itself, and memory has none without a batch."""
    held = statement.limit.sequences
    others = [statement.multiples, *((held.batch, held.length) if held else ())]
    others += [statement.candidates] if isinstance(statement, rc.Budget) else []
    found = [name for expr in others if expr is not None for name in names(expr)]
    found = [name for name in found if name.name in rc.QUANTITIES]
    found += [name for name in names(statement.limit.value) if name.name == "memory"]
    for name in found:
        message = f"`{name.name}` has no value here"
        yield Diagnostic(
            "G201", message, name.span, help="`parameters` and `flops` stand behind `<=` and `>=`"
        )


def _sizes_are_free(ranking: rc.Ranking) -> Iterator[Diagnostic]:
    rule = RANKINGS[ranking.name]
    if rule.scores is None and rule.places is None:
        message = f"`by {ranking.name}` leaves no size to be found"
        yield Diagnostic(
            "G210", message, ranking.span, help="write a ranking that has scores: `by magnitude`"
        )


def _lies_in_layers(axis: rc.AxisRef) -> Iterator[Diagnostic]:
    if axis.name in ("hidden", "vocab", "positions"):
        message = f"`{axis.name}` is one for all layers, so its units do not compete for a total"
        yield Diagnostic("G210", message, axis.span, help=f"write `subclone {axis.name} to SIZE by …`")
