"""How attention is spelt where no operator is one, and what merges and counts heads."""

from __future__ import annotations

from growc.ir.graph import Node
from growc.passes.axes.infer import Instance
from growc.passes.axes.queries import Flow

UNFOLD_OP, REPEAT_OP = "growc::Unfold", "growc::Repeat"
"""Operators that count heads where the model has none that does (growc.passes.axes.expose_shared_head)."""


def weighs(node: Node) -> bool:
    """Whether an operator may make the weights of attention from its scores."""
    return node.op == "Softmax"


def merges(node: Node) -> bool:
    """Whether an operator merges axes: an axis of one element that it drops may have more elements then."""
    return node.op == "Reshape"


def operands_of(flow: Flow, instance: Instance) -> list[tuple[Instance, int]]:
    """The operands that are queries, keys and values, of an operator or of the products around a softmax.

    None where it is no attention.
    """
    if instance.line.treatment == "attention":
        return [(instance, operand) for operand in (0, 1, 2)]
    if not weighs(instance.node):
        return []
    scores, below = flow.product_above(instance.node), flow.product_below(instance.node)
    if scores is None or below is None:
        return []
    last = (scores.line.outputs[0] or ("_",))[-1]
    keys = [i for i in (0, 1) if last in (scores.line.inputs[i] or ())]
    return [(scores, 1 - keys[0]), (scores, keys[0]), below] if len(keys) == 1 else []
