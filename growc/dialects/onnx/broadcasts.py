"""Tensors that are stretched once and read in several places: each reader gets its own while a model is open.

Exporters compute once what equal calls of several layers give. The axes that an Expand adds are whatever its
reader has there, so one Expand would tie the heads of all layers that it serves.

Needs: an onnx-ir model. Gives: the same with an Expand for each reader; those that are still equal when it is
written are one again.
"""

from __future__ import annotations

from collections import defaultdict

import onnx_ir as ir

from growc.dialects.onnx.flatten import op_name
from growc.dialects.onnx.tensors import constant_of, read_tensor

PARTED = "growc.parted"
"""Key of a node's `meta`: the name of the one Expand that it stood for in the source."""


def part(model: ir.Model) -> None:
    """Give every reader of an Expand one of its own."""
    for node in list(model.graph.all_nodes()):
        if op_name(node) != "Expand":
            continue
        result, graph = node.outputs[0], node.graph
        others = list(result.uses())[0 if result.is_graph_output() else 1 :]
        if not others or graph is None:
            continue
        node.meta[PARTED] = result.name
        for number, (reader, operand) in enumerate(others):
            copy = _copy(node, number)
            graph.insert_after(node, copy)
            reader.replace_input_with(operand, copy.outputs[0])


def _copy(node: ir.Node, number: int) -> ir.Node:
    copy = ir.Node(node.domain, node.op_type, node.inputs, num_outputs=1, name=f"{node.name}.{number}")
    copy.meta.update(node.meta)
    made, result = copy.outputs[0], node.outputs[0]
    made.name, made.type = f"{result.name}.{number}", result.type
    made.shape = None if result.shape is None else result.shape.copy()
    return copy


def rejoin(model: ir.Model) -> None:
    """Let those that were one be one again, where they still make the same of the same."""
    kept: dict[tuple[str, int], list[ir.Node]] = defaultdict(list)
    for node in list(model.graph.all_nodes()):
        if PARTED not in node.meta or node.graph is None:
            continue
        known = kept[node.meta[PARTED], id(node.graph)]
        first = next((one for one in known if _equal(one.outputs[0], node.outputs[0])), None)
        if first is None:
            known.append(node)
        else:
            node.outputs[0].replace_all_uses_with(first.outputs[0])
            node.graph.remove(node, safe=True)


def _equal(a: ir.Value | None, b: ir.Value | None) -> bool:
    """Whether values are one, constants of equal numbers, or made of equal ones by equal nodes."""
    if a is None or b is None or a is b:
        return a is b
    tensors = constant_of(a), constant_of(b)
    if tensors != (None, None):
        return None not in tensors and _numbers(tensors[0]) == _numbers(tensors[1])
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
