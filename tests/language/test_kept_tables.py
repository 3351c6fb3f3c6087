"""The tables of the grammar are kept beside Python's bytecode, and nothing depends on them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
from growc import grammar
from growc.grammar.parser import grammar as tables
from growc.errors.source import SourceText
text = "widen ffn to 4 * ffn with cyclic copy\\n"
print(grammar.format(grammar.parse(SourceText("recipe", text))), len(tables().terminals), len(tables().rules))
"""


def read(folder: Path, *options: str) -> str:
    """Output and standard error of a process that reads a recipe. `folder`: where its bytecode is kept."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *options, "-c", READ]
    done = subprocess.run(
        command, env={**kept, "PYTHONPYCACHEPREFIX": str(folder)}, capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


def kept(folder: Path) -> list[Path]:
    """The tables that are kept."""
    return list(folder.rglob("*.lark"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The output of a process that finds no tables, and the folder where it keeps them."""
    folder = tmp_path_factory.mktemp("bytecode")
    return read(folder), folder


def test_kept_tables_read_as_new_ones_do(first):
    said, folder = first
    (path,) = kept(folder)
    before = path.stat().st_mtime_ns
    assert read(folder) == said
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("content", [b"", b"no pickle", None], ids=["empty", "other", "torn"])
def test_broken_tables_are_built_anew(first, content):
    said, folder = first
    (path,) = kept(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert read(folder) == said
    assert path.read_bytes().splitlines()[0] == whole.splitlines()[0]


def test_tables_of_another_grammar_are_built_anew(first):
    said, folder = first
    (path,) = kept(folder)
    whole = path.read_bytes()
    path.write_bytes(b"0" * 64 + whole[64:])
    assert read(folder) == said
    assert path.read_bytes()[:64] == whole[:64]


def test_without_bytecode_nothing_is_kept(first, tmp_path):
    assert read(tmp_path, "-B") == first[0]
    assert not kept(tmp_path)


def test_tables_that_cannot_be_kept_cause_no_message(first, tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert read(tmp_path / "file") == first[0]
