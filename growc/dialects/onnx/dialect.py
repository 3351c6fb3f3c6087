"""The ONNX dialect: what the analysis asks of it, in one place."""

from __future__ import annotations

from growc.dialects.onnx.table import OPERATORS
from growc.graph import Graph


class OnnxDialect:
    """Operator table and opset of ONNX graphs."""

    name = "onnx"
    operators = OPERATORS

    @staticmethod
    def opset(graph: Graph) -> int:
        """The version of the default operator set that the model declares."""
        imports = graph.source.opset_imports
        return int(imports.get("", imports.get("ai.onnx", 1)))
