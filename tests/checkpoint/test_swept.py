"""Cases of the page of classes that once failed."""

from __future__ import annotations

from pathlib import Path

import pytest
import sweep


@pytest.mark.parametrize(
    ("name", "recipe"), [("git", "all ×2"), pytest.param("glpn", "ffn ×1.5", marks=pytest.mark.soak)]
)
def test_a_class_that_was_refused_is_exact(name: str, recipe: str, tmp_path: Path) -> None:
    """GIT takes one of as many zeros as its stream has units; a gate of GLPN once took the name `ffn`."""
    source = sweep.saved(name, tmp_path)
    found = sweep.judged(name, sweep.recipe_of(name, recipe), source, tmp_path / "grown")
    assert (found.status, found.said) == (sweep.EXACT, "")
