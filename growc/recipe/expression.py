"""Arithmetic on sizes: the expressions of a recipe, and what they come to."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import UnionType
from typing import Literal, TypeVar, cast

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import NOWHERE, Span


@dataclass(frozen=True)
class Node:
    """Anything that stands in a recipe. Where it stands is no part of what it is."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Int(Node):
    """`1024`, or `355M`, whose spelling is kept."""

    value: int
    spelling: str = field(default="", compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Name(Node):
    """A `let`, or an axis that is named by its role.

    moment: the number of the statement before which the size is meant; None is the statement that the
        expression belongs to.
    """

    name: str
    moment: int | None = field(default=None, kw_only=True, repr=False)


@dataclass(frozen=True)
class TensorAxis(Node):
    """`axis NUMBER of "GLOB"`: an axis that is named by the parameters that bear it; `moment` as in Name."""

    number: int
    glob: str
    moment: int | None = field(default=None, kw_only=True, repr=False)

    @property
    def name(self) -> str:
        """As it is written, which is also the name that sizes are looked up by."""
        return f'axis {self.number} of "{self.glob}"'


@dataclass(frozen=True)
class Neg(Node):
    """`-OPERAND`."""

    operand: Expr


UNKNOWN = Name("?")
"""Stands for what was found wrong: a number that nothing is known about, so that it is blamed only once."""

Operator = Literal["+", "-", "*", "/"]


@dataclass(frozen=True)
class Binary(Node):
    """`LEFT OPERATOR RIGHT`."""

    operator: Operator
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Call(Node):
    """`min(A, B)` or `max(A, B)`."""

    function: Literal["min", "max"]
    first: Expr
    second: Expr


Named = Name | TensorAxis
"""What stands for a size."""

Expr = Int | Named | Neg | Binary | Call
"""An expression."""

AnyNode = TypeVar("AnyNode")

PRECEDENCE: dict[str, int] = {"+": 1, "-": 1, "*": 2, "/": 2}
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
}


def evaluate(expr: Expr, size: Callable[[Named], int]) -> int:
    """What an expression comes to, with the sizes of axes from `size`.

    >>> evaluate(Binary("*", Int(4), Name("hidden")), lambda axis: 768)
    3072

    Raises GrowError where a division does not come out whole: G312 if a size has a part in the expression, so
    that another model might do; else G212.
    """
    value = fold(expr, size, "G312" if names(expr) else "G212")
    assert value is not None
    return value


def fraction(expr: Expr, size: Callable[[Named], int | Fraction]) -> Fraction:
    """As `evaluate`, but quotients need not come out whole. Raises GrowError for a division by zero."""
    match expr:
        case Int():
            return Fraction(expr.value)
        case Name() | TensorAxis():
            return Fraction(size(expr))
        case Neg():
            return -fraction(expr.operand, size)
        case Call():
            pair = fraction(expr.first, size), fraction(expr.second, size)
            return min(pair) if expr.function == "min" else max(pair)
        case Binary():
            left, right = fraction(expr.left, size), fraction(expr.right, size)
            if expr.operator == "/" and right == 0:
                raise GrowError(Diagnostic("G312", "division by zero", expr.right.span, "this is 0"))
            match expr.operator:
                case "+":
                    return left + right
                case "-":
                    return left - right
                case "*":
                    return left * right
                case "/":
                    return left / right


def fold(expr: Expr, size: Callable[[Named], int | None], code: str = "G212") -> int | None:
    """As `evaluate`, but a size that is not known makes the whole unknown.

    Parts that are known are judged all the same: `hidden + 10 / 3` is wrong for every model.
    """
    match expr:
        case Int():
            return expr.value
        case Name() | TensorAxis():
            return size(expr)
        case Neg():
            value = fold(expr.operand, size, code)
            return None if value is None else -value
        case Call():
            first, second = fold(expr.first, size, code), fold(expr.second, size, code)
            if first is None or second is None:
                return None
            return min(first, second) if expr.function == "min" else max(first, second)
        case Binary():
            left, right = fold(expr.left, size, code), fold(expr.right, size, code)
            if expr.operator == "/" and right == 0:
                raise GrowError(Diagnostic(code, "division by zero", expr.right.span, "this is 0"))
            if left is None or right is None:
                return None
            if expr.operator == "/" and left % right:
                message, label = (
                    f"{left} / {right} does not come out whole",
                    f"{left} is no multiple of {right}",
                )
                raise GrowError(Diagnostic(code, message, expr.span, label))
            return ARITHMETIC[expr.operator](left, right)


def names(expr: Expr) -> tuple[Named, ...]:
    """The names in an expression, in the order of reading."""
    return tuple(part for part in parts_of(expr) if isinstance(part, Named))


def parts_of(node: object) -> Iterator[object]:
    """A node, or several, and everything in it, in the order of reading."""
    yield node
    if isinstance(node, tuple | Node):
        for part in node if isinstance(node, tuple) else vars(node).values():
            if isinstance(part, tuple | Node):
                yield from parts_of(part)
            else:
                yield part


def replaced(node: AnyNode, kinds: type | UnionType, change: Callable[..., object]) -> AnyNode:
    """A node with something else in the place of every part of some kinds, the outermost first."""
    made: object = node
    if isinstance(node, kinds):
        made = change(node)
    elif isinstance(node, tuple):
        made = tuple(replaced(part, kinds, change) for part in node)
    elif isinstance(node, Node):
        inner = [name for name, part in vars(node).items() if isinstance(part, tuple | Node)]
        made = replace(node, **{name: replaced(vars(node)[name], kinds, change) for name in inner})
    return cast(AnyNode, made)


def spell(expr: Expr) -> str:
    """The expression as it is written, with no more brackets than it needs.

    >>> spell(Binary("/", Binary("*", Int(4), Name("hidden")), Binary("+", Int(1), Int(2))))
    '4 * hidden / (1 + 2)'
    """
    match expr:
        case Int():
            return expr.spelling or str(expr.value)
        case Name() | TensorAxis():
            return expr.name
        case Neg():
            return "-" + _bracketed(expr.operand, isinstance(expr.operand, Binary))
        case Call():
            return f"{expr.function}({spell(expr.first)}, {spell(expr.second)})"
        case Binary():
            rank = PRECEDENCE[expr.operator]
            left, right = expr.left, expr.right
            before = _bracketed(left, isinstance(left, Binary) and PRECEDENCE[left.operator] < rank)
            after = _bracketed(right, isinstance(right, Binary) and PRECEDENCE[right.operator] <= rank)
            return f"{before} {expr.operator} {after}"


def _bracketed(expr: Expr, brackets: bool) -> str:
    return f"({spell(expr)})" if brackets else spell(expr)
