"""Layers of several runs that touch or lie in each other, and places in which a layer cannot stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import save
from judging import judge

from growc import api

LAYERED = """
layered (float[B, S, 3] x) => (float[B, S, 4] y)
<float[3, 8] rows, float[8, 4] columns, {weights}>
{{
    x0 = MatMul(x, rows)
{layers}
    y = MatMul(x2, columns)
}}
"""

UNKNOWN_ON_THE_BRANCH = """
    o{k} = MeanVarianceNormalization <axes = [{axis}]> (x{k})
    a{k} = MatMul(o{k}, up{k})
    h{k} = Tanh(a{k})
    d{k} = MatMul(h{k}, down{k})
    x{n} = Add(x{k}, d{k})
"""

SUBTRACTED = """
    q{k} = MatMul(x{k}, query{k})
    qc{k} = Mul(q{k}, cos{k})
    q1{k}, q2{k} = Split <axis = -1> (q{k})
    qr{k} = Concat <axis = -1> (q2{k}, q1{k})
    qs{k} = Mul(qr{k}, sin{k})
    qq{k} = Add(qc{k}, qs{k})
    v{k} = MatMul(x{k}, value{k})
    t{k} = Transpose <perm = [0, 2, 1]> (qq{k})
    w{k} = MatMul(qq{k}, t{k})
    p{k} = Softmax(w{k})
    pv{k} = MatMul(p{k}, v{k})
    b{k} = MatMul(pv{k}, out{k})
    s{k} = Sub(x{k}, b{k})
    m{k} = Relu(s{k})
    u{k} = MatMul(m{k}, up{k})
    g{k} = Tanh(u{k})
    d{k} = MatMul(g{k}, down{k})
    a{k} = Add(m{k}, d{k})
    square{k} = Mul(a{k}, a{k})
    mean{k} = ReduceMean <axes = [-1]> (square{k})
    root{k} = Sqrt(mean{k})
    x{n} = Div(a{k}, root{k})
"""

TURNED = """
turned (float[B, S, 3] x) => (float[B, 1, 4, S] y) <float[3, 8] rows, float[8, 4] columns, float[4] c>
{
    x0 = MatMul(x, rows)
    a = MatMul(x0, columns)
    apart = Constant <value_ints = [0, 0, 1, 4]> ()
    r = Reshape(a, apart)
    t = Transpose <perm = [0, 2, 1, 3]> (r)
    m = Mul(t, c)
    s = Add(m, t)
    y = Transpose <perm = [0, 1, 3, 2]> (s)
}
"""


def two(folder: Path, layer: str, shapes: dict[str, str]) -> Path:
    """Two layers of some lines, with weights of these shapes."""
    weights = ", ".join(f"float[{shape}] {name}{k}" for k in range(2) for name, shape in shapes.items())
    layers = "".join(layer.format(k=k, n=k + 1) for k in range(2))
    return save(folder / "layered.onnx", LAYERED.format(weights=weights, layers=layers))


def touching(folder: Path, axis: int) -> Path:
    layer = UNKNOWN_ON_THE_BRANCH.replace("{axis}", str(axis))
    return two(folder, layer, {"up": "8, 5", "down": "5, 8"})


def inside(folder: Path) -> Path:
    products = {"query": "8, 4", "value": "8, 4", "cos": "4", "sin": "4", "out": "4, 8"}
    return two(folder, SUBTRACTED, {"up": "8, 6", "down": "6, 8"} | products)


def runs_on(path: Path) -> bool:
    """Whether onnxruntime loads and runs a file of these to its end."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    [y] = session.run(None, {"x": np.random.default_rng(1).standard_normal((2, 5, 3), np.float32)})
    return y.shape == (2, 5, 4)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("how", ["", " with zero outputs"])
def test_a_run_that_starts_where_another_one_ends_starts_at_its_new_end(tmp_path, axis, how):
    model, deep = touching(tmp_path, axis), tmp_path / "deep.onnx"
    api.apply(f"stack layers to 4 by each{how}", model, deep, check=False, force=True)
    assert runs_on(deep)
    before, after = (sum(n.op_type == "Tanh" for n in onnx.load(p).graph.node) for p in (model, deep))
    counts = [len(run.layers) for run in api.inspect(model).layers.runs]
    assert after - before == sum(4 - count for count in counts)


@pytest.mark.parametrize("recipe", ["stack layers to 4 by whole", "stack layers to 3 by each"])
def test_bypasses_inside_of_a_layer_are_no_layers(tmp_path, recipe):
    model, deep = inside(tmp_path), tmp_path / "deep.onnx"
    ends = {run.layers[-1].end.name for run in api.inspect(model).layers.runs}
    assert "m1" in ends
    assert "qq1" not in ends
    api.apply(f"{recipe} with zero outputs", model, deep, check=False, force=True)
    assert runs_on(deep)


@pytest.mark.parametrize("recipe", ["arrange layers as 0, 0 with zero outputs", "stack layers to 2 by each"])
def test_a_single_layer_ends_where_the_stream_has_the_axes_that_it_takes(tmp_path, recipe):
    """The same operator stands before the layer and behind its sum, and turns other axes there."""
    model = save(tmp_path / "turned.onnx", TURNED)
    [run] = api.inspect(model).layers.runs
    assert [(one.start.name, one.end.name) for one in run.layers] == [("t", "s")]
    judged = judge(recipe, model, tmp_path / "deep.onnx")
    assert not judged.certificate.exact or judged.difference < 1e-5


TWO_HEADS = """
heads (float[B, S, 3] x) => (float[B, S, 4] y, float[B, S, 5] z)
<float[3, 8] rows, float[8, 8] w0, float[8, 8] w1, float[8, 8] w2, float[8, 4] first, float[8, 5] second>
{
    x0 = MatMul(x, rows)
    a0 = MatMul(x0, w0)
    x1 = Relu(a0)
    a1 = MatMul(x1, w1)
    x2 = Relu(a1)
    a2 = MatMul(x2, w2)
    x3 = Relu(a2)
    y = MatMul(x3, first)
    z = MatMul(x3, second)
}
"""


def test_layers_in_front_of_two_outputs_are_one_run(tmp_path):
    model = save(tmp_path / "heads.onnx", TWO_HEADS)
    [run] = api.inspect(model).layers.runs
    assert all(layer.end.producer in layer.nodes for layer in run.layers)
    judge("stack layers to 5 by last", model, tmp_path / "deep.onnx").assert_gap("once more")
