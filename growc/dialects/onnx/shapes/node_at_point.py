"""One node at one sample point: its results from known operands, or their types by onnx's inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx

from growc.algebra.indexmap import Array
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.dialects.onnx.shapes.simulator import (
    IN_SCHEMAS,
    ContradictionError,
    NodeClass,
    PartialType,
    Simulator,
)
from growc.ir.graph import Node, Value
from growc.ir.traits import SIZES


class NodeAtPoint(NamedTuple):
    """A node at one sample point, with the operands that are known there."""

    node: Node
    alike: NodeClass
    simulator: Simulator
    done: Simulation
    known: list[Array | None]
    point: int

    def values(self) -> list[Array] | None:
        """Return the results if all operands are known (for Shape and Size: the operand's sizes)."""
        node, known = self.node, self.known
        first = node.input(0)
        if node.has(SIZES) and first is not None:
            sizes = self.done.sizes.get(first)
            if sizes is None:
                return None
            dims = [s[self.point] for s in sizes]
            if node.op == "Size":
                return [np.asarray(math.prod(dims))]
            start, end = node.integer("start"), node.integer("end", len(dims))
            return [np.asarray(dims[start:end], dtype=np.int64)]
        absent = [node.input(i) is None for i in range(len(known))]
        if (
            not node.inputs
            or node.captured
            or any(k is None and not a for k, a in zip(known, absent, strict=True))
            or self.too_large()
        ):
            return None
        return self.simulator.evaluate(node, self.alike, known)

    def types(self) -> Sequence[PartialType | None]:
        """Return the types of the results, as far as onnx infers them."""
        node = self.node
        types = tuple(_told(node.input(i), k, self.point, self.done) for i, k in enumerate(self.known))
        if any(t is None and node.input(i) is not None for i, t in enumerate(types)):
            return [None] * len(node.outputs)
        return self.simulator.infer(node, self.alike, types, self.known)

    def too_large(self) -> bool:
        """Whether all results are inferred to have more elements than are followed."""
        if self.done.most == math.inf:
            return False
        try:
            sizes = [None if t is None else t.sizes for t in self.types()]
        except ContradictionError:  # the reference operators may take what inference does not
            return False
        return all(s is not None and math.prod(s) > self.done.most for s in sizes)


def _told(value: Value | None, known: Array | None, point: int, done: Simulation) -> PartialType | None:
    kind = None if value is None else done.types.get(value)
    dims: tuple[int, ...] | None = None
    if known is not None:
        kind, dims = kind or element_of(known), known.shape
    elif value is None or kind is None:
        return None
    elif (sizes := done.sizes.get(value)) is not None:
        dims = tuple(s[point] for s in sizes)
    return PartialType(IN_SCHEMAS.get(kind, kind), dims)


def element_of(array: Array) -> int:
    """Return onnx's number of the element type of an array."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
