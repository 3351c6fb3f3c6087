"""Tensors that a plan computes from stored ones, on demand: as a whole, or block by block.

Needs: a plan, its source, the other tensors that it reads. Gives: a tensor of onnx-ir, which caches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.stored_values import read_tensor
from growc.plans.execute import execute, planned
from growc.plans.lazy_rows import Rows, content, stored
from growc.plans.memory_bound import working_bytes
from growc.plans.plan import WeightPlan


class PlannedTensor(ir.LazyTensor):
    """A tensor computed by a plan. `beside`: the other tensors, by name, that the plan reads."""

    __slots__ = ("beside", "plan", "source")

    def __init__(
        self, plan: WeightPlan, source: ir.TensorProtocol, beside: Mapping[str, ir.TensorProtocol]
    ) -> None:
        super().__init__(self.made, dtype=source.dtype, shape=ir.Shape(plan.after), name=plan.name)
        self.plan, self.source, self.beside = plan, source, beside

    def __repr__(self) -> str:
        return f"PlannedTensor(name={self.name!r})"  # that of onnx-ir shows `made`, and so itself

    def made(self) -> ir.TensorProtocol:
        """Return the tensor, computed as a whole."""
        return ir.tensor(execute(self.plan, read_tensor(self.source), self.read), dtype=self.dtype)

    def read(self, name: str) -> Array:
        """Return one of the tensors read in addition to the source."""
        return read_tensor(self.beside[name])

    def tofile(self, file: IO[bytes]) -> None:
        """Write its bytes to an object with a `write` method, block by block."""
        for block in rows_of(self).blocks():
            file.write(content(block))


def rows_of(tensor: ir.TensorProtocol) -> Rows:
    """Return a tensor's rows as a file stores them. Elements smaller than a byte are packed all at once."""
    if tensor.dtype.bitwidth < 8:
        return stored(np.frombuffer(tensor.tobytes(), np.uint8))
    if isinstance(tensor, PlannedTensor):
        return planned(tensor.plan, read_tensor(tensor.source), tensor.read)
    return stored(read_tensor(tensor))


def beside_blocks(tensor: ir.TensorProtocol) -> int:
    """Return how many bytes of memory a tensor's computation takes in addition to its blocks of rows."""
    return working_bytes(tensor.plan) if isinstance(tensor, PlannedTensor) else 0
