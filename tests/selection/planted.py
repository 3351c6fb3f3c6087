"""Models with units that contribute nothing, at random positions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper as nh

import growc


def planted(model: Path, axis: str, size: str, out: Path) -> Path:
    """More units of an axis than it has, the new ones zero on the side that makes them, in another order."""
    option = "" if axis == "hidden" else " with zero outputs"
    wide = out.with_suffix(".wide.onnx")
    growc.apply(f"widen {axis} to {size} with zero fill{option}", model, wide, check=False)
    return growc.apply(f"reorder {axis} by random seed 5\nexpect exact", wide, out).written


def killed(model: Path, axis: str, living: Sequence[int], out: Path, *, centred: bool = False) -> Path:
    """A model of which only some units of an axis live: what makes the others, and what reads them, is zero.

    `centred`: what makes living units is without its mean over them, as norms that centre need it.
    """
    (out.parent / "living.txt").write_text("\n".join(map(str, living)))
    recipe = out.parent / "kill.grow"
    recipe.write_text(f'subclone {axis} to {len(living)} by keep "living.txt" unscaled\n')
    proto = onnx.load(model)
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    for weight in growc.plan(recipe, model).weights:
        if not weight.steps:
            continue
        values = nh.to_array(tensors[weight.source]).copy()
        for step in weight.steps:
            units, kept = np.moveaxis(values, step.axis, 0), step.layout.as_map().index
            if centred and step.verb == "makes":
                units[kept] -= units[kept].mean(0)
            units[np.setdiff1d(np.arange(len(units)), kept)] = 0
        tensors[weight.source].CopyFrom(nh.from_array(values, weight.source))
    onnx.save(proto, out)
    return out


def difference(recipe: str | Path, model: Path, out: Path) -> float:
    """The relative difference that a recipe makes which drops units."""
    done = growc.apply(recipe, model, out)
    assert not done.plan.certificate.exact
    assert done.verification is not None
    return done.verification.relative
