"""The names of onnx's element types in the neutral graph: as numpy spells them."""

from __future__ import annotations

import onnx_ir as ir

_OWN = {"FLOAT": "float32", "DOUBLE": "float64"}
_ONNX = {name: ir.DataType[own] for own, name in _OWN.items()}


def dtype_name(dtype: ir.DataType) -> str:
    """Return the name of an element type."""
    return _OWN.get(dtype.name, dtype.name.lower())


def dtype_named(name: str) -> ir.DataType:
    """Return the element type of a name."""
    return _ONNX.get(name) or ir.DataType[name.upper()]
