"""Decomposition of operators that torch defines by others: aliases and small compositions.

The input is a graph of whole operators. A call that the table of operators lacks is replaced by the calls
that torch decomposes it into, if the table has all of these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from growc.dialects.torch.capture.functionalize import NotFunctionalError, without_write
from growc.dialects.torch.capture.no_grad_regions import inlined
from growc.dialects.torch.operators.table import TABLE, key_of
from growc.errors.diagnostic import Attempt

__all__ = ["take_apart", "traced"]

PLACES = ("nn_module_stack", "stack_trace", "source_fn_stack")
"""Keys of a node's `meta` that tell where its call stands in the model."""


def take_apart(graph: fx.Graph) -> None:
    """Replace calls that the table lacks by calls that it has, where torch can decompose them."""
    for node in list(graph.nodes):
        if _is_composite(node) and (parts := _parts(node)) is not None:
            _replace(graph, node, *parts)


def _is_composite(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, OpOverload) and not _is_known(target) and target._can_decompose()


def _is_known(target: Any) -> bool:
    """Whether the table has an operator. For a writing operator, its counterpart without the write counts."""
    if isinstance(target, OpOverload) and target._schema.is_mutable:
        try:
            target = without_write(target)
        except NotFunctionalError:
            return False
    return target is operator.getitem or key_of(target) in TABLE


def _parts(node: fx.Node) -> tuple[fx.Graph, list[fx.Node]] | None:
    """Return the calls that make up a call, and their operands.

    The result is None if the table lacks one of them, or if they give other sizes.
    """
    leaves, spec = tree_flatten((node.args, node.kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, fx.Node)]

    def called(*operands: Any) -> Any:
        filled = list(leaves)
        for place, operand in zip(places, operands, strict=True):
            filled[place] = operand
        args, kwargs = tree_unflatten(filled, spec)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    operands = [leaves[k] for k in places]
    graph = traced(called, operands, node.meta.get("val"))
    return (graph, operands) if graph is not None and all(map(_is_plain, graph.nodes)) else None


def _is_plain(call: fx.Node) -> bool:
    """Whether a node is an input, an output, or a call that the table has."""
    return call.op in ("placeholder", "output") or (call.op == "call_function" and _is_known(call.target))


def traced(called: Callable[..., object], operands: Sequence[fx.Node], expected: object) -> fx.Graph | None:
    """Trace a function of these nodes. Return None if torch cannot, or if the calls give other sizes."""
    with Attempt() as attempt, torch.no_grad():
        graph = make_fx(called)(*(operand.meta["val"] for operand in operands)).graph
    if attempt.error is not None:
        return None
    graph.eliminate_dead_code()  # size queries of the tracing
    for call in graph.nodes:
        if call.target is torch.ops.aten.view.default:  # at other sizes the result may not be a view
            call.target = torch.ops.aten.reshape.default
    last = next(iter(reversed(graph.nodes)))
    return graph if _sizes(last.args) == _sizes(expected) else None


def _replace(graph: fx.Graph, node: fx.Node, parts: fx.Graph, operands: list[fx.Node]) -> None:
    before = set(graph.nodes)
    results = inlined(graph, node, parts, operands)
    for inserted in set(graph.nodes) - before:
        inserted.meta |= {key: node.meta[key] for key in PLACES if key in node.meta}
    if isinstance(results, fx.Node):
        node.replace_all_uses_with(results)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(node)


def _sizes(tree: Any) -> list[str]:
    leaves = (leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf for leaf in tree_leaves(tree))
    return [f"{list(v.shape)} {v.dtype}" if isinstance(v, Tensor) else "no tensor" for v in leaves]
