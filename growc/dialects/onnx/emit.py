"""Emission: the source's model with new weights and new shape operands, and nothing else changed.

Names, metadata, opset and order stay. Weights are computed one at a time, while they are written
(growc.dialects.onnx.files.save).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.dialects.onnx.capture.fused_ops import restore
from growc.dialects.onnx.capture.inline_control_flow import InlinedNode
from growc.dialects.onnx.capture.quantised_weights import QuantisedWeight
from growc.dialects.onnx.capture.split_broadcasts import rejoin
from growc.dialects.onnx.capture.stored_values import shape_of, stored_tensor
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.heads.insert_repeats import counting, settle
from growc.dialects.onnx.heads.share_fused_heads import share
from growc.dialects.onnx.model import IrModel, opened
from growc.dialects.onnx.origins import stored_of, value_of
from growc.dialects.onnx.planned_tensor import PlannedTensor
from growc.dialects.onnx.repair.drop_units import all_gone, left_out
from growc.dialects.onnx.writer import Writer, scope_of
from growc.ir.graph import Graph, Node, Value, Weight
from growc.passes.compilation import Result
from growc.passes.edits import Repairs
from growc.passes.finish.assemble import chain
from growc.passes.finish.assembled import Assembled
from growc.plans.execute import read_for
from growc.plans.plan import WeightPlan

INITIALIZERS_ALONE = 4
"""The first version of ONNX's format in which initializers need not be inputs."""


def rewrite(
    graph: Graph, weights: Assembled, repairs: Repairs, attributes: Mapping[Node, Mapping[str, float]]
) -> tuple[IrModel, Clone]:
    """Return a copy of the graph's model as a plan has it, and the mapping from the source to it.

    Repeats of heads may still be operators of growc's own. Raises GrowError (G308).
    """
    model = opened(graph)
    clone = Clone.of(model.source)
    result = model.on(clone)
    result.remember([*result.source.graph, *(one.node for one in result.fused)])
    writer = _Rewriter(clone, repairs)
    origins = {source.name: value_of(source) for source in weights.sources}
    plans = list(zip(weights.weights, weights.uses, weights.sources, strict=True))
    for plan, uses, source in plans:
        writer.weight(plan, _tensors(plan, source, origins), uses, source)
        if plan.scale != 1.0 and source.elements == 1:
            _put_second(uses, clone)
    for node, patch in repairs.patches.items():
        if not node.chain:
            writer.patch(node, patch, clone.node_of(node))
    for value, number in repairs.constants.items():
        writer.stand_in(clone.value_of(value), number)
    for node, changed in attributes.items():
        for name, real in changed.items():
            clone.node_of(node).attributes[name] = ir.AttrFloat32(name, float(real))
    writer.shapes()
    left_out(graph, repairs.taken, writer)
    settle(result.spreading, writer, repeats=result.repeats)
    changed_weights = {clone.value_of(source) for plan, _, source in plans if plan.changed}
    for folded in result.folded:
        if folded.stand_in not in changed_weights:
            folded.restore(changed_weights)
    sizes = {clone.value_of(v): after for v, after in repairs.sizes.items()}
    restore(result.fused, lambda one: share(one, writer, sizes))
    rejoin(result.source)
    RemoveUnusedNodesPass()(result.source)
    all_gone(repairs.taken, clone)
    return result, clone


def emitted(c: Result) -> ir.Model:
    """Return the result of a compilation as it is written, in plain operators. Raises GrowError (G308)."""
    result, clone = rewrite(c.graph, c.assembled, c.repairs, c.attributes)
    settle(counting(result.source), Writer(clone), repeats=False)
    model = result.source
    if not set(model.graph.initializers.values()) <= set(model.graph.inputs):
        model.ir_version = max(model.ir_version, INITIALIZERS_ALONE)
    return model


class _Rewriter(Writer):
    def __init__(self, clone: Clone, repairs: Repairs) -> None:
        super().__init__(clone)
        self.repairs = repairs

    # ---- weights

    def weight(
        self, plan: WeightPlan, tensors: list[ir.TensorProtocol | None], uses: list[Value], source: Weight
    ) -> None:
        stored, first = stored_of(source), tensors[0]
        assert first is not None, "zero points and scales may be missing, and nothing else"
        if plan.name == plan.source:
            if plan.changed and stored is None:
                self.replace(self.clone.value_of(source), first)
            elif plan.changed and stored is not None:
                node = self.clone.node(stored.node)
                self.requantise(node, plan, stored, tensors)
                for twin in stored.twins:
                    self.liken(self.clone.node(twin), node)
            self.patch_chains(uses)
            return
        if stored is None:
            new = self.initializer(plan.name, first)
        else:
            node = self.clone.node(stored.node)
            integers = node.inputs[0]
            assert integers is not None
            copy = self.copied(node, 0, integers)
            self.requantise(copy, plan, stored, tensors)
            new = copy.outputs[0]
        for use in uses:
            self.redirect(use, new)

    def requantise(
        self,
        node: ir.Node,
        plan: WeightPlan,
        stored: QuantisedWeight,
        tensors: list[ir.TensorProtocol | None],
    ) -> None:
        """Give a quantised weight new integers, scales and zero points; others may still read the old."""
        for i, tensor in enumerate(tensors):
            old = node.inputs[i] if i < len(node.inputs) else None
            if old is None or tensor is None:
                continue
            own_nodes = {node, *map(self.clone.node, stored.twins)}.issuperset(use.node for use in old.uses())
            if own_nodes and old.producer() is None:
                self.replace(old, tensor)
            else:
                node.replace_input_with(
                    i, self.initializer(f"{plan.name}.operand{i}" if i else plan.name, tensor)
                )
        for name, number in stored.attributes(plan).items():
            node.attributes[name] = ir.AttrInt64(name, number)
        node.outputs[0].shape = ir.Shape(plan.after)
        node.outputs[0].type = node.outputs[0].type or ir.TensorType(ir.DataType.FLOAT)

    @staticmethod
    def liken(twin: ir.Node, node: ir.Node) -> None:
        """Give a twin the operands and attributes of `node`."""
        for i, operand in enumerate(node.inputs):
            twin.replace_input_with(i, operand)
        twin.attributes.update(node.attributes)
        twin.outputs[0].shape, twin.outputs[0].type = node.outputs[0].shape, node.outputs[0].type

    def replace(self, origin: ir.Value, tensor: ir.TensorProtocol) -> None:
        node = origin.producer()
        if node is None:
            origin.const_value = tensor
        else:  # a Constant node is small, so its tensor is computed at once
            node.attributes.clear()
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(tensor.numpy(), dtype=tensor.dtype))
        origin.shape = ir.Shape(shape_of(tensor))
        origin.type = ir.TensorType(tensor.dtype)

    def patch_chains(self, uses: list[Value]) -> None:
        """Patch the chains behind uses that keep the stored tensor: the model's own nodes, each once."""
        chained = {self.clone.node_of(node): node for use in uses for node in chain(use)}
        for origin, node in chained.items():
            if node in self.repairs.patches:
                self.patch(node, self.repairs.patches[node], origin)

    def redirect(self, use: Value, replacement: ir.Value) -> None:
        """Let one use read another tensor. The chain in between is copied."""
        if not use.users:
            self.clone.value_of(use).replace_all_uses_with(replacement, replace_graph_outputs=True)
            return
        for node, operand in use.users:
            if operand >= len(node.inputs):
                raise AssertionError("a weight that a body captures is frozen")
            if isinstance(node.origin, InlinedNode):
                body, k = self.clone.place(node.origin, operand)
                body.outputs[k] = self.alias(body, body[-1] if len(body) else None, replacement)
                continue
            if not node.chain:
                self.clone.node_of(node).replace_input_with(operand, replacement)
                continue
            copy = self.copied(self.clone.node_of(node), operand, replacement)
            if node in self.repairs.patches:
                self.patch(node, self.repairs.patches[node], copy)
            self.redirect(node.outputs[0], copy.outputs[0])

    def stand_in(self, value: ir.Value, number: Array) -> None:
        """Replace a value by a constant for all its readers."""
        constant, body = self.constant(f"{value.name}.kept", number), value.graph
        if body is not None and body is not self.model.graph:
            constant = self.alias(body, value.producer(), constant)
        value.replace_all_uses_with(constant, replace_graph_outputs=True)

    def copied(self, node: ir.Node, operand: int, replacement: ir.Value) -> ir.Node:
        inputs = [replacement if i == operand else v for i, v in enumerate(node.inputs)]
        copy = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            attributes=list(node.attributes.values()),
            overload=node.overload,
            num_outputs=len(node.outputs),
            version=node.version,
            name=None if node.name is None else self.unused(f"{node.name}.copy"),
        )
        copy.meta.update(node.meta)
        for new, old in zip(copy.outputs, node.outputs, strict=True):
            new.name, new.type = self.unused(f"{old.name}.copy"), old.type
        scope_of(node).insert_before(node, copy)
        return copy

    # ---- shapes

    def shapes(self) -> None:
        """Update declared shapes: static sizes as numbers, symbols only if their sizes have not changed."""
        for value, after in self.repairs.sizes.items():
            origin = self.clone.value_of(value)
            if value.weight is not None or origin.shape is None or value.sizes == after:
                continue
            origin.shape = None if after is None else _declared(origin.shape, value.sizes, after)


def _declared(shape: ir.Shape, before: tuple[Size, ...] | None, after: tuple[Size, ...]) -> ir.Shape:
    dims: list[int | ir.SymbolicDim | None] = []
    for axis, size in enumerate(after):
        if before is not None and len(before) == len(after) == len(shape) and before[axis] == size:
            dims.append(shape[axis])
        elif len(set(size)) == 1:
            dims.append(size[0])
        else:
            dims.append(None)
    return ir.Shape(dims)


def _put_second(uses: Sequence[Value], clone: Clone) -> None:
    """Make a changed number the second term of the sums that use it.

    onnxruntime looks for the eps of a layer norm there when it fuses one, and takes 1e-5 if it finds none.
    """
    for use in uses:
        *_, last = (use, *(node.outputs[0] for node in chain(use)))
        for node, operand in last.users:
            if node.op == "Add" and operand == 0:
                own = clone.node_of(node)
                first, second = own.inputs
                own.replace_input_with(0, second)
                own.replace_input_with(1, first)


def _tensors(
    plan: WeightPlan, source: Weight, origins: Mapping[str, ir.Value]
) -> list[ir.TensorProtocol | None]:
    """Return the planned tensor; for a quantised weight its integers, scales and zero points."""
    stored = stored_of(source)
    if stored is not None:
        return stored.grown(plan)
    beside = {name: stored_tensor(origins[name]) for name in read_for(plan)}
    return [PlannedTensor(plan, stored_tensor(value_of(source)), beside)]
