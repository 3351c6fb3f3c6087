"""Insertion of calls that split channels into heads and repeat heads for their groups.

The rewritten program has operators that take heads out of channels and repeat them
(growc.dialects.onnx.heads.insert_repeats). Each operator gets calls in the FX graph, in front of the call
that reads the heads, as if the module had made them. The graph for training gets the same calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.heads.insert_repeats import UNFOLDED
from growc.dialects.torch.emit.literals import BEFORE, refusal, said
from growc.dialects.torch.operators.call import SITE, CallOrigin, LiteralPlace
from growc.passes.raising.attention import REPEAT_OP

PUT_IN = "growc.repeats"
"""Key of a call's `meta`: growc inserted the call."""

aten = torch.ops.aten


def call_repeats(nodes: Iterable[ir.Node], graph: fx.Graph) -> None:
    """Insert calls, in place, for each operator that splits or repeats heads. Copies of a layer share them.

    Raises GrowError (G308) if the operator is inside of one call of the module.
    """
    nodes = list(nodes)
    sites: dict[
        CallOrigin, CallOrigin
    ] = {}  # copies of a layer share one site; the sites of the source stay as they are
    for node in (n for n in nodes if SITE in n.meta):
        site: CallOrigin = node.meta[SITE]
        node.meta[SITE] = sites.setdefault(site, replace(site, operands=dict(site.operands)))
    unfolded: dict[fx.Node, list[fx.Node]] = {}
    for node in nodes:
        if UNFOLDED in node.meta and SITE not in node.meta:
            _call_unfold(node, graph, unfolded)
    inserted: dict[tuple[fx.Node, int], tuple[fx.Node, fx.Node]] = {}
    for node in nodes:
        if op_name(node) != REPEAT_OP:
            continue
        [(reader, place)] = _readers(node.outputs[0])
        key = reader.node, place
        if key not in inserted:
            heads = _read(node, reader, place)
            times, axis = (node.attributes[name].value for name in ("times", "axis"))
            call = _put_in(graph, aten.repeat_interleave.self_int, heads, times, axis)
            inserted[key] = heads, call
        heads, call = inserted[key]
        _redirect(reader, place, heads, call)
        node.meta[SITE] = CallOrigin(call, {(1,): LiteralPlace("times")}, {0: [(call, None)]}, {0: heads})
        current = said(node)
        node.meta[BEFORE] = replace(current, attributes={**current.attributes, "times": call.args[1]})


def _call_unfold(first: ir.Node, graph: fx.Graph, calls: dict[fx.Node, list[fx.Node]]) -> None:
    """Insert three calls for the three nodes that take heads out of channels."""
    heads, axis = first.meta[UNFOLDED]
    parts = [first]
    while len(parts) < 3:
        [use] = parts[-1].outputs[0].uses()
        parts.append(use.node)
    channels = None
    for reader, place in _readers(parts[-1].outputs[0]):
        channels = _read(first, reader, place)
        if channels not in calls:
            squeezed = _put_in(graph, aten.squeeze.dim, channels, axis)
            unflattened = _put_in(graph, aten.unflatten.int, squeezed, -1, [heads, -1])
            calls[channels] = [squeezed, unflattened, _put_in(graph, aten.movedim.int, unflattened, -2, axis)]
        _redirect(reader, place, channels, calls[channels][-1])
    if channels is not None:
        sources = [channels, *calls[channels]]
        for part, source, call in zip(parts, sources, calls[channels], strict=False):
            part.meta[SITE] = CallOrigin(call, {}, {0: [(call, None)]}, {0: source})
            part.meta[BEFORE] = said(part)


def _readers(value: ir.Value) -> Iterator[tuple[CallOrigin, int]]:
    """Yield the calls that read heads, with the operand number, through operators that repeat heads."""
    for use in value.uses():
        if op_name(use.node) == REPEAT_OP:
            yield from _readers(use.node.outputs[0])
        else:
            yield use.node.meta[SITE], use.idx


def _read(node: ir.Node, reader: CallOrigin, place: int) -> fx.Node:
    """Return the argument of an operand. Raises GrowError (G308) if the call makes the operand itself."""
    if place not in reader.operands:
        raise refusal(node, "the module's call that reads these heads makes them itself")
    return reader.operands[place]


def _redirect(reader: CallOrigin, place: int, before: fx.Node, after: fx.Node) -> None:
    """Let a call read `after` instead of `before`."""
    reader.operands[place] = after
    reader.node.replace_input_with(before, after)


def _put_in(graph: fx.Graph, target: Any, source: fx.Node, *literals: Any) -> fx.Node:
    with graph.inserting_after(source):
        call = graph.call_function(target, (source, *literals))
    call.meta = {**source.meta, PUT_IN: True}
    return call


def call_likewise(training: fx.Graph, evaluation: fx.Graph, twins: Mapping[fx.Node, fx.Node]) -> bool:
    """Insert the calls added to `evaluation` into `training` too, in place. Return whether there are any.

    twins: the nodes of `training` by those of `evaluation`.
    """
    inserted = [call for call in evaluation.nodes if PUT_IN in call.meta]
    counterparts = dict(twins)
    for call in inserted:
        source, *literals = call.args
        if source not in counterparts:
            continue
        counterparts[call] = _put_in(training, call.target, counterparts[source], *literals)
        for reader in call.users:
            if reader in twins:
                counterparts[reader].replace_input_with(counterparts[_root(call)], counterparts[call])
    return bool(inserted)


def take_out(graph: fx.Graph) -> None:
    """Remove the inserted calls from a graph."""
    for call in [node for node in graph.nodes if PUT_IN in node.meta]:
        call.replace_all_uses_with(call.args[0])
        graph.erase_node(call)


def _root(call: fx.Node) -> fx.Node:
    """Return the call of the module that a chain of inserted calls starts from."""
    while PUT_IN in call.meta:
        call = call.args[0]  # type: ignore[assignment]
    return call
