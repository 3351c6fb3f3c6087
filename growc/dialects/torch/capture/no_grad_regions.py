"""Programs without regions: what a forward computes with gradients or autocast off stands in its place in the
graph.

A region is a call of another graph. Where no gradients are recorded in it, what it gives is detached. That
nothing is cast where nothing would be cast around it is no part of what it computes. A region that casts
stays, with all that it holds: what its calls compute is not what they say.
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
"""What calls another graph, and where that stands among its arguments."""

ENABLED = 2
"""Where the call of an autocast region says whether it casts."""


def inline_regions(module: fx.GraphModule) -> None:
    """Put the calls of every region where it is called."""
    for node in list(module.graph.nodes):
        casts = node.target is torch.ops.higher_order.wrap_with_autocast and node.args[ENABLED]
        if node.target in REGIONS and not casts:
            _inline(module, node)


def _inline(module: fx.GraphModule, node: fx.Node) -> None:
    held, *operands = node.args[REGIONS[node.target] :]
    assert isinstance(held, fx.Node)
    region = module.get_submodule(str(held.target))
    assert isinstance(region, fx.GraphModule)
    inline_regions(region)
    if any(one.target in REGIONS for one in region.graph.nodes):
        return
    results = inlined(module.graph, node, region.graph, operands)
    if node.target is torch.ops.higher_order.wrap_with_set_grad_enabled and not node.args[0]:
        results = _without_gradients(module.graph, node, operands, results)
    for part in list(node.users):
        part.replace_all_uses_with(results[part.args[1]])
        module.graph.erase_node(part)
    module.graph.erase_node(node)
    if not held.users:
        module.graph.erase_node(held)
        module.delete_submodule(str(held.target))


def _without_gradients(
    graph: fx.Graph, node: fx.Node, operands: Iterable[object], results: Sequence[Argument]
) -> Sequence[object]:
    """What a region gives that records none: a training goes through none of it, if it went to there."""
    given = [one for one in operands if isinstance(one, fx.Node)]
    if not any(_is_trained(one) for one in walk(given, lambda one: one.all_input_nodes)):
        return results
    made = []
    with graph.inserting_before(node):
        for result in map(_itself, results):
            value = result.meta["val"] if isinstance(result, fx.Node) and result not in given else None
            if isinstance(value, Tensor) and value.is_floating_point():
                result = graph.call_function(torch.ops.aten.detach.default, (result,))
                result.meta.update(node.meta, val=value)
            made.append(result)
    return made


def _itself(result: Argument) -> Argument:
    """Of what an operator hands back as it came (a conversion to the type that is there, dropout of an
    evaluation) where it came from: that has its gradients, wherever it was handed back.
    """
    while isinstance(result, fx.Node) and isinstance(result.target, torch._ops.OpOverload):
        args, kwargs = fx.map_arg((result.args, result.kwargs), lambda one: one.meta["val"])
        made = result.target(*args, **kwargs)
        source = next((one for one in result.all_input_nodes if one.meta["val"] is made), None)
        if source is None:
            return result
        result = source
    return result


def _is_trained(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return node.op == "placeholder" and isinstance(value, Tensor) and value.requires_grad


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
