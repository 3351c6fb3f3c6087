"""Quantised weights in a file: the operands of a DequantizeLinear, as one weight of real numbers.

Needs: a step whose operands are all constants. Gives: `Stored`, with the real numbers for the analysis, and
the tensors of the result for emission.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from growc.graph import Array
from growc.plans import WeightPlan
from growc.quantised import Blocks, real, requantised

DEQUANTIZE = frozenset({"DequantizeLinear", "com.microsoft::DequantizeLinear"})
_INTEGERS = frozenset({"INT4", "UINT4", "INT8", "UINT8", "INT16", "UINT16", "INT32"})


@dataclass(eq=False)
class Stored:
    """One quantised weight: what a DequantizeLinear reads."""

    node: ir.Node
    tensors: tuple[Any, ...]
    """Integers, scales, and zero points where there are any."""
    axis: int | None
    blocks: Blocks

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight."""
        return tuple(int(d) for d in self.tensors[0].shape)

    def read(self) -> Array:
        """The real numbers."""
        numbers = real(self.blocks, self.data, self.scale, self.zero)
        return numbers.astype(self.tensors[1].dtype.numpy(), copy=False)

    @property
    def data(self) -> Array:
        """The integers."""
        return np.asarray(self.tensors[0].numpy())

    @property
    def scale(self) -> Array:
        """The scales, one for each block."""
        return np.asarray(self.tensors[1].numpy()).reshape(self.blocks.shape(self.shape))

    @property
    def zero(self) -> Array:
        """The zero points, one for each block."""
        if len(self.tensors) < 3:
            return np.zeros(self.blocks.shape(self.shape), dtype=np.int64)
        return np.asarray(self.tensors[2].numpy()).astype(np.int64).reshape(self.blocks.shape(self.shape))

    def grown(self, plan: WeightPlan) -> list[ir.LazyTensor]:
        """The tensors of the result, computed when they are asked for."""

        def integers() -> Array:
            return requantised(self.blocks, plan, self.data, self.scale, self.zero)

        def scales() -> Array:
            return self.blocks.grown(plan, self.scale, self.zero)[0]

        def zeros() -> Array:
            return self.blocks.grown(plan, self.scale, self.zero)[1]

        small = self._scale_shape(plan.after)
        made = zip(self.tensors, (integers, scales, zeros), (plan.after, small, small), strict=False)
        return [_lazy(tensor, compute, shape) for tensor, compute, shape in made]

    def _scale_shape(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        whole = self.blocks.shape(sizes)
        stored = len(self.tensors[1].shape)
        return (
            whole
            if stored == len(whole) and stored > 1
            else tuple(d for d in whole if d > 1) or (1,) * stored
        )


def _lazy(tensor: Any, compute: Callable[[], Array], shape: tuple[int, ...]) -> ir.LazyTensor:
    dtype = tensor.dtype

    def made() -> Any:
        values = compute()
        if dtype.name in _INTEGERS:
            values = np.clip(values, dtype.min, dtype.max)
        return ir.tensor(values.astype(dtype.numpy()).reshape(shape), dtype=dtype)

    return ir.LazyTensor(made, dtype=dtype, shape=ir.Shape(shape))


def stored(node: ir.Node, tensors: list[Any]) -> Stored | None:
    """The weight that a DequantizeLinear on constants gives; None where its form is not known."""
    data, scale = tensors[0], tensors[1]
    rank = len(data.shape)
    if data.dtype.name not in _INTEGERS or rank == 0 or data.size < 2:
        return None
    if scale.size == 1:
        return Stored(node, tuple(tensors), None, Blocks((0,) * rank))
    axis = node.attributes.get_int("axis", 1) % rank
    block = node.attributes.get_int("block_size", 0)
    if len(scale.shape) == 1:
        along = tuple(1 if a == axis else 0 for a in range(rank))
    elif block and len(scale.shape) == rank:
        along = tuple(block if a == axis else 1 for a in range(rank))
    else:
        return None
    return Stored(node, tuple(tensors), axis, Blocks(along))
