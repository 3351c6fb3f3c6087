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
