"""Copies of nodes with new operands, and copies of their bodies."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import onnx_ir as ir

from growc.dialects.onnx.capture.owners import bodies

CopiedOperand = Callable[[ir.Node, int, ir.Value], ir.Value | None]
"""A function that returns a copied node's operand in place of the source's."""


def copied(
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    read: CopiedOperand = lambda reader, i, value: value,
    own: Container[tuple[ir.Node, int]] = (),
) -> ir.Node:
    """Return a copy of a node with new operands.

    In copied bodies, `read` replaces the values that they read from around them, and the operands of `own`,
    which may be the bodies' own values.
    """
    attributes = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            body = attribute.as_graph().clone(allow_outer_scope_values=True)
            _redirect(attribute.as_graph(), body, node, read, own)
            attribute = ir.AttrGraph(attribute.name, body)
        attributes.append(attribute)
    copy = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        attributes,
        overload=node.overload,
        num_outputs=len(node.outputs),
        version=node.version,
        name=node.name,
        doc_string=node.doc_string,
        metadata_props=dict(node.metadata_props),
    )
    copy.meta.update(node.meta)
    for new, old in zip(copy.outputs, node.outputs, strict=True):
        new.name, new.type = old.name, old.type
        new.shape = None if old.shape is None else _declared(old.shape, node.graph)
    return copy


def _declared(shape: ir.Shape, graph: ir.Graph | ir.Function | None) -> ir.Shape:
    """Return a copy's shape, without symbols that no input has: these are the source's own."""
    symbols = {d for v in (() if graph is None else graph.inputs) for d in v.shape or ()}
    return ir.Shape([d if isinstance(d, int) or d in symbols else None for d in shape])


def _redirect(
    source: ir.Graph, body: ir.Graph, outer: ir.Node, read: CopiedOperand, own: Container[tuple[ir.Node, int]]
) -> None:
    """Let the copy of a body read the values that `read` returns for those around the source's body."""
    inside = {v for n in source.all_nodes() for v in n.outputs}
    inside |= {v for b in (source, *(b for n in source.all_nodes() for b in bodies(n))) for v in _own(b)}
    places = [(outer, source, body)]
    while places:
        reader, old, new = places.pop()
        for one, other in zip(old, new, strict=True):
            for i, value in enumerate(one.inputs):
                if value is not None and (value not in inside or (one, i) in own):
                    other.replace_input_with(i, read(one, i, value))
            places += [(one, a, b) for a, b in zip(bodies(one), bodies(other), strict=True)]
        for k, value in enumerate(old.outputs):
            if value not in inside:
                new.outputs[k] = read(reader, -1, value) or value


def _own(body: ir.Graph) -> list[ir.Value]:
    return [*body.inputs, *body.initializers.values()]


def renewed(value: ir.Value, new: Mapping[ir.Value, ir.Value], graph: ir.Graph) -> ir.Value:
    """Return a value computed from new values. The nodes in between are copied into the graph."""
    node = value.producer()
    if value in new or node is None:
        return new.get(value, value)
    inputs = [None if v is None else renewed(v, new, graph) for v in node.inputs]
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return value
    copy = copied(node, inputs)
    graph.append(copy)
    return copy.outputs[value.index() or 0]
