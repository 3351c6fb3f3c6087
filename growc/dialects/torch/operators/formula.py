"""Texts of rows: a formula of operators, or a function of the modules of rules, that replaces a call.

The text is a Python expression. In a formula such as `Mul(self, Sigmoid(self))`, names are arguments of the
call, as in its schema. They are cast to the dtype of the result. Those of comparisons are cast to the dtype
in which torch compares them. `mask.bool` is an argument cast to another dtype, `index.own` one in its own.
`name=argument` is an attribute; an `axis` is counted from the front of `self`. `A if truth else B` depends
on the dtype of the result (`truth`: bool, `real`: floating point), or on an argument.

The name of a function starts with a small letter. Its parameters are arguments of the call; `x` is `self` or
`input`. `reshape(size=shape)` names the argument of a parameter, `transpose(dim0=-2)` gives its value.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import onnx
import onnx_ir as ir
import torch

from growc.dialects.torch.operators import symbolic_sizes
from growc.dialects.torch.operators.call import Call, UnknownError, promoted

LoweredValues = ir.Value | Sequence[ir.Value]
LoweringRule = Callable[..., LoweredValues]
LoweringRow = Callable[[Call], LoweredValues]

SILENT = frozenset(
    {
        "copy",
        "cudnn_enable",
        "cudnn_enabled",
        "device",
        "dtype",  # the dtype of the result states it
        "generator",
        "layout",
        "memory_format",
        "momentum",  # of running means, in training
        "non_blocking",
        "padding_idx",  # of gradients
        "pin_memory",
        "requires_grad",
    }
)
"""Arguments that do not change the computation, or that the fake result already reflects."""


def row_of(text: str, rules: Mapping[str, LoweringRule]) -> LoweringRow:
    """Return the function that lowers a call by the text of a row."""
    expression = ast.parse(text, mode="eval").body
    match expression:
        case ast.Call(func=ast.Name(id=name), keywords=keywords) if name in rules:
            parameters = list(inspect.signature(rules[name]).parameters)[1:]
            return partial(_by_rule, rules[name], parameters, {k.arg: k.value for k in keywords if k.arg})
    return partial(_by_formula, expression)


def stands_for(text: str) -> str | None:
    """Return the operator of a text if all its operands are arguments of the call, or None."""
    match ast.parse(text, mode="eval").body:
        case ast.Call(func=ast.Name(id=op), args=operands) if op[0].isupper():
            return op if all(isinstance(one, ast.Name) for one in operands) else None
    return None


def _by_rule(
    rule: LoweringRule, parameters: Sequence[str], expressions: Mapping[str, ast.expr], at: Call
) -> LoweredValues:
    defaults = {p: p.rstrip("_") for p in parameters}
    if "x" in defaults:
        defaults["x"] = "self" if "self" in at.arguments else "input"
    named = {
        p: value.id for p, value in expressions.items() if isinstance(value, ast.Name) and value.id.islower()
    }
    names = {p: n for p, n in (defaults | named).items() if p in named or p not in expressions}
    _require(at, set(names.values()))
    values = {p: at.arguments[n] for p, n in names.items() if n in at.arguments}
    at.paths = {p.rstrip("_"): at.paths[n] for p, n in names.items() if n in at.paths}
    return rule(at, **values, **{p: _literal(value) for p, value in expressions.items() if p not in named})


def _literal(expression: ast.expr) -> Any:
    """Return a literal value, or a bare name such as that of an operator."""
    return expression.id if isinstance(expression, ast.Name) else ast.literal_eval(expression)


def _by_formula(expression: ast.expr, at: Call) -> ir.Value:
    tested: set[str] = set()
    while isinstance(expression, ast.IfExp):
        tested |= _names(expression.test)
        expression = expression.body if _holds(expression.test, at) else expression.orelse
    _require(at, tested | _names(expression))
    return _Formula(at).value(expression, at.dtype)


def _names(expression: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}


def _holds(test: ast.expr, at: Call) -> bool:
    match test:
        case ast.Compare(left=ast.Name(id=name), comparators=[number]):
            return bool(at.arguments[name] == ast.literal_eval(number))
        case ast.Name(id="truth"):
            return at.dtype is torch.bool
    return at.dtype.is_floating_point


def _require(at: Call, named: set[str]) -> None:
    """Raise UnknownError if an argument that a row does not name differs from its default."""
    schema = getattr(at.node.target, "_schema", None)
    defaults = {} if schema is None else {a.name: a.default_value for a in schema.arguments}
    for name, value in at.arguments.items():
        if name not in named and name not in SILENT and value != defaults.get(name):
            raise UnknownError


@cache
def _compares(op: str) -> bool:
    """Whether an operator always returns bool."""
    return onnx.defs.get_schema(op).outputs[0].types == {"tensor(bool)"}


@dataclass
class _Formula:
    at: Call
    known: dict[tuple[str, torch.dtype], ir.Value] = field(default_factory=dict)

    def value(self, expression: ast.expr, dtype: torch.dtype) -> ir.Value:
        """Return the value of a part of a formula. `dtype` is that of arguments and numbers."""
        match expression:
            case ast.Call(func=ast.Name(id=op), args=operands, keywords=attributes):
                return self.made(op, operands, {k.arg: k.value for k in attributes if k.arg})
            case ast.Attribute(value=ast.Name(id=name), attr=kind):
                return self.at.tensor(self.at.arguments[name], getattr(torch, kind, None))
            case ast.Name(id=name):
                if (name, dtype) not in self.known:
                    self.known[name, dtype] = self.argument(name, dtype)
                return self.known[name, dtype]
        return self.at.constant(ast.literal_eval(expression), dtype)

    def argument(self, name: str, dtype: torch.dtype) -> ir.Value:
        """Return an argument of the call as an operand."""
        value = self.at.arguments[name]
        if isinstance(self.at.result, torch.Tensor):
            return self.at.tensor(value, dtype, name)
        return symbolic_sizes.operand(self.at, value, dtype)

    def made(self, op: str, operands: Sequence[ast.expr], expressions: Mapping[str, ast.expr]) -> ir.Value:
        """Add an operator with its operands and attributes. The attributes are linked to their arguments."""
        at = self.at
        arguments = [at.arguments[one.id] for one in operands if isinstance(one, ast.Name)]
        dtype = at.dtype
        if not isinstance(at.result, torch.Tensor):
            dtype = symbolic_sizes.common(at, arguments)
        elif arguments and _compares(op):
            dtype = promoted(arguments)
        inputs = [self.value(one, dtype) for one in operands]
        named = {k: value.id for k, value in expressions.items() if isinstance(value, ast.Name)}
        attributes = {
            k: at.arguments[named[k]] if k in named else _literal(v) for k, v in expressions.items()
        }
        if axis := named.pop("axis", None):
            attributes["axis"] = at.axis(at.arguments[axis], at.arguments["self"])
        return at.follows(at.add(op, *inputs, **attributes), **{name: k for k, name in named.items()})
