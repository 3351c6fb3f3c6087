"""Programs without regions that torch.vmap maps: their calls on whole tensors stand in their place.

Such a region begins and ends with calls that say how deep the mapping is; in between are calls on one element
of the axes that are mapped. Masks of attention are made so. Traced once more, below the mapping, they are
calls on all elements.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx
from torch._functorch import predispatch

from growc.dialects.torch.capture.decompose import traced
from growc.dialects.torch.capture.functionalize import NotFunctionalError
from growc.dialects.torch.capture.no_grad_regions import inlined

__all__ = ["inline_batched"]

DEEPER = predispatch._vmap_increment_nesting
BACK = predispatch._vmap_decrement_nesting


def inline_batched(graph: fx.Graph) -> None:
    """Put calls on whole tensors in the place of mapped regions.

    Raises NotFunctionalError where torch traces none of the same sizes.
    """
    for region in list(_regions(graph)):
        _inline(graph, region)


def _inline(graph: fx.Graph, region: list[fx.Node]) -> None:
    inside = set(region)
    operands = list(dict.fromkeys(n for one in region for n in one.all_input_nodes if n not in inside))
    results = [one for one in region if any(user not in inside for user in one.users)]
    module = fx.GraphModule({}, _alone(region, operands, results))
    calls = traced(module, operands, [one.meta["val"] for one in results])
    if calls is None:
        raise NotFunctionalError(f"torch cannot trace what is mapped by vmap from `{region[0].name}` on")
    made = inlined(graph, region[0], calls, operands)
    for one, whole in zip(results, made, strict=True):
        one.replace_all_uses_with(whole, delete_user_cb=lambda user: user not in inside)
    for one in reversed(region):
        graph.erase_node(one)


def _regions(graph: fx.Graph) -> Iterator[list[fx.Node]]:
    """The outermost regions, each with what begins and what ends it."""
    depth, region = 0, list[fx.Node]()
    for node in graph.nodes:
        depth += node.target is DEEPER
        if depth:
            region.append(node)
        depth -= node.target is BACK
        if region and not depth:
            yield region
            region = []


def _alone(region: list[fx.Node], operands: list[fx.Node], results: list[fx.Node]) -> fx.Graph:
    """A region as a graph of its own."""
    graph = fx.Graph()
    made = {one: graph.placeholder(one.name) for one in operands}
    for one in region:
        made[one] = graph.node_copy(one, made.__getitem__)
    graph.output([made[one] for one in results])
    return graph
