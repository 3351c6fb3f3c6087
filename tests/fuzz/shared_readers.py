"""One weight that reads two activations: functions of one stream, in every way to store the weight."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

FUNCTIONS = {
    "itself": "Identity(h)",
    "relu": "Relu(h)",
    "tanh": "Tanh(h)",
    "cos": "Cos(h)",
    "exp": "Exp(h)",
    "shifted": "Add(h, half)",
    "square": "Mul(h, h)",
    "gained": "Mul(h, gain)",
}
READERS = {
    "twice": ("float[6, 3] weight", "first = MatMul(a, weight)\n    second = MatMul(b, weight)"),
    "turned": (
        "float[3, 6] weight",
        "w = Transpose <perm = [1, 0]> (weight)\n    first = MatMul(a, w)\n    second = MatMul(b, w)",
    ),
    "gemm": (
        "float[3, 6] weight, float[3] bias",
        "first = Gemm <transB = 1> (a, weight, bias)\n    second = Gemm <transB = 1> (b, weight, bias)",
    ),
    "packed": (
        "float[6, 6] weight, int64[2] halves",
        "w, u = Split <axis = 1> (weight, halves)\n    first = MatMul(a, w)\n    second = MatMul(b, u)",
    ),
    "sliced": (
        "float[6, 6] weight, int64[1] zero, int64[1] three, int64[1] six, int64[1] one",
        "w = Slice(weight, zero, three, one)\n    u = Slice(weight, three, six, one)\n"
        "    first = MatMul(a, w)\n    second = MatMul(b, u)",
    ),
}
NUMBERS = {"halves": [3, 3], "zero": [0], "three": [3], "six": [6], "one": [1]}
FILLS = (
    "zero fill",
    "average fill",
    "neighbor copy",
    "random fill",
    "cyclic copy split random noise 0.3 balanced",
)


def graphs() -> Iterator[tuple[str, str, dict[str, list[int]], str]]:
    """(what it is, graph, weights with given values, recipe); the fill takes turns."""
    every = product(READERS, FUNCTIONS, FUNCTIONS)
    for number, (reader, one, other) in enumerate(every):
        weights, lines = READERS[reader]
        text = f"""
shared (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6] gain, float half, {weights}>
{{
    h = MatMul(x, up)
    a = {FUNCTIONS[one]}
    b = {FUNCTIONS[other]}
    {lines}
    y = Add(first, second)
}}
"""
        fill = FILLS[number % len(FILLS)]
        given = {name: value for name, value in NUMBERS.items() if f"] {name}" in weights}
        yield f"{reader}, {one}, {other}", text, given, f'widen axis 1 of "up" to 13 with {fill}'
