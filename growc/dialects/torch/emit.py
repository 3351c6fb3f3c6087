"""From a finished compilation of a module to the module that it becomes.

The lowered model is rewritten as a file would be (growc.dialects.onnx.emit), and every call of the source's
graph is read off it again. The compilation can be used no further.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, fx
from torch.export.graph_signature import ConstantArgument, InputKind

from growc.compilation import Compilation
from growc.diagnostic import GrowError
from growc.dialects.onnx.emit import rewrite
from growc.dialects.onnx.layered import origin_of
from growc.dialects.torch.call import TYPES
from growc.dialects.torch.export import Captured
from growc.dialects.torch.holdings import Holdings, stored_name
from growc.dialects.torch.literals import remember
from growc.dialects.torch.modes import Training, no_training
from growc.dialects.torch.module import GrownModule
from growc.dialects.torch.rebuild import Made, Rebuilding
from growc.dialects.torch.writing import result_nodes, write
from growc.graph import Array

DTYPES = {kind: dtype for dtype, kind in TYPES.items()}


def planned_graph(c: Compilation) -> GrownModule:
    """The result without values: its graph for evaluation, and all tensors on meta with their new sizes."""
    made = emit(c, lambda value: torch.empty(_sizes(value), dtype=_dtype(value), device="meta"))
    return made.to("meta")


def grown_module(c: Compilation, training: Captured | GrowError | None = None) -> GrownModule:
    """The result with the weights of its plan, each computed once.

    `training`: the source as it was captured in training, or why it could not be.
    """
    return emit(c, _computed, training)


def emit(
    c: Compilation, tensor: Callable[[ir.Value], Tensor], training: Captured | GrowError | None = None
) -> GrownModule:
    """The result; `tensor` makes a stored one. Raises GrowError (G308)."""
    captured: Captured = c.model.captured
    model: ir.Model = c.model.source
    remember([*model.graph, *(one.node for one in c.model.fused)])
    places, holdings = _places(c), Holdings.of(c)
    rewrite(c.graph, c.assembled, c.mended, c.attributes)
    rebuilding = Rebuilding(captured.program.graph, model, placeholders(captured), places)
    calls = rebuilding.all()
    outputs = [rebuilding.output(v) for v in model.graph.outputs]
    graph, used = write(captured, model, calls, outputs, holdings)
    graphs, missing = {False: graph}, ""
    try:
        if isinstance(training, GrowError):
            raise training
        if training is not None:
            graphs[True], more = _trained(captured, training, rebuilding, outputs, holdings)
            used += [value for value in more if value not in used]
    except GrowError as error:
        missing = reason_of(error)
    spec = captured.program.call_spec.out_spec
    return GrownModule(holdings.tensors(used, tensor), graphs, spec, _fixed(captured), missing)


def _fixed(captured: Captured) -> dict[str, Any]:
    """The arguments of forward that are no tensors."""
    given = (spec.arg for spec in captured.program.graph_signature.input_specs)
    return {arg.name: arg.value for arg in given if isinstance(arg, ConstantArgument)}


def _trained(
    captured: Captured, training: Captured, rebuilding: Rebuilding, outputs: list[Made], holdings: Holdings
) -> tuple[fx.Graph, list[ir.Value]]:
    """The graph for training, and the stored tensors that it reads. Raises GrowError (G320)."""
    theirs, ours = result_nodes(captured), result_nodes(training)
    if len(theirs) != len(ours):
        raise no_training("it returns other things in training")
    pairs = {u: (e, made) for u, e, made in zip(ours, theirs, outputs, strict=True)}
    modes = Training(training.program.graph, placeholders(training), rebuilding)
    calls, results = modes.calls(pairs)
    return write(training, rebuilding.model, calls, results, holdings)


def reason_of(error: GrowError) -> str:
    """Why something could not be done, in one line."""
    first = error.diagnostics[0]
    return ": ".join([first.message, *first.notes[:1]])


def _places(c: Compilation) -> dict[ir.Node, tuple[int, int]]:
    """The layer that each node stands in, by run and position; fused nodes stand where their parts do."""
    found: dict[ir.Node, tuple[int, int]] = {}
    for run, one in enumerate(c.layers.runs):
        for position, layer in enumerate(one.layers):
            for node in layer.nodes:
                found[origin_of(node)] = run, position
    for fused in c.model.fused:
        inside = [found[part] for part in fused.lowering.made if part in found]
        if inside:
            found[fused.node] = inside[0]
    return found


def placeholders(captured: Captured) -> dict[str, fx.Node]:
    """The placeholders of the program, by the names of inputs and stored tensors."""
    nodes = {node.name: node for node in captured.program.graph.nodes if node.op == "placeholder"}
    found: dict[str, fx.Node] = {}
    for spec in captured.program.graph_signature.input_specs:
        name = spec.arg.name if spec.kind is InputKind.USER_INPUT else stored_name(captured, str(spec.target))
        if name not in found or not found[name].users:
            found[name] = nodes[spec.arg.name]
    return found


def _sizes(value: ir.Value) -> list[int]:
    assert value.shape is not None
    return [int(d) for d in value.shape]  # type: ignore[arg-type]


def _dtype(value: ir.Value) -> torch.dtype:
    assert value.const_value is not None
    return DTYPES[ir.DataType(value.const_value.dtype)]


def _computed(value: ir.Value) -> Tensor:
    assert value.const_value is not None
    array: Array = value.const_value.numpy()
    if _dtype(value) is torch.bfloat16:
        return torch.from_numpy(array.view("uint16").copy()).view(torch.bfloat16).reshape(array.shape)
    return torch.from_numpy(array.copy()).reshape(array.shape)
