"""Heads that are repeated for their groups: calls in graphs that have none.

Needs: a rewritten program in which operators repeat heads (growc.dialects.onnx.spread). Gives: for each of
them a call of `repeat_interleave` in the FX graph, in front of the call that reads the heads, as if the
module had made it; and the same calls in the graph for training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.onnx.flatten import op_name
from growc.dialects.torch.call import SITE, Place, Site
from growc.dialects.torch.literals import BEFORE, refusal, said
from growc.passes.units import REPEAT

PUT_IN = "growc.repeats"
"""Key of a call's `meta`: that no module made it."""


def call_repeats(nodes: Iterable[ir.Node], graph: fx.Graph) -> None:
    """Give each operator that repeats heads a call, in place; copies of a layer have one for all.

    Raises GrowError (G308) where heads are repeated inside of what one call stands for.
    """
    made: dict[tuple[fx.Node, int], tuple[fx.Node, fx.Node]] = {}
    for node in nodes:
        if op_name(node) != REPEAT:
            continue
        [use] = node.outputs[0].uses()
        reader: Site = use.node.meta[SITE]
        times, axis = (node.attributes[name].value for name in ("times", "axis"))
        key = reader.node, use.idx
        if key not in made and use.idx not in reader.operands:
            raise refusal(node, "the module's call that reads these heads makes them itself")
        if key not in made:
            heads = reader.operands[use.idx]
            made[key] = heads, _put_in(graph, heads, reader.node, times, axis)
        heads, call = made[key]
        reader.operands[use.idx] = call
        node.meta[SITE] = Site(call, {(1,): Place("times")}, {0: [(call, None)]}, {0: heads})
        now = said(node)
        node.meta[BEFORE] = replace(now, attributes={**now.attributes, "times": call.args[1]})


def call_likewise(training: fx.Graph, evaluation: fx.Graph, twins: Mapping[fx.Node, fx.Node]) -> bool:
    """Put the calls of one graph into another, in place; whether there are any. `twins`: of what has some."""
    found = [call for call in evaluation.nodes if PUT_IN in call.meta]
    for call in found:
        heads, times, axis = call.args
        for reader in call.users:
            if heads in twins and reader in twins:
                _put_in(training, twins[heads], twins[reader], times, axis)
    return bool(found)


def _put_in(graph: fx.Graph, heads: fx.Node, reader: fx.Node, times: int, axis: int) -> fx.Node:
    with graph.inserting_before(reader):
        call = graph.call_function(torch.ops.aten.repeat_interleave.self_int, (heads, times, axis))
    call.meta = {**heads.meta, PUT_IN: True}
    reader.replace_input_with(heads, call)
    return call
