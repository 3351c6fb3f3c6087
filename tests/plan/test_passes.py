"""Passes as values: their contracts, and what runs them."""

from __future__ import annotations

import importlib
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType

import pytest
from graphs import ROOT

from growc.compilation import Compilation
from growc.passes import PIPELINE, PLANNING, Pass, run
from growc.passes.runner import ContractError


def test_every_file_of_passes_is_imported_as_a_module():
    for file in (ROOT / "passes").glob("*.py"):
        name = "growc.passes" if file.stem == "__init__" else f"growc.passes.{file.stem}"
        importlib.import_module(name)
        owner, _, last = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(owner), last), ModuleType), name


def test_a_pass_requires_what_is_given_or_ensured_before():
    given = {field.name for field in fields(Compilation)}
    there = given - {name for one in PLANNING for name in one.ensures} | {"statements", "untied"}
    for one in PLANNING:
        assert [name for name in one.requires if name not in there] == [], one.name
        assert set(one.ensures) <= given
        there |= set(one.ensures)


def test_a_pass_says_what_it_does_in_a_line():
    assert len({one.name for one in PIPELINE}) == len(PIPELINE)
    assert all(one.does.endswith(".") for one in PIPELINE)


def test_a_pass_that_changes_what_it_does_not_ensure_is_refused():
    renamed = Pass("rename", lambda c: replace(c, path=Path("other")), (), ("graph",))
    with pytest.raises(ContractError, match="the pass rename changes `path`"):
        run([renamed], Compilation(Path("model"), None))
