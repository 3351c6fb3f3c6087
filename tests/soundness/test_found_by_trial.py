"""Cases that random graphs found, each as small as it can be, with the name of what was wrong."""

from __future__ import annotations

from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from growc.algebra.space import Space, find, product, unify
from growc.api import apply, inspect
from growc.errors.diagnostic import GrowError

TWO_LAYERS = """
two (float[N, 6] x) => (float[N, 4] y)
<float[6, 8] up1, float[8, 6] down1, float[6, 8] up2, float[8, 4] down2, float[8] shared>
{
    a = MatMul(x, up1)
    b = Add(a, shared)
    c = Relu(b)
    d = MatMul(c, down1)
    e = MatMul(d, up2)
    f = Add(e, shared)
    g = Relu(f)
    y = MatMul(g, down2)
}
"""


def test_uses_that_part_are_all_made_of_the_source(tmp_path: Path) -> None:
    """The second tensor was made of the first one's grown values."""
    model = graphs.save(tmp_path / "model.onnx", TWO_LAYERS)
    done = apply('widen axis 0 of "shared" to 16 with uniform copy', model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact


CUT = """
cut (float[N, 6] x) => (float[N, 8] y)
<float[16, 6] packed, int64[1] zero = {0}, int64[1] half = {8}, int64[1] all = {16}, float[8, 8] out>
{
    first = Slice(packed, zero, half, zero)
    second = Slice(packed, half, all, zero)
    gate_weight = Transpose <perm = [1, 0]> (first)
    up_weight = Transpose <perm = [1, 0]> (second)
    gate = MatMul(x, gate_weight)
    open = Sigmoid(gate)
    up = MatMul(x, up_weight)
    both = Mul(open, up)
    y = MatMul(both, out)
}
"""


def test_a_weight_that_is_cut_into_parts_stays_one(tmp_path: Path) -> None:
    """Its parts were cut at different places, so it was stored once for each of them."""
    model = graphs.save(tmp_path / "model.onnx", CUT)
    done = apply('widen axis 0 of "out" to 12 with neighbor copy', model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    stored = [t for t in onnx.load(done.written).graph.initializer if numpy_helper.to_array(t).ndim == 2]
    assert sorted(tuple(t.dims) for t in stored) == [(12, 8), (24, 6)]


PIECES = """
pieces (int64[N] tokens) => (float[N, 16] logits)
<float[16, 8] table, float[8] gain, float eps = {0.01}, float[8, 12] up, float[12, 8] down,
 float[8, 16] head>
{
    x0 = Gather(table, tokens)
    u = MatMul(x0, up)
    a = Relu(u)
    d = MatMul(a, down)
    x = Add(x0, d)
    same = Identity(x)
    square = Mul(x, same)
    mean = ReduceMean <axes = [-1], keepdims = 1> (square)
    again = Identity(mean)
    shifted = Add(again, eps)
    root = Sqrt(shifted)
    core = Div(x, root)
    y = Mul(core, gain)
    logits = MatMul(y, head)
}
"""


def test_a_norm_in_pieces_with_identities_between_them_is_one(tmp_path: Path) -> None:
    model = graphs.save(tmp_path / "model.onnx", PIECES)
    done = apply("widen hidden to 12 with neighbor copy", model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact


@pytest.mark.parametrize("axis", ["vocab", "positions"])
def test_noise_on_new_numbers_changes_nothing(tmp_path: Path, axis: str) -> None:
    """No old input looks them up."""
    model = graphs.save(tmp_path / "model.onnx", NUMBERED)
    done = apply(f"widen {axis} to 32 with tail copy noise 0.1", model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact


NUMBERED = """
numbered (int64[N] tokens) => (float[N, 3] y)
<float[16, 8] table, float[20, 8] places, int64 zero = {0}, int64 one = {1}, float[8, 12] up,
 float[12, 8] down, float[8, 3] out>
{
    x0 = Gather(table, tokens)
    shape = Shape(tokens)
    length = Squeeze(shape)
    numbers = Range(zero, length, one)
    rows = Gather(places, numbers)
    x1 = Add(x0, rows)
    u = MatMul(x1, up)
    a = Relu(u)
    d = MatMul(a, down)
    x2 = Add(x1, d)
    y = MatMul(x2, out)
}
"""


SEGMENTS = """
segments (int64[N] tokens) => (float[N, 4] y)
<float[16, 5] table, float[5, 12] up, float[12, 5] down, int64[2] sizes = {4, 1}, float[5, 12] up2,
 float[12, 5] down2, float[5, 4] out>
{
    x0 = Gather(table, tokens)
    u = MatMul(x0, up)
    a = Relu(u)
    d = MatMul(a, down)
    x1 = Add(x0, d)
    left, right = Split <axis = 1> (x1, sizes)
    x2 = Concat <axis = 1> (left, right)
    u2 = MatMul(x2, up2)
    a2 = Relu(u2)
    d2 = MatMul(a2, down2)
    x3 = Add(x2, d2)
    y = MatMul(x3, out)
}
"""


def test_segments_of_the_stream_are_no_inner_width(tmp_path: Path) -> None:
    """A stream, cut and joined again, makes a second space of the same parts; `ffn` took them for its own."""
    model = graphs.save(tmp_path / "model.onnx", SEGMENTS)
    done = apply("widen ffn to 24 with zero fill", model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert {w.name for w in done.plan.weights if w.changed} == {"up", "down", "up2", "down2"}


def test_a_segment_of_one_unit_is_kept_or_named(tmp_path: Path) -> None:
    """It was asked to grow, and its weights were not."""
    model = graphs.save(tmp_path / "model.onnx", SEGMENTS)
    with pytest.raises(GrowError) as refusal:
        apply("widen hidden to 10 with cyclic copy", model, tmp_path / "grown.onnx")
    assert refusal.value.diagnostics[0].code == "G304"


LAST = """
last (int64[N, 6] tokens) => (float[N, 3] y)
<float[16, 5] table, float[5, 12] up, float[12, 5] down, float[5, 3] out>
{
    x0 = Gather(table, tokens)
    u = MatMul(x0, up)
    a = Relu(u)
    d = MatMul(a, down)
    x1 = Add(x0, d)
    minus_one = Constant <value = int64 {-1}> ()
    x2 = Gather <axis = 1> (x1, minus_one)
    y = MatMul(x2, out)
}
"""


def test_an_index_from_the_end_is_left_alone(tmp_path: Path) -> None:
    """It became a list of one index, which has an axis more."""
    model = graphs.save(tmp_path / "model.onnx", LAST)
    done = apply("widen hidden to 10 with cyclic copy", model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert "minus_one" in {name for node in onnx.load(done.written).graph.node for name in node.input}


BESIDE = """
beside (float[N, 3] a) => (float[N, 3] y)
<float[3, 4] w, float[3, 1] v, float[5, 3] out, float two = {2}, float eps = {0.01}>
{
    p = MatMul(a, w)
    q = MatMul(a, v)
    x = Concat <axis = 1> (p, q)
    square = Pow(x, two)
    mean = ReduceMean <axes = [-1], keepdims = 1> (square)
    shifted = Add(mean, eps)
    root = Sqrt(shifted)
    core = Div(x, root)
    y = MatMul(core, out)
}
"""


def test_a_norm_over_a_segment_of_one_unit_scales_it_too(tmp_path: Path) -> None:
    """Its reader divided the copies by the factor, and not the single unit beside them."""
    model = graphs.save(tmp_path / "model.onnx", BESIDE)
    done = apply('widen axis 1 of "w" to 6 with neighbor copy', model, tmp_path / "grown.onnx")
    assert [g.node for g in done.plan.certificate.gaps] == ["core"]


NUMBERED_END = """
numbered_end (float[N, 3] a) => (float[N, 5] y)
<float[3, 4] w, float[3, 1] v>
{
    p = MatMul(a, w)
    q = MatMul(a, v)
    y = Concat <axis = 1> (p, q)
}
"""


def test_an_axis_in_front_of_the_last_unit_of_an_output_keeps_its_size(tmp_path: Path) -> None:
    """New units would have come before an old one, whose number they would have taken."""
    model = graphs.save(tmp_path / "model.onnx", NUMBERED_END)
    with pytest.raises(GrowError) as refusal:
        apply('widen axis 1 of "w" to 6 with cyclic copy', model, tmp_path / "grown.onnx")
    assert refusal.value.diagnostics[0].code == "G304"


UNITS = """
units (float[N, 3] a) => (float[N, 2] y)
<float[3, 1] w, float[3, 1] v>
{
    p = MatMul(a, w)
    q = MatMul(a, v)
    y = Concat <axis = 1> (p, q)
}
"""


def test_an_output_put_together_of_single_units_is_read(tmp_path: Path) -> None:
    model = graphs.save(tmp_path / "model.onnx", UNITS)
    with pytest.raises(GrowError) as refusal:
        apply("widen hidden to 6 with cyclic copy", model, tmp_path / "grown.onnx")
    assert refusal.value.diagnostics[0].code == "G302"


SHORT_TABLE = """
short_table (int64[B, S] sources, int64[B, T] tokens) => (float[B, T, 16] y)
<float[16, 8] table, float[16, 8] places, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2},
 float[8, 12] up, float[12, 8] down, float[8, 16] out>
{
    s0 = Gather(table, sources)
    sum = ReduceMean <axes = [1], keepdims = 1> (s0)
    x0 = Gather(table, tokens)
    shape = Shape(tokens)
    length = Slice(shape, one, two)
    rows = Slice(places, zero, length, zero)
    x1 = Add(x0, rows)
    x2 = Add(x1, sum)
    u = MatMul(x2, up)
    a = Relu(u)
    d = MatMul(a, down)
    x3 = Add(x2, d)
    y = MatMul(x3, out)
}
"""


def test_a_table_that_is_too_short_for_a_sample_says_nothing_of_the_batch(tmp_path: Path) -> None:
    """The batch was taken for one of the sizes that met there, and became a literal."""
    model = graphs.save(tmp_path / "model.onnx", SHORT_TABLE)
    sizes = {v.name: v.sizes for v in inspect(model).graph.inputs}
    assert sizes["tokens"] is not None
    assert all(len(set(size)) > 1 for size in sizes["tokens"])


def test_no_space_becomes_a_part_of_itself() -> None:
    """A single unit that counts, times an axis, met that axis: the structure had no end."""
    one, axis = Space((1, 1), counts=True), Space((4, 4))
    unify(product([one, axis]), axis, None)
    assert find(axis).kind == "atom"
    assert find(axis).frozen is None
    assert find(one).frozen is not None


ACROSS = """
across (float[N, 5] x) => (float[N, 7] y)
<float[5, 12] up, float[12, 7] down, int64[4] heads, int64[3] turned, int64[2] flat>
{
    a = MatMul(x, up)
    b = Reshape(a, heads)
    c = Tanh(b)
    d = Reshape(c, flat)
    e = Reshape(d, turned)
    f = Sigmoid(e)
    g = Reshape(f, flat)
    y = MatMul(g, down)
}
"""


def test_factors_that_contradict_each_other_are_paired_by_what_they_are(tmp_path: Path) -> None:
    """(3 2 2) became (2 3 2), and the free inner factor was taken for the frozen one in front of it."""
    shapes = {"heads": [0, 3, 2, 2], "turned": [0, 2, 6], "flat": [0, 12]}
    numbers = {name: np.asarray(value, dtype=np.int64) for name, value in shapes.items()}
    model = graphs.save(tmp_path / "model.onnx", ACROSS, **numbers)
    done = apply('widen axis 1 of "up" to 24 with neighbor copy split random', model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact


JOINED = """
joined (float[N, 5] x) => (float[N, 4] y)
<float[5, 6] up, float[3, 4] upper, float[3, 4] lower>
{
    a = MatMul(x, up)
    b = Relu(a)
    down = Concat <axis = 0> (upper, lower)
    y = MatMul(b, down)
}
"""
PAIRED = """
paired (float[N, 5] x) => (float[N, 4] y)
<float[5, 4] up, int64[3] pairs = {-1, 2, 2}, float[2, 4] down, int64[1] one = {1}>
{
    a = MatMul(x, up)
    b = Reshape(a, pairs)
    c = Relu(b)
    d = MatMul(c, down)
    y = ReduceMean <keepdims = 0, axes = [1]> (d)
}
"""


def test_blocks_are_whole_in_every_part_of_an_axis(tmp_path: Path) -> None:
    """Three units were copied to nine in blocks of two: eight were made, and the sum went by nine."""
    source = graphs.save(tmp_path / "model.onnx", JOINED)
    text = 'widen axis 1 of "up" to 18 with last copy in blocks of '
    with pytest.raises(GrowError, match="from 3 to 9 units, and blocks of 2 cut it"):
        apply(f"{text}2", source, tmp_path / "cut.onnx")
    done = apply(f"{text}3", source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert grown_size(tmp_path / "grown.onnx") == 18


def test_blocks_are_whole_in_a_factor(tmp_path: Path) -> None:
    """Two units of each pair were to be three, in blocks of two; a third pair is a block."""
    source = graphs.save(tmp_path / "model.onnx", PAIRED)
    text = 'widen axis 1 of "up" to 6 with last copy in blocks of 2'
    apply(text, source, tmp_path / "grown.onnx")
    assert grown_size(tmp_path / "grown.onnx") == 6
    threes = PAIRED.replace("{-1, 2, 2}", "{-1, 2, 3}").replace("float[5, 4] up", "float[5, 6] up")
    source = graphs.save(tmp_path / "threes.onnx", threes.replace("float[2, 4] down", "float[3, 4] down"))
    with pytest.raises(GrowError, match="12 in blocks of 2 keeps none of these factors whole"):
        apply(text.replace("to 6", "to 12"), source, tmp_path / "cut.onnx")


def grown_size(path: Path) -> int:
    """The second size of `up`."""
    return next(int(w.dims[1]) for w in onnx.load(path).graph.initializer if w.name == "up")
