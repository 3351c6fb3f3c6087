"""Convert the tree of one line to growc.recipe.syntax_tree: by rule name, or by a method for a rule of
grow.lark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, cast, get_args

from lark import Token, Tree
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive, v_args

from growc.errors.source import SourceText, Span
from growc.recipe import expression as ex
from growc.recipe import syntax_tree as rc

SUFFIX = {"K": 1_000, "M": 1_000_000, "B": 1_000_000_000}

PARTS = (
    rc.Statement
    | rc.Scope
    | rc.LayerRange
    | rc.Condition
    | rc.Parameters
    | rc.AxisRef
    | rc.Text
    | rc.QuantityLimit
    | rc.Sequences
    | ex.Expr
)

NODES = {re.sub(r"\B(?=[A-Z])", "_", node.__name__).lower(): node for node in get_args(PARTS)}
"""The node class for a rule of grow.lark of the same name: `layer_scope` for LayerScope."""


class Header(NamedTuple):
    """The header `in SCOPE {`, which opens a block."""

    scope: rc.Scope


def parse_integer(spelling: str) -> Decimal:
    """The value of an integer with or without K, M or B; not whole for `1.0005K`."""
    factor = SUFFIX.get(spelling[-1], 1)
    return Decimal(spelling.rstrip("KMB")) * factor


def _name(parts: Iterable[object]) -> str:
    """The words among the parts of a rule, joined by spaces."""
    return " ".join(part for part in parts if isinstance(part, Token))


def build(tree: Tree[Any], source: SourceText, place: int = 0) -> Any:
    """The statement, header or expression for the tree of a line or an expression.

    place: the offset in the text from which the tree counts.
    """
    return _Builder(source, place).transform(tree)


@v_args(inline=True, meta=True)
class _Builder(Transformer_NonRecursive[Token, Any]):
    def __init__(self, source: SourceText, place: int) -> None:
        super().__init__()
        self.source, self.place = source, place

    def at(self, meta: Meta) -> Span:
        """The span of a rule; only this method knows lark's names for positions."""
        return Span(self.source, self.place + meta.start_pos, self.place + meta.end_pos)

    def __default__(self, data: str, children: Sequence[object], meta: Meta) -> object:
        """The node for a rule's name. The children are its fields in order; None stands for the default."""
        node = NODES[data]
        parts = (part.strip('"') if isinstance(part, Token) else part for part in children)
        field_values = {
            field: part for field, part in zip(node.__match_args__, parts, strict=False) if part is not None
        }
        return node(**field_values, span=self.at(meta))

    def scope_header(self, meta: Meta, scope: rc.Scope) -> Header:
        return Header(scope)

    def language(self, meta: Meta, version: Token) -> rc.Language:
        return rc.Language(version.removesuffix(".0"), span=self.at(meta))

    def nested(self, meta: Meta, *axes: rc.AxisRef) -> tuple[rc.AxisRef, ...]:
        return axes

    def share(self, meta: Meta, *numbers: Token) -> rc.AxisShare:
        numerator, denominator = (int(parse_integer(number)) for number in numbers)
        return rc.AxisShare(numerator, denominator, span=self.at(meta))

    def shares(self, meta: Meta, *shares: rc.AxisShare) -> tuple[rc.AxisShare, ...]:
        return shares

    def zero_outputs(self, meta: Meta) -> bool:
        return True

    def axes(self, meta: Meta, *axes: rc.AxisRef) -> tuple[rc.AxisRef, ...]:
        return axes

    def ranges(self, meta: Meta, *ranges: rc.LayerRange) -> tuple[rc.LayerRange, ...]:
        return ranges

    # Fills, options, rankings, orders

    def fill(self, meta: Meta, *words: Token) -> rc.Fill:
        return rc.Fill(_name(words), span=self.at(meta))

    def layer_fill(self, meta: Meta, *parts: Token | float | ex.Expr | None) -> rc.LayerFill:
        std = next((part for part in parts if isinstance(part, float)), None)
        seed = next(
            (part for part in parts if part is not None and not isinstance(part, Token | float)), None
        )
        return rc.LayerFill(_name(parts), seed, std, span=self.at(meta))

    def options(self, meta: Meta, *options: rc.Option) -> tuple[rc.Option, ...]:
        return options

    rescaling = options

    def option(self, meta: Meta, *parts: Token | float | ex.Expr) -> rc.Option:
        number = next((part for part in parts if isinstance(part, float)), 0.0)
        expr = next((part for part in parts if not isinstance(part, Token | float)), None)
        return rc.Option(_name(parts), number, expr, span=self.at(meta))

    def ranking(self, meta: Meta, *parts: Token | ex.Expr | rc.Text | None) -> rc.Ranking:
        seed = next((part for part in parts if not isinstance(part, Token | rc.Text)), None)
        file = next((part for part in parts if isinstance(part, rc.Text)), None)
        return rc.Ranking(_name(parts), seed, file, span=self.at(meta))

    def order(self, meta: Meta, *parts: Token | ex.Expr | rc.Text) -> rc.LayerOrder:
        count = next((part for part in parts if not isinstance(part, Token | rc.Text)), None)
        file = next((part for part in parts if isinstance(part, rc.Text)), None)
        return rc.LayerOrder(_name(parts), count, file, span=self.at(meta))

    # Numbers and expressions

    def tensor_axis(self, meta: Meta, number: Token, glob: Token) -> ex.TensorAxis:
        return ex.TensorAxis(int(parse_integer(number)), glob.strip('"'), span=self.at(meta))

    def binary(self, meta: Meta, left: ex.Expr, operator: Token, right: ex.Expr) -> ex.Binary:
        return ex.Binary(cast(ex.Operator, str(operator)), left, right, span=self.at(meta))

    def integer(self, meta: Meta, digits: Token) -> ex.Int:
        return ex.Int(int(parse_integer(digits)), spelling=str(digits), span=self.at(meta))

    def number(self, meta: Meta, digits: Token) -> float:
        return float(parse_integer(digits)) if digits.type == "INT" else float(digits)

    def negative_number(self, meta: Meta, number: float) -> float:
        return -number
