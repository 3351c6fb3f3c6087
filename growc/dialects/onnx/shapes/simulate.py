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
from growc.dialects.onnx.origins import value_of
from growc.dialects.onnx.shapes.body_lines import FOLLOW
from growc.dialects.onnx.shapes.node_at_point import NodeAtPoint, element_of
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.dialects.onnx.shapes.simulator import (
    IN_SCHEMAS,
    ContradictionError,
    NodeClass,
    Simulator,
)
from growc.ir.graph import Graph, Node, Value
from growc.ir.traits import JOIN, SAME, TAKE, VIEW

MAX_INTEGERS, MAX_FLOATS = 512, 8
"""The most elements of integer and of float values that are followed."""


_DTYPES = {"float32": int(ir.DataType.FLOAT), "float64": int(ir.DataType.DOUBLE)}

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
    done.types[value] = _DTYPES.get(weight.dtype) or int(ir.DataType[weight.dtype.upper()])
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
    key = None if operands else _operands_without_values(node, done)
    shared = None if key is None else alike.results.get(key)
    if shared is None:
        inferred = _run_by_itself(node, alike, simulator, done, operands, count)
        if key is not None and inferred:
            alike.results[key] = [(done.types[out], done.sizes[out]) for out in node.outputs]
        return
    for out, (kind, sizes) in zip(node.outputs, shared, strict=True):
        done.types[out], done.sizes[out] = kind, sizes
        done.known.pop(out, None)


def _operands_without_values(node: Node, done: Simulation) -> object:
    """Return the types and sizes of a node's operands at all points, from which its results follow.

    None if some have values, or if a result has a length of its own.
    """
    if node.outputs[0] in done.counts or any(value in done.known for value in node.inputs):
        return None
    types, sizes = done.types, done.sizes
    return done.points, *(None if v is None else (types.get(v), sizes.get(v)) for v in node.inputs)


def _run_by_itself(
    node: Node,
    alike: NodeClass,
    simulator: Simulator,
    done: Simulation,
    operands: Mapping[int, tuple[Array, ...]],
    count: int,
) -> bool:
    """Run a node with `count` operands. Returns whether all results are inferred, from types and sizes."""
    told = True
    inferred: list[list[tuple[int, ...] | None]] = []
    values: list[list[Array] | None] = []
    for point in range(done.points):
        known = [_known(node, i, point, done, operands) for i in range(count)]
        here = NodeAtPoint(node, alike, simulator, done, known, point)
        result = here.values()
        values.append(result)
        if result is not None:
            told = False
            inferred.append([r.shape for r in result])
            done.types.update((o, element_of(r)) for o, r in zip(node.outputs, result, strict=False))
            continue
        told_types = here.types()
        # where a type is not told, what the file declares for this very result comes in
        told &= all(kind is not None and kind.element > 0 and kind.sizes is not None for kind in told_types)
        for k, (out, inferred_type) in enumerate(zip(node.outputs, told_types, strict=True)):
            if inferred_type is not None and inferred_type.element:
                done.types[out] = _element_of(node, k, inferred_type.element, simulator, done)
        length = done.counts.get(node.outputs[0])
        at = None if length is None else length[point]
        inferred.append(
            [None if inferred_type is None else inferred_type.at(at) for inferred_type in told_types]
        )
        if node.has(VIEW):
            _check_reshape(node, point, done, inferred[-1][0])
    for i, out in enumerate(node.outputs):
        dims = [s[i] for s in inferred]
        if any(d is None for d in dims):
            done.sizes[out] = _declared(out, done)
        else:
            done.sizes[out] = tuple(zip(*dims, strict=True)) if dims[0] else ()
        kind = value_of(out).type
        if out not in done.types and isinstance(kind, ir.TensorType):
            done.types[out] = int(kind.dtype)
        done.known.pop(out, None)  # left by a run with other operands
        if all(v is not None for v in values):
            point_values = tuple(v[i] for v in values if v is not None)
            limit = MAX_FLOATS if point_values[0].dtype.kind == "f" else MAX_INTEGERS
            if all(k.size <= (limit if out.known is None else done.most) for k in point_values):
                done.known[out] = point_values
    return told


def _check_reshape(node: Node, point: int, done: Simulation, result: tuple[int, ...] | None) -> None:
    """Raise ContradictionError if a reshape changes the number of elements; onnx trusts a literal shape."""
    source = node.inputs[0]
    sizes = None if source is None else done.sizes.get(source)
    if sizes is not None and result is not None:
        before, after = math.prod(s[point] for s in sizes), math.prod(result)
        if before != after:
            raise ContradictionError(node, f"{before} elements are reshaped to {after}")


def _element_of(node: Node, result: int, element: int, simulator: Simulator, done: Simulation) -> int:
    """Return the element type of a result.

    It is bfloat16 if inference saw its substitute in an operand that shares its type with the result.
    """
    half = int(ir.DataType.BFLOAT16)
    if element != IN_SCHEMAS[half]:
        return element
    halves = [i for i, v in enumerate(node.inputs) if v is not None and done.types.get(v) == half]
    if not halves:
        return element
    schema = simulator.schema(node.op)
    return half if schema is None or any(_of_one_type(schema, i, result) for i in halves) else element


def _of_one_type(schema: Any, operand: int, result: int) -> bool:
    operands, results = schema.inputs, schema.outputs
    return bool(
        operands[min(operand, len(operands) - 1)].type_str == results[min(result, len(results) - 1)].type_str
    )


def _known(
    node: Node, i: int, point: int, done: Simulation, operands: Mapping[int, tuple[Array, ...]]
) -> Array | None:
    if i in operands:
        return operands[i][point]
    value = node.input(i)
    return done.known[value][point] if value is not None and value in done.known else None


def _declared(value: Value, done: Simulation) -> tuple[Size, ...] | None:
    """Return the sizes that the file declares for a value, from numbers and from symbols of inputs."""
    declared = value_of(value).shape
    if declared is None:
        return None
    sizes = [(d,) * done.points if isinstance(d, int) else done.symbols.get(d.value or "") for d in declared]
    return None if any(s is None for s in sizes) else tuple(s for s in sizes if s is not None)
