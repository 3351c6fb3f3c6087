"""Units that computed numbers tell apart do not move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save

import growc
from growc.errors.diagnostic import GrowError

PLACES = """
places (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] up, float[8, 3] down, int64[] zero, int64[] eight, int64[] one>
{
    h = MatMul(x, up)
    r0 = Range(zero, eight, one)
    r = Cast <to = 1> (r0)
    g = Mul(h, r)
    y = MatMul(g, down)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    numbers = {"zero": 0, "eight": 8, "one": 1}
    return save(tmp_path / "m.onnx", PLACES, **{k: np.array(v, dtype=np.int64) for k, v in numbers.items()})


@pytest.mark.parametrize(
    "recipe",
    ["reorder {} by random seed 3", "subclone {} to 4 by even", "widen {} to 12 with neighbor copy"],
)
def test_an_order_or_a_choice_that_moves_them_is_refused(model: Path, recipe: str) -> None:
    with pytest.raises(GrowError, match=r"numbers are computed that differ along it|cannot change"):
        growc.plan(recipe.format('axis 0 of "down"'), model)
