"""Files with experts: stored types, formats and outputs are those of the source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from test_upcycling import UPCYCLE, F, stream

import growc

TYPES = {"bfloat16": 16, "float16": 10, "float64": 11}
"""onnx's numbers of element types."""


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64"])
def test_networks_whose_weights_are_cast_compute_in_the_type_of_their_input(
    tmp_path: Path, kind: str
) -> None:
    source = stream(tmp_path / "m.onnx")
    model = onnx.load(source)
    own = next(one for one in model.graph.initializer if one.name == "up_weight")
    cast = onnx.numpy_helper.to_array(own).astype(onnx.helper.tensor_dtype_to_np_dtype(TYPES[kind]))
    own.CopyFrom(onnx.numpy_helper.from_array(cast, "up_weight.stored"))
    model.graph.node.insert(0, onnx.helper.make_node("Cast", ["up_weight.stored"], ["up_weight"], to=1))
    onnx.save(model, source)
    done = growc.apply(UPCYCLE, source, tmp_path / "out.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < 1e-5


def test_a_result_of_an_old_format_has_initializers_that_are_no_inputs(tmp_path: Path) -> None:
    source = stream(tmp_path / "m.onnx")
    model = onnx.load(source)
    model.ir_version = 3
    listed = [
        onnx.helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in model.graph.initializer
    ]
    model.graph.input.extend(listed)
    onnx.save(model, source)
    done = growc.apply(UPCYCLE, source, tmp_path / "out.onnx")
    assert done.plan.certificate.exact
    assert onnx.load(done.written).ir_version == 4


def test_an_output_that_is_the_shape_of_an_inner_value_stays(tmp_path: Path) -> None:
    source = stream(tmp_path / "m.onnx")
    model = onnx.load(source)
    inner = next(node for node in model.graph.node if node.op_type == "Relu").output[0]
    model.graph.node.append(onnx.helper.make_node("Shape", [inner], ["sizes"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("sizes", 7, [None]))
    onnx.save(model, source)
    done = growc.apply(UPCYCLE, source, tmp_path / "out.onnx")
    assert done.plan.certificate.exact
    runs = [onnxruntime.InferenceSession(path) for path in (source, done.written)]
    before, after = (run.run(["sizes"], {"tokens": np.arange(3)})[0].tolist() for run in runs)
    assert before == after == [3, F]
