"""An operator's name stands in the tables and rules of the dialects, and in the patterns of passes/raising,
which recognise a spelling; analyses ask for traits and treatments.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import onnx.defs

from growc.dialects.onnx.operators.table import OPERATORS

ROOT = Path(__file__).parents[2]
OPERATOR_NAMES = {schema.name for schema in onnx.defs.get_all_schemas()} | set(OPERATORS)


def named(path: Path) -> int:
    """How many strings of a file are names of operators."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sum(isinstance(n, ast.Constant) and n.value in OPERATOR_NAMES for n in ast.walk(tree))


def test_operators_are_named_in_dialects_and_patterns_alone() -> None:
    files = [
        *(ROOT / "passes").rglob("*.py"),
        *(ROOT / "grammar").rglob("*.py"),
        *(ROOT / "growc").rglob("*.py"),
    ]
    outside = [p for p in files if "dialects" not in p.parts and ROOT / "passes/raising" not in p.parents]
    counted = Counter({str(p.relative_to(ROOT)): n for p in outside if (n := named(p))})
    assert not counted


def test_a_name_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text('"""Gather"""\nif node.op in ("Gather", "growc::Stack"): pass\n')
    assert named(tmp_path / "rule.py") == 3
