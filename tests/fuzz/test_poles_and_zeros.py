"""onnxruntime measures claims about functions with poles, wherever the source is finite."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import SYMBOLS, draw, run
from poles import NUMBERS, graphs

from growc import api

SCALES = [np.float32(1.2**k) for k in range(10)]


def equal(model: Path, grown: Path) -> bool | None:
    """Whether both compute the same; None where the source's result is not finite.

    Larger inputs too, as far as the source is finite: drawn units reach a pole at others than the source's.
    """
    found = []
    for size in SYMBOLS:
        feeds = draw(model, size)
        for scale in SCALES:
            larger = {name: scale * value for name, value in feeds.items()}
            before, after = (run(path, larger)["y"] for path in (model, grown))
            if np.isfinite(before).all():
                far = abs(before - after).max() > 1e-4 * abs(before).max()
                found.append(np.isfinite(after).all() and not far)
            elif scale == 1:
                return None
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
