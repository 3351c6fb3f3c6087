"""Models with units that contribute nothing, at random positions."""

from __future__ import annotations

from pathlib import Path

import growc


def planted(model: Path, axis: str, size: str, out: Path) -> Path:
    """More units of an axis than it has, the new ones zero on the side that makes them, in another order."""
    option = "" if axis == "hidden" else " with zero outputs"
    wide = out.with_suffix(".wide.onnx")
    growc.apply(f"widen {axis} to {size} with zero fill{option}", model, wide, check=False)
    return growc.apply(f"reorder {axis} by random seed 5\nexpect exact", wide, out).written


def difference(recipe: str | Path, model: Path, out: Path) -> float:
    """What a recipe that drops units costs."""
    done = growc.apply(recipe, model, out)
    assert not done.plan.certificate.exact
    assert done.verification is not None
    return done.verification.relative
