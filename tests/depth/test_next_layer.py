"""`from next layer` is bert2BERT's advanced knowledge initialization: equations 14 to 16 on every weight."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import TINY, save
from test_depth import grown, weights

from growc import api
from growc.plans.lineage import lineage_of

BLOCK = "transformer.h.{}.{}"


def test_new_units_of_ffn_come_from_the_next_layer(tmp_path):
    recipe = "widen ffn to 500 with tail copy from next layer"
    made, source = grown(recipe, TINY, tmp_path / "aki.onnx"), weights(TINY)
    unit = np.r_[0:384, 384 - 116 : 384]
    counts = np.bincount(unit, minlength=384)
    for layer, above in ((0, 1), (1, 2), (2, 3), (3, 3)):
        own, other = (source[BLOCK.format(n, "mlp.c_fc.weight")] for n in (layer, above))
        wanted = np.concatenate([own, other[:, unit[384:]]], axis=1)  # eq. 16, columns are outputs
        assert np.array_equal(made[BLOCK.format(layer, "mlp.c_fc.weight")], wanted)
        own, other = (source[BLOCK.format(n, "mlp.c_fc.bias")] for n in (layer, above))
        assert np.array_equal(made[BLOCK.format(layer, "mlp.c_fc.bias")], np.r_[own, other[unit[384:]]])
        read = source[BLOCK.format(layer, "mlp.c_proj.weight")]
        wanted = (read.astype(np.float64) / counts[:, None])[unit].astype(np.float32)  # eq. 15
        np.testing.assert_allclose(made[BLOCK.format(layer, "mlp.c_proj.weight")], wanted, rtol=1e-6)


def test_the_lineage_names_the_layer_that_new_units_are_of():
    plan = api.plan("widen ffn to 500 with tail copy from next layer", TINY)
    found = lineage_of(plan)
    for layer, above in ((0, 1), (1, 2), (2, 3)):
        name = BLOCK.format(layer, "mlp.c_fc.weight")
        weight = found["weights"][name]
        assert weight["source"] == name
        assert weight["axes"]["1"]["next"] == BLOCK.format(above, "mlp.c_fc.weight")
        assert found["maps"][weight["axes"]["1"]["map"]]["new"] == list(range(384, 500))
    last = found["weights"][BLOCK.format(3, "mlp.c_fc.weight")]
    assert "next" not in last["axes"]["1"]
    assert "next" not in found["weights"][BLOCK.format(0, "mlp.c_proj.weight")]["axes"]["0"]


def test_statements_compose_and_the_next_layer_s_weight_is_as_they_left_it(tmp_path):
    hidden = "widen hidden to 192 with cyclic copy from next layer"
    recipe = f"{hidden}\nwiden ffn to 500 with tail copy from next layer"
    made, source = grown(recipe, TINY, tmp_path / "aki.onnx"), weights(TINY)
    unit = np.r_[0:384, 384 - 116 : 384]
    own, other = (np.tile(source[BLOCK.format(n, "mlp.c_fc.weight")] / 2, (2, 1)) for n in (1, 2))
    wanted = np.concatenate([own, other[:, unit[384:]]], axis=1)
    np.testing.assert_allclose(made[BLOCK.format(1, "mlp.c_fc.weight")], wanted, rtol=1e-6)
    own, other = (source[BLOCK.format(n, "mlp.c_proj.weight")] for n in (1, 2))
    wanted = np.concatenate([own, other], axis=1)[unit] / np.bincount(unit)[unit][:, None]
    np.testing.assert_allclose(made[BLOCK.format(1, "mlp.c_proj.weight")], wanted, rtol=1e-6)
    for name in ("transformer.wpe.weight", BLOCK.format(0, "ln_1.weight")):
        assert np.array_equal(made[name], np.concatenate([source[name]] * 2, axis=-1))


def test_a_weight_with_another_shape_than_in_the_next_layer_takes_itself(tmp_path):
    first = "in layers 0 { widen ffn to 500 with zero fill }\n"
    made = grown(f"{first}widen hidden to 192 with tail copy from next layer", TINY, tmp_path / "aki.onnx")
    alone = grown(f"{first}widen hidden to 192 with tail copy", TINY, tmp_path / "alone.onnx")
    for name in ("mlp.c_fc.weight", "mlp.c_proj.weight"):
        assert np.array_equal(made[BLOCK.format(0, name)], alone[BLOCK.format(0, name)])
    assert not np.array_equal(made[BLOCK.format(1, "mlp.c_proj.weight")], alone[BLOCK.format(1, name)])


@pytest.mark.parametrize("axis", ["ffn to 500", "heads to 9", "hidden to 192"])
def test_copies_from_the_next_layer_are_a_gap(axis):
    certificate = api.plan(f"widen {axis} with uniform copy from next layer", TINY).certificate
    assert "come from the next layer" in "".join(gap.cause for gap in certificate.gaps)


def test_new_units_that_nobody_reads_may_come_from_anywhere(tmp_path):
    recipe = "widen ffn to 500 with tail copy from next layer with zero outputs"
    done = api.apply(recipe, TINY, tmp_path / "aki.onnx")
    assert done.plan.certificate.exact


def test_layers_are_next_to_each_other_as_before_the_statement(tmp_path):
    recipe = "widen ffn to 500 with tail copy from next layer\nstack layers to 8 by each"
    made = grown(recipe, TINY, tmp_path / "deep.onnx")
    alone = grown("widen ffn to 500 with tail copy from next layer", TINY, tmp_path / "wide.onnx")
    for layer in range(8):
        name = "mlp.c_fc.weight"
        assert np.array_equal(made[BLOCK.format(layer, name)], alone[BLOCK.format(layer // 2, name)])


SQUARES = """
squares (float[B, 3] x) => (float[B, 4] y)
<float[3, 8] rows, {weights}, float[8, 4] columns>
{{
    x0 = MatMul(x, rows)
{layers}
    y = MatMul(x2, columns)
}}
"""

SQUARE = """
    a{k} = MatMul(x{k}, square{k})
    s{k} = Sigmoid(a{k})
    h{k} = Add(x{k}, s{k})
    f{k} = MatMul(h{k}, up{k})
    t{k} = Tanh(f{k})
    g{k} = MatMul(t{k}, down{k})
    x{n} = Add(h{k}, g{k})
"""


@pytest.mark.parametrize("noise", ["", "noise 0.1 balanced "])
def test_a_matrix_that_makes_and_reads_the_axis_takes_rows_of_the_next_one_as_wide(tmp_path, noise):
    shapes = ", ".join(f"float[8, 8] square{k}, float[8, 6] up{k}, float[6, 8] down{k}" for k in range(2))
    layers = "".join(SQUARE.format(k=k, n=k + 1) for k in range(2))
    model = save(tmp_path / "m.onnx", SQUARES.format(weights=shapes, layers=layers))
    made = grown(f"widen hidden to 16 with cyclic copy {noise}from next layer", model, tmp_path / "aki.onnx")
    source = weights(model)
    own, other = source["square0"], source["square1"]
    if not noise:
        wide = np.concatenate([np.concatenate([own] * 2), np.concatenate([other] * 2)], axis=1) / 2
        np.testing.assert_allclose(made["square0"], wide, rtol=1e-6)
    assert made["square0"].shape == (16, 16)
