"""One key/value head for all queries becomes several, also where no operator of the graph counts it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save

import growc
from growc.errors.diagnostic import GrowError

PRODUCTS = """
    s = MatMul(q, k)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, back)
    y = MatMul(c, o_weight)
}
"""

APART = """
attention (float[B, S, 12] x) => (float[B, S, 12] y)
<float[12, 16] q_weight, float[12, 4] k_weight, float[12, 4] v_weight, float[16, 12] o_weight,
 int64[4] many, int64[4] one, int64[1] first, int64[3] back, float[1, 1, 9, 4] cosines, int64[1] none,
 int64[1] two, int64[1] three, int64[1] four, float[4] gain>
{
    q0 = MatMul(x, q_weight)
    q1 = Reshape(q0, many)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k0 = MatMul(x, k_weight)
    v0 = MatMul(x, v_weight)
"""

RESHAPED = (
    APART
    + """
    k1 = Reshape(k0, one)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v1 = Reshape(v0, one)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
"""
    + PRODUCTS
)

UNSQUEEZED = (
    APART
    + """
    k1 = Unsqueeze(k0, first)
    k2 = Mul(k1, gain)
    left = Slice(k2, none, two, three)
    right = Slice(k2, two, four, three)
    minus = Neg(right)
    turned = Concat <axis = -1> (minus, left)
    k3 = Add(k2, turned)
    k = Transpose <perm = [0, 1, 3, 2]> (k3)
    v = Unsqueeze(v0, first)
"""
    + PRODUCTS
)

STRETCHED = (
    APART.replace("int64[4] one", "int64[5] group, int64[4] merged")
    + """
    k1 = Unsqueeze(k0, first)
    k2 = Unsqueeze(k1, two)
    k3 = Expand(k2, group)
    k4 = Neg(k3)
    k5 = Reshape(k4, merged)
    k = Transpose <perm = [0, 1, 3, 2]> (k5)
    v1 = Unsqueeze(v0, first)
    v2 = Unsqueeze(v1, two)
    v3 = Expand(v2, group)
    v4 = Identity(v3)
    v = Reshape(v4, merged)
"""
    + PRODUCTS
)

PACKED = (
    """
attention (float[B, S, 12] x) => (float[B, S, 12] y)
<float[12, 24] packed, float[24] bias, float[16, 12] o_weight, int64[4] many, int64[1] first,
 int64[1] none, int64[1] q_end, int64[1] k_end, int64[1] v_end, int64[1] two, int64[1] three, int64[3] back>
{
    z0 = MatMul(x, packed)
    z = Add(z0, bias)
    q0 = Slice(z, none, q_end, two)
    q1 = Reshape(q0, many)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    z1 = Unsqueeze(z, first)
    k0 = Slice(z1, q_end, k_end, three)
    k = Transpose <perm = [0, 1, 3, 2]> (k0)
    v = Slice(z1, k_end, v_end, three)
"""
    + PRODUCTS
)

AMONG_HEADS = (
    """
attention (float[B, S, 12] x) => (float[B, S, 12] y)
<float[12, 24] packed, float[16, 12] o_weight, int64[4] six, int64[3] parts, int64[3] back>
{
    z0 = MatMul(x, packed)
    z1 = Reshape(z0, six)
    z = Transpose <perm = [0, 2, 1, 3]> (z1)
    q, k0, v = Split <axis = 1> (z, parts)
    k = Transpose <perm = [0, 1, 3, 2]> (k0)
"""
    + PRODUCTS
)

READ_TWICE = (
    """
attention (float[B, S, 12] x) => (float[B, S, 12] y)
<float[12, 24] packed, float[16, 12] o_weight, int64[4] six, int64[1] none, int64[1] two, int64[1] four,
 int64[1] five, int64[1] end, int64[3] back>
{
    z0 = MatMul(x, packed)
    z = Reshape(z0, six)
    bent = Tanh(z)
    q0 = Slice(bent, none, four, two)
    q = Transpose <perm = [0, 2, 1, 3]> (q0)
    k0 = Slice(z, four, five, two)
    k = Transpose <perm = [0, 2, 3, 1]> (k0)
    v0 = Slice(z, five, end, two)
    v = Transpose <perm = [0, 2, 1, 3]> (v0)
"""
    + PRODUCTS
)

ONE_OPERATOR = """
attention (float[B, S, 12] x) => (float[B, S, 12] y)
<float[12, 16] q_weight, float[12, 4] k_weight, float[12, 4] v_weight, float[16, 12] o_weight>
{
    q = MatMul(x, q_weight)
    k = MatMul(x, k_weight)
    v = MatMul(x, v_weight)
    c = Attention <q_num_heads = 4, kv_num_heads = 1> (q, k, v)
    y = MatMul(c, o_weight)
}
"""

FORMS = {
    "reshaped": RESHAPED,
    "unsqueezed": UNSQUEEZED,
    "stretched": STRETCHED,
    "packed": PACKED,
    "among the query heads": AMONG_HEADS,
    "read twice": READ_TWICE,
    "one operator": ONE_OPERATOR,
}

NUMBERS = {
    "many": [0, 0, -1, 4],
    "one": [0, 0, 1, 4],
    "group": [1, 1, 4, 1, 1],
    "merged": [0, 4, -1, 4],
    "six": [0, 0, 6, 4],
    "parts": [4, 1, 1],
    "back": [0, 0, -1],
    "first": [1],
    "none": [0],
    "q_end": [16],
    "k_end": [20],
    "v_end": [24],
    "two": [2],
    "three": [3],
    "four": [4],
    "five": [5],
    "end": [6],
}

RECIPES = {
    "every query head its own": ("widen kv_heads to heads with neighbor copy", 4, 4),
    "half as many": ("widen kv_heads to 2 with neighbor copy", 2, 4),
    "more of both": (
        "widen kv_heads to 3 with uniform copy\nwiden heads to 12 with uniform copy split random",
        3,
        12,
    ),
    "query heads alone": ("widen heads to 6 with neighbor copy split random noise 0.1 balanced", 1, 6),
}


def write(form: str, folder: Path) -> Path:
    text = FORMS[form]
    values = {k: np.array(v, dtype=np.int64) for k, v in NUMBERS.items() if f"int64[{len(v)}] {k}" in text}
    return save(folder / "one.onnx", text, opset=23 if "Attention <" in text else 17, **values)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("form", FORMS)
def test_one_head_becomes_several(tmp_path: Path, form: str, recipe: str) -> None:
    text, kv_heads, heads = RECIPES[recipe]
    path = write(form, tmp_path)
    assert growc.inspect(path).roles.sizes("kv_heads") == [1]
    done = growc.apply(f"{text}\nexpect exact", path, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    roles = growc.inspect(done.written).roles
    assert (roles.sizes("kv_heads"), roles.sizes("heads")) == ([kv_heads], [heads])


@pytest.mark.parametrize("form", [form for form in FORMS if form != "stretched"])  # its shape is made anew
def test_no_operator_is_added_where_one_counts_the_heads(tmp_path: Path, form: str) -> None:
    path = write(form, tmp_path)
    done = growc.apply("widen heads to 8 with neighbor copy", path, tmp_path / "out.onnx")
    before, after = (onnx.load(p).graph for p in (path, done.written))
    assert [n.op_type for n in after.node] == [n.op_type for n in before.node]
    assert [list(n.output) for n in after.node] == [list(n.output) for n in before.node]


def test_only_where_heads_part_from_channels_operators_come_in(tmp_path: Path) -> None:
    path = write("unsqueezed", tmp_path)
    done = growc.apply("widen kv_heads to heads with neighbor copy", path, tmp_path / "out.onnx")
    before, after = (sorted(n.op_type for n in onnx.load(p).graph.node) for p in (path, done.written))
    assert sorted([*before, *["Transpose", "Reshape", "Transpose"] * 2]) == after


@pytest.mark.parametrize(("kv_heads", "size"), [("heads", 4), ("2", 2)])
def test_caches_of_one_head_grow_with_it(tmp_path: Path, kv_heads: str, size: int) -> None:
    states = "float[B, 1, {0}, 4] {1}_k, float[B, 1, {0}, 4] {1}_v"
    text = APART.replace("x) =>", f"x, {states.format('P', 'past')}) =>")
    text = text.replace("12] y)", f"12] y, {states.format('T', 'all')})")
    text += """
    new_k = Unsqueeze(k0, first)
    all_k = Concat <axis = 2> (past_k, new_k)
    k = Transpose <perm = [0, 1, 3, 2]> (all_k)
    new_v = Unsqueeze(v0, first)
    all_v = Concat <axis = 2> (past_v, new_v)
    v = Identity(all_v)
"""
    values = {k: np.array(v, dtype=np.int64) for k, v in NUMBERS.items() if f"int64[{len(v)}] {k}" in text}
    path = save(tmp_path / "cached.onnx", text + PRODUCTS, **values)
    recipe = f"widen kv_heads to {kv_heads} with neighbor copy\nexpect exact"
    done = growc.apply(recipe, path, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    graph = onnx.load(done.written).graph
    shapes = {v.name: v.type.tensor_type.shape.dim for v in [*graph.input, *graph.output]}
    assert {shapes[n][1].dim_value for n in ("past_k", "past_v", "all_k", "all_v")} == {size}


def test_a_head_that_is_merged_with_positions_is_not_counted(tmp_path: Path) -> None:
    """Queries of all heads one after the other: no axis is left in which keys could have heads."""
    text = APART.replace("    q = Transpose <perm = [0, 2, 1, 3]> (q1)\n", "    q = Reshape(q1, one)\n")
    text = text.replace("int64[4] one,", "int64[3] one,")
    text += PRODUCTS.replace("Transpose <perm = [0, 2, 1, 3]> (c0)", "Reshape(c0, many)")
    text = text.replace("    v0 = MatMul(x, v_weight)\n", "    v = MatMul(x, v_weight)\n")
    text = text.replace("    s = MatMul", "    k = Transpose <perm = [0, 2, 1]> (k0)\n    s = MatMul")
    numbers = {"many": [-1, 5, 4, 4], "one": [0, -1, 4], "back": [0, 0, -1]}
    text = text.replace("[B, S, 12]", "[B, 5, 12]")
    values = {k: np.array(v, dtype=np.int64) for k, v in numbers.items()}
    path = save(tmp_path / "one.onnx", text, **values)
    with pytest.raises(GrowError, match="it has no groups"):
        growc.plan("widen kv_heads to 2 with neighbor copy", path)


TURNED = """
    q{i}0 = MatMul(x{i}, q{i}_weight)
    q{i}1 = Reshape(q{i}0, many)
    q{i}2 = Transpose <perm = [0, 2, 1, 3]> (q{i}1)
    q{i}3 = Mul(q{i}2, cosines)
    k{i}0 = MatMul(x{i}, k{i}_weight)
    k{i}1 = Reshape(k{i}0, one)
    k{i}2 = Transpose <perm = [0, 2, 1, 3]> (k{i}1)
    k{i}3 = Mul(k{i}2, cosines)
    k{i}4 = Unsqueeze(k{i}3, two)
    k{i}5 = Expand(k{i}4, group)
    k{i}6 = Reshape(k{i}5, merged)
    k{i} = Transpose <perm = [0, 1, 3, 2]> (k{i}6)
    s{i} = MatMul(q{i}3, k{i})
    p{i} = Softmax <axis = -1> (s{i})
    c{i}0 = MatMul(p{i}, k{i}6)
    c{i}1 = Transpose <perm = [0, 2, 1, 3]> (c{i}0)
    c{i} = Reshape(c{i}1, back)
    o{i} = MatMul(c{i}, o{i}_weight)
    {sum} = Add(x{i}, o{i})
"""


TABLES = {
    "stored": ("float[1, 1, 9, 4] cosines", ""),
    "sliced": ("float[1, 1, 16, 4] table", "cosines = Slice(table, none, length, two)"),
    "looked up": ("float[1, 1, 16, 4] table", "cosines = Gather <axis = 2> (table, places)"),
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_layers_share_ties_none_of_their_heads(table: str, tmp_path: Path) -> None:
    """One element of a rotary table is stretched to the heads of every layer, queries and keys alike."""
    stored, made = TABLES[table]
    sizes = [
        f"float[12, 16] q{i}_weight, float[12, 4] k{i}_weight, float[16, 12] o{i}_weight" for i in (0, 1)
    ]
    integers = "int64[4] many, int64[4] one, int64[1] two, int64[5] group, int64[4] merged, int64[3] back"
    integers += ", int64[1] none, int64[1] length"
    text = (
        "attention (float[B, 9, 12] x0, int64[9] places) => (float[B, 9, 12] y)\n"
        f"<{stored}, {', '.join(sizes)}, {integers}>\n{{{made}"
        f"{TURNED.format(i=0, sum='x1')}{TURNED.format(i=1, sum='y')}}}"
    )
    numbers = NUMBERS | {"length": [9]}
    values = {k: np.array(v, dtype=np.int64) for k, v in numbers.items() if f"int64[{len(v)}] {k}" in text}
    path = save(tmp_path / "one.onnx", text, **values)
    assert len(growc.inspect(path).roles.axes["kv_heads"]) == 2
    done = growc.apply(
        "widen kv_heads to heads with neighbor copy\nexpect exact", path, tmp_path / "out.onnx"
    )
    assert growc.inspect(done.written).roles.sizes("kv_heads") == [4]
