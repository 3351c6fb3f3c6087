"""New values computed from stored ones that are infinite, NaN or large: no zero hides such a unit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from graphs import save

from growc import api
from growc.errors.diagnostic import GrowError
from growc.verification.verify import Verification

BOUNDED = """
net (float[n, 8] x) => (float[n, 5] y)
<float[8, 16] rows, float[16] bias, float[16, 5] columns>
{
    h = MatMul(x, rows)
    b = Add(h, bias)
    o = Sigmoid(b)
    y = MatMul(o, columns)
}
"""
STREAM = """
net (int64[n, s] ids) => (float[n, s, 5] y)
<float[9, 8] table, float[8] gain, float[8] bias, float[8, 16] up, float[16, 8] down, float[8, 5] head>
{
    e = Gather(table, ids)
    m = LayerNormalization(e, gain, bias)
    h = MatMul(m, up)
    o = Sigmoid(h)
    d = MatMul(o, down)
    r = Add(e, d)
    y = MatMul(r, head)
}
"""


def normal(*shape: int) -> np.ndarray:
    """Normal numbers of float32."""
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def with_values(shape: tuple[int, ...], *values: float) -> np.ndarray:
    """Normal numbers, of which the last ones are given."""
    array = normal(*shape)
    array.reshape(-1)[-len(values) :] = values
    return array


def bounded(path: Path, **weights: np.ndarray) -> Path:
    """A model whose activation bounds what infinite weights make."""
    return save(path, BOUNDED, **weights)


def stream(path: Path, **weights: np.ndarray) -> Path:
    """A model with a table, a norm and a layer."""
    return save(path, STREAM, opset=18, **weights)


@pytest.mark.parametrize(
    ("model", "name", "values", "recipe"),
    [
        (bounded, "rows", with_values((8, 16), np.inf), "random fill"),
        (bounded, "rows", with_values((8, 16), np.nan), "random fill"),
        (bounded, "bias", with_values((16,), np.inf, -np.inf), "average fill"),
        (bounded, "bias", with_values((16,), np.inf), "average fill"),
        (stream, "gain", with_values((8,), np.inf), "average fill"),
        (stream, "table", with_values((9, 8), np.nan), "random fill"),
    ],
)
def test_new_values_that_are_not_finite_end_the_writing(
    tmp_path: Path, model: Callable[..., Path], name: str, values: np.ndarray, recipe: str
) -> None:
    source = model(tmp_path / "model.onnx", **{name: values})
    place = 'axis 1 of "rows" to 24' if model is bounded else "hidden to 12"
    with pytest.raises(GrowError, match=rf"new values of `{name}` are not finite") as caught:
        api.apply(f"widen {place} with {recipe}", source, tmp_path / "grown.onnx", check=False)
    assert (caught.value.diagnostics[0].code, caught.value.exit_status) == ("G326", 3)
    assert not (tmp_path / "grown.onnx").exists()


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_copies_of_infinite_values_compute_the_same(tmp_path: Path, value: float) -> None:
    source = bounded(tmp_path / "model.onnx", bias=with_values((16,), value))
    recipe = 'widen axis 1 of "rows" to 32 with neighbor copy'
    done = api.apply(recipe, source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert isinstance(done.verification, Verification)
    x = {"x": normal(3, 8)}
    before, after = (onnxruntime.InferenceSession(p).run(None, x)[0] for p in (source, done.written))
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_a_factor_that_overflows_ends_the_writing(tmp_path: Path) -> None:
    """The root of two times 50,000 is more than the largest number of float16, 65,504."""
    graph = STREAM.replace("float[", "float16[")
    shapes = {"table": (9, 8), "gain": (8,), "bias": (8,), "down": (16, 8), "head": (8, 5)}
    halves = {name: normal(*shape).astype(np.float16) for name, shape in shapes.items()}
    up = with_values((8, 16), 1).astype(np.float16)
    up[0, 0] = 50_000
    source = save(tmp_path / "model.onnx", graph, opset=18, **halves, up=up)
    with pytest.raises(GrowError, match=r"new values of `up` are not finite"):
        api.apply("subclone hidden to 4 by first", source, tmp_path / "small.onnx", check=False)
