"""New units behind divisors and other stored numbers that have poles: judged by onnxruntime.

Stored vectors of positive numbers, and some whose mean, or mean with a number added, is zero.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import draw, run

from growc import api

VECTORS = {
    "positive": [0.6, 1.9, 0.8, 1.2, 1.7, 0.9],
    "of mean zero": [1, -1, 2, -2, 0.5, -0.5],
    "of mean minus one": [1, -1, 2, -2, 0.5, -6.5],
}
BEHIND = {
    "quotient": "k = Div(h, c)",
    "remainder": "k = Mod <fmod = 1> (h, c)",
    "whole quotient": "i = Cast <to = 7> (h)\n j = Div(i, whole)\n k = Cast <to = 1> (j)",
    "whole remainder": "i = Cast <to = 7> (h)\n j = Mod(i, whole)\n k = Cast <to = 1> (j)",
    "two quotients": "i = Div(h, c)\n k = Div(i, d)",
    "reciprocal": "r = Reciprocal(c)\n k = Mul(h, r)",
    "magnitude": "r = Abs(c)\n k = Div(h, r)",
    "square": "r = Mul(c, c)\n k = Div(h, r)",
    "negative": "r = Neg(c)\n k = Div(h, r)",
    "one more": "r = Add(c, one)\n k = Div(h, r)",
    "root": "q = Abs(c)\n r = Sqrt(q)\n k = Div(h, r)",
    "exponential": "r = Exp(c)\n k = Div(h, r)",
    "product": "r = Mul(c, d)\n k = Div(h, r)",
    "ratio": "r = Div(c, d)\n k = Div(h, r)",
    "share": "l = ReduceL2(c)\n r = Div(c, l)\n k = Div(h, r)",
    "logarithm": "q = Abs(c)\n r = Log(q)\n k = Mul(h, r)",
    "factor and divisor": "i = Mul(h, c)\n k = Div(i, c)",
    "tanh": "r = Tanh(c)\n k = Div(h, r)",
    "larger of two": "r = Max(c, d)\n k = Div(h, r)",
    "one of two": "t = Less(c, one)\n r = Where(t, c, d)\n k = Div(h, r)",
    "bounded": "r = Clip(c, low)\n k = Div(h, r)",
    "variance": "k = BatchNormalization <epsilon = 0.0> (h, d, c, e, positive)",
    "difference": "i = Sub(h, c)\n k = Div(i, d)",
    "power": "q = Abs(h)\n r = Add(q, one)\n k = Pow(r, c)",
    "divided": "q = Abs(h)\n r = Add(q, one)\n k = Div(c, r)",
}
ALWAYS = {"quotient", "remainder", "whole quotient", "whole remainder", "two quotients", "exponential"}
FILLS = ("zero fill", "average fill", "uniform copy", "random fill", "last copy with zero outputs")


def judged(folder: Path, vector: str, behind: str, fill: str) -> tuple[bool, bool]:
    """Whether the claim is exact, and whether the result is the same where the source is finite."""
    stored = np.float32(VECTORS[vector])
    given = {
        "c": stored,
        "d": np.float32(VECTORS["of mean zero"][::-1]),
        "e": np.float32([0.3, -1.2, 0.4, 2.1, -0.6, 0.9]),
        "positive": np.float32(VECTORS["positive"]),
        "whole": np.array([2, -2, 3, -3, 4, -4]),
        "one": np.float32(1),
        "low": np.float32(-7),
    }
    text = """
g (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6] c, float[6] d, float[6] e, float[6] positive, int64[6] whole, float[6, 3] down,
 float one, float low>
{
    h = MatMul(x, up)
    BEHIND
    y = MatMul(k, down)
}
"""
    model, out = save(folder / "m.onnx", text.replace("BEHIND", behind), opset=19, **given), folder / "o.onnx"
    made = api.apply(f'widen axis 1 of "up" to 9 with {fill}', model, out, check=False, force=True)
    feeds = draw(model, 8)
    before, after = (run(path, feeds)["y"] for path in (model, out))
    fine = np.isfinite(before)
    same = bool(np.allclose(before[fine], after[fine], rtol=1e-3, atol=1e-4))
    return made.plan.certificate.exact, same


@pytest.mark.sampled(6)
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("name", BEHIND)
def test_units_behind_stored_numbers(tmp_path: Path, name: str, vector: str, fill: str) -> None:
    exact, same = judged(tmp_path, vector, BEHIND[name], fill)
    assert same or not exact
    assert exact or fill == "random fill" or name not in ALWAYS
