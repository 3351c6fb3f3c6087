"""Emission of a compiled module as the resulting module.

The lowered model is rewritten in the same way as a file (growc.dialects.onnx.emit). The calls of the source's
graph are then derived from the rewritten model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import onnx_ir as ir
import torch
from torch import Tensor, fx
from torch.export.graph_signature import InputKind
from torch.utils._pytree import TreeSpec

from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.emit import rewrite
from growc.dialects.onnx.model import IrModel
from growc.dialects.onnx.origins import maker_of
from growc.dialects.torch.capture.export import ExportedModule, is_tensor
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.emit.parameters import SourceTensors, computed, stored_name
from growc.dialects.torch.emit.rebuild import Rebuilding, RebuiltCall
from growc.dialects.torch.emit.repeat_heads import call_repeats, take_out
from growc.dialects.torch.emit.train_eval import Training, no_training
from growc.dialects.torch.emit.write_graph import write
from growc.dialects.torch.lowering.outputs import OUTPUT, ForwardResult, arranged, with_constants
from growc.dialects.torch.model import torch_model
from growc.dialects.torch.operators.call import DTYPES
from growc.dialects.torch.run.cases import PortMapping
from growc.errors.diagnostic import GrowError
from growc.passes import compilation


def planned_graph(c: compilation.Result, outline: Callable[[str], Tensor]) -> GrownModule:
    """Return the result's graph for evaluation, with stored tensors on meta in their new sizes.

    Tensors that no checkpoint holds have values. outline: returns a stored tensor of the source on meta.
    """
    source = replace(SourceTensors.of(c), read=outline)
    return emit(c, source, lambda value: torch.empty(_sizes(value), dtype=_dtype(value), device="meta"))


def grown_module(c: compilation.Result, training: ExportedModule | GrowError | None = None) -> GrownModule:
    """Return the result with the weights of its plan, each computed once.

    training: the source as captured in training mode, or the error of that capture.
    """
    return emit(c, SourceTensors.of(c), computed, training)


def emit(
    c: compilation.Result,
    source: SourceTensors,
    tensor: Callable[[ir.Value], Tensor],
    training: ExportedModule | GrowError | None = None,
) -> GrownModule:
    """Return the result. `tensor` makes a stored tensor. Captured graphs are left as they were.

    Raises GrowError (G308).
    """
    try:
        return _emitted(c, source, tensor, training)
    finally:
        for graph in (torch_model(c).captured, training):
            if isinstance(graph, ExportedModule):
                take_out(graph.program.graph)


def _emitted(
    c: compilation.Result,
    source: SourceTensors,
    tensor: Callable[[ir.Value], Tensor],
    training: ExportedModule | GrowError | None,
) -> GrownModule:
    captured = torch_model(c).captured
    captured.require_pure()
    rewritten, clone = rewrite(c.graph, c.assembled, c.repairs, c.attributes)
    model, places = rewritten.source, _places(c, rewritten, clone)
    call_repeats(model.graph, captured.program.graph)
    rebuilding = Rebuilding(captured, model, placeholders(captured), places)
    calls = rebuilding.all()
    outputs = [rebuilding.output(v) for v in model.graph.outputs]
    spec, results = _results(c, captured, model, places)
    graph, used = write(captured, model, calls, outputs, results, source)
    graphs, missing = {False: graph}, ""
    try:
        if isinstance(training, GrowError):
            raise training
        if training is not None:
            graphs[True], training_used = _trained(captured, training, rebuilding, outputs, results, source)
            used += [value for value in training_used if value not in used]
    except GrowError as error:
        missing = reason_of(error)
    tensors, returned = (
        source.tensors(used, tensor),
        (r.output for r in results if r.output is not None),
    )
    descent = PortMapping.of(c, model, [model.graph.outputs[k].name or "" for k in returned])
    return GrownModule(tensors, graphs, spec, descent, missing)


def _results(
    c: compilation.Result,
    captured: ExportedModule,
    model: ir.Model,
    places: Mapping[ir.Node, tuple[int, int]],
) -> tuple[TreeSpec, list[ForwardResult]]:
    """Return the structure and the results of forward.

    Raises GrowError (G308) if the structure cannot hold the results.
    """
    results = []
    for output, value in enumerate(model.graph.outputs):
        node, _ = maker_of(value)
        layer = places.get(node)
        source = None if layer is None else (layer[0], c.layers.runs[layer[0]].history.order[layer[1]])
        results.append(ForwardResult(node.meta[OUTPUT], output, layer, source))
    constants = {k: value for k, value in enumerate(captured.returned) if not is_tensor(value)}
    return arranged(captured.program.call_spec.out_spec, with_constants(results, constants))


def _trained(
    captured: ExportedModule,
    training: ExportedModule,
    rebuilding: Rebuilding,
    outputs: list[RebuiltCall],
    results: list[ForwardResult],
    source: SourceTensors,
) -> tuple[fx.Graph, list[ir.Value]]:
    """Return the graph for training and the stored tensors that it reads. Raises GrowError (G320)."""
    evaluated_returns, trained_returns = captured.returned, training.returned
    if [is_tensor(value) for value in evaluated_returns] != [is_tensor(value) for value in trained_returns]:
        raise no_training("it returns other things in training")
    numbers = {one.output: one.number for one in results}
    returned_calls = [
        (trained_returns[numbers[k]], evaluated_returns[numbers[k]], call) for k, call in enumerate(outputs)
    ]
    modes = Training(training.program.graph, placeholders(training), rebuilding)
    calls, trained = modes.calls(returned_calls)
    return write(training, rebuilding.model, calls, trained, results, source, modes.trained)


def reason_of(error: GrowError) -> str:
    """Return the reason of an error in one line."""
    first = error.diagnostics[0]
    return ": ".join([first.message, *first.notes[:1]])


def _places(c: compilation.Result, own: IrModel, clone: Clone) -> dict[ir.Node, tuple[int, int]]:
    """Return the layer of each node, by run and position. A fused node has the layer of its parts."""
    layers = {clone.node_of(node): place for node, place in c.layers.home.items()}
    for fused in own.fused:
        part_layers = [layers[part] for part in fused.lowering.nodes if part in layers]
        if part_layers:
            layers[fused.node] = part_layers[0]
    return layers


def placeholders(captured: ExportedModule) -> dict[str, fx.Node]:
    """Return the placeholders of the program by the names of inputs and stored tensors."""
    nodes = {node.name: node for node in captured.program.graph.nodes if node.op == "placeholder"}
    by_name: dict[str, fx.Node] = {}
    for spec in captured.program.graph_signature.input_specs:
        name = spec.arg.name if spec.kind is InputKind.USER_INPUT else stored_name(captured, str(spec.target))
        if name not in by_name or not by_name[name].users:
            by_name[name] = nodes[spec.arg.name]
    return by_name


def _sizes(value: ir.Value) -> list[int]:
    assert value.shape is not None
    return [int(d) for d in value.shape]  # type: ignore[arg-type]


def _dtype(value: ir.Value) -> torch.dtype:
    assert value.const_value is not None
    return DTYPES[ir.DataType(value.const_value.dtype)]
