"""Products and readers of functions with poles: f(g(h)), alone and beside the unit itself, on every fill."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

INNER = {
    "itself": "g = Identity(h)",
    "magnitude": "g = Abs(h)",
    "square": "g = Mul(h, h)",
    "positive": "g0 = Abs(h)\n    g = Add(g0, half)",
    "exponential": "g = Exp(h)",
    "cosine": "g0 = Cos(h)\n    g = Add(g0, two)",
    "less cosine": "g0 = Cos(h)\n    g = Sub(one, g0)",
    "sigmoid": "g = Sigmoid(h)",
    "relu": "g = Relu(h)",
    "bounded": "g0 = Abs(h)\n    g = Max(g0, half)",
    "one and exponential": "n = Neg(h)\n    g0 = Exp(n)\n    g = Add(g0, one)",
    "gained": "g0 = Mul(h, gain)\n    g = Abs(g0)",
}
OUTER = {
    "log": "f = Log(g)",
    "reciprocal": "f = Reciprocal(g)",
    "root": "f = Sqrt(g)",
    "inverse root": "r = Sqrt(g)\n    f = Reciprocal(r)",
    "power": "f = Pow(g, minus)",
    "quotient": "f = Div(one, g)",
    "own quotient": "f = Div(h, g)",
    "remainder": "f = Mod <fmod = 1> (h, g)",
    "tangent": "f = Tan(g)",
    "atanh": "t = Tanh(g)\n    f = Atanh(t)",
    "gentle": "f = Softplus(g)",
}
LAST = {"alone": "z = Identity(f)", "times the unit": "z = Mul(h, f)", "times a half": "z = Mul(f, half)"}
FILLS = ("zero fill", "average fill", "uniform copy", "random fill with zero outputs")
NUMBERS = {"half": 0.5, "one": 1.0, "two": 2.0, "minus": -0.5}


def graphs() -> Iterator[tuple[str, str, str]]:
    """(what it is, graph, recipe); the fill takes turns."""
    for number, (inner, outer, last) in enumerate(product(INNER, OUTER, LAST)):
        text = f"""
pole (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6] gain, float[6, 3] down, float half, float one, float two, float minus>
{{
    h = MatMul(x, up)
    {INNER[inner]}
    {OUTER[outer]}
    {LAST[last]}
    y = MatMul(z, down)
}}
"""
        recipe = f'widen axis 1 of "up" to 13 with {FILLS[(number + number // 4) % len(FILLS)]}'
        yield f"{inner}, {outer}, {last}", text, recipe
