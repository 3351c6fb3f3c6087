"""Operators that onnxruntime's CPU provider has for float32 only, by its own registry of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import onnx.defs
import onnx_ir as ir

_FLOAT, _DOUBLE = "tensor(float)", "tensor(double)"
_REAL = {_FLOAT, "tensor(float16)", "tensor(bfloat16)"}


class RealPorts(NamedTuple):
    """Operands and results of a node, by number, with whether only real numbers can stand there."""

    inputs: dict[int, bool]
    outputs: dict[int, bool]


def every_port(node: ir.Node) -> RealPorts:
    """Return all of a node's ports, not all of which need be real."""
    return RealPorts(
        dict.fromkeys(range(len(node.inputs)), False), dict.fromkeys(range(len(node.outputs)), False)
    )


class Kernels:
    """The registry, for a model with these operator set versions by domain."""

    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = {_domain(domain): version for domain, version in opsets.items()}

    def float_only(self, node: ir.Node) -> RealPorts:
        """Return the operands and results that must be float32 in a float64 copy.

        The result is empty if float64 runs, or if the operator is unknown. onnxruntime expands an operator
        without a kernel; such an operator is for float32 only if an operator of its expansion is.
        """
        domain = _domain(node.domain)
        version = self._opsets.get(domain, 1)
        schema = _schema(domain, node.op_type, version)
        if schema is None:
            return RealPorts({}, {})
        kernels = _constraints(domain, node.op_type, version)
        if not kernels:
            if not any(any(self.float_only(inner)) for inner in _expansion(domain, node.op_type, version)):
                return RealPorts({}, {})
            kernels = ({formal.typeStr: [_FLOAT] for formal in (*schema.inputs, *schema.outputs)},)
        return RealPorts(
            _narrow(schema.inputs, len(node.inputs), kernels),
            _narrow(schema.outputs, len(node.outputs), kernels),
        )


def _narrow(formals: Any, count: int, kernels: tuple[dict[str, list[str]], ...]) -> dict[int, bool]:
    """Return the ports that may be float32 and not float64, by the operator's schema and its kernels."""
    narrow = {}
    for index in range(count):
        formal = formals[min(index, len(formals) - 1)]
        allowed = set(formal.types)
        listed = [
            constraint.get(formal.typeStr) or constraint.get(formal.name) or () for constraint in kernels
        ]
        if any(listed):
            allowed &= set().union(*listed)
        if _FLOAT in allowed and _DOUBLE not in allowed:
            narrow[index] = allowed <= _REAL
    return narrow


def _expansion(domain: str, name: str, version: int) -> list[ir.Node]:
    """Return the nodes of a function that ONNX defines once for all types; nothing for other operators."""
    if not onnx.defs.has(name, version, domain):
        return []
    body = onnx.defs.get_schema(name, version, domain).function_body
    return list(ir.serde.deserialize_function(body)) if body.node else []


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


@cache
def _registry() -> tuple[dict[tuple[str, str], list[Any]], dict[tuple[str, str], list[Any]]]:
    """Return schemas and kernels by domain and operator; empty if this onnxruntime does not tell them."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    schemas: dict[tuple[str, str], list[Any]] = {}
    kernels: dict[tuple[str, str], list[Any]] = {}
    for schema in getattr(state, "get_all_operator_schema", list)():
        schemas.setdefault((_domain(schema.domain), schema.name), []).append(schema)
    for kernel in getattr(state, "get_all_opkernel_def", list)():
        if kernel.provider == "CPUExecutionProvider":
            kernels.setdefault((_domain(kernel.domain), kernel.op_name), []).append(kernel)
    return schemas, kernels


def _schema(domain: str, name: str, version: int) -> Any:
    known = [schema for schema in _registry()[0].get((domain, name), []) if schema.since_version <= version]
    return max(known, key=lambda schema: int(schema.since_version), default=None)


def _constraints(domain: str, name: str, version: int) -> tuple[dict[str, list[str]], ...]:
    return tuple(
        kernel.type_constraints
        for kernel in _registry()[1].get((domain, name), [])
        if kernel.version_range[0] <= version <= kernel.version_range[1]
    )
