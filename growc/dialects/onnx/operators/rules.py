"""Rows whose line depends on values or attributes: functions from a site to a line, by name.

They see sizes and small known integers only. An axis about which they cannot tell is opaque (`_`).
"""

from __future__ import annotations

from types import ModuleType

from growc.dialects.onnx.operators import attention, contract, layout, pointwise
from growc.dialects.onnx.operators import axiswise as along
from growc.dialects.onnx.operators import indexing as lookup
from growc.ir.rows import Rule


def _rules(module: ModuleType) -> dict[str, Rule]:
    """The public functions of a module, without the underscore that keeps a name apart from Python's own."""
    own = {
        n: f
        for n, f in vars(module).items()
        if getattr(f, "__module__", "") == module.__name__ and n[0] != "_"
    }
    return {name.rstrip("_"): function for name, function in own.items()}


RULES: dict[str, Rule] = {}
for _module in (along, attention, contract, layout, lookup, pointwise):
    RULES |= _rules(_module)
