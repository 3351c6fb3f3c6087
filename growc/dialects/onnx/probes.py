"""A model that gives out sums over its own activations, and nothing else.

Needs: an ONNX file, and `Probe`s: which tensors, which of their axes are kept, which masks weigh the others.
Gives: the bytes of a model with two outputs for each probe: the sum of |value| over all other axes, weighed
by the masks, and how many numbers each of these sums adds up. Sums are taken inside the graph, so that no
activation ever leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
from numpy.typing import NDArray
from onnx import TensorProto


@dataclass(frozen=True)
class Mask:
    """An input of ones and zeros: the places of its axes among those of a tensor, or one place for all."""

    name: str
    places: tuple[int, ...]
    merged: bool = False


@dataclass(frozen=True)
class Probe:
    """One tensor by its name in the file, its rank, the axes kept, and the masks that weigh the others."""

    name: str
    rank: int
    kept: tuple[int, ...]
    masks: tuple[Mask, ...] = ()


def probed(model: Path, probes: Sequence[Probe]) -> bytes:
    """The model with the probes as its only outputs. Weights in external files stay there."""
    proto = onnx.load(model, load_external_data=False)
    del proto.graph.output[:]
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    for k, probe in enumerate(probes):
        _Writer(proto.graph, f"growc.probe.{k}", opset).add(probe)
    return bytes(proto.SerializeToString())


class _Writer:
    """Nodes behind one tensor; `prefix` is what no name in the file begins with."""

    def __init__(self, graph: onnx.GraphProto, prefix: str, opset: int) -> None:
        self.graph, self.prefix, self.opset, self.count = graph, prefix, opset, 0

    def add(self, probe: Probe) -> None:
        gone = [a for a in range(probe.rank) if a not in probe.kept]
        size = self.node("Abs", self.single(probe.name))
        weight = self.node("Add", self.node("Mul", size, self.number(0.0)), self.number(1.0))
        for mask in probe.masks:
            weight = self.node("Mul", weight, self.aligned(mask, probe.rank))
        self.output("sum", self.reduced(self.node("Mul", size, weight), gone))
        self.output("count", self.reduced(weight, gone))

    def aligned(self, mask: Mask, rank: int) -> str:
        """A mask of ones and zeros that broadcasts against a tensor."""
        values = self.single(self.node("Cast", mask.name, to=TensorProto.BOOL))
        if mask.merged:
            values = self.node("Reshape", values, self.numbers([-1]))
        order = sorted(range(len(mask.places)), key=lambda i: mask.places[i])
        if not mask.merged and order != list(range(len(order))):
            values = self.node("Transpose", values, perm=order)
        new = [a for a in range(rank) if a not in mask.places]
        if not new:
            return values
        if self.opset < 13:
            return self.node("Unsqueeze", values, axes=new)
        return self.node("Unsqueeze", values, self.numbers(new))

    def reduced(self, value: str, gone: Sequence[int]) -> str:
        if not gone:
            return value
        if self.opset < 13:
            return self.node("ReduceSum", value, axes=list(gone), keepdims=0)
        return self.node("ReduceSum", value, self.numbers(list(gone)), keepdims=0)

    def single(self, value: str) -> str:
        return self.node("Cast", value, to=TensorProto.FLOAT)

    def number(self, value: float) -> str:
        return self.constant(np.array(value, dtype=np.float32))

    def numbers(self, values: Sequence[int]) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def constant(self, values: NDArray[Any]) -> str:
        name = self.fresh()
        self.graph.initializer.append(nh.from_array(values, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = self.fresh()
        self.graph.node.append(oh.make_node(op, inputs, [name], **attributes))
        return name

    def output(self, kind: str, value: str) -> None:
        name = f"{self.prefix}.{kind}"
        self.graph.node.append(oh.make_node("Identity", [value], [name]))
        self.graph.output.append(oh.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def fresh(self) -> str:
        self.count += 1
        return f"{self.prefix}.{self.count}"
