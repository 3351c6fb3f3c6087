"""A tensor that a plan makes of stored ones, computed when it is asked for: as a whole, or block by block.

Needs: a plan, its source, the other tensors that it reads. Gives: a tensor of onnx-ir, which keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.stored_tensors import read_tensor
from growc.plans.execute import execute, planned
from growc.plans.memory_bound import working_bytes
from growc.plans.plan import WeightPlan
from growc.plans.rows import Rows, content, stored


class PlannedTensor(ir.LazyTensor):
    """`beside`: the tensors, by name, that the plan reads beside its source."""

    __slots__ = ("beside", "plan", "source")

    def __init__(
        self, plan: WeightPlan, source: ir.TensorProtocol, beside: Mapping[str, ir.TensorProtocol]
    ) -> None:
        super().__init__(self.made, dtype=source.dtype, shape=ir.Shape(plan.after), name=plan.name)
        self.plan, self.source, self.beside = plan, source, beside

    def made(self) -> ir.TensorProtocol:
        """The tensor, with all its numbers."""
        return ir.tensor(execute(self.plan, read_tensor(self.source), self.read), dtype=self.dtype)

    def read(self, name: str) -> Array:
        """One of the tensors beside the source."""
        return read_tensor(self.beside[name])

    def tofile(self, file: IO[bytes]) -> None:
        """Write its bytes to what has a `write`, some at a time."""
        for block in rows_of(self).blocks():
            file.write(content(block))


def rows_of(tensor: ir.TensorProtocol) -> Rows:
    """A tensor by its rows, as they stand in a file. Numbers that share bytes are packed at once."""
    if tensor.dtype.bitwidth < 8:
        return stored(np.frombuffer(tensor.tobytes(), np.uint8))
    if isinstance(tensor, PlannedTensor):
        return planned(tensor.plan, read_tensor(tensor.source), tensor.read)
    return stored(read_tensor(tensor))


def beside_blocks(tensor: ir.TensorProtocol) -> int:
    """How many bytes making a tensor takes beside blocks of its rows."""
    return working_bytes(tensor.plan) if isinstance(tensor, PlannedTensor) else 0
