"""Errors of a statement that do not depend on the model: in numbers, axes, options and scopes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from growc.errors.diagnostic import Diagnostic
from growc.errors.source import Span
from growc.recipe import syntax_tree as rc
from growc.recipe.expression import Binary, Expr, Int, spell
from growc.recipe.fills import FILLS, FillRule
from growc.recipe.option_rules import CHOSEN, OPTIONS, OptionRule
from growc.recipe.ranking_rules import KEEPING_NUMBERS, RANKINGS
from growc.resolve.budget_checks import check_budget, parts_of_budget
from growc.resolve.number_checks import at_least, constant, fixed

NUMBERED = ("vocab", "positions")
"""Axes whose units callers of the model know by number."""

LAYERS_HELP = (
    "`stack layers to N by ORDER` deepens, `subclone layers to N by ORDER` and `drop layers` shorten"
)


def check(statement: rc.Statement, scopes: tuple[rc.Scope, ...]) -> Iterator[Diagnostic]:
    """Yield all errors of a statement in which `let`s are replaced by their values."""
    for scope in scopes:
        if isinstance(scope, rc.LayerScope):
            yield from _range(scope.layers)
    yield from _place(statement, scopes)
    match statement:
        case rc.Widen():
            yield from _width(statement.axis, "widened")
            yield from at_least(1, statement.size, "a size")
            yield from _options(statement.options, statement.fill, statement.axis)
        case rc.Subclone():
            yield from at_least(1, statement.size, "a size")
            yield from _twice(statement.options)
            for option in statement.options[:1]:
                yield from _without_meaning(option, statement.axis)
            yield from _ranking(statement.axis, statement.ranking)
        case rc.Merge():
            yield from at_least(1, statement.size, "a size")
            yield from _merged(statement.axis)
        case rc.Reorder():
            yield from _width(statement.axis, "reordered")
            yield from _ranking(statement.axis, statement.ranking, reorder=True)
        case rc.Stack() | rc.SubcloneLayers():
            yield from at_least(1, statement.size, "a number of layers")
            yield from _order(statement.order)
            if isinstance(statement, rc.Stack):
                yield from _seed(statement.fill)
        case rc.StackFrom():
            yield from at_least(1, statement.size, "a number of layers")
            yield from _seed(statement.fill)
        case rc.Arrange():
            yield from _seed(statement.fill)
            for layers in statement.layers:
                yield from _range(layers)
        case rc.Drop() | rc.MergeLayers():
            yield from _range(statement.layers)
        case rc.Upcycle():
            yield from _upcycled(statement)
        case rc.Measure():
            yield from at_least(1, statement.samples, "a number of samples")
            yield from fixed(statement.samples, "a number of samples")
        case rc.Match():
            yield from _options(statement.options, statement.fill)
            yield from _order(statement.order)
            yield from _seed(statement.layer_fill)
            if not all(isinstance(scope, rc.RoleScope) for scope in scopes):
                message = "this version does not do `match` in `in layers` or in a glob yet"
                remedy = "`growc explain G209` lists what it does"
                yield Diagnostic("G209", message, statement.span, help=remedy)
            if statement.smaller is not None and RANKINGS[statement.smaller.name].averages:
                yield _only_pooled(statement.smaller, "axes that `match` makes smaller are ranked")
        case rc.Budget() | rc.Proportion() | rc.SubcloneTotal():
            yield from check_budget(statement, scopes)
            for plain in parts_of_budget(statement):
                yield from check(plain, scopes)
        case rc.Expect(rc.Preserved(within=within) as condition):
            if not 0 <= within < math.inf:
                yield Diagnostic("G206", "a difference is at least 0", condition.span)


def nested(nest: rc.Nest) -> Iterator[Diagnostic]:
    """Yield the errors in the axes and shares of a `nest`."""
    first: dict[str, Span] = {}
    for axis in nest.axes:
        earlier = first.setdefault(axis.name, axis.span)
        if earlier is not axis.span:
            related = ((earlier, "the first one"),)
            yield Diagnostic("G204", f"`{axis.name}` stands here twice", axis.span, related=related)
    for share in nest.at:
        if not 0 < share.numerator < share.denominator:
            message = "a prefix holds a part of the units: more than none, and less than all"
            yield Diagnostic("G206", message, share.span, help="write a fraction such as `1/2`")


def _upcycled(statement: rc.Upcycle) -> Iterator[Diagnostic]:
    """Yield the errors of an `upcycle`: only `ffn` becomes experts, and each expert is a copy."""
    for axis, wanted in ((statement.axis, "ffn"), (statement.into, "experts")):
        if axis.name != wanted:
            message = f"`upcycle` makes `experts` of `ffn`, and `{axis.name}` has no meaning here"
            yield Diagnostic("G205", message, axis.span, help=f"write `{wanted}`")
    for expr, what in ((statement.count, "a number of experts"), (statement.top, "how many are chosen")):
        yield from at_least(1, expr, what)
        yield from fixed(expr, what)
    count, top = constant(statement.count), constant(statement.top)
    if count is not None and top is not None and top > count > 0:
        yield Diagnostic("G206", f"of {count} experts {top} cannot be chosen", statement.top.span)
    fill = FILLS[statement.fill.name]
    if fill.copies != "all" or not fill.shares:
        copying = ", ".join(f"`{f.name}`" for f in FILLS.values() if f.copies == "all" and f.shares)
        message = f"every expert is a copy of the network, which `{fill.name}` does not make"
        yield Diagnostic("G204", message, statement.fill.span, help=f"write one of {copying}")
    if not 0 <= statement.noise < math.inf:
        yield Diagnostic("G206", "noise is at least 0", statement.span)
    if not 0 <= statement.reset <= 1:
        yield Diagnostic("G206", "a part is at least 0 and at most 1", statement.span)
    if statement.parts is not None:
        yield from _in_parts(statement, statement.parts, count, top)
    yield from _seeded(statement.seed)


def _in_parts(statement: rc.Upcycle, expr: Expr, count: int | None, top: int | None) -> Iterator[Diagnostic]:
    """All parts of a copy are chosen together, so their number divides that of experts and of chosen ones."""
    yield from at_least(1, expr, "a number of parts")
    yield from fixed(expr, "a number of parts")
    parts = constant(expr)
    for number, of, noun in ((count, statement.count, "experts"), (top, statement.top, "chosen experts")):
        if parts and number and parts > 0 and number % parts:
            message = f"{number} {noun} are no multiple of {parts} parts"
            remedy = f"write `{max(1, number // parts) * parts}`"
            yield Diagnostic("G206", message, of.span, help=remedy)


def _range(layers: rc.LayerRange) -> Iterator[Diagnostic]:
    if isinstance(layers, rc.LayerNumber):
        yield from _subtracted(layers)
        return
    start, stop = constant(layers.start), constant(layers.stop)
    if start is not None and stop is not None and (start < 0) == (stop < 0) and stop <= start:
        yield Diagnostic(
            "G206", "this range holds no layer", layers.span, f"{start} up to, but not including, {stop}"
        )


def _subtracted(layer: rc.LayerNumber) -> Iterator[Diagnostic]:
    """Yield an error for a layer such as `0-2`: it means one layer from the end, and looks like a range."""
    value = constant(layer.number)
    match layer.number:
        case Binary("-", Int() as first, Int() as last) if first.spelling and last.spelling and value:
            meant, layers = f"{first.spelling}..{last.spelling}", f"{first.value} to {last.value - 1}"
            message = (
                f"`{spell(layer.number)}` is a subtraction: it means layer {value}, counted from the end"
            )
            remedy = f"write `{meant}` for layers {layers}, `{value}` for the one"
            yield Diagnostic("G206", message, layer.span, f"this is {value}", help=remedy)


def _order(order: rc.LayerOrder | None) -> Iterator[Diagnostic]:
    if order is not None:
        yield from at_least(1, order.count, "a number of layers")


def _place(statement: rc.Statement, scopes: tuple[rc.Scope, ...]) -> Iterator[Diagnostic]:
    """Yield an error for the layer list or `hidden` in `in layers`: these belong to no single layer."""
    if not any(isinstance(scope, rc.LayerScope) for scope in scopes):
        return
    match statement:
        case rc.Stack() | rc.StackFrom() | rc.SubcloneLayers() | rc.Arrange() | rc.Drop() | rc.MergeLayers():
            yield Diagnostic("G211", "the list of layers is no part of a layer", statement.span)
        case (
            rc.Widen(axis=rc.NamedAxis("hidden" as name) as axis)
            | rc.Subclone(axis=rc.NamedAxis("hidden" as name) as axis)
            | rc.Reorder(axis=rc.NamedAxis("hidden" as name) as axis)
        ):
            message = f"`{name}` goes through all layers, so it cannot change in some of them"
            yield Diagnostic("G211", message, axis.span, help="move the statement out of `in layers`")


def _width(axis: rc.AxisRef, verb: str) -> Iterator[Diagnostic]:
    if axis.name == "layers":
        yield Diagnostic("G210", f"`layers` cannot be {verb}", axis.span, help=LAYERS_HELP)


def _only_pooled(ranking: rc.Ranking, instead: str) -> Diagnostic:
    remedy = f"`subclone kv_heads to N by {ranking.name}` averages key/value heads"
    return Diagnostic("G210", f"`by {ranking.name}` ranks no units, and {instead}", ranking.span, help=remedy)


def _merged(axis: rc.AxisRef) -> Iterator[Diagnostic]:
    if axis.name not in CHOSEN:
        message = f"`merge` averages {' and '.join(CHOSEN)}, and no `{axis.name}`"
        remedy = f"`merge {CHOSEN[0]} to N by mean`, `merge layers RANGE by mean`"
        remedy += " and `subclone kv_heads to N by mean` average"
        yield Diagnostic("G210", message, axis.span, help=remedy)


def _ranking(axis: rc.AxisRef, ranking: rc.Ranking, reorder: bool = False) -> Iterator[Diagnostic]:
    rule = RANKINGS[ranking.name]
    if rule.averages and (reorder or axis.name != "kv_heads"):
        yield _only_pooled(ranking, f"those of `{axis.name}` are")
    elif rule.axes and isinstance(axis, rc.NamedAxis) and axis.name not in rule.axes:
        ranks = " and ".join(f"`{name}`" for name in rule.axes)
        message = f"`by {rule.name}` ranks {ranks} alone, and no units of `{axis.name}`"
        yield Diagnostic("G210", message, ranking.span, help="write another ranking, such as `by importance`")
    elif axis.name in NUMBERED and (reorder or not rule.keeps_numbers):
        message = f"the outside knows the units of `{axis.name}` by their numbers, so they keep their order"
        remedy = "" if reorder else f"write {KEEPING_NUMBERS}"
        yield Diagnostic("G210", message, axis.span if reorder else ranking.span, help=remedy)
    yield from _seed(ranking)


def _seed(drawn: rc.Ranking | rc.LayerFill | None) -> Iterator[Diagnostic]:
    if isinstance(drawn, rc.LayerFill) and drawn.std is not None and not 0 <= drawn.std < math.inf:
        yield Diagnostic("G206", "a standard deviation is at least 0", drawn.span)
    if drawn is not None:
        yield from _seeded(drawn.seed)


def _seeded(seed: Expr | None) -> Iterator[Diagnostic]:
    yield from at_least(0, seed, "a seed")
    yield from fixed(seed, "a seed")


def _twice(options: tuple[rc.Option, ...]) -> Iterator[Diagnostic]:
    first: dict[str, Span] = {}
    for option in options:
        earlier = first.setdefault(OPTIONS[option.name].about, option.span)
        if earlier is not option.span:
            is_same_option = option.span.text == earlier.text
            message = (
                f"`{option.span.text}` stands here twice"
                if is_same_option
                else "only one of these options can hold"
            )
            yield Diagnostic("G204", message, option.span, related=((earlier, "the first one"),))


def _options(
    options: tuple[rc.Option, ...], fill: rc.Fill, axis: rc.AxisRef | None = None
) -> Iterator[Diagnostic]:
    yield from _twice(options)
    yield from _contradictions(options, fill)
    for option in options:
        rule = OPTIONS[option.name]
        yield from _without_meaning(option, axis)
        if option.expr is None and not (
            rule.least <= option.number <= rule.most and option.number < math.inf
        ):
            bounds = f"at least {rule.least}" + (f", and at most {rule.most}" if rule.most < math.inf else "")
            yield Diagnostic("G206", f"{rule.value} is {bounds}", option.span)
        yield from at_least(rule.least, option.expr, rule.value)
        if rule.fixed:
            yield from fixed(option.expr, rule.value)


def _without_meaning(option: rc.Option, axis: rc.AxisRef | None) -> Iterator[Diagnostic]:
    rule = OPTIONS[option.name]
    if isinstance(axis, rc.NamedAxis) and rule.axes and axis.name not in rule.axes:
        message = f"`{rule.name}` has no meaning on `{axis.name}`"
        notes = (f"it is for {', '.join(f'`{name}`' for name in rule.axes)}",)
        yield Diagnostic("G205", message, option.span, notes=notes)


def _wanted(rule: OptionRule, filled: FillRule, options: Sequence[rc.Option]) -> tuple[str, str]:
    """(the fill that an option needs, what this fill lacks), in words; empty where the fill suits."""
    copies, unlike = filled.copies == "all", "this makes no such copies"
    match rule.needs:
        case "copies" if not copies:
            return "a `… copy` fill", unlike
        case "shares" if not filled.shares:
            return "a `… copy` fill or `average fill`", unlike
        case "sharing copies" if not (copies and filled.shares):
            return "a `… copy` fill whose copies share what reads them", unlike
        case "draws" if not (filled.draws or any(OPTIONS[option.name].draws for option in options)):
            drawing = [fill.name for fill in FILLS.values() if fill.draws]
            drawing += [option.spelling for option in OPTIONS.values() if option.draws]
            return " or ".join(f"`{name}`" for name in drawing), "this draws nothing by itself"
    return "", ""


def _contradictions(options: Sequence[rc.Option], fill: rc.Fill) -> Iterator[Diagnostic]:
    """Yield an error for each option without effect: on shares that the fill does not make, or zero ones."""
    zero = next((option for option in options if OPTIONS[option.name].silent), None)
    for option in options:
        rule = OPTIONS[option.name]
        if not rule.needs:
            continue
        what = f"`{option.span.text}`" if option.span.text else "this option"
        wanted, unlike = _wanted(rule, FILLS[fill.name], options)
        if wanted:
            message = f"{what} needs {wanted}"
            yield Diagnostic("G204", message, option.span, related=((fill.span, unlike),))
        elif zero is not None and rule.unequal:
            message = (
                f"{what} is about the shares of copies, and `with zero outputs` leaves the new ones none"
            )
            yield Diagnostic("G204", message, option.span, related=((zero.span, "no share is left"),))
