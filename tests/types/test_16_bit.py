"""Weights of 16 and 64 bits: rounded once, verified as sharply as float32."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import STREAM, save
from judging import judge
from onnx import numpy_helper

from growc import api
from growc.algebra.indexmap import IndexMap
from growc.errors.diagnostic import GrowError
from growc.formats.onnx_file import OnnxFile
from growc.verification.float_copies import write_copy

TYPES = {"float16": ir.DataType.FLOAT16, "bfloat16": ir.DataType.BFLOAT16, "float64": ir.DataType.DOUBLE}
NORMS = STREAM.replace("axis = -1", "axis = -1, epsilon = 0.01")
AVERAGE = "widen hidden to 20 with average fill\nwiden ffn to 31 with uniform copy split random\nexpect exact"


def stream(folder: Path, kind: str) -> Path:
    """The residual block with its weights, and all that is computed, of one type."""
    source = save(folder / "single.onnx", NORMS)
    return write_copy(source, folder / f"{kind}.onnx", {ir.DataType.FLOAT: TYPES[kind]})


def stored_in_16_bits(folder: Path, kind: str) -> Path:
    """The residual block in float32, its weights stored in 16 bits and cast before they are used."""
    model = onnx.load(save(folder / "single.onnx", NORMS))
    dtype = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[kind]
    casts = []
    for tensor in model.graph.initializer:
        narrow = numpy_helper.to_array(tensor).astype(dtype)
        casts.append(onnx.helper.make_node("Cast", [f"{tensor.name}.stored"], [tensor.name], to=1))
        tensor.CopyFrom(numpy_helper.from_array(narrow, f"{tensor.name}.stored"))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, folder / "stored.onnx")
    return folder / "stored.onnx"


@pytest.mark.parametrize("kind", TYPES)
def test_weights_of_every_real_type_grow_within_their_rounding(tmp_path: Path, kind: str) -> None:
    done = api.apply(AVERAGE, stream(tmp_path, kind), tmp_path / "grown.onnx")
    types = {t.data_type for t in onnx.load(tmp_path / "grown.onnx").graph.initializer}
    assert types == {int(TYPES[kind])}
    assert done.verification is not None
    assert (
        done.verification.relative < {"float16": 5e-3, "bfloat16": 5e-2, "float64": 1e-8}[kind]
    )  # eps is stored as float32


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_that_are_stored_in_16_bits_and_cast_stay_so(tmp_path: Path, kind: str) -> None:
    api.apply(AVERAGE, stored_in_16_bits(tmp_path, kind), tmp_path / "grown.onnx")
    grown = onnx.load(tmp_path / "grown.onnx").graph
    assert {t.data_type for t in grown.initializer} == {int(TYPES[kind])}


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_wrong_eps_that_16_bits_would_hide_refutes_the_certificate(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrong result is within 20 times the rounding of its weights."""
    right = IndexMap.layer_norm

    def wrong(state: IndexMap, power: int) -> tuple[IndexMap, float] | None:
        found = right(state, power)
        return None if found is None else (found[0], found[1] * 1.2)

    monkeypatch.setattr(IndexMap, "layer_norm", wrong)
    model = stream(tmp_path, kind)
    with monkeypatch.context() as only:
        only.setattr(OnnxFile, "in_wider", lambda *_: {})
        api.apply(AVERAGE, model, tmp_path / "accepted.onnx")
    with pytest.raises(GrowError) as refuted:
        api.apply(AVERAGE, model, tmp_path / "grown.onnx")
    assert refuted.value.diagnostics[0].code == "G402"
    assert not (tmp_path / "grown.onnx").exists()


def test_a_16_bit_weight_that_changes_on_both_axes_is_rounded_once(tmp_path: Path) -> None:
    text = "widen hidden to 24 with cyclic copy split random\nwiden ffn to 36 with uniform copy split random"
    model = stream(tmp_path, "float16")
    api.apply(text, model, tmp_path / "grown.onnx", check=False)
    wide = write_copy(model, tmp_path / "wide.onnx", {ir.DataType.FLOAT16: ir.DataType.DOUBLE})
    api.apply(text, wide, tmp_path / "grown.wide.onnx", check=False)
    exact = {
        t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "grown.wide.onnx").graph.initializer
    }
    for tensor in onnx.load(tmp_path / "grown.onnx").graph.initializer:
        off = numpy_helper.to_array(tensor) != exact[tensor.name].astype(np.float16)
        assert off.mean() < 1e-3, tensor.name


HALF = """
    w{k} = Cast <to = 1> (x{k})
    n{k} = LayerNormalization <axis = -1> (w{k}, gain{k}, shift{k})
    h{k} = Cast <to = TYPE> (n{k})
    u{k} = MatMul(h{k}, up{k})
    r{k} = Relu(u{k})
    d{k} = MatMul(r{k}, down{k})
    x{n} = Add(x{k}, d{k})
"""


def upcast(folder: Path, kind: str) -> Path:
    """Three layers on a stream of 16 bits, whose norms are computed in float32."""
    number, dtype = {"float16": (10, np.float16), "bfloat16": (16, ml_dtypes.bfloat16)}[kind]
    layers = "".join(HALF.format(k=k, n=k + 1) for k in range(3)).replace("TYPE", str(number))
    norms = ", ".join(f"float[8] gain{k}, float[8] shift{k}" for k in range(3))
    random = np.random.default_rng(0)
    shapes = {"up": (8, 12), "down": (12, 8)}
    stored = {f"{n}{k}": random.standard_normal(s).astype(dtype) for k in range(3) for n, s in shapes.items()}
    graph = f"""
upcast (float[N, 8] x) => (float[N, 8] y) <{norms}>
{{
    x0 = Cast <to = {number}> (x)
{layers}
    y = Cast <to = 1> (x3)
}}
"""
    return save(folder / "model.onnx", graph, **stored)


@pytest.mark.parametrize("recipe", ["stack layers to 5 by last", "stack layers to 6 by each"])
def test_a_stream_of_16_bits_is_rounded_no_more_by_a_new_layer(tmp_path: Path, recipe: str) -> None:
    """Its casts to float32 and back hold what is in it."""
    zero = f"{recipe} with zero outputs"
    judge(zero, upcast(tmp_path, "float16"), tmp_path / "deep.onnx").assert_exact(0)
    assert api.plan(zero, upcast(tmp_path, "bfloat16")).certificate.exact
