"""A public function that raises a GrowError says so in its docstring, with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from graphs import ROOT

TOLD = re.compile(r"GrowError\b.*?\b(?:G\d(?:\d\d|xx)|codes?)\b", re.DOTALL)
"""The error with its code, with the first digit of several, or with a code that the caller gives."""


def trees(root: Path = ROOT) -> dict[str, ast.Module]:
    """The modules of growc, by path."""
    paths = [path for folder in ("growc", "passes", "grammar") for path in (root / folder).rglob("*.py")]
    return {str(path.relative_to(root)): ast.parse(path.read_text("utf-8")) for path in sorted(paths)}


def functions(tree: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Functions and methods, without those in functions."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef) and is_public(node.name):
            yield from functions(node)


def is_public(name: str) -> bool:
    return not name.startswith("_")


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's own body."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            yield child
            yield from inside(child)


def called(node: ast.AST) -> Iterator[str]:
    """The last names of what is called."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            yield ast.unparse(call.func).rpartition(".")[2]


def silent(modules: dict[str, ast.Module]) -> list[str]:
    """The public functions that raise a GrowError, made there or by a function, and do not say so."""
    found = [(path, function) for path, tree in modules.items() for function in functions(tree)]
    makers = {f.name for _, f in found if f.returns is not None and ast.unparse(f.returns) == "GrowError"}
    makers.add("GrowError")
    return [
        f"{path}:{function.lineno}: {function.name}"
        for path, function in found
        if is_public(function.name)
        and any(
            isinstance(node, ast.Raise) and node.exc is not None and makers.intersection(called(node.exc))
            for node in inside(function)
        )
        and not TOLD.search(ast.get_docstring(function) or "")
    ]


def test_public_functions_tell_the_codes_of_errors_that_they_raise() -> None:
    assert silent(trees()) == []


def test_a_silent_function_is_found() -> None:
    text = '''
def refused() -> GrowError: ...
def plain():
    """Raises GrowError (G200)."""
    raise refused()
class Reader:
    def read(self):
        """Read."""
        raise GrowError(Diagnostic("G310", "it cannot be read"))
'''
    assert silent({"reader.py": ast.parse(text)}) == ["reader.py:7: read"]
