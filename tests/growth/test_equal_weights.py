"""Weights of one content are one weight: a head that is stored beside its table, turned or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save

import growc

GRAPH = """
g (float[N, {0}] x) => (float[N, {2}] y) <float[{0}, {1}] w, float[{1}, {2}] v>
{{
    a = MatMul(x, w)
    b = Relu(a)
    y = MatMul(b, v)
}}"""


def tied(folder: Path, w: np.ndarray, v: np.ndarray) -> list[tuple[bool, ...]]:
    graph = GRAPH.format(len(w), len(v), v.shape[1])
    return [tie.turned for tie in growc.inspect(save(folder / "m.onnx", graph, w=w, v=v)).ties]


@pytest.mark.parametrize("shape", [(8, 1000), (1000, 8), (8, 8), (600, 2000), (2000, 600)])
def test_weights_that_differ_in_some_rows_are_two(tmp_path: Path, shape: tuple[int, int]) -> None:
    w = np.random.default_rng(0).standard_normal(shape, np.float32)
    v = w.T.copy()
    assert tied(tmp_path, w, v) == [(False, True)]
    few = slice(1, 4) if shape[0] == shape[1] else slice(100, 300)
    other = v.copy()
    if len(v) == max(shape):
        other[few] += 1
    else:
        other[:, few] += 1
    assert tied(tmp_path, w, other) == []
