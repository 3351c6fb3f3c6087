"""Removal of single units: the nodes that took them, and the sums over them.

Needs: a model while it is rewritten, and the taken units (growc.passes.axes.unstacked_experts). Gives: the
same model, where sums have only the remaining terms, and nothing reads removed units. Cuts that take other
units have been patched before; a cut that returns all units in a row becomes one cut for each.
"""

from __future__ import annotations

from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.repair.patch import refusal
from growc.dialects.onnx.writer import Writer
from growc.ir.graph import Graph, Node
from growc.passes.axes.unstacked_experts import ExpertRemoval


def left_out(graph: Graph, taken: ExpertRemoval, writer: Writer) -> None:
    """Remove the terms of removed units from sums, and take every remaining unit from its new place."""
    for node in graph.nodes:
        if node.op == "Split" and node in taken.numbers:
            _cut_singly(node, taken, writer)
    for node, remaining in taken.left.items():
        origin = writer.clone.node_of(node)
        if len(remaining) > 1:
            for i, value in enumerate([origin.inputs[k] for k in remaining]):
                origin.replace_input_with(i, value)
            origin.resize_inputs(len(remaining))
        elif origin.outputs[0].is_graph_output():
            origin.replace_input_with(0, origin.inputs[remaining[0]])
            origin.op_type = "Identity"
            origin.resize_inputs(1)
        else:
            term = origin.inputs[remaining[0]]
            assert term is not None
            origin.outputs[0].replace_all_uses_with(term)


def _cut_singly(node: Node, taken: ExpertRemoval, writer: Writer) -> None:
    """Replace one cut for all units by a cut for each remaining unit."""
    origin = writer.clone.node_of(node)
    data, axis = origin.inputs[0], node.integer("axis", 0)
    assert data is not None
    for out, number in zip(origin.outputs, taken.numbers[node], strict=True):
        if number is None:
            continue
        name = out.name or ""
        bounds = [writer.numbers(f"{name}.bound", [n]) for n in (number, number + 1, axis)]
        alone = writer.insert(origin, "Slice", [data, *bounds], {}, f"{name}.alone")
        alone.type, alone.shape = out.type, out.shape
        out.replace_all_uses_with(alone, replace_graph_outputs=True)


def all_gone(taken: ExpertRemoval, clone: Clone) -> None:
    """Raise GrowError (G308) if something still reads a removed unit."""
    remaining = set(clone.model.graph.all_nodes())
    for node, numbers in taken.numbers.items():
        if clone.node_of(node) in remaining and None in numbers and node.op != "Split":
            raise refusal(node, "something still reads the unit that it takes")
