"""What is claimed of functions with poles is measured by onnxruntime, wherever the source is finite."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import SYMBOLS, draw, run
from poles import NUMBERS, graphs

from growc import api


def equal(model: Path, grown: Path) -> bool | None:
    """Whether both compute the same; None where the source's result is not finite."""
    found = []
    for size in SYMBOLS:
        feeds = draw(model, size)
        before, after = (run(path, feeds)["y"] for path in (model, grown))
        if not np.isfinite(before).all():
            return None
        found.append(np.isfinite(after).all() and abs(before - after).max() <= 1e-4 * abs(before).max())
    return all(found)


def claims(folder: Path, step: int) -> Counter[tuple[bool, bool]]:
    """How many are claimed, and how many are equal."""
    found: Counter[tuple[bool, bool]] = Counter()
    model, grown = folder / "m.onnx", folder / "g.onnx"
    for name, text, recipe in list(graphs())[::step]:
        save(model, text, opset=18, **{k: np.float32(v) for k, v in NUMBERS.items()})
        exact = api.apply(recipe, model, grown, check=False, force=True).plan.certificate.exact
        same = equal(model, grown)
        if same is not None:
            assert same or not exact, (name, recipe)
            found[exact, same] += 1
    return found


def test_some_functions_with_poles(tmp_path: Path) -> None:
    found = claims(tmp_path, 17)
    assert found[True, True] >= 0.6 * found.total(), found


@pytest.mark.soak
def test_every_function_with_poles(tmp_path: Path) -> None:
    found = claims(tmp_path, 1)
    assert found[True, True] >= 0.85 * found.total(), found
    assert found[False, True] <= 0.02 * found.total(), found
