"""If, Loop and Scan: what stands in their bodies grows with what stands around them; onnxruntime judges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from graphs import save

from growc import api
from growc.errors.diagnostic import GrowError

BRANCHES = """
branches (float[N, 4] x, bool first) => (float[N, 3] y)
<float[4, 8] rows, float[8] bias, float[8, 3] columns>
{
    a = If (first) <
        then_branch = yes () => (float[N, 8] p) { h = MatMul(x, rows)  r = Relu(h)  p = Add(r, bias) },
        else_branch = no () => (float[N, 8] q) { k = MatMul(x, rows)  q = Tanh(k) }
    >
    y = MatMul(a, columns)
}
"""

CHOICE = """
    n = RandomUniform <shape = [1], seed = 3.0> ()
    c = Greater(n, half)
    first = Squeeze(c)
    a = If"""
DRAWN = (
    BRANCHES.replace(", bool first", "")
    .replace(", float[8, 3] columns", ", float[8, 3] columns, float[1] half")
    .replace("\n    a = If", CHOICE)
)
"""A branch that a drawn number chooses."""

LAYER = """
layer (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, float[8, 12] up, float[12, 8] down, float[8] gain, float[8] bias, float[8, 3] columns>
{
    x0 = MatMul(x, rows)
    trips = Constant <value_int = 3> ()
    true = Constant <value = bool {1}> ()
    x3 = Loop (trips, true, x0) <
        body = once (int64 i, bool on, float[N, 8] s) => (bool still, float[N, 8] t) {
        still = Identity(on)
        n = LayerNormalization <axis = -1, epsilon = 0.01> (s, gain, bias)
        u = MatMul(n, up)
        r = Relu(u)
        d = MatMul(r, down)
        t = Add(s, d)
    }>
    y = MatMul(x3, columns)
}
"""

RECURRENT = """
recurrent (float[T, N, 4] x) => (float[T, N, 8] all, float[N, 3] y)
<float[4, 8] wx, float[8, 8] wh, float[8] bias, float[1, 8] start, float[8, 3] columns>
{
    zero = Constant <value = int64[1] {1}> ()
    shape = Shape(x)
    n = Gather(shape, zero)
    width = Constant <value = int64[1] {8}> ()
    wanted = Concat <axis = 0> (n, width)
    h0 = Expand(start, wanted)
    last, all = Scan (h0, x) <num_scan_inputs = 1,
        body = step (float[N, 8] h, float[N, 4] xi) => (float[N, 8] after, float[N, 8] out) {
            a = MatMul(xi, wx)
            c = MatMul(h, wh)
            s = Add(a, c)
            sb = Add(s, bias)
            after = Tanh(sb)
            out = Identity(after)
        }>
    y = MatMul(last, columns)
}
"""

OWN_WEIGHTS = """
own (float[N, 4] x, bool first) => (float[N, 3] y)
<float[4, 8] rows, float[8, 3] columns>
{
    h = MatMul(x, rows)
    a = If (first) <
        then_branch = yes () => (float[N, 8] p)
        <float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}> { p = Mul(h, scale) },
        else_branch = no () => (float[N, 8] q) {
            shift = Constant <value = float[8] {1, -2, 3, -4, 5, -6, 7, -8}> ()
            q = Add(h, shift)
        }
    >
    y = MatMul(a, columns)
}
"""

HEADS_IN_A_LOOP = """
heads (float[N, T, 8] x) => (float[N, T, 8] y)
<float[8, 12] q, float[8, 12] k, float[8, 12] v, float[12, 8] o, float[8, 8] first>
{
    x0 = MatMul(x, first)
    trips = Constant <value_int = 2> ()
    true = Constant <value = bool {1}> ()
    y = Loop (trips, true, x0) <
        body = once (int64 i, bool on, float[N, T, 8] s) => (bool still, float[N, T, 8] t) {
            still = Identity(on)
            cut = Constant <value = int64[4] {0, 0, 3, 4}> ()
            joined = Constant <value = int64[3] {0, 0, 12}> ()
            qs = MatMul(s, q)  qr = Reshape(qs, cut)  qt = Transpose <perm = [0, 2, 1, 3]> (qr)
            ks = MatMul(s, k)  kr = Reshape(ks, cut)  kt = Transpose <perm = [0, 2, 3, 1]> (kr)
            vs = MatMul(s, v)  vr = Reshape(vs, cut)  vt = Transpose <perm = [0, 2, 1, 3]> (vr)
            scores = MatMul(qt, kt)
            p = Softmax <axis = -1> (scores)
            c = MatMul(p, vt)
            ct = Transpose <perm = [0, 2, 1, 3]> (c)
            cr = Reshape(ct, joined)
            d = MatMul(cr, o)
            t = Add(s, d)
        }>
}
"""

NESTED = """
nested (float[N, 4] x, bool first) => (float[N, 3] y)
<float[4, 8] rows, float[8, 12] up, float[12, 8] down, float[8, 3] columns>
{
    x0 = MatMul(x, rows)
    trips = Constant <value_int = 2> ()
    true = Constant <value = bool {1}> ()
    x3 = Loop (trips, true, x0) <
        body = once (int64 i, bool on, float[N, 8] s) => (bool still, float[N, 8] t) {
        still = Identity(on)
        u = MatMul(s, up)
        r = If (first) <
            then_branch = yes () => (float[N, 12] p) { p = Sigmoid(u) },
            else_branch = no () => (float[N, 12] q) { q = Relu(u) }
        >
        d = MatMul(r, down)
        t = Add(s, d)
    }>
    y = MatMul(x3, columns)
}
"""


COMPUTED_WEIGHT = """
computed (float[N, 4] x, bool first) => (float[N, 3] y)
<float[4, 8] rows, float[8, 12] v, float[12] size, float[12, 8] down, float[8, 3] columns>
{
    h = MatMul(x, rows)
    a = If (first) <
        then_branch = yes () => (float[N, 8] p) {
            n = ReduceL2 <axes = [0], keepdims = 1> (v)
            q = Div(v, n)
            w = Mul(q, size)
            u = MatMul(h, w)
            r = Relu(u)
            p = MatMul(r, down)
        },
        else_branch = no () => (float[N, 8] o) { o = Tanh(h) }
    >
    z = Add(h, a)
    y = MatMul(z, columns)
}
"""

COMPUTED_IN_A_LOOP = """
computed (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, float[12] size, float[3, 12, 8] downs, float[8, 12] v, float[8, 3] columns>
{
    h = MatMul(x, rows)
    z = Scan (h, downs) <num_scan_inputs = 1,
        body = step (float[N, 8] c, float[12, 8] down) => (float[N, 8] t) {
            n = ReduceL2 <axes = [0], keepdims = 1> (v)
            q = Div(v, n)
            w = Mul(q, size)
            u = MatMul(c, w)
            r = Relu(u)
            d = MatMul(r, down)
            t = Add(c, d)
        }>
    y = MatMul(z, columns)
}
"""

CHOSEN_WEIGHT = """
chosen (float[N, 4] x, bool first) => (float[N, 3] y)
<float[4, 8] rows, float[8, 12] one, float[8, 2] left, float[2, 12] right, float[12, 8] down,
 float[8, 3] columns>
{
    h = MatMul(x, rows)
    w = If (first) <
        then_branch = yes () => (float[8, 12] p) {
            n = ReduceL2 <axes = [0], keepdims = 1> (one)
            p = Div(one, n)
        },
        else_branch = no () => (float[8, 12] o) { o = MatMul(left, right) }
    >
    u = MatMul(h, w)
    r = Relu(u)
    d = MatMul(r, down)
    z = Add(h, d)
    y = MatMul(z, columns)
}
"""

MADE_BY_A_LOOP = """
made (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, float[8, 12] one, float[8, 12] two, float[12, 8] down, float[8, 3] columns>
{
    h = MatMul(x, rows)
    trips = Constant <value_int = 3> ()
    true = Constant <value = bool {1}> ()
    w = Loop (trips, true, one) <
        body = once (int64 i, bool on, float[8, 12] s) => (bool still, float[8, 12] t) {
            still = Identity(on)
            n = ReduceL2 <axes = [0, 1], keepdims = 1> (s)
            d = Div(s, n)
            t = Add(d, two)
        }>
    u = MatMul(h, w)
    r = Relu(u)
    back = MatMul(r, down)
    z = Add(h, back)
    y = MatMul(z, columns)
}
"""


@pytest.mark.parametrize(
    ("graph", "recipe"),
    [
        (BRANCHES, 'widen axis 1 of "rows" to 13 with uniform copy'),
        (BRANCHES, 'widen axis 1 of "rows" to 12 with zero fill'),
        (DRAWN, 'widen axis 1 of "rows" to 13 with uniform copy'),
        (LAYER, "widen hidden to 16 with cyclic copy"),
        (LAYER, "widen hidden to 12 with average fill\nwiden ffn to 19 with uniform copy split random"),
        (RECURRENT, 'widen axis 1 of "wx" to 13 with uniform copy'),
        (RECURRENT, 'widen axis 1 of "wx" to 10 with zero fill'),
        (OWN_WEIGHTS, 'widen axis 1 of "rows" to 13 with uniform copy'),
        (HEADS_IN_A_LOOP, "widen heads to 5 with uniform copy split random"),
        (NESTED, "widen ffn to 19 with uniform copy\nwiden hidden to 16 with cyclic copy"),
        *(
            (graph, f"widen ffn to 19 with uniform copy\nwiden hidden to {hidden}")
            for graph in (COMPUTED_WEIGHT, COMPUTED_IN_A_LOOP, CHOSEN_WEIGHT, MADE_BY_A_LOOP)
            for hidden in ("16 with cyclic copy", "16 with cyclic copy split random noise 0.1 balanced")
        ),
    ],
)
def test_bodies_grow_exactly(tmp_path: Path, graph: str, recipe: str) -> None:
    source = save(tmp_path / "model.onnx", graph)
    done = api.apply(f"{recipe}\nexpect exact", source, tmp_path / "grown.onnx")
    assert done.verification is not None
    assert done.verification.relative < 5e-6
    assert len({w.name for w in done.plan.weights if w.changed}) >= 2


@pytest.mark.parametrize("graph", [COMPUTED_WEIGHT, CHOSEN_WEIGHT, MADE_BY_A_LOOP])
@pytest.mark.parametrize("outputs", ["", " with zero outputs"])
def test_layers_with_computed_weights_are_stacked(tmp_path: Path, graph: str, outputs: str) -> None:
    """Where a branch of the If has no weight that could be zero, neither claims to be exact."""
    source = save(tmp_path / "model.onnx", graph)
    done = api.apply(f"stack layers to 2 * layers by whole{outputs}", source, tmp_path / "grown.onnx")
    exact = done.plan.certificate.exact
    assert exact == (bool(outputs) and graph is not COMPUTED_WEIGHT)
    assert done.verification is not None
    assert (done.verification.relative < 5e-6) == exact


def nodes(graph: onnx.GraphProto) -> Iterator[tuple[str, list[str], list[str]]]:
    """The operator, inputs and outputs of every node, nodes of bodies too, and the outputs of each graph."""
    for node in graph.node:
        yield node.op_type, list(node.input), list(node.output)
        for attribute in node.attribute:
            yield from nodes(attribute.g)
    yield "", [], [out.name for out in graph.output]


@pytest.mark.parametrize("graph", [COMPUTED_WEIGHT, COMPUTED_IN_A_LOOP, CHOSEN_WEIGHT, MADE_BY_A_LOOP])
def test_unchanged_weights_are_computed_as_before(tmp_path: Path, graph: str) -> None:
    source = save(tmp_path / "model.onnx", graph)
    done = api.apply('widen axis 1 of "rows" to 8 with cyclic copy', source, tmp_path / "same.onnx")
    before, after = (list(nodes(onnx.load(path).graph)) for path in (source, done.written))
    assert before == after


def test_both_branches_are_run_for_verification(tmp_path: Path) -> None:
    """A branch that computes something else is seen, whichever it is."""
    from growc.verification.verify import verify

    source = save(tmp_path / "model.onnx", BRANCHES)
    for wrong in (BRANCHES.replace("Relu", "Sigmoid"), BRANCHES.replace("Tanh", "Sigmoid")):
        assert verify(source, save(tmp_path / "wrong.onnx", wrong)).refutes_exact()


def test_new_units_that_one_branch_alone_makes_zero_are_read_by_zeros(tmp_path: Path) -> None:
    graph = BRANCHES.replace("r = Relu(h)", "r = Sigmoid(h)")
    source = save(tmp_path / "model.onnx", graph)
    done = api.apply('widen axis 1 of "rows" to 12 with zero fill', source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < 1e-6
    columns = next(w for w in onnx.load(done.written).graph.initializer if list(w.dims[1:]) == [3])
    assert not onnx.numpy_helper.to_array(columns)[8:].any()


def test_a_state_that_grows_from_iteration_to_iteration_is_frozen_along_that_axis(tmp_path: Path) -> None:
    graph = """
    growing (float[N, 1, 4] x) => (float[N, L, 3] y) <float[4, 8] rows, float[8, 3] columns>
    {
        x0 = MatMul(x, rows)
        trips = Constant <value_int = 3> ()
        true = Constant <value = bool {1}> ()
        x3 = Loop (trips, true, x0) <
            body = once (int64 i, bool on, float[N, K, 8] s) => (bool still, float[N, J, 8] t) {
                still = Identity(on)
                t = Concat <axis = 1> (s, x0)
            }>
        y = MatMul(x3, columns)
    }"""
    source = save(tmp_path / "model.onnx", graph)
    api.apply('widen axis 1 of "rows" to 13 with uniform copy\nexpect exact', source, tmp_path / "grown.onnx")


def test_captures_of_an_unknown_body_are_frozen_with_their_reason(tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path / "model.onnx", BRANCHES))
    model.graph.node[0].domain = "my.ops"
    model.opset_import.add(domain="my.ops", version=1)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(GrowError, match=r"my\.ops::If"):
        api.plan('widen axis 1 of "rows" to 13 with uniform copy', tmp_path / "model.onnx")
