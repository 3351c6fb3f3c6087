"""The text of a statement's scopes in the keys of its random numbers.

The text belongs to version 1 of the language: it must stay as it is, whatever classes are called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from growc.recipe.expression import Binary, Expr, Int, MinMax, Name, Neg, TensorAxis
from growc.recipe.syntax_tree import GlobScope, LayerNumber, LayerScope, LayerSlice, RoleScope, Scope


def scope_key(scopes: Iterable[Scope]) -> str:
    """The text of scopes, outermost first."""
    return " ".join(map(_scope, scopes))


def _scope(scope: Scope) -> str:
    match scope:
        case RoleScope(role=role):
            return f"RoleScope(role={role!r})"
        case GlobScope(pattern=pattern):
            return f"GlobScope(pattern={pattern!r})"
        case LayerScope(layers=LayerNumber(number=number)):
            return f"LayerScope(layers=Layer(number={_size(number)}))"
        case LayerScope(layers=LayerSlice(start=start, stop=stop)):
            return f"LayerScope(layers=Layers(start={_size(start)}, stop={_size(stop)}))"
        case _:
            raise AssertionError(scope)


def _size(size: Expr | None) -> str:
    match size:
        case None:
            return "None"
        case Int(value=value):
            return f"Int(value={value})"
        case Name(name=name):
            return f"Name(name={name!r})"
        case TensorAxis(number=number, glob=glob):
            return f"TensorAxis(number={number}, glob={glob!r})"
        case Neg(operand=operand):
            return f"Neg(operand={_size(operand)})"
        case Binary(operator=operator, left=left, right=right):
            return f"Binary(operator={operator!r}, left={_size(left)}, right={_size(right)})"
        case MinMax(function=function, first=first, second=second):
            return f"Call(function={function!r}, first={_size(first)}, second={_size(second)})"
        case _:
            assert_never(size)
