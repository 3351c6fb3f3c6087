"""Sizes by sampling: every dimension and every small integer value, at a few points of the symbolic inputs.

Needs: a graph from `capture`. Gives: `Simulation`, the sizes and known values of every `Value`.

Each symbol of the inputs takes small primes; sizes are equal if they are equal at all points. Shapes come
from onnx's own inference, values from onnx's reference operators: there is no symbolic algebra and no
matching of numbers. The same code runs on the source and, with changed weights and operands, on the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.dialects.onnx.dtype_names import dtype_named
from growc.dialects.onnx.origins import value_of
from growc.dialects.onnx.shapes.body_lines import FOLLOW
from growc.dialects.onnx.shapes.node_at_all_points import operands_at_all_points, run_by_itself
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.dialects.onnx.shapes.simulator import (
    ContradictionError,
    NodeResults,
    Simulator,
)
from growc.ir.graph import Graph, Node, Value
from growc.ir.traits import JOIN, SAME, TAKE

MAX_INTEGERS, MAX_FLOATS = 512, 8
"""The most elements of integer and of float values that are followed."""


_QUANTISED = frozenset({"int4", "uint4", "int8", "uint8", "int16", "uint16"})
"""Integer types that stand for real numbers rather than for sizes."""


def simulate(
    graph: Graph,
    simulator: Simulator,
    inputs: Mapping[Value, tuple[Size, ...] | None],
    counts: Mapping[Value, Size],
    *,
    weight_shape: Callable[[Value], tuple[int, ...]] | None = None,
    visit: Callable[[Node, Simulation, Callable[..., Any]], None] | None = None,
    patient: bool = False,
    only: Container[Node] | None = None,
    most: float = math.inf,
) -> Simulation:
    """Run the graph, or some nodes of it, at all sample points. `counts`: the lengths that depend on data.

    A contradiction in a branch that some point does not take leaves sizes unknown (`patient`: in any branch).
    Any other raises ContradictionError. `weight_shape` returns changed shapes of weight uses. `visit(node,
    simulation, run)` replaces the plain evaluation of a node: `run(operands=…, attributes=…)` evaluates it,
    with changed operands or attributes. `most`: the most elements of values that are followed since they are
    known at the sample points; at other sizes they may have more.
    """
    points = next((len(s) for sizes in inputs.values() for s in sizes or ()), 2)
    done = Simulation(points, counts=counts, most=most)
    done.sizes.update(inputs)
    done.types.update((v, int(kind)) for v in inputs if (kind := value_of(v).dtype) is not None)
    for value, sizes in inputs.items():
        for dim, size in zip(value_of(value).shape or (), sizes or (), strict=False):
            if not isinstance(dim, int) and dim.value:
                done.symbols[dim.value] = size
    for node in graph.nodes if only is None else (node for node in graph.nodes if node in only):
        for value in node.operands:
            if value.weight is not None:
                _place_weight(value, done, weight_shape)

        def run(
            operands: Mapping[int, tuple[Array, ...]] | None = None,
            attributes: Mapping[str, Any] | None = None,
            op: str = "",
            node: Node = node,
        ) -> None:
            _run(node, simulator, done, operands or {}, attributes or {}, op)

        if visit is None:
            try:
                run()
            except ContradictionError as contradiction:
                if node.guards and (patient or not_taken(node, done)):
                    done.sizes.update(dict.fromkeys(node.outputs))
                    continue
                _describe(contradiction, done)
                raise
        else:
            visit(node, done, run)
    for value in graph.outputs:
        if value.weight is not None:
            _place_weight(value, done, weight_shape)
    return done


def not_taken(node: Node, done: Simulation) -> bool:
    """Whether a node is in a branch that some sample point does not take."""
    return any(
        condition in done.known and any(bool(c.all()) is not taken for c in done.known[condition])
        for condition, taken in node.guards
    )


def _describe(error: ContradictionError, done: Simulation) -> None:
    """Add to the error the sizes and known integers at the node, including sizes that it reads as numbers."""
    error.sizes = [s for v in error.node.operands for s in done.sizes.get(v) or ()]
    for known in (done.known[v] for v in error.node.operands if v in done.known):
        if known[0].dtype.kind == "i":
            rows = [tuple(map(int, k.reshape(-1)[:8])) for k in known]
            error.operands.append(rows[0])
            error.sizes += zip(*rows, strict=False)


def _is_scale(value: Value) -> bool:
    """Whether real numbers are only used as factors by which axes grow."""

    def leads_there(node: Node, operand: int) -> bool:
        if node.laws.scales is not None:
            return operand > 0
        return node.has(JOIN, SAME, TAKE) and all(map(_is_scale, node.outputs))

    return bool(value.users) and all(leads_there(n, i) for n, i in value.users)


def _place_weight(value: Value, done: Simulation, shape: Callable[[Value], tuple[int, ...]] | None) -> None:
    weight = value.weight
    assert weight is not None
    dims = weight.shape if shape is None else shape(value)
    done.sizes[value] = tuple((d,) * done.points for d in dims)
    done.types[value] = int(dtype_named(weight.dtype))
    whole = not weight.floating and weight.dtype not in _QUANTISED
    few = weight.elements <= MAX_INTEGERS and dims == weight.shape and weight.dtype != "string"
    real = weight.elements == 1 or (weight.elements > 1 and few and _is_scale(value))  # no element, no value
    if weight.known and few and (whole or real):
        done.known[value] = (np.asarray(weight.read()),) * done.points


def _run(
    node: Node,
    simulator: Simulator,
    done: Simulation,
    operands: Mapping[int, tuple[Array, ...]],
    attributes: Mapping[str, Any],
    op: str,
) -> None:
    count = max([len(node.inputs), *(i + 1 for i in operands)])
    if node.op in FOLLOW:
        known_operands = {
            i: done.known[v] for i, v in enumerate(node.inputs) if v is not None and v in done.known
        }
        FOLLOW[node.op](node, done, {**known_operands, **operands})
        return
    alike = simulator.alike(node, attributes, count, op)
    key = operands_at_all_points(node, done, operands, count)
    results = None if key is None else alike.results.get(key)
    if results is None:
        results, inferred = run_by_itself(node, alike, simulator, done, operands, count)
        if key is not None and inferred:
            alike.results[key] = results
    _place_results(node, results, done)


def _place_results(node: Node, results: NodeResults, done: Simulation) -> None:
    """Enter the results of a node."""
    for out, element, sizes, values in zip(node.outputs, *results, strict=True):
        if element is not None:
            done.types[out] = element
        elif out not in done.types and isinstance(kind := value_of(out).type, ir.TensorType):
            done.types[out] = int(kind.dtype)
        done.sizes[out] = sizes
        done.known.pop(out, None)  # left by a run with other operands
        if values is not None:
            limit = MAX_FLOATS if values[0].dtype.kind == "f" else MAX_INTEGERS
            if all(k.size <= (limit if out.known is None else done.most) for k in values):
                done.known[out] = values
