"""Print a recipe in canonical form.

Words are separated by one space, and the contents of a block are indented by four. Brackets that change
nothing are omitted. The parts of consecutive `widen` (or `subclone`) statements are aligned in columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from growc.recipe import syntax_tree as rc
from growc.recipe.expression import spell
from growc.recipe.option_rules import OPTIONS

INDENT = "    "


def format_recipe(recipe: rc.RecipeTree) -> str:
    """The recipe in canonical form. Only layout is lost, and formatting twice changes nothing."""
    return "".join(f"{line}\n" for line in _body(recipe.body))


@dataclass
class _Line:
    """A line to print: the parts of a statement, and the comment after them."""

    parts: tuple[str, ...]
    comment: str = ""
    kind: type | None = None
    """The statement's type, if neighbours of the same type are aligned with it."""


def _body(body: Iterable[rc.Item]) -> Iterator[str]:
    for kind, group in groupby(_lines(body), key=lambda line: line.kind):
        lines = list(group)
        columns = zip(*(line.parts[:-1] for line in lines), strict=True) if kind else ()
        widths = [max(map(len, column)) for column in columns]
        for line in lines:
            padded = [part.ljust(width) for part, width in zip(line.parts, widths, strict=False)]
            yield " ".join([*padded, *line.parts[len(padded) :]]) + line.comment


def _lines(body: Iterable[rc.Item]) -> Iterator[_Line]:
    pending: _Line | None = None
    for item in body:
        if isinstance(item, rc.Comment) and item.trailing and pending:
            pending.comment = f"  #{item.text}"
            continue
        if pending:
            yield pending
        pending = None
        match item:
            case rc.Scoped():
                inner = item.body
                header = _Line((f"in {_scope(item.scope)} {{",))
                if inner and isinstance(inner[0], rc.Comment) and inner[0].trailing:
                    header.comment, inner = f"  #{inner[0].text}", inner[1:]
                yield header
                yield from (_Line((INDENT + line if line else "",)) for line in _body(inner))
                pending = _Line(("}",))
            case rc.Comment():
                pending = _Line((f"#{item.text}",))
            case rc.Blank():
                pending = _Line(("",))
            case _:
                aligned = isinstance(item, rc.Widen | rc.Subclone)
                pending = _Line(tuple(_statement(item)), kind=type(item) if aligned else None)
    if pending:
        yield pending


def _statement(item: rc.Statement) -> Iterator[str]:
    """The parts of a statement; those of a `widen` or `subclone` are columns."""
    match item:
        case rc.Let():
            yield f"let {item.name} = {spell(item.value)}"
        case rc.Widen():
            yield from (f"widen {item.axis.name}", f"to {spell(item.size)}")
            yield f"with {manner_text(item)}"
        case rc.Subclone():
            yield from (f"subclone {item.axis.name}", f"to {spell(item.size)}")
            yield f"by {manner_text(item)}"
        case rc.SubcloneTotal():
            manner = " ".join([_ranking(item.ranking), *map(_option, item.options)])
            yield f"subclone {item.axis.name} to total {spell(item.size)} by {manner}"
        case rc.Budget() | rc.Proportion():
            yield from _budget(item)
        case rc.Merge():
            yield from (f"merge {item.axis.name}", f"to {spell(item.size)}", "by mean")
        case rc.Reorder():
            yield f"reorder {item.axis.name} by {manner_text(item)}"
        case rc.Stack():
            yield f"stack layers to {spell(item.size)} by {depth_text(item)}"
        case rc.StackFrom():
            yield f"stack layers to {spell(item.size)} {depth_text(item)}"
        case rc.SubcloneLayers():
            yield f"subclone layers to {spell(item.size)} by {depth_text(item)}"
        case rc.Arrange():
            yield f"arrange layers as {depth_text(item)}"
        case rc.Drop():
            yield f"drop layers {_layers(item.layers)}"
        case rc.MergeLayers():
            yield f"merge layers {_layers(item.layers)} by mean"
        case rc.Measure():
            yield f"measure importance on {_text(item.file)}"
            if item.samples:
                yield f"samples {spell(item.samples)}"
        case rc.Match():
            yield " ".join([f"match {_text(item.file)} with {item.fill.name}", *map(_option, item.options)])
            if item.order:
                yield f"layers by {_order(item.order)}{_new_layers(item.layer_fill, item.zero_outputs)}"
            if item.smaller:
                yield f"smaller by {_ranking(item.smaller)}"
        case rc.Untie():
            yield "untie head"
        case rc.Upcycle():
            yield f"upcycle {item.axis.name} to {item.into.name} {spell(item.count)} {mixture_text(item)}"
        case rc.Include():
            yield f"include {_text(item.file)}"
        case rc.Expect():
            yield f"expect {_condition(item.condition)}"
        case rc.Nest():
            yield f"nest {', '.join(axis.name for axis in item.axes)} by {_ranking(item.ranking)}"
            if item.at:
                yield f"at {', '.join(map(str, item.at))}"
        case rc.Language():
            yield f"language {item.version}"


def _budget(item: rc.Budget | rc.Proportion) -> Iterator[str]:
    """The parts of a statement with a budget."""
    yield "subclone to" if isinstance(item, rc.Budget) else "widen to"
    limit = item.limit
    yield f"{limit.quantity} {limit.relation} {spell(limit.value)}"
    if limit.sequences:
        yield f"at batch {spell(limit.sequences.batch)} length {spell(limit.sequences.length)}"
    yield f"over {', '.join(axis.name for axis in item.axes)}"
    if isinstance(item, rc.Budget):
        manner = f"by {_ranking(item.ranking)}"
    else:
        manner = f"in proportion with {item.fill.name}"
    yield " ".join([manner, *map(_option, item.options)])
    if item.order:
        new = "" if isinstance(item, rc.Budget) else _new_layers(item.layer_fill, item.zero_outputs)
        yield f"layers by {_order(item.order)}{new}"
    if item.multiples:
        yield f"multiples of {spell(item.multiples)}"
    if isinstance(item, rc.Budget) and item.candidates:
        yield f"candidates {spell(item.candidates)}"


def depth_text(
    item: rc.Stack | rc.StackFrom | rc.SubcloneLayers | rc.Arrange | rc.Drop | rc.MergeLayers,
) -> str:
    """The text of a statement's change to the list of layers."""
    match item:
        case rc.StackFrom():
            return f"from {_text(item.file)}{_new_layers(item.fill, item.zero_outputs)}"
        case rc.Stack():
            return _order(item.order) + _new_layers(item.fill, item.zero_outputs)
        case rc.SubcloneLayers():
            return _order(item.order)
        case rc.Arrange():
            return f"{', '.join(map(_layers, item.layers))}{_new_layers(item.fill, item.zero_outputs)}"
        case rc.MergeLayers():
            return f"{_layers(item.layers)} by mean"
    return f"without {_layers(item.layers)}"


def manner_text(item: rc.Widen | rc.Subclone | rc.Merge | rc.Reorder) -> str:
    """The text after `with` or `by`: the fill or ranking, and its options."""
    if isinstance(item, rc.Merge):
        return "mean"
    if isinstance(item, rc.Reorder):
        return _ranking(item.ranking) + (f", nested at {', '.join(map(str, item.at))}" if item.at else "")
    manner = item.fill.name if isinstance(item, rc.Widen) else _ranking(item.ranking)
    return " ".join([manner, *map(_option, item.options)])


def mixture_text(item: rc.Upcycle) -> str:
    """The text for the number of chosen experts and for the making of the experts."""
    options = f" noise {_number(item.noise)}" if item.noise else ""
    options += f" reset {_number(item.reset)}" if item.reset else ""
    options += f" in {spell(item.parts)} parts" if item.parts else ""
    options += f" seed {spell(item.seed)}" if item.seed else ""
    return f"top {spell(item.top)} with {item.fill.name}{options}"


def _text(text: rc.Text) -> str:
    return f'"{text.value}"'


def _new_layers(fill: rc.LayerFill | None, zero_outputs: bool) -> str:
    seed = f" seed {spell(fill.seed)}" if fill and fill.seed else ""
    std = f" std {_number(fill.std)}" if fill and fill.std is not None else ""
    drawn = f" with {fill.name}{std}{seed}" if fill else ""
    return drawn + (" with zero outputs" if zero_outputs else "")


def _scope(scope: rc.Scope) -> str:
    match scope:
        case rc.RoleScope():
            return scope.role
        case rc.LayerScope():
            return f"layers {_layers(scope.layers)}"
        case rc.GlobScope():
            return f'"{scope.pattern}"'


def _layers(layers: rc.LayerRange) -> str:
    if isinstance(layers, rc.LayerNumber):
        return spell(layers.number)
    return f"{spell(layers.start)}..{spell(layers.stop) if layers.stop else ''}"


def _order(order: rc.LayerOrder) -> str:
    file = f" {_text(order.file)}" if order.file else ""
    return order.name + (f" {spell(order.count)}" if order.count else "") + file


def _ranking(ranking: rc.Ranking) -> str:
    seed = f" seed {spell(ranking.seed)}" if ranking.seed else ""
    file = f" {_text(ranking.file)}" if ranking.file else ""
    return ranking.name + seed + file


def _option(option: rc.Option) -> str:
    value = _number(option.number) if option.expr is None else spell(option.expr)
    rule = OPTIONS[option.name]
    return " ".join(value if word == rule.takes else word for word in rule.spelling.split())


def _condition(condition: rc.Condition) -> str:
    match condition:
        case rc.Exact():
            return "exact"
        case rc.Preserved():
            return f"preserved within {_number(condition.within)}"
        case rc.SizeCondition(subject, relation, value):
            name = "parameters" if isinstance(subject, rc.Parameters) else subject.name
            return f"{name} {relation} {spell(value)}"


def _number(value: float) -> str:
    """The shortest spelling that reads back as the same number: `1e-5`, where Python writes `1e-05`.

    >>> [_number(value) for value in (0.01, 1e-5, 2.0)]
    ['0.01', '1e-5', '2']
    """
    text = repr(value).removesuffix(".0")
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}{e}{int(exponent)}" if e else text
