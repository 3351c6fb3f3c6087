"""Bodies of If, Loop and Scan, inlined once into the graph around them, for walks along the data flow.

An If becomes a node `If` of (condition, then, else) for each of its results. A value that a Loop or Scan
carries passes through its body once. The graph is good for reading, not for running.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir


def with_bodies_inlined(graph: ir.Graph) -> ir.Graph:
    """Inline all bodies of a graph, in place, and return it."""
    pending = list(graph)
    while pending:
        node = pending.pop()
        if node.op_type == "If":
            pending += _branches(graph, node)
        elif node.op_type in ("Loop", "Scan"):
            body = node.attributes["body"].as_graph()
            if len(body.inputs) == len(node.inputs):
                pending += _iteration(graph, node, body)
    return graph


def _branches(graph: ir.Graph, node: ir.Node) -> list[ir.Node]:
    bodies = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    moved = [n for body in bodies for n in _move(graph, node, body)]
    for number, out in enumerate(node.outputs):
        chosen = ir.node("If", [node.inputs[0], *(body.outputs[number] for body in bodies)])
        graph.insert_before(node, chosen)
        _replace(out, chosen.outputs[0])
    graph.remove(node)
    return moved


def _iteration(graph: ir.Graph, node: ir.Node, body: ir.Graph) -> list[ir.Node]:
    results: Sequence[ir.Value] = list(body.outputs)
    moved = _move(graph, node, body)
    for operand, inside in zip(node.inputs, body.inputs, strict=True):
        if operand is not None:
            step = ir.node("Squeeze", [operand])  # a Scan takes slices
            graph.insert_before(moved[0] if moved else node, step)
            inside.replace_all_uses_with(step.outputs[0])
    for out, result in zip(node.outputs, results[len(results) - len(node.outputs) :], strict=True):
        stacked = ir.node("Unsqueeze", [result])
        graph.insert_before(node, stacked)
        _replace(out, stacked.outputs[0])
    graph.remove(node)
    return moved


def _replace(old: ir.Value, new: ir.Value) -> None:
    new.name, new.type, new.shape = old.name, old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def _move(graph: ir.Graph, node: ir.Node, body: ir.Graph) -> list[ir.Node]:
    """Move the nodes of a body in front of `node`, and return them."""
    nodes = list(body)
    body.remove(nodes)
    graph.insert_before(node, nodes)
    return nodes
