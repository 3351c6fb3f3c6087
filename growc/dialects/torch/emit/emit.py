"""From a finished compilation of a module to the module that it becomes.

The lowered model is rewritten as a file would be (growc.dialects.onnx.emit), and every call of the source's
graph is read off it again.
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
from growc.dialects.torch.capture.export import Captured, is_tensor
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.emit.parameters import Holdings, computed, stored_name
from growc.dialects.torch.emit.rebuild import Made, Rebuilding
from growc.dialects.torch.emit.repeat_heads import call_repeats, take_out
from growc.dialects.torch.emit.train_eval import Training, no_training
from growc.dialects.torch.emit.write_graph import write
from growc.dialects.torch.lowering.outputs import OUTPUT, Result, arranged, with_constants
from growc.dialects.torch.model import torch_model
from growc.dialects.torch.operators.call import DTYPES
from growc.dialects.torch.run.cases import Descent
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes import compilation


def planned_graph(c: compilation.Result, outline: Callable[[str], Tensor]) -> GrownModule:
    """The result's graph for evaluation, with all that is stored on meta, in its new sizes.

    What no checkpoint holds has its values. outline: of the source, a stored tensor on meta.
    """
    holdings = replace(Holdings.of(c), read=outline)
    return emit(c, holdings, lambda value: torch.empty(_sizes(value), dtype=_dtype(value), device="meta"))


def grown_module(c: compilation.Result, training: Captured | GrowError | None = None) -> GrownModule:
    """The result with the weights of its plan, each computed once.

    `training`: the source as it was captured in training, or why it could not be.
    """
    return emit(c, Holdings.of(c), computed, training)


def emit(
    c: compilation.Result,
    holdings: Holdings,
    tensor: Callable[[ir.Value], Tensor],
    training: Captured | GrowError | None = None,
) -> GrownModule:
    """The result; `tensor` makes a stored one. What was captured stays as it is. Raises GrowError (G308)."""
    try:
        return _emitted(c, holdings, tensor, training)
    finally:
        for graph in (torch_model(c).captured, training):
            if isinstance(graph, Captured):
                take_out(graph.program.graph)


def _emitted(
    c: compilation.Result,
    holdings: Holdings,
    tensor: Callable[[ir.Value], Tensor],
    training: Captured | GrowError | None,
) -> GrownModule:
    captured = torch_model(c).captured
    _require_pure(captured)
    own, there = rewrite(c.graph, c.assembled, c.repairs, c.attributes)
    model, places = own.source, _places(c, own, there)
    call_repeats(model.graph, captured.program.graph)
    rebuilding = Rebuilding(captured, model, placeholders(captured), places)
    calls = rebuilding.all()
    outputs = [rebuilding.output(v) for v in model.graph.outputs]
    spec, results = _results(c, captured, model, places)
    graph, used = write(captured, model, calls, outputs, results, holdings)
    graphs, missing = {False: graph}, ""
    try:
        if isinstance(training, GrowError):
            raise training
        if training is not None:
            graphs[True], more = _trained(captured, training, rebuilding, outputs, results, holdings)
            used += [value for value in more if value not in used]
    except GrowError as error:
        missing = reason_of(error)
    held, returns = holdings.tensors(used, tensor), (r.output for r in results if r.output is not None)
    descent = Descent.of(c, model, [model.graph.outputs[k].name or "" for k in returns])
    return GrownModule(held, graphs, spec, descent, missing)


def _require_pure(captured: Captured) -> None:
    if captured.written:
        message = f"evaluation writes to `{captured.written[0]}`, and what is grown from that would not"
        raise GrowError(Diagnostic("G308", message, help="export the model without this state"))


def _results(
    c: compilation.Result, captured: Captured, model: ir.Model, places: Mapping[ir.Node, tuple[int, int]]
) -> tuple[TreeSpec, list[Result]]:
    """What forward returns by now. Raises GrowError (G308) where it cannot have this structure."""
    found = []
    for output, value in enumerate(model.graph.outputs):
        node, _ = maker_of(value)
        layer = places.get(node)
        source = None if layer is None else (layer[0], c.layers.runs[layer[0]].history.order[layer[1]])
        found.append(Result(node.meta[OUTPUT], output, layer, source))
    constants = {k: given for k, given in enumerate(captured.returned) if not is_tensor(given)}
    return arranged(captured.program.call_spec.out_spec, with_constants(found, constants))


def _trained(
    captured: Captured,
    training: Captured,
    rebuilding: Rebuilding,
    outputs: list[Made],
    results: list[Result],
    holdings: Holdings,
) -> tuple[fx.Graph, list[ir.Value]]:
    """The graph for training, and the stored tensors that it reads. Raises GrowError (G320)."""
    theirs, ours = captured.returned, training.returned
    if [is_tensor(given) for given in theirs] != [is_tensor(given) for given in ours]:
        raise no_training("it returns other things in training")
    numbers = {one.output: one.number for one in results}
    given = [(ours[numbers[k]], theirs[numbers[k]], made) for k, made in enumerate(outputs)]
    modes = Training(training.program.graph, placeholders(training), rebuilding)
    calls, trained = modes.calls(given)
    return write(training, rebuilding.model, calls, trained, results, holdings, modes.trained)


def reason_of(error: GrowError) -> str:
    """Why something could not be done, in one line."""
    first = error.diagnostics[0]
    return ": ".join([first.message, *first.notes[:1]])


def _places(c: compilation.Result, own: IrModel, there: Clone) -> dict[ir.Node, tuple[int, int]]:
    """The layer that each node stands in, by run and position; fused nodes stand where their parts do."""
    found = {there.node_of(node): place for node, place in c.layers.home.items()}
    for fused in own.fused:
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
