"""Writers into the stream of a layer: with them at zero, onnxruntime finds the layer to be the identity."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
import pytest
from stacks import branch_norm, parallel, post_norm, pre_norm, stack, swapped

from growc import api
from growc.passes.layers.layer_runs import Obstacle
from growc.passes.new_layers.zero_branches import Branches


def branches(path):
    """The branches of every layer of a model's only run, with the run."""
    c = api.inspect(path)
    found = Branches(c.axes, c.layers)
    [run] = c.layers.runs
    return run, [found.of(layer) for layer in run.layers]


def writers(path):
    """For every branch of the first layer the names of the weights that write it."""
    _, found = branches(path)
    return [[use.weight.name for use in branch.writer] for branch in found[0]]


def without(path, names, watched):
    """The values of some tensors with some weights at zero."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name in names:
            zeros = np.zeros_like(onnx.numpy_helper.to_array(tensor))
            tensor.CopyFrom(onnx.numpy_helper.from_array(zeros, tensor.name))
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in watched)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 3, 4)).astype(np.float32)
    return session.run(watched, {"x": x, "mask": np.zeros((2, 1, 3), np.float32)})


@pytest.mark.parametrize("around", [pre_norm, swapped, branch_norm, parallel])
@pytest.mark.parametrize("blocks", ["AFAF", "AA", "CFCF"])
def test_with_its_writers_at_zero_a_layer_is_the_identity(around, blocks, tmp_path):
    path = stack(tmp_path / "m.onnx", blocks, around)
    run, found = branches(path)
    for layer, parts in zip(run.layers, found, strict=True):
        names = {use.weight.name for branch in parts for use in branch.writer}
        start, end = without(path, names, [layer.start.name, layer.end.name])
        assert np.array_equal(start, end)
        start, end = without(path, (), [layer.start.name, layer.end.name])
        assert not np.array_equal(start, end)


def test_a_projection_writes_with_its_bias(tmp_path):
    path = stack(tmp_path / "m.onnx", "AFAF")
    assert [sorted(names) for names in writers(path)] == [["b0_wo"], ["b1_bias", "b1_down"]]


def test_a_norm_on_the_branch_writes_behind_a_constant_factor(tmp_path):
    path = stack(tmp_path / "m.onnx", "AFAF", branch_norm)
    assert writers(path) == [["b0_gain", "b0_shift"], ["b1_gain", "b1_shift"]]


def test_parallel_branches_each_have_a_writer(tmp_path):
    path = stack(tmp_path / "m.onnx", "AA", parallel)
    assert [sorted(names) for names in writers(path)] == [["b0_wo"], ["b0_zbias", "b0_zdown"]]


def test_the_norm_of_a_post_norm_model_is_in_the_way(tmp_path):
    _, found = branches(stack(tmp_path / "m.onnx", "AFAF", post_norm))
    assert all(isinstance(x, Obstacle) for x in found)
    assert {x.node.op for x in found} == {"LayerNormalization"}


def test_a_factor_on_the_stream_is_in_the_way(tmp_path):
    def scaled(p, x, nodes, b):
        text = nodes.format(x=x, b=b, p=p)
        return f"{text}    {p}h = Mul({x}, half)\n    {p}x = Add({p}h, {b})\n", f"{p}x"

    _, found = branches(stack(tmp_path / "m.onnx", "AFAF", scaled))
    assert {(type(x), x.node.op) for x in found} == {(Obstacle, "Mul")}


def test_a_layer_scale_writes_in_place_of_the_projection(tmp_path):
    def scaled(p, x, nodes, b):
        text = nodes.format(x=x, b=b, p=p)
        return f"{text}    {p}h = Mul({b}, {p}gain)\n    {p}x = Add({p}h, {x})\n", f"{p}x"

    assert writers(stack(tmp_path / "m.onnx", "AFAF", scaled)) == [["b0_gain"], ["b1_gain"]]
