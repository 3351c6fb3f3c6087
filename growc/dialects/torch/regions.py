"""Programs without regions: what a forward computes with gradients off stands in its place in the graph.

A region is a call of another graph. Whether gradients are recorded in it is no part of what it computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

__all__ = ["inline_regions", "inlined"]

REGION = torch.ops.higher_order.wrap_with_set_grad_enabled


def inline_regions(module: fx.GraphModule) -> None:
    """Put the calls of every region where it is called."""
    for node in list(module.graph.nodes):
        if node.target is REGION:
            _inline(module, node)


def _inline(module: fx.GraphModule, node: fx.Node) -> None:
    _, held, *operands = node.args
    assert isinstance(held, fx.Node)
    region = module.get_submodule(str(held.target))
    assert isinstance(region, fx.GraphModule)
    inline_regions(region)
    results = inlined(module.graph, node, region.graph, operands)
    for part in list(node.users):
        part.replace_all_uses_with(results[part.args[1]])
        module.graph.erase_node(part)
    module.graph.erase_node(node)
    if not held.users:
        module.graph.erase_node(held)
        module.delete_submodule(str(held.target))


def inlined(graph: fx.Graph, node: fx.Node, inner: fx.Graph, operands: Iterable[Any]) -> Any:
    """What another graph returns for these operands, its calls being copied in front of a node."""
    given, results = iter(operands), ()
    made: dict[fx.Node, Any] = {}
    with graph.inserting_before(node):
        for one in inner.nodes:
            if one.op == "placeholder":
                made[one] = next(given)
            elif one.op == "output":
                results = fx.map_arg(one.args[0], made.__getitem__)
            else:
                made[one] = graph.node_copy(one, made.__getitem__)
    return results
