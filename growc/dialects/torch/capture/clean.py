"""Programs of torch.export without what only says something about running them."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument

from growc.dialects.torch.capture.batched_regions import inline_batched
from growc.dialects.torch.capture.decompose import take_apart
from growc.dialects.torch.capture.functionalize import functionalise
from growc.dialects.torch.capture.no_grad_regions import inline_regions

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

TYPED = frozenset({aten.type_as.default, aten.to.other})
"""Conversions to the type of another tensor, which is read for nothing else."""

FILLED = {
    aten.new_empty.default: aten.empty.memory_format,
    aten.new_full.default: aten.full.default,
    aten.new_ones.default: aten.ones.default,
    aten.new_zeros.default: aten.zeros.default,
}
"""Tensors of the type of another one, which is read for nothing else, and how they are made without it."""


PARTED = frozenset(
    {aten.chunk.default, aten.split.Tensor, aten.unsafe_chunk.default, aten.unsafe_split.Tensor}
)
"""Tensors in as many parts as are asked for, or of one size: each has a size of its own by and by."""

FORETOLD = {aten.repeat_interleave.self_int: "output_size"}
"""Arguments that say a size beforehand which follows from the others."""


def clean(program: ExportedProgram) -> None:
    """Drop writes, checks, conversions to the type that is there already, and what nobody uses or only asks
    for its type; take apart what torch itself makes of other operators.

    What stands in the place of a write leaves the same value behind; writes to buffers stay. Raises
    NotFunctionalError for a write that no other operators give.
    """
    for node in program.graph.nodes:  # torch.export leaves some out, of sizes that data decide
        for operand in node.all_input_nodes:
            operand.users.setdefault(node)
    inline_regions(program.graph_module)
    inline_batched(program.graph_module.graph)
    take_apart(program.graph_module.graph)
    graph, held = program.graph, (InputKind.PARAMETER, InputKind.BUFFER)
    functionalise(graph, {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind in held})
    take_apart(graph)  # what stands in the place of writes
    for node in list(graph.nodes):
        if node.target in TYPED:
            node.target, node.args = aten.to.dtype, (node.args[0], node.meta["val"].dtype)
            node.kwargs = {}
        if node.target in FILLED:
            made = node.meta["val"]
            node.target, node.args = FILLED[node.target], node.args[1:]
            node.kwargs = {"dtype": made.dtype, "device": made.device}
        if node.target in FORETOLD:
            node.kwargs = {k: v for k, v in node.kwargs.items() if k != FORETOLD[node.target]}
        if node.target in PARTED and (sizes := _parted(node)) is not None:
            node.target, node.args = aten.split_with_sizes.default, (node.args[0], sizes, *node.args[2:])
        if node.target is aten.expand.default:
            node.args = (node.args[0], _stretched(node), *node.args[2:])
        if node.target in CLAIMS:
            graph.erase_node(node)
        elif node.target in CONVERSIONS and _same(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.eliminate_dead_code()
    last: fx.Node = next(iter(reversed(graph.nodes)))
    for spec, given in zip(program.graph_signature.output_specs, last.args[0], strict=True):  # type: ignore[arg-type]
        if isinstance(spec.arg, TensorArgument) and isinstance(given, fx.Node):
            spec.arg = TensorArgument(given.name)
    program.graph_module.recompile()


def _stretched(node: fx.Node) -> list[Any]:
    """The sizes of an expansion, with -1 where one element stays one: torch would not let it become more."""
    source: Any = node.args[0]
    given: Any = node.args[1]
    before, sizes = source.meta["val"].shape, list(given)
    new = len(sizes) - len(before)
    stays = [k >= new and type(n) is int and n == 1 == before[k - new] for k, n in enumerate(sizes)]
    return [-1 if one else n for n, one in zip(sizes, stays, strict=True)]


def _parted(node: fx.Node) -> list[int] | None:
    """The sizes of a tensor's parts; None where the inputs decide them."""
    axis = node.kwargs.get("dim", node.args[2] if len(node.args) > 2 else 0)
    sizes = [part.shape[axis] for part in node.meta["val"]]
    return sizes if all(type(n) is int for n in sizes) else None


def _same(node: fx.Node) -> bool:
    before, after = node.args[0], node.meta["val"]
    return isinstance(before, fx.Node) and before.meta["val"].dtype == after.dtype
