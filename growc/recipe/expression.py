"""Arithmetic on sizes: the expressions of a recipe, and their values."""

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
class SyntaxNode:
    """A part of a recipe. Its place (`span`) does not count in comparisons."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Int(SyntaxNode):
    """A number: `1024`, or `355M`, whose spelling is kept."""

    value: int
    spelling: str = field(default="", compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Name(SyntaxNode):
    """The name of a `let`, or of an axis by its role.

    moment: the number of the statement before which the size is taken; None: the statement that the
        expression belongs to.
    """

    name: str
    moment: int | None = field(default=None, kw_only=True, repr=False)


@dataclass(frozen=True)
class TensorAxis(SyntaxNode):
    """`axis NUMBER of "GLOB"`: an axis that is named by parameters that have it; `moment` as in Name."""

    number: int
    glob: str
    moment: int | None = field(default=None, kw_only=True, repr=False)

    @property
    def name(self) -> str:
        """The spelling, which is also the name by which sizes are looked up."""
        return f'axis {self.number} of "{self.glob}"'


@dataclass(frozen=True)
class Neg(SyntaxNode):
    """`-OPERAND`."""

    operand: Expr


UNKNOWN = Name("?")
"""The placeholder for an expression with an error. Its value is unknown, so that no second error follows."""

Operator = Literal["+", "-", "*", "/"]


@dataclass(frozen=True)
class Binary(SyntaxNode):
    """`LEFT OPERATOR RIGHT`."""

    operator: Operator
    left: Expr
    right: Expr


@dataclass(frozen=True)
class MinMax(SyntaxNode):
    """`min(A, B)` or `max(A, B)`."""

    function: Literal["min", "max"]
    first: Expr
    second: Expr


SizeName = Name | TensorAxis
"""A name for a size."""

Expr = Int | SizeName | Neg | Binary | MinMax
"""An expression."""

AnyNode = TypeVar("AnyNode")

PRECEDENCE: dict[str, int] = {"+": 1, "-": 1, "*": 2, "/": 2}
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
}


def evaluate(expr: Expr, size: Callable[[SizeName], int]) -> int:
    """The value of an expression, with the sizes of axes from `size`.

    >>> evaluate(Binary("*", Int(4), Name("hidden")), lambda axis: 768)
    3072

    Raises GrowError where a quotient is no integer, or a divisor is zero: G312 if the expression mentions a
    size, so that another model might do; else G212.
    """
    value = fold(expr, size, "G312" if names(expr) else "G212")
    assert value is not None
    return value


def fraction(expr: Expr, size: Callable[[SizeName], int | Fraction]) -> Fraction:
    """The value as in `evaluate`, but as a fraction. Raises GrowError (G312) for a division by zero."""
    match expr:
        case Int():
            return Fraction(expr.value)
        case Name() | TensorAxis():
            return Fraction(size(expr))
        case Neg():
            return -fraction(expr.operand, size)
        case MinMax():
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


def fold(expr: Expr, size: Callable[[SizeName], int | None], code: str = "G212") -> int | None:
    """The value as in `evaluate`; None where a size is not known.

    Known parts are checked all the same: `hidden + 10 / 3` is wrong for every model. Raises GrowError
    (`code`) where a quotient is no integer, or a divisor is zero.
    """
    match expr:
        case Int():
            return expr.value
        case Name() | TensorAxis():
            return size(expr)
        case Neg():
            value = fold(expr.operand, size, code)
            return None if value is None else -value
        case MinMax():
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
                message = f"{left} / {right} does not come out whole"
                sizes = [f"`{name.name}` is {size(name)}" for name in dict.fromkeys(names(expr))]
                label = ", and ".join([f"{left} is no multiple of {right}", *sizes])
                below = left // right
                remedy = f"{below} and {below + 1} are the whole numbers beside it" if below > 0 else ""
                raise GrowError(Diagnostic(code, message, expr.span, label, help=remedy))
            return ARITHMETIC[expr.operator](left, right)


def names(expr: Expr) -> tuple[SizeName, ...]:
    """The names in an expression, in the order of reading."""
    return tuple(part for part in parts_of(expr) if isinstance(part, SizeName))


def parts_of(node: object) -> Iterator[object]:
    """Yield a node, or several, and everything in it, in the order of reading."""
    yield node
    if isinstance(node, tuple | SyntaxNode):
        for part in node if isinstance(node, tuple) else vars(node).values():
            if isinstance(part, tuple | SyntaxNode):
                yield from parts_of(part)
            else:
                yield part


def replaced(node: AnyNode, kinds: type | UnionType, change: Callable[..., object]) -> AnyNode:
    """A node in which `change` replaces every part of some kinds. Parts of a replaced part stay."""
    result: object = node
    if isinstance(node, kinds):
        result = change(node)
    elif isinstance(node, tuple):
        parts = tuple(replaced(part, kinds, change) for part in node)
        result = parts if any(new is not old for new, old in zip(parts, node, strict=True)) else node
    elif isinstance(node, SyntaxNode):
        inner = [name for name, part in vars(node).items() if isinstance(part, tuple | SyntaxNode)]
        changed = {name: replaced(vars(node)[name], kinds, change) for name in inner}
        if any(part is not vars(node)[name] for name, part in changed.items()):
            result = replace(node, **changed)
    return cast(AnyNode, result)


def spell(expr: Expr) -> str:
    """The spelling of an expression, without needless brackets.

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
        case MinMax():
            return f"{expr.function}({spell(expr.first)}, {spell(expr.second)})"
        case Binary():
            rank = PRECEDENCE[expr.operator]
            left, right = expr.left, expr.right
            before = _bracketed(left, isinstance(left, Binary) and PRECEDENCE[left.operator] < rank)
            after = _bracketed(right, isinstance(right, Binary) and PRECEDENCE[right.operator] <= rank)
            return f"{before} {expr.operator} {after}"


def _bracketed(expr: Expr, brackets: bool) -> str:
    return f"({spell(expr)})" if brackets else spell(expr)
