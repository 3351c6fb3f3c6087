"""Files that onnxruntime's own tools make of a model go deeper and shallower as the model does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import save
from judging import judge

from growc import api

onnxruntime.set_default_logger_severity(4)

LAYER = """
    n{k} = LayerNormalization <axis = -1> (x{k}, gain{k}, shift{k})
    u{k} = MatMul(n{k}, up{k})
    r{k} = Relu(u{k})
    d{k} = MatMul(r{k}, down{k})
    b{k} = Add(d{k}, bias{k})
    x{n} = Add(x{k}, b{k})
"""
SHAPES = {"gain": "32", "shift": "32", "up": "32, 64", "down": "64, 32", "bias": "32"}
DEEPER = [
    "stack layers to 5 by last with zero outputs",
    "stack layers to 6 by each with zero outputs",
    "arrange layers as 0, 1, 0, 2, 1 with zero outputs",
]


def stack(path: Path) -> Path:
    """Three layers with a norm in front."""
    weights = ", ".join(f"float[{shape}] {name}{k}" for k in range(3) for name, shape in SHAPES.items())
    layers = "".join(LAYER.format(k=k, n=k + 1) for k in range(3))
    graph = f"""
plain (float[N, S, 8] x) => (float[N, S, 3] y)
<float[8, 32] rows, {weights}, float[32, 3] columns>
{{
    x0 = MatMul(x, rows)
{layers}
    y = MatMul(x3, columns)
}}
"""
    return save(path, graph)


def dynamic(source: Path, target: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(source, target)


def each_channel(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8)


def few_bits(source: Path, target: Path, *, symmetric: bool = False) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx.load(source), block_size=16, is_symmetric=symmetric)
    made.process()
    onnx.save(made.model.model, target)


def without_zeros(source: Path, target: Path) -> None:
    few_bits(source, target, symmetric=True)


def extended(source: Path, target: Path) -> None:
    """Quantised on the way, and then fused."""
    dynamic(source, source.with_name("between.onnx"))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(source.with_name("between.onnx"), options)


def products(source: Path, target: Path) -> None:
    """Weights and what products read are rounded; the stream is not."""
    static(source, target, ["MatMul"])


def everything(source: Path, target: Path) -> None:
    """The stream is rounded behind each sum, to steps of its own."""
    static(source, target, None)


def static(source: Path, target: Path, operators: list[str] | None) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Once(CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [{"x": np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)}]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    quantize_static(source, target, Once(), quant_format=QuantFormat.QDQ, op_types_to_quantize=operators)


TOOLS: list[Callable[[Path, Path], None]] = [
    dynamic,
    each_channel,
    few_bits,
    without_zeros,
    extended,
    products,
    everything,
]


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    source, target = stack(tmp_path / "plain.onnx"), tmp_path / "made.onnx"
    logging.disable(logging.WARNING)
    request.param(source, target)
    logging.disable(logging.NOTSET)
    return target


def operators(path: Path) -> set[tuple[str, str]]:
    return {(n.domain, n.op_type) for n in onnx.load(path).graph.node}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", DEEPER)
@pytest.mark.parametrize("made", TOOLS, ids=lambda tool: tool.__name__, indirect=True)
def test_layers_with_zero_outputs_are_new(made: Path, tmp_path: Path, recipe: str) -> None:
    """A projection of integers is zero where they are their zero points."""
    judged = judge(recipe, made, tmp_path / "deep.onnx")
    judged.assert_exact(1e-6)
    assert operators(judged.path) == operators(made)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "recipe", ["drop layers 1", "stack layers to 5 by last", "stack layers to 5 by last with random fill"]
)
@pytest.mark.parametrize("made", TOOLS, ids=lambda tool: tool.__name__, indirect=True)
def test_layers_go_and_come_again(made: Path, tmp_path: Path, recipe: str) -> None:
    judged = judge(recipe, made, tmp_path / "moved.onnx")
    assert not judged.certificate.exact
    assert operators(judged.path) == operators(made)


PACKED = """
    n{k} = LayerNormalization <axis = -1> (x{k}, gain{k}, shift{k})
    a{k}, p{k} = com.microsoft.Attention <num_heads = 2> (n{k}, qkv{k}, three{k})
    o{k} = MatMul(a{k}, out{k})
    x{n} = Add(x{k}, o{k})
"""


def test_a_result_of_a_fused_operator_that_nothing_reads_does_not_keep_it_apart(tmp_path: Path) -> None:
    shapes = {"gain": "8", "shift": "8", "qkv": "8, 24", "three": "24", "out": "8, 8"}
    weights = ", ".join(f"float[{shape}] {name}{k}" for k in range(2) for name, shape in shapes.items())
    layers = "".join(PACKED.format(k=k, n=k + 1) for k in range(2)).replace(", p1 =", " =")
    graph = f"""
packed (float[N, S, 8] x) => (float[N, S, 8] y)
<{weights}>
{{
    x0 = Identity(x)
{layers}
    y = Identity(x2)
}}
"""
    model = save(tmp_path / "model.onnx", graph)
    deeper = judge("stack layers to 4 by each with zero outputs", model, tmp_path / "deep.onnx")
    deeper.assert_exact(1e-6)
    assert operators(deeper.path) == operators(model)
    api.apply("drop layers 0", model, tmp_path / "short.onnx", check=False)
    assert operators(tmp_path / "short.onnx") == operators(model)
