"""Heads that are counted, and repeated for their groups: calls in graphs that have none.

Needs: a rewritten program in which operators take heads out of channels, and repeat them
(growc.dialects.onnx.heads.insert_repeats). Gives: for each of them calls in the FX graph, in front of the
call that reads the heads, as if the module had made them; and the same calls in the graph for training.
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
from growc.dialects.torch.operators.call import SITE, Place, Site
from growc.passes.raising.attention import REPEAT_OP

PUT_IN = "growc.repeats"
"""Key of a call's `meta`: that no module made it."""

aten = torch.ops.aten


def call_repeats(nodes: Iterable[ir.Node], graph: fx.Graph) -> None:
    """Give each operator that counts or repeats heads calls, in place; copies of a layer have one for all.

    Raises GrowError (G308) where that is inside of what one call stands for.
    """
    nodes = list(nodes)
    sites: dict[Site, Site] = {}  # copies of a layer have one site, and those of the source stay as they are
    for node in (n for n in nodes if SITE in n.meta):
        site: Site = node.meta[SITE]
        node.meta[SITE] = sites.setdefault(site, replace(site, operands=dict(site.operands)))
    unfolded: dict[fx.Node, list[fx.Node]] = {}
    for node in nodes:
        if UNFOLDED in node.meta and SITE not in node.meta:
            _call_unfold(node, graph, unfolded)
    made: dict[tuple[fx.Node, int], tuple[fx.Node, fx.Node]] = {}
    for node in nodes:
        if op_name(node) != REPEAT_OP:
            continue
        [(reader, place)] = _readers(node.outputs[0])
        key = reader.node, place
        if key not in made:
            heads = _read(node, reader, place)
            times, axis = (node.attributes[name].value for name in ("times", "axis"))
            call = _put_in(graph, aten.repeat_interleave.self_int, heads, times, axis)
            made[key] = heads, call
        heads, call = made[key]
        _redirect(reader, place, heads, call)
        node.meta[SITE] = Site(call, {(1,): Place("times")}, {0: [(call, None)]}, {0: heads})
        now = said(node)
        node.meta[BEFORE] = replace(now, attributes={**now.attributes, "times": call.args[1]})


def _call_unfold(first: ir.Node, graph: fx.Graph, made: dict[fx.Node, list[fx.Node]]) -> None:
    """Three calls for the three nodes that take heads out of channels."""
    heads, axis = first.meta[UNFOLDED]
    parts = [first]
    while len(parts) < 3:
        [use] = parts[-1].outputs[0].uses()
        parts.append(use.node)
    given = None
    for reader, place in _readers(parts[-1].outputs[0]):
        given = _read(first, reader, place)
        if given not in made:
            squeezed = _put_in(graph, aten.squeeze.dim, given, axis)
            apart = _put_in(graph, aten.unflatten.int, squeezed, -1, [heads, -1])
            made[given] = [squeezed, apart, _put_in(graph, aten.movedim.int, apart, -2, axis)]
        _redirect(reader, place, given, made[given][-1])
    if given is not None:
        sources = [given, *made[given]]
        for part, source, call in zip(parts, sources, made[given], strict=False):
            part.meta[SITE] = Site(call, {}, {0: [(call, None)]}, {0: source})
            part.meta[BEFORE] = said(part)


def _readers(value: ir.Value) -> Iterator[tuple[Site, int]]:
    """The calls that read heads, and as which operand, through operators that repeat them."""
    for use in value.uses():
        if op_name(use.node) == REPEAT_OP:
            yield from _readers(use.node.outputs[0])
        else:
            yield use.node.meta[SITE], use.idx


def _read(node: ir.Node, reader: Site, place: int) -> fx.Node:
    """The argument that an operand is. Raises GrowError (G308) where the call makes it itself."""
    if place not in reader.operands:
        raise refusal(node, "the module's call that reads these heads makes them itself")
    return reader.operands[place]


def _redirect(reader: Site, place: int, before: fx.Node, after: fx.Node) -> None:
    """Let a call read another one."""
    reader.operands[place] = after
    reader.node.replace_input_with(before, after)


def _put_in(graph: fx.Graph, target: Any, given: fx.Node, *literals: Any) -> fx.Node:
    with graph.inserting_after(given):
        call = graph.call_function(target, (given, *literals))
    call.meta = {**given.meta, PUT_IN: True}
    return call


def call_likewise(training: fx.Graph, evaluation: fx.Graph, twins: Mapping[fx.Node, fx.Node]) -> bool:
    """Put the calls of one graph into another, in place; whether there are any. `twins`: of what has some."""
    found = [call for call in evaluation.nodes if PUT_IN in call.meta]
    known = dict(twins)
    for call in found:
        given, *literals = call.args
        if given not in known:
            continue
        known[call] = _put_in(training, call.target, known[given], *literals)
        for reader in call.users:
            if reader in twins:
                known[reader].replace_input_with(known[_root(call)], known[call])
    return bool(found)


def take_out(graph: fx.Graph) -> None:
    """Leave a graph as the module made it."""
    for call in [node for node in graph.nodes if PUT_IN in node.meta]:
        call.replace_all_uses_with(call.args[0])
        graph.erase_node(call)


def _root(call: fx.Node) -> fx.Node:
    """What the module made, of which calls that were put in make something else."""
    while PUT_IN in call.meta:
        call = call.args[0]  # type: ignore[assignment]
    return call
