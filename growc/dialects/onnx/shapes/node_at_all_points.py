"""One node at all sample points: its results, and all that they follow from.

Needs: the sizes, types and values of its operands. Gives: `NodeResults`. Nodes of one kind with equal
operands have equal results, unless a result has sizes that only the file declares, or a length of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.dialects.onnx.origins import value_of
from growc.dialects.onnx.shapes.node_at_point import NodeAtPoint, element_of
from growc.dialects.onnx.shapes.simulation import Simulation
from growc.dialects.onnx.shapes.simulator import (
    IN_SCHEMAS,
    ContradictionError,
    NodeClass,
    NodeResults,
    Simulator,
)
from growc.ir.graph import Node, Value
from growc.ir.traits import VIEW

MAX_BYTES = 1 << 14
"""The most bytes of a value by which nodes are compared."""
NUMBERS = "fiubcV"
"""The kinds of arrays whose bytes are their values; V: numbers that numpy lacks, such as bfloat16."""


def operands_at_all_points(
    node: Node, done: Simulation, operands: Mapping[int, tuple[Array, ...]], count: int
) -> object:
    """Return the types, sizes and values of a node's operands at all points: its results follow from them.

    None if a value is long, or if a result has a length of its own.
    """
    if node.outputs[0] in done.counts:
        return None
    key: list[object] = [done.points, done.most]
    for i in range(count):
        value = node.input(i)
        told = None if value is None else (done.types.get(value), done.sizes.get(value))
        known = _known(node, i, done, operands)
        if known is None:
            key.append(told)
        elif all(k.nbytes <= MAX_BYTES and k.dtype.kind in NUMBERS for k in known):
            key.append((told, *((k.dtype, k.shape, k.tobytes()) for k in known)))
        else:
            return None
    return tuple(key)


def run_by_itself(
    node: Node,
    alike: NodeClass,
    simulator: Simulator,
    done: Simulation,
    operands: Mapping[int, tuple[Array, ...]],
    count: int,
) -> tuple[NodeResults, bool]:
    """Run a node with `count` operands. Returns whether its results follow from these, too."""
    told = True
    types: list[int | None] = [None] * len(node.outputs)
    inferred: list[list[tuple[int, ...] | None]] = []
    values: list[list[Array] | None] = []
    known_at_points = [_known(node, i, done, operands) for i in range(count)]
    for point in range(done.points):
        known = [None if arrays is None else arrays[point] for arrays in known_at_points]
        here = NodeAtPoint(node, alike, simulator, done, known, point)
        result = here.values()
        values.append(result)
        if result is not None:
            inferred.append([r.shape for r in result])
            types[: len(result)] = map(element_of, result)
            continue
        told_types = here.types()
        # where a type is not told, what the file declares for this very result comes in
        told &= all(kind is not None and kind.element > 0 and kind.sizes is not None for kind in told_types)
        for k, inferred_type in enumerate(told_types):
            if inferred_type is not None and inferred_type.element:
                types[k] = _element_of(node, k, inferred_type.element, simulator, done)
        length = done.counts.get(node.outputs[0])
        at = None if length is None else length[point]
        inferred.append(
            [None if inferred_type is None else inferred_type.at(at) for inferred_type in told_types]
        )
        if node.has(VIEW):
            _check_reshape(node, point, done, inferred[-1][0])
    return _over_points(node, done, types, inferred, values), told


def _over_points(
    node: Node,
    done: Simulation,
    types: Sequence[int | None],
    inferred: Sequence[Sequence[tuple[int, ...] | None]],
    values: Sequence[Sequence[Array] | None],
) -> NodeResults:
    """Return the results of a node from their sizes and values at each point."""
    sizes: list[tuple[Size, ...] | None] = []
    for i, out in enumerate(node.outputs):
        dims = [s[i] for s in inferred]
        if any(d is None for d in dims):
            sizes.append(_declared(out, done))
        else:
            sizes.append(tuple(zip(*dims, strict=True)) if dims[0] else ())
    known = [v for v in values if v is not None]
    if len(known) < done.points:
        return NodeResults(types, sizes, [None] * len(node.outputs))
    return NodeResults(types, sizes, [tuple(v[i] for v in known) for i in range(len(node.outputs))])


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
    node: Node, i: int, done: Simulation, operands: Mapping[int, tuple[Array, ...]]
) -> tuple[Array, ...] | None:
    """Return the value of an operand at all points, if it is known."""
    if i in operands:
        return operands[i]
    value = node.input(i)
    return None if value is None else done.known.get(value)


def _declared(value: Value, done: Simulation) -> tuple[Size, ...] | None:
    """Return the sizes that the file declares for a value, from numbers and from symbols of inputs."""
    declared = value_of(value).shape
    if declared is None:
        return None
    sizes = [(d,) * done.points if isinstance(d, int) else done.symbols.get(d.value or "") for d in declared]
    return None if any(s is None for s in sizes) else tuple(s for s in sizes if s is not None)
