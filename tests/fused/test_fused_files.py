"""Files as onnxruntime optimises them: what they hide is seen, they grow exactly, and they stay fused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import onnxruntime
import pytest
from fused.graphs_of_onnxruntime import GRAPHS, OPSETS
from graphs import save

from growc.api import apply, inspect, recipe
from growc.api import compile as compiled
from growc.errors.diagnostic import GrowError

onnxruntime.set_default_logger_severity(4)
INSIDE = {
    "ffn": "widen ffn to 3 * ffn / 2 with uniform copy",
    "ffn, noise": "widen ffn to 2 * ffn with neighbor copy split random noise 0.1 balanced",
    "heads": "widen heads to 2 * heads with neighbor copy",
    "hidden": "widen hidden to 2 * hidden with cyclic copy",
}
AVERAGE = "widen hidden to 3 * hidden / 2 with average fill"
NEIGHBOR = "widen hidden to 3 * hidden / 2 with neighbor copy"
KV_HEADS = "widen kv_heads to heads with neighbor copy"
MORE = {
    ("gpt", "hidden, not whole"): AVERAGE,
    ("llama", "hidden, not whole"): NEIGHBOR,
    ("rope", "hidden, not whole"): NEIGHBOR,
    ("opset23", "hidden, not whole"): NEIGHBOR,
    ("whisper", "hidden, not whole"): AVERAGE,
    ("llama", "kv_heads"): KV_HEADS,
    ("opset23", "kv_heads"): KV_HEADS,
}
CASES = {**{(g, name): recipe for g in GRAPHS for name, recipe in INSIDE.items()}, **MORE}


@pytest.fixture
def model(tmp_path: Path):
    def made(name: str) -> Path:
        return save(tmp_path / f"{name}.onnx", GRAPHS[name], opset=OPSETS.get(name, 17))

    return made


def operators(path: Path) -> Counter[tuple[str, str]]:
    return Counter((n.domain, n.op_type) for n in onnx.load(path).graph.node)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "recipe"), CASES, ids=lambda x: x)
def test_a_fused_model_grows_exactly_and_stays_fused(model, tmp_path, name, recipe):
    source = model(name)
    done = apply(CASES[name, recipe], source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact, done.plan.certificate.gaps
    assert done.verification is not None
    own = done.verification.rounding  # of a model that is fed rows of several sizes
    assert done.verification.relative <= max(1e-5, 3 * own)
    assert operators(done.written) == operators(source)


SIZES = {"hidden": [8], "heads": [2], "kv_heads": [2], "head_dim": [4], "ffn": [12], "vocab": [16]}
OTHERS = {"llama": {"heads": [4], "head_dim": [16]}, "opset23": {"heads": [4]}, "rope": {"head_dim": [16]}}


@pytest.mark.parametrize("name", GRAPHS)
def test_roles_inside_fused_operators_are_found(model, name):
    found = inspect(model(name)).roles
    sizes = {axis: found.sizes(axis) for axis in SIZES}
    assert sizes == SIZES | OTHERS.get(name, {})


CENTRED = """
centred (float[N, 6] x) => (float[N, 5] y)
<float[6, 8] stem, float[8, 12] up, float[12, 8] down, float[8] gain, float[8, 5] head>
{
    x0 = MatMul(x, stem)
    u = MatMul(x0, up)
    r = Relu(u)
    d = MatMul(r, down)
    x1 = Add(x0, d)
    m = ReduceMean <axes = [-1]> (x1)
    c = Sub(x1, m)
    n = SimplifiedLayerNormalization <epsilon = 0.05> (c, gain)
    y = MatMul(n, head)
}
"""


def test_a_norm_by_the_mean_square_of_what_is_centred_is_a_layer_norm(tmp_path):
    source = save(tmp_path / "centred.onnx", CENTRED)
    done = apply(AVERAGE, source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact, done.plan.certificate.gaps
    assert done.verification is not None
    assert done.verification.relative <= 1e-5
    assert operators(done.written) == operators(source)


BLOCKED = """
blocked (float[1, 8, 6, 6] x) => (float[1, 8, 6, 6] y) <float[8, 8, 1, 1] w>
{
    a = com.microsoft.nchwc.ReorderInput(x)
    b = com.microsoft.nchwc.Conv(a, w)
    y = com.microsoft.nchwc.ReorderOutput <channels = 8> (b)
}
"""


def test_a_layout_for_one_processor_is_refused(tmp_path):
    with pytest.raises(GrowError, match=r"nchwc::ReorderInput") as refused:
        inspect(save(tmp_path / "blocked.onnx", BLOCKED))
    assert refused.value.diagnostics[0].code == "G309"


def test_a_part_of_a_fused_operator_bears_its_name(model):
    plan = compiled(recipe(AVERAGE), model("bert")).plan
    (gap,) = {(g.op, g.node) for g in plan.certificate.gaps[:1]}
    assert gap == ("com.microsoft::SkipLayerNormalization", "y")


def test_nothing_but_what_grows_changes(model, tmp_path):
    done = apply(INSIDE["ffn"], model("rope"), tmp_path / "grown.onnx")
    assert nodes(done.written) == nodes(model("rope"))


def nodes(path: Path) -> list[object]:
    return [
        (n.domain, n.op_type, *n.input, "->", *n.output, sorted(map(str, n.attribute)))
        for n in onnx.load(path).graph.node
    ]


GROUPED = """
grouped (float[N, S, 8] x, int32[N] lengths, int32 longest) => (float[N, S, 8] y)
<float[8, 32] wq, float[8, 16] wk, float[8, 16] wv, float[32, 8] wo>
{
    q = MatMul(x, wq)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    a, pk, pv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
        (q, k, v, , , lengths, longest)
    o = MatMul(a, wo)
    y = Add(x, o)
}
"""


def test_sizes_that_a_fused_operator_cannot_run_on_are_refused(tmp_path):
    """Heads of 12 channels are exact on paper; onnxruntime takes multiples of 8."""
    source = save(tmp_path / "model.onnx", GROUPED)
    compiled(recipe("widen head_dim to 16 with uniform copy"), source)
    with pytest.raises(GrowError) as refused:
        compiled(recipe("widen head_dim to 12 with uniform copy"), source)
    [first] = refused.value.diagnostics
    assert first.code == "G308"
    assert "GroupQueryAttention" in str(refused.value)
    assert "cannot run on 12 channels a head" in str(refused.value)
    assert "ask for a multiple of 8" in str(refused.value)


def test_values_are_as_wide_as_keys_in_grouped_attention(model, tmp_path):
    """The operator has one number of channels a head: what a rotation keeps for keys stays for values."""
    source = save(tmp_path / "model.onnx", GROUPED)
    wider = compiled(recipe('widen axis 1 of "wv" to 32 with uniform copy'), source)
    assert {w.name: w.after for w in wider.plan.weights if w.name != "wo"} == {
        "wq": (8, 64),
        "wk": (8, 32),
        "wv": (8, 32),
    }
    with pytest.raises(GrowError, match="`head_dim` cannot change its size") as refused:
        compiled(recipe("widen head_dim to 32 with cyclic copy"), model("llama"))
    assert refused.value.diagnostics[0].code == "G304"
