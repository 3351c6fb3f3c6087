"""Inlining of regions that a forward computes with gradients or autocast switched off.

A region is a call of another graph. If it records no gradients, its results are detached. A region that
disables autocast computes the same without that setting. A region that enables autocast stays whole, since
its calls compute in other dtypes than they state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from growc.ir.walk import walk

__all__ = ["inline_regions", "inlined"]

REGIONS: Mapping[object, int] = {
    torch.ops.higher_order.wrap_with_set_grad_enabled: 1,
    torch.ops.higher_order.wrap_with_autocast: 4,
}
"""Operators that call another graph, with the position of that graph among their arguments."""

ENABLED = 2
"""Position of the argument of an autocast region that enables casts."""


def inline_regions(module: fx.GraphModule) -> None:
    """Inline the regions of a module, except those that cast."""
    for node in list(module.graph.nodes):
        casts = node.target is torch.ops.higher_order.wrap_with_autocast and node.args[ENABLED]
        if node.target in REGIONS and not casts:
            _inline(module, node)


def _inline(module: fx.GraphModule, node: fx.Node) -> None:
    region_node, *operands = node.args[REGIONS[node.target] :]
    assert isinstance(region_node, fx.Node)
    region = module.get_submodule(str(region_node.target))
    assert isinstance(region, fx.GraphModule)
    inline_regions(region)
    if any(call.target in REGIONS for call in region.graph.nodes):
        return
    results = inlined(module.graph, node, region.graph, operands)
    if node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and not node.args[0]:
        results = _without_gradients(module.graph, node, operands, results)
    for part in list(node.users):
        part.replace_all_uses_with(results[part.args[1]])
        module.graph.erase_node(part)
    module.graph.erase_node(node)
    if not region_node.users:
        module.graph.erase_node(region_node)
        module.delete_submodule(str(region_node.target))


def _without_gradients(
    graph: fx.Graph, node: fx.Node, operands: Iterable[object], results: Sequence[Argument]
) -> Sequence[object]:
    """Return the results of a region that records no gradients, detached if gradients reach the region."""
    nodes = [one for one in operands if isinstance(one, fx.Node)]
    if not any(_is_trained(one) for one in walk(nodes, lambda one: one.all_input_nodes)):
        return results
    detached = []
    with graph.inserting_before(node):
        for result in map(_itself, results):
            value = result.meta["val"] if isinstance(result, fx.Node) and result not in nodes else None
            if isinstance(value, Tensor) and value.is_floating_point():
                result = graph.call_function(torch.ops.aten.detach.default, (result,))
                result.meta.update(node.meta, val=value)
            detached.append(result)
    return detached


def _itself(result: Argument) -> Argument:
    """Return the node that a result comes from, if operators only passed it on unchanged.

    A conversion to the same dtype and dropout in evaluation do so. The origin keeps its gradients.
    """
    while isinstance(result, fx.Node) and isinstance(result.target, torch._ops.OpOverload):
        args, kwargs = fx.map_arg((result.args, result.kwargs), lambda one: one.meta["val"])
        output = result.target(*args, **kwargs)
        source = next((one for one in result.all_input_nodes if one.meta["val"] is output), None)
        if source is None:
            return result
        result = source
    return result


def _is_trained(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return node.op == "placeholder" and isinstance(value, Tensor) and value.requires_grad


def inlined(graph: fx.Graph, node: fx.Node, inner: fx.Graph, operands: Iterable[Any]) -> Any:
    """Copy the calls of another graph in front of a node, and return the results for these operands."""
    remaining, results = iter(operands), ()
    copies: dict[fx.Node, Any] = {}
    with graph.inserting_before(node):
        for inner_node in inner.nodes:
            if inner_node.op == "placeholder":
                copies[inner_node] = next(remaining)
            elif inner_node.op == "output":
                results = fx.map_arg(inner_node.args[0], copies.__getitem__)
            else:
                copies[inner_node] = graph.node_copy(inner_node, copies.__getitem__)
    return results
