"""A graph under construction whose every detail is chosen at random: how a matrix is stored, how a shape is
computed, which detours a value takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from choices import Choices
from onnx import TensorProto, helper, numpy_helper

Dim = int | str
FLOAT, INT64, BOOL, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE


@dataclass(frozen=True)
class Tensor:
    """A value and its dims; a dim that is a word is a symbol of the model's inputs."""

    name: str
    dims: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass
class Net:
    """Nodes, weights, inputs and outputs. `detours`: the percentage of values that take one."""

    choices: Choices
    opset: int = 17
    detours: int = 0
    plain: bool = False
    """Gains of one and biases of zero, as a model has them that was never trained."""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, tuple[int, tuple[Dim, ...]]] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    roles: dict[str, int] = field(default_factory=dict)
    """The axes that a recipe may name, with a size."""
    limits: dict[str, int] = field(default_factory=dict)
    """How large an integer input may be, and a symbol."""

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(len(self.choices.taken))

    # ------------------------------------------------------------------ nodes and weights

    def node(
        self, op: str, *inputs: Tensor | str, dims: tuple[Dim, ...], domain: str = "", **attributes: object
    ) -> Tensor:
        """A node with one result of known dims."""
        out = f"v{len(self.nodes)}"
        names = [i if isinstance(i, str) else i.name for i in inputs]
        self.nodes.append(
            helper.make_node(op, names, [out], f"n{len(self.nodes)}", domain=domain, **attributes)
        )
        return Tensor(out, dims)

    def split(self, x: Tensor, axis: int, sizes: list[int]) -> list[Tensor]:
        """Segments along a static axis, by Split or by Slices."""
        axis %= x.rank
        dims = [(*x.dims[:axis], n, *x.dims[axis + 1 :]) for n in sizes]
        if self.choices.chance(40):
            ends = np.cumsum(sizes).tolist()
            if self.choices.chance(30):
                ends[-1] = np.iinfo(np.int64).max
            bounds = zip([0, *ends[:-1]], ends, dims, strict=True)
            return [
                self.node("Slice", x, self.ints([a]), self.ints([b]), self.ints([axis]), dims=d)
                for a, b, d in bounds
            ]
        outs = [f"v{len(self.nodes)}_{k}" for k in range(len(sizes))]
        operands, attributes = [x.name], {"axis": axis}
        if len(set(sizes)) > 1 or self.choices.chance(50):
            operands.append(self.ints(sizes))
        elif self.opset >= 18:
            attributes["num_outputs"] = len(sizes)
        self.nodes.append(helper.make_node("Split", operands, outs, f"n{len(self.nodes)}", **attributes))
        return [Tensor(o, d) for o, d in zip(outs, dims, strict=True)]

    def store(self, values: object) -> str:
        """A constant: an initializer, or a Constant node."""
        array = np.asarray(values)
        if self.choices.chance(10):
            tensor = numpy_helper.from_array(array)
            return self.node("Constant", dims=array.shape, value=tensor).name
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def ints(self, values: object) -> str:
        return self.store(np.asarray(values, dtype=np.int64))

    def real(self, values: object) -> str:
        return self.store(np.asarray(values, dtype=np.float32))

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (scale * self.random.standard_normal(shape)).astype(np.float32)

    def gain(self, n: int) -> np.ndarray:
        """The gains of a norm."""
        if self.plain:
            return np.ones(n, dtype=np.float32)
        return (1 + 0.3 * self.random.standard_normal(n)).astype(np.float32)

    def bias(self, n: int) -> np.ndarray:
        return np.zeros(n, dtype=np.float32) if self.plain else self.normal(n, scale=0.3)

    def matrix(self, rows: int, columns: int) -> np.ndarray:
        """Entries with which sums over the rows stay of order one."""
        return self.normal(rows, columns, scale=rows**-0.5)

    def operand(self, values: np.ndarray) -> str:
        """A matrix as an operand: stored as it is, or transposed, or behind an Identity."""
        how = self.choices.pick("plain", "plain", "plain", "transposed", "identity")
        if how == "transposed" and values.ndim == 2:
            stored = self.real(np.ascontiguousarray(values.T))
            return self.node("Transpose", stored, dims=values.shape, perm=[1, 0]).name
        stored = self.real(values)
        return self.node("Identity", stored, dims=values.shape).name if how == "identity" else stored

    # ------------------------------------------------------------------ arithmetic

    def both(self, op: str, x: Tensor, y: Tensor | str) -> Tensor:
        """A commutative operator on x and what broadcasts to it, in any order."""
        operands = (y, x) if self.choices.chance(50) else (x, y)
        return self.node(op, *operands, dims=x.dims)

    def add(self, x: Tensor, y: Tensor | str) -> Tensor:
        return self.both("Add", x, y)

    def multiply(self, x: Tensor, y: Tensor | str) -> Tensor:
        return self.both("Mul", x, y)

    def scaled(self, x: Tensor, factor: float) -> Tensor:
        """x times a number, written as a product or as a quotient."""
        if self.choices.chance(40):
            return self.node("Div", x, self.real(1 / factor), dims=x.dims)
        return self.multiply(x, self.real(factor))

    def unary(self, op: str, x: Tensor, **attributes: object) -> Tensor:
        return self.node(op, x, dims=x.dims, **attributes)

    def linear(
        self, x: Tensor, size: int, bias: bool | None = None, weight: np.ndarray | None = None
    ) -> Tensor:
        """x·W + b over the last axis, as MatMul, Gemm or Einsum."""
        width = x.dims[-1]
        assert isinstance(width, int)
        values = self.matrix(width, size) if weight is None else weight
        with_bias = self.choices.chance(60) if bias is None else bias
        how = self.choices.pick("MatMul", "MatMul", "MatMul", "MatMul", "Gemm", "Einsum")
        dims = (*x.dims[:-1], size)
        if how == "Gemm":
            flat = self.reshape(x, (-1, width))
            turned = self.choices.chance(50)
            stored = self.real(np.ascontiguousarray(values.T) if turned else values)
            operands = [stored, *([self.real(self.bias(size))] if with_bias else [])]
            product = self.node("Gemm", flat, *operands, dims=(-1, size), transB=int(turned))
            return self.reshape(product, dims)
        if how == "Einsum" and x.rank == 3:
            out = self.node("Einsum", x, self.operand(values), dims=dims, equation="abi,io->abo")
        else:
            out = self.node("MatMul", x, self.operand(values), dims=dims)
        return self.add(out, self.real(self.bias(size))) if with_bias else out

    # ------------------------------------------------------------------ layout

    def transpose(self, x: Tensor, *perm: int) -> Tensor:
        return self.node("Transpose", x, dims=tuple(x.dims[p] for p in perm), perm=list(perm))

    def unsqueeze(self, x: Tensor, axis: int) -> Tensor:
        axis %= x.rank + 1
        return self.node("Unsqueeze", x, self.ints([axis]), dims=(*x.dims[:axis], 1, *x.dims[axis:]))

    def squeeze(self, x: Tensor, axis: int) -> Tensor:
        axis %= x.rank
        return self.node("Squeeze", x, self.ints([axis]), dims=(*x.dims[:axis], *x.dims[axis + 1 :]))

    def size(self, dim: str) -> str:
        """The run-time size of a symbol, shape (1,)."""
        name, axis = next((n, dims.index(dim)) for n, (_, dims) in self.inputs.items() if dim in dims)
        shape = self.node("Shape", name, dims=(2,))
        if self.choices.chance(50):
            index = self.node("Gather", shape, self.ints(axis), dims=())
            return self.node("Unsqueeze", index, self.ints([0]), dims=(1,)).name
        return self.node(
            "Slice", shape, self.ints([axis]), self.ints([axis + 1]), self.ints([0]), dims=(1,)
        ).name

    def shape(self, dims: tuple[Dim, ...]) -> str:
        """A shape operand that is computed, for symbols too."""
        pieces = [self.size(d) if isinstance(d, str) else self.ints([d]) for d in dims]
        return self.node("Concat", *pieces, dims=(len(dims),), axis=0).name

    def reshape(self, x: Tensor, dims: tuple[Dim, ...]) -> Tensor:
        """x with other dims (one may be -1), by a literal shape where that is possible."""
        literal: list[int] = []
        for axis, dim in enumerate(dims):
            same = axis < x.rank and x.dims[axis] == dim and isinstance(dim, str)
            literal.append(dim if isinstance(dim, int) else 0 if same and -1 not in dims else -1)
        free = [k for k, d in enumerate(literal) if isinstance(d, int) and d > 0]
        if free and -1 not in literal and self.choices.chance(30):
            literal[self.choices.pick(*free)] = -1
        if literal.count(-1) > 1 or (any(isinstance(d, str) for d in dims) and self.choices.chance(40)):
            return self.node("Reshape", x, self.shape(dims), dims=dims)
        return self.node("Reshape", x, self.ints(literal), dims=dims)

    def detour(self, x: Tensor) -> Tensor:
        """The same value, perhaps by a detour."""
        if not self.choices.chance(self.detours):
            return x
        how = self.choices.pick(*DETOURS)
        return how(self, x)

    # ------------------------------------------------------------------ the file

    def save(self, path: Path) -> Path:
        """Write the model; outputs are named y0, y1, …"""
        nodes = [*self.nodes]
        for k, out in enumerate(self.outputs):
            nodes.append(helper.make_node("Identity", [out.name], [f"y{k}"], f"out{k}"))
        graph = helper.make_graph(
            nodes,
            "graph",
            [helper.make_tensor_value_info(n, kind, dims) for n, (kind, dims) in self.inputs.items()],
            [helper.make_tensor_value_info(f"y{k}", FLOAT, o.dims) for k, o in enumerate(self.outputs)],
            [numpy_helper.from_array(v, n) for n, v in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("my.ops", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=self.functions)
        onnx.save(model, path)
        return path

    def merge(self) -> None:
        """Equal constants become one, as exporters have it."""
        kept: dict[tuple[object, ...], str] = {}
        renamed = {}
        for name, values in list(self.weights.items()):
            key = (str(values.dtype), values.shape, values.tobytes())
            renamed[name] = kept.setdefault(key, name)
            if renamed[name] != name:
                del self.weights[name]
        for node in self.nodes:
            for i, name in enumerate(node.input):
                node.input[i] = renamed.get(name, name)


def _twice_turned(net: Net, x: Tensor) -> Tensor:
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2] if x.rank > 1 else [0]
    return net.transpose(net.transpose(x, *perm), *perm)


def _unit_axis(net: Net, x: Tensor) -> Tensor:
    axis = net.choices.below(x.rank + 1)
    return net.squeeze(net.unsqueeze(x, axis), axis)


def _flattened(net: Net, x: Tensor) -> Tensor:
    return net.reshape(net.reshape(x, (-1, x.dims[-1])), x.dims) if isinstance(x.dims[-1], int) else x


def _cut(net: Net, x: Tensor) -> Tensor:
    size = x.dims[-1]
    if not isinstance(size, int) or size < 2:
        return x
    at = 1 + net.choices.below(size - 1) if net.choices.chance(50) else max(size // 2, 1)
    parts = net.split(x, -1, [at, size - at])
    return net.node("Concat", *parts, dims=x.dims, axis=x.rank - 1)


def _regrouped(net: Net, x: Tensor) -> Tensor:
    size = x.dims[-1]
    if not isinstance(size, int) or size % 2:
        return x
    return net.reshape(net.reshape(x, (*x.dims[:-1], 2, size // 2)), x.dims)


def _called(net: Net, x: Tensor) -> Tensor:
    """Through a local function."""
    if not net.functions:
        body = [helper.make_node("Identity", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
        opsets = [helper.make_opsetid("", net.opset)]
        net.functions.append(helper.make_function("my.ops", "Negate", ["x"], ["y"], body, opsets))
    return net.node("Negate", x, dims=x.dims, domain="my.ops")


DETOURS = (
    lambda net, x: net.unary("Identity", x),
    lambda net, x: net.unary("Cast", x, to=FLOAT),
    lambda net, x: net.unary("Cast", net.unary("Cast", x, to=DOUBLE), to=FLOAT),
    lambda net, x: net.multiply(x, net.real(1.5)),
    lambda net, x: net.add(x, net.real(0.0)),
    _twice_turned,
    _unit_axis,
    _flattened,
    _cut,
    _regrouped,
    _called,
)
