"""Casts to fewer digits than the weights have, of units that are other multiples of the source's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

SCORES = """
scores (float[B, S, 3] x) => (float[B, S, S] y)
<float[3, 6] queries, float[3, 6] keys>
{
    q = MatMul(x, queries)
    k = MatMul(x, keys)
    qn = Cast <to = TYPE> (q)
    qw = Cast <to = 1> (qn)
    t = Transpose <perm = [0, 2, 1]> (k)
    y = MatMul(qw, t)
}
"""

READ = """
read (float[B, 3] x) => (float[B, 4] y)
<float[3, 6] rows, float[6, 4] columns>
{
    h = MatMul(x, rows)
    n = Cast <to = TYPE> (h)
    w = Cast <to = 1> (n)
    y = MatMul(w, columns)
}
"""

FLOAT16, BFLOAT16, DOUBLE = 10, 16, 11
HALF = np.float16


def scores(folder: Path, kind: int) -> Path:
    return save(folder / "m.onnx", SCORES.replace("TYPE", str(kind)))


@pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16])
def test_roots_of_two_are_rounded_elsewhere(tmp_path: Path, kind: int) -> None:
    judged = judge(
        'widen axis 1 of "queries" to 12 with cyclic copy', scores(tmp_path, kind), tmp_path / "wide.onnx"
    )
    judged.assert_gap("multiples other than by powers of two")


@pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16])
def test_halves_are_rounded_in_the_same_place(tmp_path: Path, kind: int) -> None:
    judged = judge(
        'widen axis 1 of "queries" to 24 with cyclic copy', scores(tmp_path, kind), tmp_path / "wide.onnx"
    )
    judged.assert_exact()


def test_wider_types_round_nothing(tmp_path: Path) -> None:
    judged = judge(
        'widen axis 1 of "queries" to 12 with cyclic copy', scores(tmp_path, DOUBLE), tmp_path / "wide.onnx"
    )
    judged.assert_exact()


def test_weights_with_as_few_digits_round_themselves(tmp_path: Path) -> None:
    graph = SCORES.replace("TYPE", str(FLOAT16)).replace(
        "float[3, 6] keys", "float[3, 6] keys, float16[6] gain"
    )
    graph = graph.replace(
        "y = MatMul(qw, t)", "g = Cast <to = 1> (gain)\n    qg = Mul(qw, g)\n    y = MatMul(qg, t)"
    )
    gain = np.linspace(0.5, 2, 6).astype(HALF)
    path = save(tmp_path / "m.onnx", graph, gain=gain)
    judge('widen axis 1 of "queries" to 12 with cyclic copy', path, tmp_path / "wide.onnx").assert_exact(
        limit=2e-3
    )


@pytest.mark.parametrize("fill", ["cyclic copy", "zero fill", "cyclic copy with zero outputs"])
def test_copies_and_zeros_are_rounded_as_they_were(tmp_path: Path, fill: str) -> None:
    path = save(tmp_path / "m.onnx", READ.replace("TYPE", str(BFLOAT16)))
    judge(f'widen axis 1 of "rows" to 9 with {fill}', path, tmp_path / "wide.onnx").assert_exact()


def test_means_that_nobody_reads_may_be_rounded(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", READ.replace("TYPE", str(BFLOAT16)))
    judge('widen axis 1 of "rows" to 9 with average fill', path, tmp_path / "wide.onnx").assert_exact()


NORMED = """
normed (float[B, 3] x) => (float[B, 4] y)
<float[3, 6] rows, float[6] gain, float[6] bias, float[6, 4] columns>
{
    h = MatMul(x, rows)
    n = Cast <to = 16> (h)
    w = Cast <to = 1> (n)
    l = LayerNormalization <axis = -1> (w, gain, bias)
    y = MatMul(l, columns)
}
"""


@pytest.mark.parametrize("fill", ["average fill", "cyclic copy"])
def test_means_that_a_norm_meets_are_no_means_of_what_is_rounded(tmp_path: Path, fill: str) -> None:
    path = save(tmp_path / "m.onnx", NORMED)
    size = 8 if fill == "average fill" else 12
    judged = judge(f'widen axis 1 of "rows" to {size} with {fill}', path, tmp_path / "wide.onnx")
    if fill == "cyclic copy":
        judged.assert_exact()
    else:
        judged.assert_gap("means")


WITHIN = {
    "x": ("w", "v"),
    "the square": ("s", "m"),
    "the mean of squares": ("m", "p"),
    "the root": ("r", "q"),
    "the quotient": ("q", "z"),
}
"""Casts in a norm in pieces: which value is rounded, and which one reads it."""


def norm_with_cast(place: str, kind: int) -> str:
    """Squares, their mean, its root, the quotient, a gain."""
    lines = {
        "v": "v = Identity(w)",
        "s": "s = Mul(v, v)",
        "m": "m = ReduceMean <axes = [-1]> (s)",
        "p": "p = Add(m, eps)",
        "r": "r = Sqrt(p)",
        "q": "q = Div(v, r)",
        "z": "z = Mul(q, gain)",
    }
    value, reader = WITHIN[place]
    lines[reader] = lines[reader].replace(f"({value}", f"({value}w").replace(f", {value})", f", {value}w)")
    cast = f"{value}n = Cast <to = {kind}> ({value})\n    {value}w = Cast <to = 1> ({value}n)\n    "
    lines[reader] = cast + lines[reader]
    body = "\n    ".join(lines.values())
    return f"""
normed (float[B, 3] x) => (float[B, 4] y)
<float[3, 6] rows, float eps, float[6] gain, float[6, 4] columns>
{{
    w = MatMul(x, rows)
    {body}
    y = MatMul(z, columns)
}}
"""


@pytest.mark.parametrize("place", WITHIN)
def test_casts_in_a_norm_round_roots_of_three_elsewhere(tmp_path: Path, place: str) -> None:
    """Unequal copies are weighted such that their squares add up to the unit's."""
    path = save(tmp_path / "m.onnx", norm_with_cast(place, BFLOAT16), eps=np.float32(1e-5))
    recipe = 'widen axis 1 of "rows" to 15 with cyclic copy'
    judge(recipe, path, tmp_path / "wide.onnx").assert_gap("multiples other than by powers of two")


@pytest.mark.parametrize("place", WITHIN)
@pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16, DOUBLE])
def test_casts_in_a_norm_round_equal_copies_alike(tmp_path: Path, kind: int, place: str) -> None:
    path = save(tmp_path / "m.onnx", norm_with_cast(place, kind), eps=np.float32(1e-5))
    judge('widen axis 1 of "rows" to 12 with cyclic copy', path, tmp_path / "wide.onnx").assert_exact()


def test_a_coarse_summand_says_nothing(tmp_path: Path) -> None:
    """It may be zero: then half a unit of its last place is nothing."""
    graph = SCORES.replace("TYPE", str(FLOAT16)).replace("[3, 6] keys", "[3, 6] keys, float16[6] bias")
    summed = "b = Cast <to = 1> (bias)\n    qb = Add(q, b)\n    qn = Cast <to = 10> (qb)"
    graph = graph.replace("qn = Cast <to = 10> (q)", summed)
    path = save(tmp_path / "m.onnx", graph, bias=np.zeros(6, HALF))
    judged = judge('widen axis 1 of "queries" to 12 with cyclic copy', path, tmp_path / "wide.onnx")
    judged.assert_gap("multiples other than by powers of two")


def test_a_coarse_weight_on_another_axis_says_nothing(tmp_path: Path) -> None:
    graph = READ.replace("TYPE", str(FLOAT16)).replace("float[B, 4] y", "float[B, 3] y")
    graph = graph.replace("float[6, 4] columns>", "float[6, 4] columns, float16[4, 3] last>")
    graph = graph.replace("y = MatMul(w, columns)", "g = Cast <to = 1> (last)\n    a = MatMul(w, columns)")
    graph = graph.replace("    a = MatMul(w, columns)", "    k = MatMul(NORM, columns)\n    y = MatMul(k, g)")
    norm = "s = SimplifiedLayerNormalization <axis = -1> (w, gain)\n    k = MatMul(s, columns)"
    graph = graph.replace("k = MatMul(NORM, columns)", norm).replace(
        "float[3, 6] rows", "float[3, 6] rows, float[6] gain"
    )
    last = np.random.default_rng(0).standard_normal((4, 3)).astype(HALF)
    path = save(tmp_path / "m.onnx", graph, last=last)
    recipe = 'widen axis 1 of "rows" to 15 with cyclic copy'
    judge(recipe, path, tmp_path / "wide.onnx").assert_gap("multiples other than by powers of two")
