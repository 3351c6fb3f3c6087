"""Probes: a model whose outputs are sums over its own activations, and nothing else.

Needs: an ONNX file, and `ProbedTensor`s: which tensors, which of their axes are kept, which masks weight the
others. Gives: the bytes of a model with a few small outputs for each probe, and the outputs that tell how
many numbers each sum adds up. A probe's sum is that of |value| over all other axes, weighted by the masks, or
of the quotient of two norms over the kept axes. Sums are taken inside the graph, so that no activation leaves
it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
from onnx import TensorProto

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.fused_internals import inner_values
from growc.dialects.onnx.files.load import in_one_folder, outline


def shown(model: Path) -> frozenset[str]:
    """Return the names of the tensors in a file's main graph, and of its fused nodes' inner values.

    Tensors in bodies of other nodes cannot be probed.
    """
    proto = outline(model)
    inputs = (v.name for v in proto.graph.input)
    outputs = (name for n in proto.graph.node for name in n.output)
    return frozenset([*inputs, *outputs, *inner_values(proto)])


@dataclass(frozen=True)
class Mask:
    """An input of ones and zeros: the place of each of its axes among a tensor's, or one place for all."""

    name: str
    places: tuple[int, ...]
    merged: bool = False


@dataclass(frozen=True)
class ProbedTensor:
    """One probed tensor: its name in the file, its rank, the kept axes, and the masks that weight the others.

    less: a tensor of the same shape that is subtracted first. units: the tensor holds indices of this many
    units, and is taken as one-hot, with one more axis. part: a tensor of the same shape. The norm of part
    over the kept axes is divided by the tensor's own. If `taken`, the norm of the tensor less part is used
    instead. cosine: 1 − cos of both is used instead. using: the reduction over all other axes: the sum of
    |value|, its squares (`l2`), or the largest (`max`). grouped: the unit of each element along the kept
    axes. The norm of each unit counts. routed: the norm over the kept axes, times `shares` if given, is
    summed for each expert over the places where it is chosen; these places are counted. If `numbers` are
    given, they hold the index of one of `units` experts for each place. Else the places that are not zero
    count, for each expert `along` an axis, or for the only one.
    """

    @property
    def read(self) -> set[str]:
        """The names of all tensors that it reads."""
        return {name for name in (self.name, self.part, self.less, self.shares, self.numbers) if name}

    name: str
    rank: int
    kept: tuple[int, ...]
    masks: tuple[Mask, ...] = ()
    part: str = ""
    taken: bool = False
    units: int = 0
    less: str = ""
    using: str = ""
    grouped: tuple[int, ...] = ()
    cosine: bool = False
    routed: bool = False
    shares: str = ""
    numbers: str = ""
    along: int | None = None


def probed(model: Path, probes: Sequence[ProbedTensor]) -> tuple[bytes, Path]:
    """Return the model with the probes as its only outputs, and the folder that its references start from.

    Its weights stay on disk.
    """
    proto = outline(model)
    del proto.graph.output[:]
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    nodes = list(proto.graph.node)
    makers = {name: i for i, node in enumerate(nodes) for name in node.output}
    tensors_read = {name for probe in probes for name in probe.read}
    behind = _beside(proto, tensors_read - makers.keys(), makers)
    for k, probe in enumerate(probes):
        del proto.graph.node[:]
        writer = _Writer(proto.graph, f"growc.probe.{k}", opset)
        (writer.chosen if probe.routed else writer.add)(probe)
        behind.setdefault(max(makers.get(name, -1) for name in probe.read), []).extend(proto.graph.node)
    del proto.graph.node[:]
    for i in range(-1, len(nodes)):  # right behind the tensors they sum, which so need not stay in memory
        proto.graph.node.extend([*nodes[max(i, 0) : i + 1], *behind.get(i, ())])
    return in_one_folder(proto, model)


def with_shapes(model: Path, names: Collection[str]) -> tuple[tuple[bytes, Path], dict[str, str]]:
    """Return the model with the shapes of these tensors as its only outputs, and the name of each output."""
    proto = outline(model)
    nodes = list(proto.graph.node)
    del proto.graph.output[:], proto.graph.node[:]
    shapes: dict[str, str] = {}
    for node in nodes:
        proto.graph.node.append(node)
        for name in (
            name for name in node.output if name in names
        ):  # right behind its producer, so that the tensor need not stay in memory
            shapes[name] = f"{name}:shape"
            proto.graph.node.append(oh.make_node("Shape", [name], [shapes[name]]))
            proto.graph.output.append(oh.make_tensor_value_info(shapes[name], TensorProto.INT64, None))
    return in_one_folder(proto, model), shapes


def exposing(model: Path, names: Sequence[str]) -> tuple[bytes, Path]:
    """Return the model with these tensors as its only outputs."""
    proto = outline(model)
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return in_one_folder(proto, model)


def _beside(
    proto: onnx.ModelProto, names: set[str], makers: dict[str, int]
) -> dict[int, list[onnx.NodeProto]]:
    """Return the nodes that compute inner values of fused nodes, by the fused node's index.

    The index of each new value is added to `makers`.
    """
    behind: dict[int, list[onnx.NodeProto]] = {}
    inner = inner_values(proto)
    for name in sorted(names & inner.keys()):
        for node in inner[name].nodes:
            if node.output[0] not in makers:
                behind.setdefault(inner[name].place, []).append(node)
                makers.update(dict.fromkeys(node.output, inner[name].place))
    return behind


def counted(probe: ProbedTensor, shape: Sequence[int], weight: float) -> float:
    """Return how many numbers each sum of a probe adds up. `weight`: the sum over its masks."""
    covered = {place for mask in probe.masks for place in mask.places}
    summed_sizes = [n for a, n in enumerate(shape) if a not in probe.kept and a not in covered]
    return weight * float(np.prod(summed_sizes, dtype=np.float64))


class _Writer:
    """The nodes behind one tensor. No name in the file begins with `prefix`."""

    def __init__(self, graph: onnx.GraphProto, prefix: str, opset: int) -> None:
        self.graph, self.prefix, self.opset, self.count = graph, prefix, opset, 0

    def add(self, probe: ProbedTensor) -> None:
        value = self.one_hot(probe) if probe.units else self.single(probe.name)
        value = self.node("Sub", value, self.single(probe.less)) if probe.less else value
        summed = [a for a in range(probe.rank) if a not in probe.kept]
        if probe.part:
            value = self.turned(probe, value) if probe.cosine else self.quotient(probe, value)
            summed = list(range(probe.rank))
        self.output("shape", self.node("Shape", value), TensorProto.INT64)
        if probe.masks:
            weight = self.aligned(probe.masks[0], probe.rank)
            for mask in probe.masks[1:]:
                weight = self.node("Mul", weight, self.aligned(mask, probe.rank))
            value = self.node("Mul", value, weight)
            self.output("weight", self.node("ReduceSum", weight, keepdims=0))
        if probe.grouped:
            value, summed = self.norms(probe, value), [0]
        self.output("sum", self.total(probe.using, value, summed))

    def chosen(self, probe: ProbedTensor) -> None:
        """Sum the experts' norms over the places where they are chosen, and count these places."""
        value, weight = self.single(probe.name), ""
        for mask in probe.masks:
            aligned = self.aligned(mask, probe.rank)
            weight = self.node("Mul", weight, aligned) if weight else aligned
        size = self.over("ReduceL2", value, probe.kept, 18, keepdims=1)
        size = self.node("Mul", size, weight) if weight else size
        if probe.shares:
            apart = self.node("Reshape", self.single(probe.shares), self.node("Shape", size))
            size = self.node("Mul", size, self.node("Abs", apart))
        if probe.numbers:
            aligned = self.constant(np.ones(1, dtype=np.float32))
            every = self.node("Expand", weight or aligned, self.node("Shape", size))
            whole = self.node("Cast", probe.numbers, to=TensorProto.INT64)
            numbers = self.node("Reshape", whole, self.numbers([-1]))
            values = self.constant(np.array([0, 1], dtype=np.float32))
            which = self.node("OneHot", numbers, self.numbers([probe.units]), values)
            for kind, summand in (("sum", size), ("count", every)):
                row = self.node("Reshape", summand, self.numbers([1, -1]))
                self.output(kind, self.node("Reshape", self.node("MatMul", row, which), self.numbers([-1])))
            return
        is_chosen = self.single(self.node("Greater", size, self.constant(np.zeros(1, dtype=np.float32))))
        summed = [a for a in range(probe.rank) if a != probe.along]
        self.output("sum", self.summed(size, summed))
        self.output("count", self.summed(is_chosen, summed))

    def total(self, using: str, value: str, gone: Sequence[int]) -> str:
        """Return the reduction of all values over some axes."""
        if using == "l2":
            squares = self.node("Mul", value, value)
            return self.summed(squares, gone)
        if using == "max":
            size = self.node("Abs", value)
            return self.over("ReduceMax", size, gone, 18, keepdims=0) if gone else size
        return self.over("ReduceL1", value, gone, 18, keepdims=0) if gone else self.node("Abs", value)

    def summed(self, value: str, axes: Sequence[int]) -> str:
        return self.over("ReduceSum", value, axes, 13, keepdims=0) if axes else value

    def norms(self, probe: ProbedTensor, value: str) -> str:
        """Return the L2 norm of each unit's elements: a row for each place, a column for each unit."""
        others = [a for a in range(probe.rank) if a not in probe.kept]
        order = [*others, *probe.kept]
        value = value if order == sorted(order) else self.node("Transpose", value, perm=order)
        flat = self.node("Reshape", value, self.numbers([-1, len(probe.grouped)]))
        units = np.array(probe.grouped)
        belongs = (units[:, None] == np.arange(units.max() + 1)).astype(np.float32)
        squares = self.node("MatMul", self.node("Mul", flat, flat), self.constant(belongs))
        return self.node("Sqrt", squares)

    def one_hot(self, probe: ProbedTensor) -> str:
        """Return one for the unit that an index names, zero for all others."""
        numbers = self.node("Cast", probe.name, to=TensorProto.INT64)
        values = self.constant(np.array([0, 1], dtype=np.float32))
        return self.node("OneHot", numbers, self.numbers([probe.units]), values)

    def quotient(self, probe: ProbedTensor, whole: str) -> str:
        """Return ‖part‖/‖whole‖ over the kept axes, which become one; 0 if both are zero."""
        part = self.single(probe.part)
        if probe.taken:
            part = self.node("Sub", whole, part)
        least = self.constant(np.array(np.finfo(np.float32).tiny, dtype=np.float32))
        above, below = (self.over("ReduceL2", v, probe.kept, 18, keepdims=1) for v in (part, whole))
        return self.node("Div", above, self.node("Max", below, least))

    def turned(self, probe: ProbedTensor, whole: str) -> str:
        """Return 1 − cos of two vectors over the kept axes, which become one.

        It is half the squared distance of their directions, which is accurate for close vectors too. A zero
        vector has the direction zero.
        """
        least = self.constant(np.array(np.finfo(np.float32).tiny, dtype=np.float32))
        directions = []
        for vector in (whole, self.single(probe.part)):
            length = self.over("ReduceL2", vector, probe.kept, 18, keepdims=1)
            directions.append(self.node("Div", vector, self.node("Max", length, least)))
        apart = self.node("Sub", *directions)
        squares = self.over("ReduceSum", self.node("Mul", apart, apart), probe.kept, 13, keepdims=1)
        return self.node("Mul", squares, self.constant(np.array(0.5, dtype=np.float32)))

    def over(self, op: str, value: str, axes: Sequence[int], since: int, **attributes: int) -> str:
        """Return an operator over some axes, which are an operand from opset `since` on."""
        if self.opset < since:
            return self.node(op, value, axes=list(axes), **attributes)
        return self.node(op, value, self.numbers(axes), **attributes)

    def aligned(self, mask: Mask, rank: int) -> str:
        """Return a mask of ones and zeros that broadcasts against a tensor."""
        values = self.single(self.node("Cast", mask.name, to=TensorProto.BOOL))
        if mask.merged:
            values = self.node("Reshape", values, self.numbers([-1]))
        order = sorted(range(len(mask.places)), key=lambda i: mask.places[i])
        if not mask.merged and order != list(range(len(order))):
            values = self.node("Transpose", values, perm=order)
        new = [a for a in range(rank) if a not in mask.places]
        return self.over("Unsqueeze", values, new, 13) if new else values

    def single(self, value: str) -> str:
        return self.node("Cast", value, to=TensorProto.FLOAT)

    def numbers(self, values: Sequence[int]) -> str:
        return self.constant(np.array(list(values), dtype=np.int64))

    def constant(self, values: Array) -> str:
        name = self.fresh()
        self.graph.initializer.append(nh.from_array(values, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = self.fresh()
        self.graph.node.append(oh.make_node(op, inputs, [name], **attributes))
        return name

    def output(self, kind: str, value: str, dtype: int = TensorProto.FLOAT) -> None:
        name = f"{self.prefix}.{kind}"
        self.graph.node.append(oh.make_node("Identity", [value], [name]))
        self.graph.output.append(oh.make_tensor_value_info(name, dtype, None))

    def fresh(self) -> str:
        self.count += 1
        return f"{self.prefix}.{self.count}"
