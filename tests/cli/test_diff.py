"""`growc diff`: what differs between two models, and that nothing does where all bytes are equal."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import TINY, save

import growc as library
from growc.reports.tensor_changes import compared


def test_a_model_does_not_differ_from_itself_nor_from_its_copy(growc, tmp_path):
    shutil.copy("stream.onnx", "copy.onnx")
    for other in ("stream.onnx", "copy.onnx"):
        same = growc("diff", "stream.onnx", other)
        assert same.status == 0
        assert "Nothing differs" in same.out
    assert library.diff(tmp_path / "stream.onnx", tmp_path / "copy.onnx").same


def test_a_diff_shows_the_recipe_and_its_changes_in_eighty_columns(growc):
    assert growc("apply", "-e", "widen ffn to 2 * ffn with cyclic copy", TINY, "-o", "wide.onnx").status == 0
    shown = growc("diff", TINY, "wide.onnx")
    assert shown.status == 1
    assert "  ffn          384 -> 768" in shown.out
    assert "  ~ transformer.h.*.mlp.c_fc.weight     [96, 384] -> [96, 768]   × 4" in shown.out
    assert "wide.onnx was grown from tiny-gpt.onnx, by this recipe:" in shown.out
    assert "    widen ffn to 2 * ffn with cyclic copy" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    every = growc("diff", "--all", TINY, "wide.onnx").out
    assert "transformer.h.3.mlp.c_fc.weight" in every
    data = growc("diff", TINY, "wide.onnx", "--json").json
    assert data["axes"] == {"ffn": {"before": 384, "after": 768}}
    assert data["growth"]["from_first"] is True
    assert {w["before"][0] for w in data["weights"] if w["name"] == "transformer.h.0.mlp.c_proj.weight"} == {
        384
    }


@pytest.mark.parametrize(
    "recipe", ["stack layers to 2 * layers by whole with zero outputs", "stack layers to 6 by last"]
)
def test_copied_layers_count_as_grown_from_the_source(growc, recipe):
    assert growc("apply", "-e", recipe, TINY, "-o", "deep.onnx", "--no-verify").status == 0
    assert "deep.onnx was grown from tiny-gpt.onnx, by this recipe:" in growc("diff", TINY, "deep.onnx").out


def test_tensors_of_one_number_alone_are_no_renamed_ones(tmp_path: Path) -> None:
    """New biases and gains are alike in models that have nothing else in common."""
    random = np.random.default_rng(0)
    for name, moved in (("one", False), ("other", False), ("moved", True)):
        matrix = random.standard_normal((64, 64)).astype(np.float32)
        tensors = {f"{name}.weight": matrix, f"{name}.bias": np.zeros(64, np.float32)}
        if moved:
            tensors[f"{name}.weight"] = np.load(tmp_path / "one.npy")
        np.save(tmp_path / f"{name}.npy", matrix)
        nodes = [
            onnx.helper.make_node("MatMul", ["x", f"{name}.weight"], ["y"]),
            onnx.helper.make_node("Add", ["y", f"{name}.bias"], ["z"]),
        ]
        declared = [onnx.helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, [2, 64]) for v in "xz"]
        stored = [onnx.numpy_helper.from_array(values, key) for key, values in tensors.items()]
        graph = onnx.helper.make_graph(nodes, "g", declared[:1], declared[1:], stored)
        opset = [onnx.helper.make_opsetid("", 17)]
        onnx.save(
            onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / f"{name}.onnx"
        )

    def kinds(other: str) -> set[str]:
        return {change.kind for change in library.diff(tmp_path / "one.onnx", tmp_path / other).weights}

    assert kinds("other.onnx") == {"new", "gone"}
    assert kinds("moved.onnx") == {"renamed"}


def test_a_record_of_another_source_is_not_taken_for_one_of_this(growc):
    growc("apply", "-e", "widen ffn to 2 * ffn with cyclic copy", TINY, "-o", "wide.onnx")
    assert "not from mlp.onnx as it is" in growc("diff", "mlp.onnx", "wide.onnx").out


def test_one_changed_number_is_found_and_measured(growc, tmp_path):
    model = onnx.load("mlp.onnx")
    tensor = model.graph.initializer[0]
    values = onnx.numpy_helper.to_array(tensor).copy()
    size = np.linalg.norm(values)
    values.flat[-1] += 0.5
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.save(model, "other.onnx")
    found = library.diff("mlp.onnx", "other.onnx")
    [change] = found.weights
    assert (change.kind, change.name) == ("changed", tensor.name)
    assert change.relative == pytest.approx(0.5 / size, rel=1e-5)
    assert growc("diff", "mlp.onnx", "other.onnx").status == 1


def test_attributes_wiring_and_names_are_seen(growc, tmp_path):
    model = onnx.load("stream.onnx")
    for node in model.graph.node:
        if node.op_type == "LayerNormalization":
            node.attribute.append(onnx.helper.make_attribute("epsilon", 0.25))
    next(n for n in model.graph.node if n.op_type == "Relu").op_type = "Sigmoid"
    next(w for w in model.graph.initializer if w.name == "up_weight").name = "renamed"
    for node in model.graph.node:
        node.input[:] = ["renamed" if name == "up_weight" else name for name in node.input]
    onnx.save(model, "other.onnx")
    found = library.diff("stream.onnx", "other.onnx")
    assert found.operators == {"Relu": (1, 0), "Sigmoid": (0, 1)}
    assert ("LayerNormalization", "epsilon", "0.25") in found.attributes
    assert [(c.kind, c.was) for c in found.weights] == [("renamed", "up_weight")]


def test_operands_that_change_places_are_another_wiring(tmp_path):
    graph = """
    m (float[b, 4] x, float[b, 4] z) => (float[b, 4] y)
    {
        y = Sub (x, z)
    }
    """
    before = save(tmp_path / "a.onnx", graph)
    after = save(tmp_path / "b.onnx", graph.replace("Sub (x, z)", "Sub (z, x)"))
    found = library.diff(before, after)
    assert found.rewired
    assert not found.same


def test_numbers_that_are_none_are_equal_to_themselves_and_differ_in_kind():
    a = np.array([1.0, np.nan, np.inf], np.float32)
    assert compared(a, a.copy()) == (True, 0.0)
    assert compared(a, np.array([2.0, np.nan, np.inf], np.float32)) == (False, None)
    assert compared(np.zeros(3), np.ones(3)) == (False, None)
    assert compared(np.ones(3, np.float32), np.ones(3, np.float64)) == (False, 0.0)


def test_a_missing_model_and_a_damaged_one_are_refused(growc, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    assert growc("diff", "mlp.onnx", "nosuch.onnx").status == 3
    assert growc("diff", "mlp.onnx", "bad.onnx").status == 3
    assert growc("diff", "mlp.onnx").status == 2


def test_large_tensors_are_compared_by_chunks(tmp_path: Path) -> None:
    """Two models of 256 MB are compared in much less memory than one of them takes."""
    graph = """
    m (float[b, 4096] x) => (float[b, 16384] y) <float[4096, 16384] w>
    {
        y = MatMul (x, w)
    }
    """
    weights = np.arange(4096 * 16384, dtype=np.float32).reshape(4096, 16384)
    save(tmp_path / "a.onnx", graph, external=True, w=weights)
    weights[-1, -1] = 0
    save(tmp_path / "b.onnx", graph, external=True, w=weights)
    code = (
        "import sys, growc, threading, time, re\n"
        "def own():\n"
        "    return int(re.search(r'RssAnon:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "most = [0]\n"
        "def watch():\n"
        "    while True:\n"
        "        most[0] = max(most[0], own()); time.sleep(0.005)\n"
        "growc.diff('a.onnx', 'a.onnx'); before = own()\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
        "found = growc.diff('a.onnx', 'b.onnx')\n"
        "assert [c.kind for c in found.weights] == ['changed']\n"
        "assert most[0] - before < 64_000, most[0] - before\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
