"""Guards of a program: assumptions of torch.export on the sizes of inputs, as Python code.

On sizes that break a guard, a program may compute something else than its module. So a grown program keeps
the guards of its source. `program.module()` runs that code, so guards of a file must be arithmetic of sizes.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterable, Mapping

import torch

FUNCTIONS = {
    "": {"abs", "float", "int", "max", "min"},
    "math": {"ceil", "floor", "sqrt", "trunc"},
    "torch": {"sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt"},
}
"""Functions that a guard may call, by module."""
KEY = re.compile(r"\w+")
HIGHEST = 8
"""The largest exponent of a size in a guard."""
ARGUMENT = re.compile(r"\bL\['(\w+)'\](\[?)")
"""An argument of forward, and whether the guard concerns a part of it."""

SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.boolop, ast.unaryop, ast.cmpop)
PARTS = (ast.Expression, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare)


def is_arithmetic(guard: str) -> bool:
    """Whether code only compares sizes of inputs and numbers computed from them.

    >>> is_arithmetic("(L['x'].size()[0] % 2) == 0"), is_arithmetic("print(1)")
    (True, False)
    """
    try:
        return _is_number(ast.parse(guard, mode="eval"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_number(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value):
            return isinstance(value, int | float)
        case ast.Subscript(ast.Call(ast.Attribute(tensor, "size" | "stride"), [], []), ast.Constant(int())):
            return _is_input(tensor)
        case ast.Call(ast.Attribute(tensor, "storage_offset"), [], []):
            return _is_input(tensor)
        case ast.Call(ast.Name(name), arguments, []):
            return name in FUNCTIONS[""] and _are_numbers(arguments)
        case ast.Call(ast.Attribute(ast.Name(module), name), arguments, []):
            return name in FUNCTIONS.get(module, ()) and _are_numbers(arguments)
        case ast.BinOp(ast.Subscript() as size, ast.Pow(), ast.Constant(int(power))):
            return _is_number(size) and power <= HIGHEST
        case ast.Subscript():
            return _is_input(node)
    return isinstance(node, SIGNS) or (isinstance(node, PARTS) and _are_numbers(ast.iter_child_nodes(node)))


def _are_numbers(nodes: Iterable[ast.AST]) -> bool:
    return all(map(_is_number, nodes))


def _is_input(node: ast.AST) -> bool:
    """Whether an expression is an input by names and positions alone, as in `L['pair'][0]`.

    torch writes these into code of its own.
    """
    match node:
        case ast.Subscript(ast.Name("L"), ast.Constant(str(key))):
            return KEY.fullmatch(key) is not None
        case ast.Subscript(inner, ast.Constant(key)):
            return KEY.fullmatch(str(key)) is not None and _is_input(inner)
    return False


def is_about(guard: str, names: Collection[str]) -> bool:
    """Whether a guard concerns only these arguments of forward, and each as one tensor."""
    return all(name in names and not part for name, part in ARGUMENT.findall(guard))


def holds(guard: str, arguments: Mapping[str, object]) -> bool:
    """Whether an arithmetic guard holds for arguments of forward, given by name."""
    return bool(eval(guard, {"L": arguments, "math": math, "torch": torch}))
