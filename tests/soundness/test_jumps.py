"""Units of zeros that noise makes zero up to rounding, and functions with a jump at zero."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save

from growc import api

MODEL = """
jumps (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6, 6] mix, float[6, 3] down>
{
    a = MatMul(x, up)
    b = Tanh(a)
    c = MatMul(b, mix)
    d = Add(b, c)
    e = FUNCTION(d)
    f = Abs(e)
    y = MatMul(f, down)
}
"""
ZEROS = 'widen axis 1 of "up" to 8 with zero fill'
COPIES = 'widen axis 1 of "up" to 12 with neighbor copy split random'
CASES = [
    ("Sign", f"{ZEROS}\n{COPIES} noise 0.1 balanced", False),
    ("Floor", f"{ZEROS}\n{COPIES} noise 0.1 balanced", False),
    ("Tanh", f"{ZEROS}\n{COPIES} noise 0.1 balanced", True),
    ("Sign", f"{ZEROS}\n{COPIES}", True),
    ("Sign", f"{COPIES} noise 0.1 balanced", True),
]


@pytest.mark.parametrize(("function", "recipe", "exact"), CASES)
def test_a_jump_at_zero_shows_zeros_that_noise_makes(
    tmp_path: Path, function: str, recipe: str, exact: bool
) -> None:
    model = save(tmp_path / "m.onnx", MODEL.replace("FUNCTION", function))
    plan = api.plan(recipe, model)
    assert plan.certificate.exact == exact
    if not exact:
        assert [(gap.op, "jump at zero" in gap.cause) for gap in plan.certificate.gaps] == [(function, True)]
