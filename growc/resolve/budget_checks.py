"""Errors of a budget that do not depend on the model: in its relation, its axes, and its quantity."""

from __future__ import annotations

from collections.abc import Iterator

from growc.errors.diagnostic import Diagnostic
from growc.recipe import syntax_tree as rc
from growc.recipe.expression import Int, names
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.ranking_rules import RANKINGS
from growc.resolve.number_checks import at_least, fixed

SIZE = Int(1)
"""The placeholder for a size that is not found yet."""


def order_of(statement: rc.Budget) -> rc.LayerOrder | None:
    """The order of the layers: the named order, else the ranking if it orders layers too."""
    ranking = statement.ranking
    if statement.order is None and ranking.name in SHALLOWER:
        return rc.LayerOrder(ranking.name, span=ranking.span)
    return statement.order


def parts_of_budget(statement: rc.Undecided) -> Iterator[rc.Statement]:
    """Yield the plain statements that a budget may become, with SIZE for sizes.

    Their errors are its errors.
    """
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
        layer_options = (statement.layer_fill, statement.zero_outputs)
        yield rc.Stack(SIZE, statement.order, *layer_options, span=statement.span)


def options_on(axis: rc.AxisRef, options: tuple[rc.Option, ...]) -> tuple[rc.Option, ...]:
    """The options that have a meaning on an axis. A statement on several axes drops the others."""
    from growc.recipe.option_rules import OPTIONS

    named = isinstance(axis, rc.NamedAxis)
    rules = ((one, OPTIONS[one.name].axes) for one in options)
    return tuple(one for one, axes in rules if not (named and axes and axis.name not in axes))


def check_budget(statement: rc.Undecided, scopes: tuple[rc.Scope, ...]) -> Iterator[Diagnostic]:
    """Yield all errors of a budget itself."""
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


def _held(limit: rc.QuantityLimit) -> Iterator[Diagnostic]:
    """Yield errors of `at batch … length …`: `memory` needs it, and no other quantity takes it."""
    example, sequences = "`memory <= 4B at batch 1 length 4096`", limit.sequences
    if limit.quantity == "memory" and sequences is None:
        yield Diagnostic("G204", "`memory` needs a batch and a length", limit.span, help=f"write {example}")
    if limit.quantity != "memory" and sequences is not None:
        message = f"`{limit.quantity}` do not depend on a batch"
        yield Diagnostic("G204", message, sequences.span, help=f"it is for {example}")
    if sequences is not None:
        yield from at_least(1, sequences.batch, "a batch")
        yield from at_least(1, sequences.length, "a length")


def _amounts(statement: rc.Budget | rc.Proportion) -> Iterator[Diagnostic]:
    """Yield an error for each quantity of the model outside of the budget's value, and for `memory` in it."""
    sequences = statement.limit.sequences
    others = [statement.multiples, *((sequences.batch, sequences.length) if sequences else ())]
    others += [statement.candidates] if isinstance(statement, rc.Budget) else []
    misplaced = [name for expr in others if expr is not None for name in names(expr)]
    misplaced = [name for name in misplaced if name.name in rc.QUANTITIES]
    misplaced += [name for name in names(statement.limit.value) if name.name == "memory"]
    for name in misplaced:
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
