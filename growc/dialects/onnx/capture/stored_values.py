"""Stored tensors: how to tell them from other values, and how to read their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import first_line
from growc.ir.graph import Index


def constant_of(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor behind a value that is an initializer or the output of a Constant node; else None."""
    if value.const_value is not None and (value.is_initializer() or value.producer() is None):
        return value.const_value
    node = value.producer()
    if node is None or op_name(node) != "Constant":
        return None
    return _constant_tensor(node)


def stored_tensor(value: ir.Value) -> ir.TensorProtocol:
    """Return the tensor behind a value that is known to be stored."""
    tensor = constant_of(value)
    assert tensor is not None, value
    return tensor


def shape_of(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """The sizes of a tensor."""
    return tuple(int(d) for d in tensor.shape.numpy())


class OnDemand(ir.LazyTensor):
    """A tensor that is stored elsewhere and read on demand.

    stored: reads it, in its own type, memory-mapped if possible. known: whether it can be read.
    """

    __slots__ = ("known", "stored")

    def __init__(
        self, stored: Callable[[], Array], dtype: ir.DataType, shape: Sequence[int], known: bool = True
    ) -> None:
        super().__init__(lambda: ir.Tensor(self.at(()), dtype=dtype), dtype=dtype, shape=ir.Shape(shape))
        self.stored, self.known = stored, known

    def at(self, index: Index) -> Array:
        """Return its values at a numpy index. Only these are converted."""
        return np.asarray(self.stored()[index]).astype(self.dtype.numpy(), copy=False)


def read_tensor(tensor: ir.TensorProtocol, index: Index = (), *, own: bool = False) -> Array:
    """Return the values of a tensor at a numpy index. Of external data, only used parts are read.

    External data are memory-mapped. own: the caller may write into the array; of external data, this copies
    what is written to. Raises GrowError (G311) if the tensor cannot be read.
    """
    try:
        if isinstance(tensor, ir.ExternalTensor) and tensor.dtype.itemsize >= 1 and tensor.nbytes:
            place, kind = tensor.path, tensor.dtype.numpy()
            mapped = np.memmap(place, kind, "c" if own else "r", tensor.offset or 0, shape_of(tensor))
            return np.asarray(mapped[index])
        if isinstance(tensor, OnDemand):
            values = tensor.at(index)
        else:
            values = np.asarray(np.asarray(tensor.numpy())[index])
        return values.copy() if own else values
    except GrowError:
        raise
    except Exception as error:  # of the file system, numpy and onnx-ir
        where = f" in `{tensor.path}`" if isinstance(tensor, ir.ExternalTensor) else ""
        message = f"the tensor `{tensor.name}`{where} cannot be read: {first_line(error)}"
        raise GrowError(Diagnostic("G311", message)) from error


def is_known(tensor: ir.TensorProtocol) -> bool:
    """Whether a tensor has values."""
    return not isinstance(tensor, OnDemand) or tensor.known


def _constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    for attribute in node.attributes.values():
        if attribute.name == "value":
            return attribute.as_tensor()
        if attribute.name in ("value_int", "value_ints"):
            return ir.tensor(attribute.value, dtype=ir.DataType.INT64)
        if attribute.name in ("value_float", "value_floats"):
            return ir.tensor(attribute.value, dtype=ir.DataType.FLOAT)
    return None
