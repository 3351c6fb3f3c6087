"""Checks on numbers of a recipe that do not depend on the model."""

from __future__ import annotations

from collections.abc import Iterator

from growc.errors.diagnostic import Diagnostic
from growc.recipe.expression import UNKNOWN, Expr, fold, names


def constant(expr: Expr | None) -> int | None:
    """The value of an expression, if it is the same for every model; else None."""
    return None if expr is None else fold(expr, lambda size: None)


def at_least(least: int, expr: Expr | None, what: str) -> Iterator[Diagnostic]:
    """Yield an error (G206) if a number is less than `least` for every model."""
    value = constant(expr)
    if expr is not None and value is not None and value < least:
        yield Diagnostic("G206", f"{what} is at least {least}", expr.span, f"this is {value}")


def fixed(expr: Expr | None, what: str) -> Iterator[Diagnostic]:
    """Yield an error (G206) if a number depends on the model."""
    if expr is not None and constant(expr) is None and UNKNOWN not in names(expr):
        yield Diagnostic("G206", f"{what} may not depend on the model", expr.span, help="write a number")
