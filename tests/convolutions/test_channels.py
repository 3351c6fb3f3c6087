"""Convolutional networks of every shape: which channels grow, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError

NEIGHBOR = "widen channels to 2 * channels with neighbor copy"
EXACT = {
    "neighbor": NEIGHBOR,
    "cyclic": "widen channels to 2 * channels with cyclic copy",
    "uniform": "widen channels to 3 * channels / 2 with uniform copy",
    "zero": "widen channels to 2 * channels with zero fill with zero outputs",
    "random": "widen channels to 3 * channels / 2 with random fill with zero outputs",
    "noise": "widen channels to 2 * channels with neighbor copy split random noise 0.1 balanced",
}

PLAIN = """
plain (float[N, 3, 9, 9] x) => (float[N, 5] y)
<float[4, 3, 3, 3] a_weight, float[4] a_bias, float[6, 4, 3, 3] b_weight, float[6, 5] c_weight,
 float[5] c_bias>
{
    a = Conv <pads = [1, 1, 1, 1]> (x, a_weight, a_bias)
    r = Relu(a)
    p = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (r)
    b = Conv <dilations = [2, 2], pads = [1, 1, 1, 1]> (p, b_weight)
    t = Tanh(b)
    q = AveragePool <kernel_shape = [2, 2]> (t)
    f = Flatten(q)
    y = Gemm(f, c_weight, c_bias)
}
"""

RESIDUAL = """
residual (float[N, 3, 6, 6] x) => (float[N, 5] y)
<float[4, 3, 3, 3] s, float[4, 4, 3, 3] a, float[4] g, float[4] h, float[4] m, float[4, 4, 1, 1] b,
 float[6, 4, 1, 1] down, float[6, 6, 1, 1] c, float[6, 5] head>
{
    x0 = Conv <pads = [1, 1, 1, 1]> (x, s)
    n = BatchNormalization <epsilon = 0.01> (x0, g, h, m, variance)
    r = Relu(n)
    a0 = Conv <pads = [1, 1, 1, 1]> (r, a)
    a1 = Relu(a0)
    b0 = Conv(a1, b)
    x1 = Add(x0, b0)
    r1 = Relu(x1)
    x2 = Conv <strides = [2, 2]> (r1, down)
    c0 = Conv(x2, c)
    x3 = Add(c0, x2)
    p = GlobalAveragePool(x3)
    f = Flatten(p)
    y = MatMul(f, head)
}
"""

DENSE = """
dense (float[N, 3, 4, 4] x) => (float[N, 2, 4, 4] y)
<float[4, 3, 1, 1] s, float[2, 4, 3, 3] a, float[6] g, float[6] h, float[6] m,
 float[4, 6, 3, 3] b, float[2, 10, 1, 1] c>
{
    x0 = Conv(x, s)
    x1 = Conv <pads = [1, 1, 1, 1]> (x0, a)
    c0 = Concat <axis = 1> (x0, x1)
    n = BatchNormalization <epsilon = 0.01> (c0, g, h, m, variance)
    r = Relu(n)
    x2 = Conv <pads = [1, 1, 1, 1]> (r, b)
    c1 = Concat <axis = 1> (c0, x2)
    y = Conv(c1, c)
}
"""

UNET = """
unet (float[N, 3, 8, 8] x) => (float[N, 2, 8, 8] y)
<float[4, 3, 3, 3] a, float[8, 4, 3, 3] b, float[8, 4, 2, 2] up, float[4] upb,
 float[6, 8, 1, 1] c, float[2, 6, 1, 1] d>
{
    a0 = Conv <pads = [1, 1, 1, 1]> (x, a)
    a1 = Relu(a0)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a1)
    b0 = Conv <pads = [1, 1, 1, 1]> (p, b)
    b1 = Sigmoid(b0)
    u = ConvTranspose <strides = [2, 2]> (b1, up, upb)
    s = Concat <axis = 1> (a1, u)
    c0 = Conv(s, c)
    c1 = Relu(c0)
    y = Conv(c1, d)
}
"""

INVERTED = """
inverted (float[N, 3, 6, 6] x) => (float[N, 4] y)
<float[4, 3, 3, 3] s, float[8, 4, 1, 1] e, float[8, 1, 3, 3] d, float[8] db,
 float[2, 8, 1, 1] q, float[8, 2, 1, 1] u, float[4, 8, 1, 1] p, float[4, 4] head>
{
    x0 = Conv <pads = [1, 1, 1, 1]> (x, s)
    e0 = Conv(x0, e)
    e1 = HardSwish(e0)
    d0 = Conv <group = 8, pads = [1, 1, 1, 1]> (e1, d, db)
    d1 = HardSwish(d0)
    m = ReduceMean <axes = [2, 3]> (d1)
    q0 = Conv(m, q)
    q1 = Relu(q0)
    u0 = Conv(q1, u)
    gate = HardSigmoid(u0)
    d2 = Mul(d1, gate)
    p0 = Conv(d2, p)
    x1 = Add(x0, p0)
    l = GlobalMaxPool(x1)
    f = Flatten(l)
    y = MatMul(f, head)
}
"""

GROUPED = """
grouped (float[N, 3, 7] x) => (float[N, 2, 14] y)
<float[8, 3, 3] s, float[6, 4, 3] a, float[6] ab, float[6, 4, 2] t, float[8] tb, float[2, 8, 1] o>
{
    s0 = Conv <pads = [1, 1]> (x, s)
    s1 = Relu(s0)
    a0 = Conv <group = 2, pads = [1, 1]> (s1, a, ab)
    a1 = Relu(a0)
    t0 = ConvTranspose <group = 2, strides = [2]> (a1, t, tb)
    t1 = Relu(t0)
    y = Conv(t1, o)
}
"""

SHUFFLE = """
shuffle (float[N, 3, 4, 4] x) => (float[N, 2, 4, 4] y)
<float[8, 3, 1, 1] s, float[8, 4, 1, 1] a, float[8, 1, 3, 3] d, float[8, 4, 1, 1] b, float[2, 8, 1, 1] o>
{
    s0 = Conv(x, s)
    a0 = Conv <group = 2> (s0, a)
    v = Reshape(a0, apart)
    w = Transpose <perm = [0, 2, 1, 3, 4]> (v)
    z = Reshape(w, together)
    d0 = Conv <group = 8, pads = [1, 1, 1, 1]> (z, d)
    b0 = Conv <group = 2> (d0, b)
    y0 = Add(s0, b0)
    y = Conv(y0, o)
}
"""

PIXELS = """
pixels (float[N, 3, 4, 4] x) => (float[N, 2, 8, 8] y)
<float[12, 3, 3, 3] a, float[2, 3, 1, 1] o>
{
    a0 = Conv <pads = [1, 1, 1, 1]> (x, a)
    u = DepthToSpace <blocksize = 2, mode = "CRD"> (a0)
    r = Relu(u)
    y = Conv(r, o)
}
"""

PADDED = """
padded (float[N, 3, 4, 4] x) => (float[N, 2, 8, 8] y)
<float[4, 3, 1, 1] s, float[8, 4, 3, 3] a, float[2, 8, 1, 1] o>
{
    s0 = Conv(x, s)
    s1 = Relu(s0)
    a0 = Conv <pads = [1, 1, 1, 1]> (s1, a)
    p = Pad(s1, pads)
    b = Add(a0, p)
    r = Relu(b)
    u = Resize <mode = "nearest"> (r, , scales)
    y = Conv(u, o)
}
"""

GRAPHS = {
    "plain": (PLAIN, [4, 6]),
    "residual": (RESIDUAL, [4, 6]),
    "dense": (DENSE, [4, 2]),
    "unet": (UNET, [4, 8, 6]),
    "inverted": (INVERTED, [4, 8, 2]),
    "grouped": (GROUPED, [8, 6]),
    "shuffle": (SHUFFLE, [8]),
    "pixels": (PIXELS, [12, 3]),
    "padded": (PADDED, [4, 2]),
}


GROUPS_OF_THREE = ("grouped", "pixels")
"""Groups whose channels have no half more."""

CONSTANTS = {
    "padded": {"pads": np.array([0, 2, 0, 0, 0, 2, 0, 0]), "scales": np.array([1, 1, 2, 2], np.float32)},
    "residual": {"variance": np.linspace(0.5, 2, 4, dtype=np.float32)},
    "dense": {"variance": np.linspace(0.5, 2, 6, dtype=np.float32)},
    "shuffle": {"apart": np.array([0, 2, 4, 4, 4]), "together": np.array([0, 8, 4, 4])},
}


def model(tmp_path: Path, name: str) -> Path:
    return save(tmp_path / f"{name}.onnx", GRAPHS[name][0], **CONSTANTS.get(name, {}))


CASES = [(n, r) for n in GRAPHS for r in EXACT if n not in GROUPS_OF_THREE or r not in ("uniform", "random")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "recipe"), CASES)
def test_channels_grow_exactly(tmp_path: Path, name: str, recipe: str) -> None:
    judge(EXACT[recipe], model(tmp_path, name), tmp_path / "grown.onnx").assert_exact()


@pytest.mark.parametrize("name", GROUPS_OF_THREE)
def test_a_size_that_groups_do_not_divide_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(GrowError, match=r"groups|whole"):
        judge(EXACT["uniform"], model(tmp_path, name), tmp_path / "grown.onnx")


@pytest.mark.parametrize("name", GRAPHS)
def test_the_channels_of_a_network_are_found(tmp_path: Path, name: str) -> None:
    found = api.inspect(model(tmp_path, name))
    assert sorted(set(found.roles.sizes("channels"))) == sorted(set(GRAPHS[name][1]))


def test_a_height_and_width_that_are_halved_and_doubled_again_may_be_dynamic(tmp_path: Path) -> None:
    free = UNET.replace("[N, 3, 8, 8]", "[N, 3, H, W]").replace("[N, 2, 8, 8]", "[N, 2, H, W]")
    found = api.compile(api.recipe(NEIGHBOR), save(tmp_path / "unet.onnx", free))
    assert found.plan.certificate.exact
    assert found.lowered.axes["channels"].after == (8, 16, 12)


FLAT = """
flat (float[N, 3, H, W] x) => (float[N, 5] y)
<float[4, 3, 3, 3] a_weight, float[196, 6] b_weight, float[6] b_bias, float[6, 5] c_weight>
{
    a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, a_weight)
    r = Relu(a)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    f = Flatten(p)
    b = Gemm(f, b_weight, b_bias)
    t = Tanh(b)
    y = MatMul(t, c_weight)
}
"""


@pytest.mark.parametrize("axis", ["channels", 'axis 1 of "b_weight"'])
def test_a_height_and_width_that_a_classifier_reads_as_a_whole_may_be_declared_dynamic(
    tmp_path: Path, axis: str
) -> None:
    path = save(tmp_path / "flat.onnx", FLAT)
    done = api.apply(f"widen {axis} to 2 * {axis} with neighbor copy", path, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < 1e-5


@pytest.mark.parametrize("fill", ["neighbor copy", "cyclic copy", "zero fill"])
def test_a_cut_by_number_that_takes_all_channels_takes_all_that_they_become(tmp_path, fill):
    graph = """
ghost (float[N, 3, 6] x) => (float[N, 5, 6] y)
<float[8, 3, 1] w0, float[4, 8, 1] w1, float[4, 1, 1] d1, float[5, 8, 1] w2>
{
    c0 = Conv(x, w0)
    r = Relu(c0)
    a = Conv(r, w1)
    b = Conv <group = 4> (a, d1)
    c = Concat <axis = 1> (a, b)
    start = Constant <value_ints = [0]> ()
    end = Constant <value_ints = [8]> ()
    axis = Constant <value_ints = [1]> ()
    s = Slice(c, start, end, axis)
    z = Add(s, r)
    q = Relu(z)
    y = Conv(q, w2)
}
"""
    done = api.apply(f"widen channels to 2 * channels with {fill}", save(tmp_path / "m.onnx", graph))
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert not done.verification.refutes_exact()
