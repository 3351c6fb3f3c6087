"""ONNX: files, the operator table, simulation, emission."""

from growc.system.delayed_imports import postponed

# onnx-ir computes by sympy with sizes that are expressions. It takes a third of growc's start.
with postponed("sympy", "onnx_ir._symbolic_shapes"):
    import onnx_ir  # noqa: F401
