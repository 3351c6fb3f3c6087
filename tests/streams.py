"""Small ONNX models written by hand: residual blocks, unknown operators, tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, INNER, VOCAB = 8, 16, 30


class Builder:
    """Nodes and weights of one graph; `x` is the value at the end of it."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.declared: list[onnx.ValueInfoProto] = []

    def weight(self, name: str, *shape: int) -> str:
        values = self.random.standard_normal(shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, name: str, values: object) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], name=f"node_{out}", **attributes))
        return out

    def block(self, x: str, name: str) -> str:
        """x + W2·relu(W1·LayerNorm(x))."""
        gain, bias = self.weight(f"{name}.norm.gain", WIDTH), self.weight(f"{name}.norm.bias", WIDTH)
        inner = self.node("LayerNormalization", [x, gain, bias], axis=-1)
        inner = self.node("MatMul", [inner, self.weight(f"{name}.up", WIDTH, INNER)])
        inner = self.node("MatMul", [self.node("Relu", [inner]), self.weight(f"{name}.down", INNER, WIDTH)])
        return self.node("Add", [x, inner])

    def declare(self, value: str, *shape: str | int) -> None:
        self.declared.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, shape))

    def save(self, path: Path, result: str, width: int = VOCAB, opset: int = 17) -> Path:
        """The model `ids` [batch, seq] -> `result` [batch, seq, width]."""
        self.nodes.append(helper.make_node("Identity", [result], ["result"]))
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])],
            [helper.make_tensor_value_info("result", TensorProto.FLOAT, ["batch", "seq", width])],
            self.weights,
            value_info=self.declared,
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("my.ops", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
        return path


def stream(path: Path, middle: Callable[[Builder, str], str] = lambda b, x: x) -> Path:
    """Embedding, a block, whatever `middle` puts into the stream, another block, a head."""
    b = Builder()
    x = b.block(b.node("Gather", [b.weight("embedding", VOCAB, WIDTH), "ids"]), "first")
    x = b.block(middle(b, x), "second")
    return b.save(path, b.node("MatMul", [x, b.weight("head", WIDTH, VOCAB)]))
