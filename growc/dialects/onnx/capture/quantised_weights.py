"""Quantised weights in a file: integers, scales and zero points, as one weight of real numbers.

Needs: a node that turns them into real numbers, with constants as its operands. It is a DequantizeLinear, or
the node that stands for the weight of a fused operator
(growc.dialects.onnx.capture.quantised_decompositions). Gives: `QuantisedWeight`, with the real numbers for
the analysis, and the operands of the result for emission.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.stored_values import shape_of
from growc.plans.plan import WeightPlan
from growc.plans.quantised import Blocks, Quantised, real, requantised

DEQUANTIZE = frozenset(
    {"DequantizeLinear", "com.microsoft::DequantizeLinear", "growc::Shift", "growc::Unpacked"}
)
"""Operators that turn integers into real numbers, in formats that `stored` knows."""
_INTEGERS = frozenset({"INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16", "INT32"})


@dataclass(eq=False)
class QuantisedWeight(Quantised):
    """One quantised weight. `integers`, `scales` and `zeros` are tensors as they stand in the file.

    `twins` are other nodes that compute the same weight from them.
    """

    node: ir.Node
    blocks: Blocks
    shape: tuple[int, ...]
    integers: ir.TensorProtocol
    scales: ir.TensorProtocol | None = None
    zeros: ir.TensorProtocol | None = None
    twins: list[ir.Node] = field(default_factory=list)

    @property
    def dtype(self) -> str:
        """The type of the real numbers."""
        return "float16" if self.scales is not None and self.scales.dtype.name == "FLOAT16" else "float32"

    def read(self) -> Array:
        """The real numbers."""
        return real(self.blocks, self.data(), self.scale(), self.zero()).astype(self.dtype)

    def data(self) -> Array:
        """The integers."""
        return np.asarray(self.integers.numpy())

    def scale(self) -> Array:
        """The scales, one for each block."""
        shape = self.blocks.shape(self.shape)
        return np.ones(shape) if self.scales is None else np.asarray(self.scales.numpy()).reshape(shape)

    def zero(self) -> Array:
        """The zero points, one for each block."""
        shape = self.blocks.shape(self.shape)
        if self.zeros is None:
            return np.zeros(shape, dtype=np.int64)
        return np.asarray(self.zeros.numpy()).astype(np.int64).reshape(shape)

    def attributes(self, plan: WeightPlan) -> dict[str, int]:
        """Return the node's attributes that hold sizes."""
        return {}

    def grown(self, plan: WeightPlan) -> list[ir.TensorProtocol | None]:
        """Return the operands of the result, in the order of the node, computed on demand."""
        scales, zeros = (self.small(tensor, plan) for tensor in (self.scales, self.zeros))
        operands = [
            self.tensor(self.integers, lambda: self.grown_data(plan), plan.after),
            self.tensor(self.scales, lambda: self.grown_blocks(plan)[0], scales),
            self.tensor(self.zeros, lambda: self.grown_blocks(plan)[1], zeros),
        ]
        return operands[:1] + operands[2:] if self.node.op_type == "Shift" else operands

    def nbytes(self, plan: WeightPlan) -> int:
        """The size of the result's tensors in bytes."""
        return sum(int(tensor.nbytes) for tensor in self.grown(plan) if tensor is not None)

    def zeroed(self) -> ir.TensorProtocol | None:
        """Return integers that all stand for zero: their zero points."""
        return self.tensor(self.integers, self.middles, shape_of(self.integers))

    def middles(self) -> Array:
        """The zero point of each element."""
        return np.broadcast_to(self.blocks.spread(self.zero(), self.shape), self.shape)

    def grown_data(self, plan: WeightPlan) -> Array:
        """The integers of the result."""
        return requantised(self.blocks, plan, self.data(), self.scale(), self.zero())

    def grown_blocks(self, plan: WeightPlan) -> tuple[Array, Array]:
        """Scales and zero points of the result."""
        return self.blocks.grown(plan, self.scale(), self.zero())

    def small(self, tensor: ir.TensorProtocol | None, plan: WeightPlan) -> tuple[int, ...]:
        """Return the shape in which the scales or zero points of the result are stored."""
        rank, whole = 0 if tensor is None else len(tensor.shape), self.blocks.shape(plan.after)
        return whole if rank == len(whole) > 1 else tuple(d for d in whole if d > 1) or (1,) * rank

    @staticmethod
    def tensor(
        old: ir.TensorProtocol | None, compute: Callable[[], Array], shape: tuple[int, ...]
    ) -> ir.TensorProtocol | None:
        """Return a tensor of the type of `old`, computed on demand; None if `old` is None."""
        if old is None:
            return None
        dtype = old.dtype

        def made() -> ir.TensorProtocol:
            values = compute()
            if dtype.name in _INTEGERS:
                values = np.clip(values, dtype.min, dtype.max)
            return ir.tensor(values.astype(dtype.numpy()).reshape(shape), dtype=dtype)

        return ir.LazyTensor(made, dtype=dtype, shape=ir.Shape(shape))


class PackedIntegers(QuantisedWeight):
    """A weight whose integers of `bits` bits share bytes, in rows of K elements one after the other."""

    @property
    def bits(self) -> int:
        """The bits of one element."""
        return self.node.attributes.get_int("bits", 4)

    def data(self) -> Array:
        """The integers, unpacked."""
        rows = np.asarray(self.integers.numpy()).reshape(self.shape[0], -1)
        return unpacked(rows, self.bits)[:, : self.shape[1]]

    def zero(self) -> Array:
        """The zero points, unpacked; the middle of the range if none are stored."""
        shape = self.blocks.shape(self.shape)
        if self.zeros is None:
            return np.full(shape, 1 << (self.bits - 1), dtype=np.int64)
        rows = np.asarray(self.zeros.numpy()).reshape(shape[0], -1)
        return unpacked(rows, self.bits)[:, : shape[1]].astype(np.int64)

    def zeroed(self) -> ir.TensorProtocol | None:
        """Return packed zero points, which all stand for zero."""
        shape = shape_of(self.integers)
        width = math.prod(shape) // self.shape[0]
        return self.tensor(self.integers, lambda: packed(self.middles(), self.bits, width), shape)

    def attributes(self, plan: WeightPlan) -> dict[str, int]:
        """Return the sizes of the weight, if the node has them as attributes."""
        named = {"N": plan.after[0], "K": plan.after[1]}
        return {name: size for name, size in named.items() if name in self.node.attributes}

    def grown(self, plan: WeightPlan) -> list[ir.TensorProtocol | None]:
        """Return the packed integers, the scales, and the packed zero points."""
        rows, count = self.blocks.shape(plan.after)
        blob = shape_of(self.integers)[2:]  # the bytes of a block, where each has an axis
        shape = (rows, count, *blob) if blob else (rows, plan.after[1] * self.bits // 8)
        spare = -(-count * self.bits // 8)

        def data() -> Array:
            return packed(self.grown_data(plan), self.bits, math.prod(shape[1:]))

        def zeros() -> Array:
            return packed(self.grown_blocks(plan)[1], self.bits, spare)

        def places(old: ir.TensorProtocol | None, columns: int) -> tuple[int, ...]:
            flat = old is not None and len(old.shape) == 1
            return (rows * columns,) if flat else (rows, columns)

        return [
            self.tensor(self.integers, data, shape),
            self.tensor(self.scales, lambda: self.grown_blocks(plan)[0], places(self.scales, count)),
            self.tensor(self.zeros, zeros, places(self.zeros, spare)),
        ]


def unpacked(rows: Array, bits: int) -> Array:
    """Return the elements of rows of bytes, the lowest bits first."""
    parts = [(rows >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(rows.shape[0], -1)


def packed(values: Array, bits: int, width: int) -> Array:
    """Return rows of `width` bytes that hold the elements, the lowest bits first."""
    each = 8 // bits
    whole = np.zeros((values.shape[0], width * each), dtype=np.uint8)
    whole[:, : values.shape[1]] = np.clip(values, 0, (1 << bits) - 1).astype(np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(np.bitwise_or.reduce(whole.reshape(len(whole), width, each) << shifts, axis=-1))


def stored(op: str, node: ir.Node, operands: list[ir.TensorProtocol | None]) -> QuantisedWeight | None:
    """Return the weight that a node computes from constants; None if its format is not known."""
    integers, others = operands[0], [*operands[1:], None, None]
    assert integers is not None, "what makes a weight of integers reads them first"
    if op == "growc::Unpacked":
        return _packed(node, integers, *others[:2])
    scales, zeros = (None, others[0]) if op == "growc::Shift" else others[:2]
    shape = shape_of(integers)
    if integers.dtype.name not in _INTEGERS or not shape or integers.size < 2:
        return None
    blocks = _blocks(node, shape, zeros if scales is None else scales)
    return None if blocks is None else QuantisedWeight(node, blocks, shape, integers, scales, zeros)


def _blocks(node: ir.Node, shape: tuple[int, ...], scales: ir.TensorProtocol | None) -> Blocks | None:
    rank = len(shape)
    scaled = node.op_type != "Shift"
    if scales is None or scales.size == 1:
        return Blocks((0,) * rank, scaled)
    axis = node.attributes.get_int("axis", 1) % rank
    block = node.attributes.get_int("block_size", 0)
    if len(scales.shape) == 1:
        return Blocks(tuple(1 if a == axis else 0 for a in range(rank)), scaled)
    if block and len(scales.shape) == rank:
        return Blocks(tuple(block if a == axis else 1 for a in range(rank)))
    return None


def _packed(
    node: ir.Node,
    integers: ir.TensorProtocol,
    scales: ir.TensorProtocol | None,
    zeros: ir.TensorProtocol | None,
) -> PackedIntegers | None:
    bits, block = node.attributes.get_int("bits", 4), node.attributes.get_int("block_size", 128)
    if 8 % bits or integers.dtype.name != "UINT8" or (zeros is not None and zeros.dtype.name != "UINT8"):
        return None
    rows, width = shape_of(integers)[0], shape_of(integers)[-1] * 8 // bits
    shape = node.attributes.get_int("N", rows), node.attributes.get_int("K", width)
    return PackedIntegers(node, Blocks((1, block)), shape, integers, scales, zeros)
