"""Group and instance norms however they are written: groups stay, and every group is judged as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import judge

HEAD = """
net (float[N, 3, 4, 4] x) => (float[N, 2, 4, 4] y)
<float[8, 3, 3, 3] a, float[8] gain, float[8] bias, float[2, 8, 3, 3] o, float[8, 1, 1] g3, float[8, 1, 1] b3>
{
    s = Conv <pads = [1, 1, 1, 1]> (x, a)
    %s
    t = Tanh(n)
    y = Conv <pads = [1, 1, 1, 1]> (t, o)
}
"""

INSTANCE = """
    r = Reshape(s, apart)
    i = InstanceNormalization <epsilon = 0.01> (r, ones, zeros)
    shape = Shape(s)
    j = Reshape(i, shape)
    k = Mul(j, g3)
    n = Add(k, b3)
"""

DECOMPOSED = """
    r = Reshape(s, apart)
    m = ReduceMean <axes = [-1]> (r)
    d = Sub(r, m)
    q = Mul(d, d)
    v = ReduceMean <axes = [2]> (q)
    e = Add(v, eps)
    w = Sqrt(e)
    u = Div(d, w)
    j = Reshape(u, together)
    k = Mul(j, g3)
    n = Add(k, b3)
"""

OVER_ALL = """
    m = ReduceMean <axes = [1, 2, 3]> (s)
    d = Sub(s, m)
    q = Pow(d, two)
    v = ReduceMean <axes = [-3, -2, -1]> (q)
    e = Add(eps, v)
    w = Sqrt(e)
    u = Div(d, w)
    k = Mul(u, g3)
    n = Add(k, b3)
"""

FORMS = {
    "instance norm of groups": (INSTANCE, 17),
    "in pieces": (DECOMPOSED, 17),
    "over everything": (OVER_ALL, 17),
    "one operator": ("n = GroupNormalization <num_groups = 4, epsilon = 0.01> (s, gain, bias)", 21),
    "instance norm": ("n = InstanceNormalization <epsilon = 0.01> (s, gain, bias)", 17),
}
CONSTANTS = {
    "apart": np.array([0, 4, -1]),
    "together": np.array([0, 8, 4, 4]),
    "ones": np.ones(4, np.float32),
    "zeros": np.zeros(4, np.float32),
    "eps": np.array(0.01, np.float32),
    "two": np.array(2, np.float32),
}


def model(tmp_path: Path, form: str) -> Path:
    body, opset = FORMS[form]
    used = {k: v for k, v in CONSTANTS.items() if any(k in line.split("(")[-1] for line in body.splitlines())}
    return save(tmp_path / "net.onnx", HEAD % body, opset=opset, **used)


DOUBLES = {
    "neighbor": "widen channels to 2 * channels with neighbor copy",
    "cyclic": "widen channels to 2 * channels with cyclic copy",
    "noise": "widen channels to 2 * channels with neighbor copy split random noise 0.1 balanced",
    "by a weight": 'widen axis 0 of "a" to 16 with cyclic copy',
}


@pytest.mark.parametrize("recipe", DOUBLES)
@pytest.mark.parametrize("form", FORMS)
def test_a_group_norm_takes_equal_copies(tmp_path: Path, form: str, recipe: str) -> None:
    judge(DOUBLES[recipe], model(tmp_path, form), tmp_path / "grown.onnx").assert_exact()


UNEQUAL = "widen channels to 12 with uniform copy"


@pytest.mark.parametrize("form", [f for f in FORMS if f != "instance norm"])
def test_unequal_copies_in_a_group_are_a_gap(tmp_path: Path, form: str) -> None:
    found = judge(UNEQUAL, model(tmp_path, form), tmp_path / "grown.onnx")
    found.assert_gap("unequal copy counts", "multiple")


def test_an_instance_norm_takes_any_copies(tmp_path: Path) -> None:
    judge(UNEQUAL, model(tmp_path, "instance norm"), tmp_path / "grown.onnx").assert_exact()


def test_the_number_of_groups_stays(tmp_path: Path) -> None:
    done = judge(DOUBLES["cyclic"], model(tmp_path, "one operator"), tmp_path / "grown.onnx")
    (norm,) = [n for n in onnx.load(done.path).graph.node if n.op_type == "GroupNormalization"]
    assert {a.name: a.i for a in norm.attribute}["num_groups"] == 4


ACROSS = """
across (float[N, 3, 4, 4] x) => (float[N, 2, 4, 4] y)
<float[8, 3, 1, 1] a, float[4, 3, 1, 1] b, float[12, 1, 1] g3, float[2, 12, 1, 1] o>
{
    s = Conv(x, a)
    t = Conv(x, b)
    c = Concat <axis = 1> (s, t)
    r = Reshape(c, apart)
    i = InstanceNormalization <epsilon = 0.01> (r, ones, zeros)
    j = Reshape(i, together)
    k = Mul(j, g3)
    l = Relu(k)
    y = Conv(l, o)
}
"""


@pytest.mark.parametrize("recipe", ["neighbor", "cyclic"])
def test_a_group_may_reach_from_one_part_of_a_concatenation_into_the_next(
    tmp_path: Path, recipe: str
) -> None:
    constants = {"apart": np.array([0, 2, -1]), "together": np.array([0, 12, 4, 4])}
    constants |= {"ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32)}
    path = save(tmp_path / "net.onnx", ACROSS, **constants)
    judge(DOUBLES[recipe], path, tmp_path / "grown.onnx").assert_exact()
