"""Checks of stored tensors: each is as large as it claims, and has a unique name.

Libraries map the bytes that a file names, whatever stands there, so no reader of an unchecked file is safe.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path

import onnx
import onnx_ir as ir

from growc.dialects.onnx.files.references import file_size, reference
from growc.errors.diagnostic import Diagnostic, GrowError

LARGEST = 1 << 60
"""The most elements that a tensor may have."""


def check_tensors(proto: onnx.ModelProto, owner: Path) -> None:
    """Raise GrowError (G311) for an initializer that is not valid. Its references are settled.

    An attribute of a function outside of any function raises the same.
    """
    for node in proto.graph.node:
        if any(attribute.ref_attr_name for attribute in node.attribute):
            message = (
                f"`{node.name or node.op_type}` in `{owner}` has an attribute of a function, and is in none"
            )
            raise GrowError(Diagnostic("G311", message))
    seen: set[str] = set()
    size_of = cache(file_size)
    for tensor in proto.graph.initializer:
        if reason := "it is there twice" if tensor.name in seen else _fault(tensor, size_of):
            message = f"the initializer `{tensor.name}` of `{owner}` is not valid: {reason}"
            raise GrowError(Diagnostic("G311", message))
        seen.add(tensor.name)


def _fault(tensor: onnx.TensorProto, size_of: Callable[[str], int | None]) -> str:
    try:
        kind = ir.DataType(tensor.data_type)
    except ValueError:
        return f"it has elements of type {tensor.data_type}, which onnx does not know"
    if kind == ir.DataType.UNDEFINED:
        return "it has elements of no type"
    size = prod(tensor.dims)
    if any(d < 0 for d in tensor.dims) or size > LARGEST:
        return f"its shape is {list(tensor.dims)}"
    if kind == ir.DataType.STRING:
        return (
            "" if len(tensor.string_data) == size else f"it has {len(tensor.string_data)} texts, not {size}"
        )
    nbytes = (size * kind.bitwidth + 7) // 8
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _misplaced(reference(tensor), nbytes, size_of)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != nbytes:
        return f"it has {len(tensor.raw_data)} bytes, and its shape {list(tensor.dims)} takes {nbytes}"
    return ""


def _misplaced(entries: dict[str, str], nbytes: int, size_of: Callable[[str], int | None]) -> str:
    """Return the fault of a reference. The file need not exist until a weight is read."""
    if "location" not in entries:
        return "it lies in a file without a name"
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", 0))
    except ValueError:
        return "its place in a file is no number"
    if offset < 0 or length not in (0, nbytes):
        return f"it has {length} bytes at {offset}, and its shape takes {nbytes}"
    size = size_of(entries["location"])
    if size is not None and offset + nbytes > size:
        name = Path(entries["location"]).name
        return f"its data end at byte {offset + nbytes} of `{name}`, which is shorter"
    return ""
