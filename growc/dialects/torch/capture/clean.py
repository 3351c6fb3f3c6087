"""Cleanup of torch.export programs: nodes that do not change the result are removed."""

from __future__ import annotations

from collections.abc import Set
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
"""Operators that only check a condition."""

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
"""Operators that change nothing if the result has the dtype of the argument."""

TYPED = frozenset({aten.type_as.default, aten.to.other})
"""Conversions to the dtype of another tensor. Only the dtype of that tensor is read."""

FILLED = {
    aten.new_empty.default: aten.empty.memory_format,
    aten.new_full.default: aten.full.default,
    aten.new_ones.default: aten.ones.default,
    aten.new_zeros.default: aten.zeros.default,
}
"""Constructors that take dtype and device from another tensor, each with one that needs no tensor."""


PARTED = frozenset(
    {aten.chunk.default, aten.split.Tensor, aten.unsafe_chunk.default, aten.unsafe_split.Tensor}
)
"""Splits by a number of parts or by one size. Growth may give each part a size of its own."""

FORETOLD = {aten.repeat_interleave.self_int: "output_size"}
"""Arguments that state a size which follows from the other arguments."""


def clean(program: ExportedProgram) -> None:
    """Remove nodes that do not change the result.

    These are writes, checks, unused nodes, conversions to the same dtype, and operands read only for their
    dtype. Composite operators are decomposed. A write is replaced by operators that give the same value.
    Writes to buffers stay. Raises NotFunctionalError for a write that no other operators can express.
    """
    for node in program.graph.nodes:  # torch.export omits some users of data-dependent sizes
        for operand in node.all_input_nodes:
            operand.users.setdefault(node)
    inline_regions(program.graph_module)
    inline_batched(program.graph_module.graph)
    take_apart(program.graph_module.graph)
    graph = program.graph
    functionalise(graph, _inputs(program, InputKind.PARAMETER, InputKind.BUFFER))
    take_apart(graph)  # also the operators that replaced writes
    numbers = _inputs(program, InputKind.CONSTANT_TENSOR)
    for node in list(graph.nodes):
        if node.target in TYPED:
            node.target, node.args = aten.to.dtype, (node.args[0], node.meta["val"].dtype)
            node.kwargs = {}
        if node.target in FILLED:
            value = node.meta["val"]
            node.target, node.args = FILLED[node.target], node.args[1:]
            node.kwargs = {"dtype": value.dtype, "device": value.device}
        if node.target in FORETOLD:
            node.kwargs = {k: v for k, v in node.kwargs.items() if k != FORETOLD[node.target]}
        if node.target in PARTED and (sizes := _parted(node)) is not None:
            node.target, node.args = aten.split_with_sizes.default, (node.args[0], sizes, *node.args[2:])
        if node.target is aten.expand.default:
            node.args = (node.args[0], _stretched(node), *node.args[2:])
        if node.target in CLAIMS:
            graph.erase_node(node)
        elif (node.target in CONVERSIONS and _same(node)) or _detaches(node, numbers):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.eliminate_dead_code()
    last: fx.Node = next(iter(reversed(graph.nodes)))
    for spec, result in zip(program.graph_signature.output_specs, last.args[0], strict=True):  # type: ignore[arg-type]
        if isinstance(spec.arg, TensorArgument) and isinstance(result, fx.Node):
            spec.arg = TensorArgument(result.name)
    program.graph_module.recompile()


def _inputs(program: ExportedProgram, *kinds: InputKind) -> set[str]:
    """Return the names of the inputs of some kinds."""
    return {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind in kinds}


def _stretched(node: fx.Node) -> list[Any]:
    """Return the sizes of an expansion, with -1 where a size of 1 stays 1.

    With the size 1 written out, torch would refuse a grown axis.
    """
    source: Any = node.args[0]
    expansion: Any = node.args[1]
    before, sizes = source.meta["val"].shape, list(expansion)
    added = len(sizes) - len(before)
    stays_one = [k >= added and type(n) is int and n == 1 == before[k - added] for k, n in enumerate(sizes)]
    return [-1 if unchanged else n for n, unchanged in zip(sizes, stays_one, strict=True)]


def _parted(node: fx.Node) -> list[int] | None:
    """Return the sizes of the parts of a tensor, or None if they depend on the inputs."""
    axis = node.kwargs.get("dim", node.args[2] if len(node.args) > 2 else 0)
    sizes = [part.shape[axis] for part in node.meta["val"]]
    return sizes if all(type(n) is int for n in sizes) else None


def _detaches(node: fx.Node, numbers: Set[str]) -> bool:
    """Whether a call detaches a tensor that a forward makes of numbers, which has no gradients."""
    operand = node.args[0] if node.target is aten.detach.default else None
    return isinstance(operand, fx.Node) and operand.name in numbers


def _same(node: fx.Node) -> bool:
    before, after = node.args[0], node.meta["val"]
    return isinstance(before, fx.Node) and before.meta["val"].dtype == after.dtype
