"""Weights that are stored as integers with scales: what is copied keeps its integers."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from graphs import save
from numpy.typing import NDArray
from onnx import numpy_helper

from growc import api
from growc.plans.quantised import Blocks
from growc.verification.feeds import draw_cases
from growc.verification.ort_session import Session
from growc.verification.rounding import Rounding, measure, ways

PLAIN = """
quantised (float[N, 4] x) => (float[N, 3] y)
<float[8] bias>
{
    rows = DequantizeLinear <axis = AXIS> (up, up_scale, up_zero)
    columns = DequantizeLinear <axis = AXIS> (down, down_scale, down_zero)
    a = MatMul(x, rows)
    b = Add(a, bias)
    c = Relu(b)
    y = MatMul(c, columns)
}
"""

BLOCKED = """
blocked (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows>
{
    columns = DequantizeLinear <axis = 0, block_size = 4> (down, down_scale, down_zero)
    a = MatMul(x, rows)
    b = Relu(a)
    y = MatMul(b, columns)
}
"""

STATIC = """
static (float[N, 4] x) => (float[N, 3] y)
<float[8] bias>
{
    rows = DequantizeLinear(up, up_scale, up_zero)
    columns = DequantizeLinear(down, down_scale, down_zero)
    step = Constant <value = float {0.05}> ()
    middle = Constant <value = uint8 {7}> ()
    a = MatMul(x, rows)
    b = Add(a, bias)
    q = QuantizeLinear(b, step, middle)
    r = DequantizeLinear(q, step, middle)
    y = MatMul(r, columns)
}
"""

RANDOM = np.random.default_rng(0)


def integers(*shape: int, dtype: str = "int8") -> NDArray[np.generic]:
    """Drawn integers; a scale and zero points for each shape are drawn beside them."""
    return RANDOM.integers(-8, 8, shape).astype(dtype)


def scales(*shape: int) -> NDArray[np.float32]:
    return RANDOM.uniform(0.05, 0.2, shape).astype(np.float32)


def tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def stored(path: Path, graph: str, axis: int | None) -> Path:
    """Two matrices with scales for all, or for each row (axis 0) or column (axis 1)."""
    made: dict[str, object] = {"bias": scales(8)}
    for name, shape in (("up", (4, 8)), ("down", (8, 3))):
        count = () if axis is None else (shape[axis],)
        made |= {name: integers(*shape), f"{name}_scale": scales(*count), f"{name}_zero": integers(*count)}
    return save(path, graph.replace("AXIS", str(axis or 0)), opset=19, **made)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("graph", [PLAIN, STATIC])
@pytest.mark.parametrize("size", ["13 with uniform copy split random", "16 with cyclic copy"])
def test_copies_keep_their_integers_and_scales(
    tmp_path: Path, graph: str, axis: int | None, size: str
) -> None:
    source = stored(tmp_path / "model.onnx", graph, axis if graph == PLAIN else None)
    done = api.apply(f'widen axis 1 of "up" to {size}\nexpect exact', source, tmp_path / "grown.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    before, after = tensors(source), tensors(tmp_path / "grown.onnx")
    beside = 0 if graph == PLAIN else 4 + 1  # in constants that are no initializers
    assert done.plan.bytes_to_write == beside + sum(np.asarray(t).nbytes for t in after.values())
    assert after["up"].dtype == after["down"].dtype == np.int8
    assert {tuple(c) for c in after["up"].T} == {tuple(c) for c in before["up"].T}
    zero = (
        after["down_zero"]
        if axis is None or graph == STATIC
        else np.expand_dims(after["down_zero"], 1 - axis)
    )
    assert (after["down"] == zero).all(axis=1).sum() == after["down"].shape[0] - 8


def test_four_bits_in_blocks(tmp_path: Path) -> None:
    source = save(
        tmp_path / "model.onnx",
        BLOCKED,
        opset=21,
        down=integers(8, 3, dtype="int8").astype(ml_dtypes.int4),
        down_scale=scales(2, 3),
        down_zero=np.zeros((2, 3), ml_dtypes.int4),
    )
    text = 'widen axis 1 of "rows" to 16 with cyclic copy\nexpect exact'
    done = api.apply(text, source, tmp_path / "grown.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    after = tensors(tmp_path / "grown.onnx")
    assert after["down_scale"].shape == (4, 3)
    in_bits = 4 * (after["down"].size + after["down_zero"].size)
    assert done.plan.bytes_to_write == in_bits // 8 + after["rows"].nbytes + after["down_scale"].nbytes
    plan = api.plan('widen axis 1 of "rows" to 12 with neighbor copy', source)
    assert "quantised" in plan.certificate.gaps[0].cause  # copies stand between others, in other blocks
    plan = api.plan('widen axis 1 of "rows" to 12 with neighbor copy in blocks of 4', source)
    assert plan.certificate.exact


def test_scales_hold_maps_whose_blocks_have_one_factor() -> None:
    index = np.array([0, 1, 2, 3, 2, 3])
    halves, uneven = np.full(6, 0.5), np.array([1, 1, 0.5, 0.5, 0.5, 0.5])
    whole, rows, pairs = Blocks((0, 0)), Blocks((1, 0)), Blocks((2, 1))
    assert whole.holds(0, index, halves)
    assert not whole.holds(0, index, uneven)
    assert rows.holds(0, index, uneven)
    assert pairs.holds(0, index, uneven)
    assert not pairs.holds(0, index[[0, 2, 1, 3]], np.ones(4))
    assert whole.holds(0, index, np.array([1, 1, 1, 1, 0, 0]))


@pytest.mark.parametrize(("graph", "count", "steps"), [(STATIC, 3, True), (PLAIN, 1, False)])
def test_steps_that_a_last_bit_decides_count_as_own_rounding(
    tmp_path: Path, graph: str, count: int, steps: bool
) -> None:
    """Weights and inputs of a model that rounds a few numbers move so far that some take other steps."""
    source, rounding = stored(tmp_path / "model.onnx", graph, None), Rounding()
    cases = draw_cases(source)
    with (
        ways(source, source, rounding, cases[0], optimised=False) as found,
        Session(source, optimised=False) as session,
    ):
        moved = [way for way in found if way.change is not None]
        measure(moved, cases, [session.run(case) for case in cases], rounding)
    assert len(moved) == count
    assert (rounding.largest > 1e-3) == steps


TIED = """
tied (int64[N] tokens) => (float[N, 16] logits)
<float[8] norm, float[8, 12] up, float[12, 8] down, float[8] last_norm>
{
    table = DequantizeLinear <axis = 0> (rows, rows_scale, rows_zero)
    x0 = Gather(table, tokens)
    n = SimplifiedLayerNormalization <axis = -1> (x0, norm)
    u = MatMul(n, up)
    a = Relu(u)
    d = MatMul(a, down)
    x1 = Add(x0, d)
    y = SimplifiedLayerNormalization <axis = -1> (x1, last_norm)
    again = DequantizeLinear <axis = 0> (rows, rows_scale, rows_zero)
    head = Transpose <perm = [1, 0]> (again)
    logits = MatMul(y, head)
}
"""


@pytest.mark.parametrize(
    "recipe", ["widen hidden to 16 with cyclic copy", "widen vocab to 20 with tail copy"]
)
def test_integers_that_table_and_head_share_stay_one_tensor(tmp_path: Path, recipe: str) -> None:
    stored = {"rows": integers(16, 8), "rows_scale": scales(16), "rows_zero": integers(16)}
    source = save(tmp_path / "model.onnx", TIED, opset=21, **stored)
    done = api.apply(f"{recipe}\nexpect exact", source, tmp_path / "grown.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    assert tensors(tmp_path / "grown.onnx").keys() == tensors(source).keys()
    (head,) = [w for w in done.plan.weights if w.name == "rows"]
    assert head.after == (20, 8) if "vocab" in recipe else (16, 16)
