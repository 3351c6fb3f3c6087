"""Replacement of the regions that torch.vmap maps by calls on whole tensors.

A region begins and ends with a call that changes the nesting depth of the mapping. The calls in between work
on one element of the mapped axes. Attention masks are made this way. Traced once more, below the mapping,
the same calls work on all elements.
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
    """Replace mapped regions by calls on whole tensors.

    Raises NotFunctionalError if torch cannot trace a region, or if the traced calls have other sizes.
    """
    for region in list(_regions(graph)):
        _inline(graph, region)


def _inline(graph: fx.Graph, region: list[fx.Node]) -> None:
    inside = set(region)
    operands = list(dict.fromkeys(n for node in region for n in node.all_input_nodes if n not in inside))
    results = [node for node in region if any(user not in inside for user in node.users)]
    module = fx.GraphModule({}, _alone(region, operands, results))
    calls = traced(module, operands, [node.meta["val"] for node in results])
    if calls is None:
        raise NotFunctionalError(f"torch cannot trace what is mapped by vmap from `{region[0].name}` on")
    replacements = inlined(graph, region[0], calls, operands)
    for node, whole in zip(results, replacements, strict=True):
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user not in inside)
    for node in reversed(region):
        graph.erase_node(node)


def _regions(graph: fx.Graph) -> Iterator[list[fx.Node]]:
    """Yield the outermost regions, each with the calls that begin and end it."""
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
    """Return a region as a separate graph."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in operands}
    for node in region:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in results])
    return graph
