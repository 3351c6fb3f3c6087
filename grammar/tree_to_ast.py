"""From the tree of one line to growc.recipe.syntax_tree: a method for each rule of grow.lark."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple, cast

from lark import Token, Tree
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive, v_args

from growc.errors.source import Source, Span
from growc.recipe import expression as ex
from growc.recipe import syntax_tree as rc

SUFFIX = {"K": 1_000, "M": 1_000_000, "B": 1_000_000_000}


class Header(NamedTuple):
    """`in SCOPE {`, which opens a block."""

    scope: rc.Scope


class Depth(NamedTuple):
    """The clause of `match` for the layers."""

    order: rc.Order
    zero_outputs: bool


def parse_integer(spelling: str) -> Decimal:
    """What an integer with or without K, M or B stands for; not whole for `1.0005K`."""
    factor = SUFFIX.get(spelling[-1], 1)
    return Decimal(spelling.rstrip("KMB")) * factor


def _name(parts: Iterable[object]) -> str:
    """The words among the parts of a rule."""
    return " ".join(part for part in parts if isinstance(part, Token))


def build(tree: Tree[Any], source: Source) -> Any:
    """The statement, header or expression that the tree of a line or of an expression stands for."""
    return _Builder(source).transform(tree)


@v_args(inline=True, meta=True)
class _Builder(Transformer_NonRecursive[Token, Any]):
    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source

    def at(self, meta: Meta) -> Span:
        """Where a rule stands; the one place that knows lark's names for it."""
        return Span(self.source, meta.start_pos, meta.end_pos)

    def line(self, meta: Meta, node: Any) -> Any:
        return node

    def expression(self, meta: Meta, node: Any) -> Any:
        return node

    # Statements

    def let(self, meta: Meta, target: ex.Name, value: ex.Expr) -> rc.Let:
        return rc.Let(target, value, span=self.at(meta))

    def widen(
        self, meta: Meta, axis: rc.AxisRef, size: ex.Expr, fill: rc.Fill, options: tuple[rc.Option, ...]
    ) -> rc.Widen:
        return rc.Widen(axis, size, fill, options, span=self.at(meta))

    def subclone(
        self, meta: Meta, axis: rc.AxisRef, size: ex.Expr, ranking: rc.Ranking, options: tuple[rc.Option, ...]
    ) -> rc.Subclone:
        return rc.Subclone(axis, size, ranking, options, span=self.at(meta))

    def reorder(self, meta: Meta, axis: rc.AxisRef, ranking: rc.Ranking) -> rc.Reorder:
        return rc.Reorder(axis, ranking, span=self.at(meta))

    def stack(self, meta: Meta, size: ex.Expr, order: rc.Order, zero: bool | None) -> rc.Stack:
        return rc.Stack(size, order, zero is not None, span=self.at(meta))

    def subclone_layers(self, meta: Meta, size: ex.Expr, order: rc.Order) -> rc.SubcloneLayers:
        return rc.SubcloneLayers(size, order, span=self.at(meta))

    def arrange(self, meta: Meta, layers: tuple[rc.LayerRange, ...], zero: bool | None) -> rc.Arrange:
        return rc.Arrange(layers, zero is not None, span=self.at(meta))

    def drop(self, meta: Meta, layers: rc.LayerRange) -> rc.Drop:
        return rc.Drop(layers, span=self.at(meta))

    def measure(self, meta: Meta, file: rc.Text, samples: ex.Expr | None = None) -> rc.Measure:
        return rc.Measure(file, samples, span=self.at(meta))

    def match(
        self,
        meta: Meta,
        file: rc.Text,
        fill: rc.Fill,
        options: tuple[rc.Option, ...],
        depth: Depth | None,
        smaller: rc.Ranking | None = None,
    ) -> rc.Match:
        order, zero_outputs = depth or (None, False)
        return rc.Match(file, fill, options, order, zero_outputs, smaller, span=self.at(meta))

    def untie(self, meta: Meta) -> rc.Untie:
        return rc.Untie(span=self.at(meta))

    def include(self, meta: Meta, file: rc.Text) -> rc.Include:
        return rc.Include(file, span=self.at(meta))

    def expect(self, meta: Meta, condition: rc.Condition) -> rc.Expect:
        return rc.Expect(condition, span=self.at(meta))

    def scope_header(self, meta: Meta, scope: rc.Scope) -> Header:
        return Header(scope)

    # Axes and scopes

    def named_axis(self, meta: Meta, role: Token) -> rc.NamedAxis:
        return rc.NamedAxis(str(role), span=self.at(meta))

    def layers_axis(self, meta: Meta) -> rc.NamedAxis:
        return rc.NamedAxis("layers", span=self.at(meta))

    def tensor_axis(self, meta: Meta, number: Token, glob: Token) -> ex.TensorAxis:
        return ex.TensorAxis(int(parse_integer(number)), glob[1:-1], span=self.at(meta))

    def role_scope(self, meta: Meta, role: Token) -> rc.RoleScope:
        return rc.RoleScope("encoder" if role == "encoder" else "decoder", span=self.at(meta))

    def layer_scope(self, meta: Meta, layers: rc.LayerRange) -> rc.LayerScope:
        return rc.LayerScope(layers, span=self.at(meta))

    def glob_scope(self, meta: Meta, glob: Token) -> rc.GlobScope:
        return rc.GlobScope(glob[1:-1], span=self.at(meta))

    def layer(self, meta: Meta, number: ex.Expr) -> rc.Layer:
        return rc.Layer(number, span=self.at(meta))

    def layers(self, meta: Meta, start: ex.Expr, dots: Token, stop: ex.Expr | None = None) -> rc.Layers:
        return rc.Layers(start, stop, span=self.at(meta))

    def ranges(self, meta: Meta, *ranges: rc.LayerRange) -> tuple[rc.LayerRange, ...]:
        return ranges

    # Fills, options, rankings, orders

    def fill(self, meta: Meta, *words: Token) -> rc.Fill:
        return rc.Fill(_name(words), span=self.at(meta))

    def options(self, meta: Meta, *options: rc.Option) -> tuple[rc.Option, ...]:
        return options

    rescaling = options

    def option(self, meta: Meta, *parts: Token | float | ex.Expr) -> rc.Option:
        number = next((part for part in parts if isinstance(part, float)), 0.0)
        expr = next((part for part in parts if not isinstance(part, Token | float)), None)
        return rc.Option(_name(parts), number, expr, span=self.at(meta))

    def zero_outputs(self, meta: Meta) -> bool:
        return True

    def seed(self, meta: Meta, number: ex.Expr) -> ex.Expr:
        return number

    def ranking(self, meta: Meta, *parts: Token | ex.Expr | rc.Text | None) -> rc.Ranking:
        seed = next((part for part in parts if not isinstance(part, Token | rc.Text)), None)
        file = next((part for part in parts if isinstance(part, rc.Text)), None)
        return rc.Ranking(_name(parts), seed, file, span=self.at(meta))

    def order(self, meta: Meta, *parts: Token | ex.Expr) -> rc.Order:
        count = next((part for part in parts if not isinstance(part, Token)), None)
        return rc.Order(_name(parts), count, span=self.at(meta))

    def depth(self, meta: Meta, order: rc.Order, zero: bool | None) -> Depth:
        return Depth(order, zero is not None)

    # Conditions

    def exact(self, meta: Meta) -> rc.Exact:
        return rc.Exact(span=self.at(meta))

    def preserved(self, meta: Meta, within: float) -> rc.Preserved:
        return rc.Preserved(within, span=self.at(meta))

    def comparison(
        self, meta: Meta, subject: rc.AxisRef | rc.Parameters, relation: Token, value: ex.Expr
    ) -> rc.Comparison:
        return rc.Comparison(subject, cast(rc.Relation, str(relation)), value, span=self.at(meta))

    def parameters(self, meta: Meta) -> rc.Parameters:
        return rc.Parameters(span=self.at(meta))

    # Expressions

    def binary(self, meta: Meta, left: ex.Expr, operator: Token, right: ex.Expr) -> ex.Binary:
        return ex.Binary(cast(ex.Operator, str(operator)), left, right, span=self.at(meta))

    def negative(self, meta: Meta, minus: Token, operand: ex.Expr) -> ex.Neg:
        return ex.Neg(operand, span=self.at(meta))

    def call(self, meta: Meta, function: Token, first: ex.Expr, second: ex.Expr) -> ex.Call:
        return ex.Call("min" if function == "min" else "max", first, second, span=self.at(meta))

    def integer(self, meta: Meta, digits: Token) -> ex.Int:
        return ex.Int(int(parse_integer(digits)), spelling=str(digits), span=self.at(meta))

    def name(self, meta: Meta, name: Token) -> ex.Name:
        return ex.Name(str(name), span=self.at(meta))

    def text(self, meta: Meta, quoted: Token) -> rc.Text:
        return rc.Text(quoted[1:-1], span=self.at(meta))

    def number(self, meta: Meta, digits: Token) -> float:
        return float(parse_integer(digits)) if digits.type == "INT" else float(digits)

    def negative_number(self, meta: Meta, minus: Token, number: float) -> float:
        return -number
