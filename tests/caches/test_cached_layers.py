"""Caches go with their layers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from caches.decoders import KINDS, decode, pasts

from growc import api

SEPARATE = tuple(kind for kind in KINDS if kind != "cross")


def ports(path):
    graph = onnx.load(path, load_external_data=False).graph
    return [i.name for i in graph.input], [o.name for o in graph.output]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", SEPARATE)
def test_a_new_layer_has_a_cache_of_its_own_and_changes_nothing(decoder, tmp_path, kind):
    source, out = decoder(kind), tmp_path / "deep.onnx"
    done = api.apply("stack layers to layers + 1 by each with zero outputs", source, out)
    assert done.plan.certificate.exact
    assert done.verification.relative == 0
    (inputs, outputs), (more_inputs, more_outputs) = ports(source), ports(out)
    assert len(more_inputs) - len(inputs) == len(more_outputs) - len(outputs) > 0


def test_decoding_step_by_step_goes_on_with_more_layers(decoder, tmp_path):
    source, out = decoder("plain"), tmp_path / "deep.onnx"
    api.apply("stack layers to 2 * layers by whole", source, out, check=False)
    tokens = np.arange(12).reshape(2, 6) % 7
    start = pasts(out)
    whole, _ = decode(out, tokens, [6], start)
    steps, _ = decode(out, tokens, [2, 1, 3], start)
    np.testing.assert_allclose(steps, whole, atol=1e-5 * np.abs(whole).max())


def test_a_layer_that_goes_takes_its_cache_with_it(decoder, tmp_path):
    source, out = decoder("plain"), tmp_path / "flat.onnx"
    api.apply("drop layers 0", source, out, check=False)
    (inputs, _), (fewer, _) = ports(source), ports(out)
    assert len(inputs) - len(fewer) == 2


@pytest.mark.parametrize("layer", [0, 1])
def test_who_asks_for_the_size_of_a_cache_that_goes_is_told_that_of_another(decoder, tmp_path, layer):
    model = onnx.load(decoder("plain"))
    pasts = [i.name for i in model.graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    first, last = pasts[0], pasts[-1]
    for node in model.graph.node:
        node.input[:] = ["joined" if name == first else name for name in node.input]
    model.graph.node.insert(0, onnx.helper.make_node("Concat", [first], ["joined"], axis=2))
    for name, value in (("joined_size", "joined"), ("last_size", last)):
        model.graph.node.append(onnx.helper.make_node("Shape", [value], [name]))
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [4]))
    onnx.save(model, tmp_path / "asking.onnx")
    done = api.apply(f"drop layers {layer}", tmp_path / "asking.onnx", tmp_path / "flat.onnx")
    measured = done.verification.outputs
    assert measured["joined_size"].relative == measured["last_size"].relative == 0


def test_heads_of_caches_that_moved_are_drawn_for_each_layer(decoder, tmp_path):
    recipe = (
        "stack layers to 2 * layers by each with zero outputs\n"
        "widen heads to 2 * heads with uniform copy split random"
    )
    done = api.apply(recipe, decoder("plain"), tmp_path / "deep.onnx")
    assert done.plan.certificate.exact
    assert done.verification.relative < 1e-5
    assert api.verify(decoder("plain"), done.written).relative < 1e-5
