"""Layers: how many there are, where they start, what belongs to them."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.helper
import pytest
from graphs import MLP, STREAM, TOWERS, TRANSLATOR, save
from stacks import branch_norm, parallel, post_norm, pre_norm, stack, swapped

from growc import api
from growc.errors.diagnostic import GrowError
from growc.render.inspection import inspect_data, inspect_lines


def runs(path):
    """(scope, kinds of the layers) of every run."""
    return [(r.scope, r.kinds) for r in api.inspect(path).layers.runs]


def blocks(path):
    """For every layer the blocks whose weights it uses, by their numbers."""
    [run] = api.inspect(path).layers.runs
    names = [{v.weight.name for n in x.nodes for v in n.operands if v.weight is not None} for x in run.layers]
    return ["".join(sorted({name[1] for name in found if name[0] == "b"})) for found in names]


@pytest.mark.parametrize("around", [pre_norm, swapped, post_norm, branch_norm])
def test_attention_and_feed_forward_are_a_layer_wherever_the_norm_stands(around, tmp_path):
    assert blocks(stack(tmp_path / "m.onnx", "AFAFAF", around)) == ["01", "23", "45"]


def test_parallel_branches_are_one_layer(tmp_path):
    assert blocks(stack(tmp_path / "m.onnx", "AAA", parallel)) == ["0", "1", "2"]


def test_a_convolution_around_the_stream_before_the_first_layer_belongs_to_none(tmp_path):
    assert blocks(stack(tmp_path / "m.onnx", "CAFAF")) == ["12", "34"]


def test_a_block_more_behind_the_last_layer_belongs_to_none(tmp_path):
    assert blocks(stack(tmp_path / "m.onnx", "AFAFA")) == ["01", "23"]


@pytest.mark.parametrize("order", ["AFAGAG", "AFAG", "AGAGAF"])
def test_an_unequal_first_or_last_layer_is_a_layer(order, tmp_path):
    path = stack(tmp_path / "m.onnx", order)
    assert blocks(path) == ["01", "23", "45"][: len(order) // 2]
    [(_, kinds)] = runs(path)
    assert len(set(kinds)) == 2


def test_layers_that_alternate_are_counted_one_by_one(tmp_path):
    path = stack(tmp_path / "m.onnx", "AFAGAFAG")
    assert runs(path) == [("", (0, 1, 0, 1))]
    assert api.inspect(path).layers.runs[0].period == 2
    assert any("2 kinds: A B A B, again after 2" in line for line in inspect_lines(api.inspect(path)))


def test_layers_that_share_no_matrix_alternate_all_the_same(tmp_path):
    assert blocks(stack(tmp_path / "m.onnx", "CFAGCFAG")) == ["01", "23", "45", "67"]


@pytest.mark.parametrize("around", [post_norm, pre_norm])
def test_a_branch_that_mixes_positions_without_a_weight_opens_a_layer(around, tmp_path):
    path = stack(tmp_path / "m.onnx", "MFMF", around)
    [run] = api.inspect(path).layers.runs
    assert [sum(node.op == "Softmax" for node in layer.nodes) for layer in run.layers] == [1, 1]
    assert runs(path) == [("", (0, 0))]


def test_a_single_layer_is_found(tmp_path):
    assert blocks(stack(tmp_path / "m.onnx", "AF")) == ["01"]


def test_the_last_layer_of_a_post_norm_model_ends_behind_its_norm(tmp_path):
    [run] = api.inspect(stack(tmp_path / "m.onnx", "AFAF", post_norm)).layers.runs
    assert [x.end.producer.op for x in run.layers] == ["LayerNormalization"] * 2
    assert run.layers[0].end is run.layers[1].start


def read_instead(path, name, sums):
    """Let these sums add the negative of the mask, made once, in place of the mask."""
    model = onnx.load(path)
    model.graph.node.insert(0, onnx.helper.make_node("Neg", ["mask"], [name]))
    for node in model.graph.node:
        if node.output[0] in sums:
            node.input[1] = name
    onnx.save(model, path)
    return path


def test_a_value_that_all_layers_read_lies_in_none(tmp_path):
    path = read_instead(stack(tmp_path / "m.onnx", "AFAF"), "shared", ["b0_m", "b2_m"])
    [run] = api.inspect(path).layers.runs
    assert not any(v.name == "shared" for x in run.layers for n in x.nodes for v in n.outputs)


def test_one_mask_for_every_second_layer_makes_two_kinds(tmp_path):
    path = stack(tmp_path / "m.onnx", "AFAFAFAF")
    assert runs(path) == [("", (0, 0, 0, 0))]
    assert runs(read_instead(path, "other", ["b2_m", "b6_m"])) == [("", (0, 1, 0, 1))]


def test_encoder_and_decoder_have_their_own_layers(tmp_path):
    path = save(tmp_path / "m.onnx", TRANSLATOR)
    assert sorted(runs(path)) == [("decoder", (0,)), ("encoder", (0,))]


def test_keys_and_values_of_cross_attention_belong_to_the_decoders_layer(tmp_path):
    found = {r.scope: r.layers[0] for r in api.inspect(save(tmp_path / "m.onnx", TRANSLATOR)).layers.runs}
    made = {v.name for n in found["decoder"].nodes for v in n.outputs}
    assert {"k", "v"} <= made
    assert not made & {"e0", "eu", "ea", "ed", "e1"}


def test_each_tower_has_its_layers(tmp_path):
    assert runs(save(tmp_path / "m.onnx", TOWERS)) == [("tower 0", (0,)), ("tower 1", (0,))]


def test_equal_products_one_behind_the_other_are_layers_where_there_is_no_stream(tmp_path):
    text = """
    chain (float[N, 4] x) => (float[N, 3] y)
    <float[4, 8] w0, float[8, 8] w1, float[8, 8] w2, float[8, 3] w3>
    {
        a = MatMul(x, w0)
        b = Relu(a)
        c = MatMul(b, w1)
        d = Relu(c)
        e = MatMul(d, w2)
        f = Relu(e)
        y = MatMul(f, w3)
    }
    """
    [run] = api.inspect(save(tmp_path / "m.onnx", text)).layers.runs
    assert [(x.start.name, x.end.name) for x in run.layers] == [("b", "d"), ("d", "f")]
    assert not run.residual


def flattened(folder: Path, settled: str) -> Path:
    """Three products on flattened positions, each put back and bounded, and a mean behind the last."""
    layers = "".join(
        f"""
        a{k} = Reshape(s{k}, flat)
        g{k} = Gemm(a{k}, w{k})
        lengths{k} = Shape <start = 0, end = 2> (s{k})
        back{k} = Concat <axis = 0> (lengths{k}, eight)
        r{k} = Reshape(g{k}, back{k})
        s{k + 1} = {settled if k == 2 else "Relu"}(r{k})
        """
        for k in range(3)
    )
    text = f"""
    flattened (float[B, S, 4] x) => (float[B, 5] y)
    <float[4, 8] w_in, float[8, 8] w0, float[8, 8] w1, float[8, 8] w2, float[8, 5] w_out,
     int64[2] flat = {{-1, 8}}, int64[1] eight = {{8}}, int64[1] positions = {{1}}>
    {{
        s0 = MatMul(x, w_in)
        {layers}
        m = ReduceMean <keepdims = 0> (s3, positions)
        y = MatMul(m, w_out)
    }}
    """
    return save(folder / "m.onnx", text, opset=18)


def test_the_last_of_equal_products_ends_where_the_others_do(tmp_path):
    path = flattened(tmp_path, "Relu")
    [run] = api.inspect(path).layers.runs
    assert [(x.start.name, x.end.name) for x in run.layers] == [("s0", "s1"), ("s1", "s2"), ("s2", "s3")]
    assert not api.apply("arrange layers as 0, 1, 2, 2", path).plan.certificate.exact


def test_layers_whose_sizes_would_contradict_each_other_are_refused(tmp_path):
    path = flattened(tmp_path, "Sigmoid")
    with pytest.raises(GrowError, match="the layers cannot stand in this order") as caught:
        api.plan("arrange layers as 0, 1, 2, 2", path)
    assert caught.value.diagnostics[0].code == "G314"


def test_unequal_products_are_no_layers(tmp_path):
    assert runs(save(tmp_path / "m.onnx", MLP)) == []


def test_the_outputs_of_a_cache_belong_to_its_layer(tmp_path):
    text = STREAM.replace("(float[N, 16] logits)", "(float[N, 16] logits, float[N, 12] kept)")
    path = save(tmp_path / "m.onnx", text.replace("d = MatMul(act", "kept = Neg(act)\n d = MatMul(act"))
    [run] = api.inspect(path).layers.runs
    assert any(v.name == "kept" for n in run.layers[0].nodes for v in n.outputs)


def test_expressions_and_expectations_know_layers(tmp_path):
    path = stack(tmp_path / "m.onnx", "AFAFAF")
    assert inspect_data(api.inspect(path))["axes"]["layers"] == 3
    assert api.apply(
        "widen ffn to 4 * layers + ffn with tail copy\nexpect layers == 3\nexpect ffn == 24", path
    ).plan.axes["ffn"].after == (24,)
    with pytest.raises(GrowError, match="`layers` is 3, expected == 4"):
        api.apply("expect layers == 4", path)


def test_layers_in_a_scope_are_those_of_the_scope(tmp_path):
    path = save(tmp_path / "m.onnx", TRANSLATOR)
    api.apply("in decoder { expect layers == 1 }", path)
    with pytest.raises(GrowError) as error:
        api.apply("expect layers == 1", save(tmp_path / "mlp.onnx", MLP))
    assert error.value.diagnostics[0].code == "G302"
