"""Programs of torch.export without what only says something about running them."""

from __future__ import annotations

import torch
from torch import fx

__all__ = ["clean"]

aten = torch.ops.aten

CLAIMS = frozenset(
    {
        aten._assert_tensor_metadata.default,
        aten._assert_async.msg,
        aten._assert_scalar.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
    }
)
"""What only checks."""

CONVERSIONS = frozenset(
    {
        aten.alias.default,
        aten.lift_fresh_copy.default,
        aten.to.dtype,
        aten.to.dtype_layout,
        aten.to.device,
        aten._to_copy.default,
    }
)
"""What changes nothing where the result has the argument's type."""


def clean(module: fx.GraphModule) -> None:
    """Drop checks, conversions to the type that is there already, and what nobody uses."""
    for node in list(module.graph.nodes):
        if node.target in CLAIMS:
            module.graph.erase_node(node)
        elif node.target in CONVERSIONS and _same(node):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()


def _same(node: fx.Node) -> bool:
    before, after = node.args[0], node.meta["val"]
    return isinstance(before, fx.Node) and before.meta["val"].dtype == after.dtype
