"""Imports run downwards: from a floor in the docstring of `growc` to itself or a lower one, in no circle."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx as nx
import pytest

import growc

ROOT = Path(__file__).parents[2]
LARGEST = 16
"""How many modules a folder may hold, subfolders apart."""
AT_THE_TOP = 8
"""How many modules may stand directly in `growc/`."""

FLOORS = {
    package.strip(): int(number)
    for number, packages in re.findall(r"^ ?(\d+) [^:]+: (.+)$", growc.__doc__ or "", re.M)
    for package in packages.split(",")
}


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module by its name; `passes` and `grammar` are packages of `growc`."""
    found = {}
    for folder in ("growc", "passes", "grammar"):
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts if folder == "growc" else ("growc", *parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules that a module imports: at its top, in functions, and for types alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def edges(known: Mapping[str, Path]) -> list[tuple[str, str]]:
    return [
        (name, other) for name, path in known.items() for other in imported(path, known) if other in known
    ]


def floor(module: str) -> int:
    """`growc` and `growc.__main__` are what a user calls."""
    return FLOORS.get(module.partition(".")[2].partition(".")[0], max(FLOORS.values()))


MODULES = modules()
EDGES = edges(MODULES)


def test_the_docstring_names_ten_floors_and_every_package() -> None:
    tops = {name.split(".")[1] for name in MODULES if "." in name} - {"__main__"}
    assert sorted(set(FLOORS.values())) == list(range(1, 11))
    assert set(FLOORS) == tops


def test_imports_run_downwards() -> None:
    # the public names of `growc` are looked up when they are used
    assert [(a, b) for a, b in EDGES if floor(a) < floor(b)] == []


def test_no_module_imports_itself_through_others() -> None:
    graph = nx.DiGraph((a, b) for a, b in EDGES if a != b)
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_no_folder_is_large() -> None:
    sizes = Counter(path.parent.relative_to(ROOT).as_posix() for path in MODULES.values())
    limits = {folder: AT_THE_TOP if folder == "growc" else LARGEST for folder in sizes}
    sizes.subtract(dict.fromkeys(sizes, 1))  # __init__
    assert {folder: n for folder, n in sizes.items() if n > limits[folder]} == {}


@pytest.mark.parametrize(
    "text",
    ["from growc.api import plan", "def f():\n    import growc.api", "if 0:\n    from growc import api"],
)
def test_an_upward_import_would_be_seen(tmp_path: Path, text: str) -> None:
    path = tmp_path / "growc" / "errors" / "codes.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    known = MODULES | {"growc.errors.codes": path}
    assert [b for a, b in edges(known) if a == "growc.errors.codes" and floor(b) > 1] == ["growc.api"]
