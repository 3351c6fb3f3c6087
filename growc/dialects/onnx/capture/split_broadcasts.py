"""Shared broadcasts: each reader gets its own while a model is open.

Exporters compute a broadcast once for equal calls in several layers. The axes that an Expand adds, or those
of a tensor of zeros, take their role from the reader. One shared tensor would so tie the heads of all layers
that read it.

Needs: an onnx-ir model. Gives: the same model with one broadcast for each reader. Broadcasts that are still
equal when the model is written are merged again.
"""

from __future__ import annotations

from collections import defaultdict

import onnx_ir as ir

from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.capture.stored_values import constant_of, read_tensor
from growc.ir.naming import unused

PARTED = "growc.parted"
"""Key of a node's `meta`: the name of the result that it shared with others in the source."""


MAKING = frozenset({"Expand", "ConstantOfShape"})
"""Operators whose results have axes that only their reader determines. Tile repeats other axes too."""

MOVING = frozenset({"Transpose", "Cast", "Identity", "Unsqueeze", "Squeeze"})
"""Operators that only move such a tensor. Reshape may join these axes with others."""


def part(model: ir.Model) -> None:
    """Give every reader of a broadcast tensor its own copy."""
    broadcasts: dict[ir.Node, None] = {}
    for node in model.graph.all_nodes():
        source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if op_name(node) in MAKING or (op_name(node) in MOVING and source in broadcasts):
            broadcasts[node] = None
    taken = names_in(model) if broadcasts else set()
    for node in reversed(broadcasts):
        result, graph = node.outputs[0], node.graph
        others = list(result.uses())[0 if result.is_graph_output() else 1 :]
        if not others or graph is None:
            continue
        node.meta[PARTED] = result.name
        for reader, operand in others:
            copy = _copy(node, taken)
            graph.insert_after(node, copy)
            reader.replace_input_with(operand, copy.outputs[0])


def names_in(model: ir.Model) -> set[str | None]:
    """Return all names of nodes and values."""
    nodes = list(model.graph.all_nodes())
    names = {n.name for n in nodes} | {
        v.name for n in nodes for v in [*n.inputs, *n.outputs] if v is not None
    }
    return names | {v.name for scope in model.graphs() for v in [*scope.inputs, *scope.initializers.values()]}


def _copy(node: ir.Node, taken: set[str | None]) -> ir.Node:
    attributes, result = list(node.attributes.values()), node.outputs[0]
    name = unused(f"{node.name}.copy", taken) if node.name else node.name
    copy = ir.Node(node.domain, node.op_type, node.inputs, attributes, num_outputs=1, name=name)
    copy.meta.update(node.meta)
    output = copy.outputs[0]
    output.name, output.type = unused(f"{result.name}.copy", taken), result.type
    output.shape = None if result.shape is None else result.shape.copy()
    return copy


def rejoin(model: ir.Model) -> None:
    """Merge broadcasts that were one in the source and still compute the same from the same operands."""
    by_name: dict[tuple[str, ir.Graph | ir.Function], list[ir.Node]] = defaultdict(list)
    for node in list(model.graph.all_nodes()):
        if PARTED not in node.meta or node.graph is None:
            continue
        known = by_name[node.meta[PARTED], node.graph]
        first = next((one for one in known if _equal(one.outputs[0], node.outputs[0])), None)
        if first is None:
            known.append(node)
        else:
            node.outputs[0].replace_all_uses_with(first.outputs[0])
            node.graph.remove(node, safe=True)


def _equal(a: ir.Value | None, b: ir.Value | None) -> bool:
    """Whether two values are the same value, equal constants, or computed alike from equal values."""
    if a is None or b is None or a is b:
        return a is b
    mine, its = constant_of(a), constant_of(b)
    if mine is not None or its is not None:
        return mine is not None and its is not None and _numbers(mine) == _numbers(its)
    one, other = a.producer(), b.producer()
    if one is None or other is None or (_kind(one), a.index()) != (_kind(other), b.index()):
        return False
    return all(_equal(x, y) for x, y in zip(one.inputs, other.inputs, strict=True))


def _kind(node: ir.Node) -> object:
    attributes = sorted((name, repr(a.value)) for name, a in node.attributes.items())
    return op_name(node), len(node.inputs), attributes


def _numbers(tensor: ir.TensorProtocol) -> object:
    array = read_tensor(tensor)
    return str(array.dtype), array.shape, array.tobytes()
