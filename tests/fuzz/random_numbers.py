"""Random ways to compute the numbers of a look-up, from tokens, a mask, sizes and constants.

`numbers(seed)` is a small graph whose look-up takes rows of a table by them, and rows of a second one that is
multiplied with too. A grown file must find the same rows whenever growc says that it does. The source's own
numbers are brought into range by a remainder of the sign of the number, or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from growc.errors.diagnostic import Attempt

ROWS, WIDTH = 16, 6
OPSET = 18


@dataclass
class Numbers:
    """A graph in the making: integers of the shape (batch, seq)."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: dict[str, np.ndarray] = field(default_factory=dict)

    def node(self, op: str, *operands: str, **attributes: object) -> str:
        """One more node; its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], **attributes))
        return name

    def constant(self, value: object, dtype: type = np.int64) -> str:
        """A stored constant."""
        name = f"c{len(self.stored)}"
        self.stored[name] = np.asarray(value, dtype=dtype)
        return name

    def number(self, low: int = -3, high: int = ROWS) -> str:
        """A drawn constant: a scalar."""
        return self.constant(self.random.integers(low, high))

    def size(self) -> str:
        """The number of rows, asked of the table, or of columns of the tokens."""
        whole = self.node("Shape", str(self.random.choice(["table", "tokens"])))
        return self.node("Gather", whole, self.constant(self.random.integers(0, 2)))

    def condition(self, depth: int) -> str:
        """Truths."""
        if depth and self.random.random() < 0.3:
            kind = str(self.random.choice(["Not", "And", "Or"]))
            operands = [self.condition(depth - 1) for _ in range(1 if kind == "Not" else 2)]
            return self.node(kind, *operands)
        if self.random.random() < 0.2:
            return self.node("Cast", self.integers(depth), to=TensorProto.BOOL)
        kind = str(self.random.choice(["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]))
        return self.node(kind, self.integers(depth), self.number())

    def integers(self, depth: int) -> str:
        """Integers, which may be anything."""
        if depth <= 0 or self.random.random() < 0.1:
            return str(self.random.choice(["tokens", "mask"]))
        ways = [self.arithmetic, self.bounded, self.chosen, self.moved, self.real, self.counted]
        return ways[self.random.integers(len(ways))](depth - 1)

    def arithmetic(self, depth: int) -> str:
        """Sums, products, quotients, remainders."""
        kind = str(self.random.choice(["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max"]))
        other = self.integers(depth) if self.random.random() < 0.3 else self.number()
        if kind in ("Div", "Mod"):
            other = (
                self.size() if self.random.random() < 0.3 else self.constant(self.random.choice([-5, 2, 7]))
            )
        operands = [self.integers(depth), other]
        if kind in ("Sub", "Min", "Max") and self.random.random() < 0.3:
            operands.reverse()
        plain = {"fmod": int(self.random.integers(2))} if kind == "Mod" else {}
        return self.node(kind, *operands, **plain)

    def bounded(self, depth: int) -> str:
        """Clamped, absolute, negated."""
        kind = str(self.random.choice(["Clip", "Abs", "Neg", "Relu", "Sign"]))
        value = self.integers(depth)
        if kind == "Clip":
            low, high = (self.number() if self.random.random() < 0.7 else "" for _ in range(2))
            return self.node("Clip", value, *([low, high] if high else [low] if low else []))
        if kind == "Relu":
            wide = self.node("Cast", value, to=TensorProto.FLOAT)
            return self.node("Cast", self.node("Relu", wide), to=TensorProto.INT64)
        return self.node(kind, value)

    def chosen(self, depth: int) -> str:
        """By a condition, often on what is chosen."""
        value, truth = self.integers(depth), self.condition(depth)
        if self.random.random() < 0.6:
            kind = str(self.random.choice(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"]))
            truth = self.node(kind, value, self.number(-1, 4))
            truth = self.node("Not", truth) if self.random.random() < 0.3 else truth
        other = self.node("Sub", value, self.number(0, 4)) if self.random.random() < 0.6 else self.number()
        return self.node("Where", truth, *([value, other] if self.random.random() < 0.5 else [other, value]))

    def moved(self, depth: int) -> str:
        """Running sums, and what changes places."""
        value, last = self.integers(depth), self.constant(1)
        way = self.random.integers(5)
        if way == 0:
            flags = {"exclusive": int(self.random.integers(2)), "reverse": int(self.random.integers(2))}
            return self.node("CumSum", value, last, **flags)
        if way == 1:
            backwards = [
                self.constant([-1]),
                self.constant([-(2**62)]),
                self.constant([1]),
                self.constant([-1]),
            ]
            return self.node("Slice", value, *backwards)
        if way == 2:
            kind = str(self.random.choice(["ReduceMax", "ReduceMin"]))
            peak = self.node(kind, value, self.constant([1])) if kind == "" else self.along(kind, value)
            return (
                self.node("Max", peak, value) if self.random.random() < 0.5 else self.node("Min", peak, value)
            )
        if way == 3:
            total = self.node("ReduceSum", value, self.constant([1]), keepdims=1)
            return self.node("Sub", total, value)
        return self.node("Add", self.node("ArgMax", value, axis=1, keepdims=1), value)

    def along(self, kind: str, value: str) -> str:
        """The least or the largest along the last axis."""
        return self.node(kind, value, self.constant([1]), keepdims=1)

    def real(self, depth: int) -> str:
        """Through real numbers and back."""
        kind = str(self.random.choice(["Sqrt", "Floor", "Tanh", "Log", "Reciprocal"]))
        wide = self.node("Cast", self.integers(depth), to=TensorProto.FLOAT)
        wide = self.node("Add", wide, self.constant(self.random.choice([-1.5, 0.5, 1.0, 3.0]), np.float32))
        return self.node("Cast", self.node(kind, wide), to=TensorProto.INT64)

    def counted(self, depth: int) -> str:
        """Places."""
        shape = self.node("Shape", "tokens")
        count = self.node("Gather", shape, self.constant(1))
        start, step = (0, 1) if self.random.random() < 0.6 else (-1, 2)
        limit = self.node("Mul", count, self.constant(2)) if step == 2 else count
        places = self.node("Range", self.constant(start), limit, self.constant(step))
        return self.node("Add", self.node("Sub", places, self.integers(depth)), self.number())


def numbers(seed: int) -> onnx.ModelProto:
    """The graph of a seed."""
    drawn = Numbers(np.random.default_rng(seed))
    index = drawn.integers(3)
    if drawn.random.random() < 0.7:  # within the table, from either end
        index = drawn.node("Mod", index, drawn.constant(ROWS), fmod=1)
    drawn.stored["table"] = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    drawn.nodes.append(helper.make_node("Gather", ["table", index], ["y"]))
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64, ["batch", "seq"]) for n in ("tokens", "mask")
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s", WIDTH])
    stored = [numpy_helper.from_array(value, name) for name, value in drawn.stored.items()]
    graph = helper.make_graph(drawn.nodes, "numbers", inputs, [output], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def feeds(seed: int) -> list[dict[str, np.ndarray]]:
    """Inputs of several sizes: numbers of rows, and masks."""
    random = np.random.default_rng(seed)
    shapes = [(2, 3), (1, 1), (3, 8), (2, 16)]
    return [
        {"tokens": random.integers(0, ROWS, shape), "mask": random.integers(0, 2, shape)} for shape in shapes
    ]


def exposed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The nodes that compute the numbers, with every intermediate result as an output."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[-1]
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.shape_inference.infer_shapes(copy).graph.value_info)
    return copy


def opened(model: bytes) -> onnxruntime.InferenceSession:
    """A session without optimisations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def outputs(model: bytes, seed: int) -> list[np.ndarray | None]:
    """onnxruntime's output for each input; None where it refuses (numbers outside of the table)."""
    session = opened(model)
    arrays: list[np.ndarray | None] = []
    for feed in feeds(seed):
        with Attempt() as attempt:  # onnxruntime has no common base
            arrays.append(np.asarray(session.run(None, feed)[0]))
        if attempt.error is not None:
            arrays.append(None)
    return arrays
