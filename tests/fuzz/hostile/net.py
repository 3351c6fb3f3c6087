"""A graph under construction: nodes, weights of any element type, and the many spellings of one thing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

TYPES = {
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}
STORED = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
}
REDUCED_BY_INPUT = 18


class Net:
    """Nodes and weights. `pick` decides on structure, `rng` draws values: layers repeat the one alone."""

    def __init__(self, seed: int) -> None:
        self.pick = Random(f"hostile {seed}")
        self.rng = np.random.default_rng([seed, 77])
        self.opset = self.pick.choice([13, 17, 17, 18, 20, 21, 23, 23])
        self.kind = self.pick.choices(["f32", "f64", "f16"], [88, 8, 4])[0]
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.features: list[str] = []
        self.outputs: list[tuple[str, str]] = []
        self.fused = False
        self.prefix = ""
        self.batch: Any = "B"
        self.steps: Any = "S"
        self._count = 0
        self._numbers: dict[tuple[Any, ...], str] = {}

    # ------------------------------------------------------------------------------------------ choices

    def tag(self, feature: str) -> None:
        """Note that the graph has something."""
        if feature not in self.features:
            self.features.append(feature)

    def chance(self, probability: float) -> bool:
        """Whether something is done, by the structure's draws."""
        return self.pick.random() < probability

    def some(self, topic: str, options: dict[str, float]) -> str:
        """One of weighted options, which the graph's features name."""
        choice = self.pick.choices(list(options), list(options.values()))[0]
        self.tag(f"{topic}:{choice}")
        return choice

    # -------------------------------------------------------------------------------------------- nodes

    def name(self, stem: str) -> str:
        """A name that nothing else has."""
        self._count += 1
        return f"{self.prefix}{stem}_{self._count}"

    def ops(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """A node. Gives its results."""
        results = [self.name(op.lower()) for _ in range(outputs)]
        self.fused |= domain == "com.microsoft"
        self.nodes.append(
            helper.make_node(op, list(inputs), results, name=self.name("n"), domain=domain, **attributes)
        )
        return results

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of one result."""
        return self.ops(op, *inputs, **attributes)[0]

    def give(self, value: str, name: str) -> None:
        """Make a value an output of the model."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=self.name("n")))
        self.outputs.append((name, value))

    # ------------------------------------------------------------------------------------------ weights

    def tensor(self, values: Any, kind: str = "", stem: str = "w") -> str:
        """A stored tensor."""
        array = np.asarray(values).astype(STORED[kind or self.kind])
        name = self.name(stem)
        proto = onnx.TensorProto(name=name, data_type=TYPES[kind or self.kind], dims=array.shape)
        proto.raw_data = array.tobytes()
        if array.size < 9 and array.ndim < 2 and self.chance(0.3):
            self.nodes.append(helper.make_node("Constant", [], [name], value=proto))
        else:
            self.weights.append(proto)
        return name

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0, stem: str = "w") -> str:
        """A weight drawn from a normal distribution."""
        return self.tensor(mean + scale * self.rng.standard_normal(shape), stem=stem)

    def number(self, value: float, kind: str = "", shape: Sequence[int] = ()) -> str:
        """A constant of one number."""
        return self.tensor(np.full(shape, value), kind, "c")

    def ints(self, *values: int) -> str:
        """A list of whole numbers, stored once."""
        key = ("i64", values, self.prefix)
        if key not in self._numbers or self.chance(0.5):
            self._numbers[key] = self.tensor(np.array(values, dtype=np.int64), "i64", "i")
        return self._numbers[key]

    def eps(self) -> str:
        """A term that keeps a norm away from zero, often a large one."""
        return self.number(self.pick.choice([1e-5, 1e-3, 0.05, 0.4]))

    # ---------------------------------------------------------------------------- operators by opset

    def cast(self, x: str, to: str) -> str:
        """A cast to an element type."""
        return self.op("Cast", x, to=TYPES[to])

    def reduce(self, how: str, x: str, *axes: int, keep: int = 1) -> str:
        """A reduction: axes are an attribute or an input, by the opset."""
        if self.opset >= REDUCED_BY_INPUT or how == "Sum":
            return self.op(f"Reduce{how}", x, self.ints(*axes), keepdims=keep)
        return self.op(f"Reduce{how}", x, axes=list(axes), keepdims=keep)

    def reshape(self, x: str, *shape: int) -> str:
        """A reshape; now and then the numbers in front come from the value's own shape."""
        if shape[0] == 0 and self.chance(0.25):
            kept = len([s for s in shape[:2] if s == 0])
            front = self.op("Slice", self.op("Shape", x), self.ints(0), self.ints(kept), self.ints(0))
            rest = self.ints(*shape[kept:])
            return self.op("Reshape", x, self.op("Concat", front, rest, axis=0))
        return self.op("Reshape", x, self.ints(*shape))

    def transpose(self, x: str, *perm: int) -> str:
        """A transposition."""
        return self.op("Transpose", x, perm=list(perm))

    def slice(self, x: str, start: int, end: int, axis: int) -> str:
        """A piece of an axis."""
        return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis))

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Pieces end to end, by Split or by slices."""
        if self.chance(0.35):
            ends = np.cumsum(sizes).tolist()
            return [self.slice(x, e - s, e, axis) for e, s in zip(ends, sizes, strict=True)]
        return self.ops("Split", x, self.ints(*sizes), axis=axis, outputs=len(sizes))

    def size_of(self, x: str, axis: int) -> str:
        """The size of an axis as a floating number that the graph computes."""
        shape = self.op("Shape", x)
        return self.cast(self.op("Gather", shape, self.number(axis, "i64"), axis=0), self.kind)

    # ------------------------------------------------------------------------------------------- models

    def model(self, inputs: Sequence[tuple[str, str, Sequence[Any]]]) -> onnx.ModelProto:
        """The model; outputs have no declared shape."""
        asked = [helper.make_tensor_value_info(n, TYPES[kind], list(shape)) for n, kind, shape in inputs]
        given = [onnx.ValueInfoProto(name=name) for name, _ in self.outputs]
        graph = helper.make_graph(self.nodes, "hostile", asked, given, self.weights)
        imports = [helper.make_opsetid("", self.opset)]
        if self.fused:
            imports.append(helper.make_opsetid("com.microsoft", 1))
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        return onnx.shape_inference.infer_shapes(_typed(model, self.kind))


def _typed(model: onnx.ModelProto, kind: str) -> onnx.ModelProto:
    """Outputs need an element type: taken from shape inference where it knows one."""
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {
        v.name: v.type.tensor_type.elem_type for v in (*inferred.graph.value_info, *inferred.graph.output)
    }
    for info in model.graph.output:
        info.type.tensor_type.elem_type = known.get(info.name) or TYPES[kind]
    return model
