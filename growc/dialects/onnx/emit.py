"""Writing the result: the source's model with other weights, other shape operands, and nothing else changed.

Names, metadata, opset and order stay. Weights are computed one at a time, while they are written (saving.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.dialects.onnx.capture.fused_ops import restore
from growc.dialects.onnx.capture.inline_control_flow import Step
from growc.dialects.onnx.capture.quantised import Stored
from growc.dialects.onnx.capture.split_broadcasts import names_in, rejoin
from growc.dialects.onnx.capture.stored_tensors import read_tensor, shape_of, stored_tensor
from growc.dialects.onnx.heads.insert_repeats import counting, settle
from growc.dialects.onnx.heads.share_fused_heads import share
from growc.dialects.onnx.origins import model_of, node_of, stored_of, value_of
from growc.dialects.onnx.repair.drop_units import all_gone, left_out
from growc.ir.graph import Graph, Node, Value, Weight
from growc.ir.naming import unused
from growc.passes.axes.unstacked_experts import Taken
from growc.passes.edits import Entries, Part, Patch, Repairs
from growc.passes.finish.assemble import chain
from growc.passes.finish.assembled import Assembled
from growc.plans.execute import execute, read_for
from growc.plans.plan import WeightPlan


def rewrite(
    graph: Graph, weights: Assembled, repairs: Repairs, attributes: Mapping[Node, Mapping[str, Any]]
) -> None:
    """Change the graph's onnx-ir model in place. The graph can be used no further."""
    writer = _Rewriter(graph, repairs)
    plans = list(zip(weights.weights, weights.uses, weights.sources, strict=True))
    origins = {source.name: value_of(source) for source in weights.sources}
    made = [_tensors(plan, source, origins) for plan, _, source in plans]  # none is replaced yet
    for (plan, uses, source), tensors in zip(plans, made, strict=True):
        writer.weight(plan, tensors, uses, source)
        if plan.scale != 1.0 and source.elements == 1:
            _put_second(uses)
    for node, patch in repairs.patches.items():
        if not node.chain:
            writer.patch(node, patch, node_of(node))
    for value, number in repairs.constants.items():
        writer.stand_in(value_of(value), number)
    for node, changed in attributes.items():
        for name, value in changed.items():
            node_of(node).attributes[name] = ir.AttrFloat32(name, float(value))
    writer.shapes()
    left_out(graph, repairs.taken, writer)
    settle(graph.dialect.spreading, writer, repeats=graph.dialect.repeats)
    kept = {value_of(source) for plan, _, source in plans if plan.changed}
    for folded in graph.dialect.folded:
        if folded.stand_in not in kept:
            folded.restore(kept)
    sizes = {value_of(v): after for v, after in repairs.sizes.items()}
    restore(graph.dialect.fused, lambda one: share(one, writer, sizes))
    rejoin(model_of(graph))
    RemoveUnusedNodesPass()(model_of(graph))
    all_gone(graph, repairs.taken)


def settle_repeats(graph: Graph, repairs: Repairs) -> None:
    """Plain operators for repeated heads in a model that was rewritten with operators of growc's own."""
    settle(counting(model_of(graph)), _Rewriter(graph, repairs), repeats=False)


def patching(graph: Graph) -> Callable[[Node, Patch, ir.Node], None]:
    """What lets a node of the model, which a node of the graph came from, say something else."""
    return _Rewriter(graph, Repairs(Taken())).patch


class _Rewriter:
    def __init__(self, graph: Graph, repairs: Repairs) -> None:
        self.graph, self.model, self.repairs = graph, model_of(graph), repairs
        self.names = names_in(self.model)

    # ---- weights

    def weight(
        self, plan: WeightPlan, tensors: list[ir.TensorProtocol | None], uses: list[Value], source: Weight
    ) -> None:
        stored, first = stored_of(source), tensors[0]
        assert first is not None, "zero points and scales may be missing, and nothing else"
        if plan.name == plan.source:
            if plan.changed and stored is None:
                self.replace(value_of(source), first)
            elif plan.changed and stored is not None:
                self.requantise(stored.node, plan, stored, tensors)
                for twin in stored.twins:
                    self.liken(twin, stored.node)
            self.patch_chains(uses)
            return
        if stored is None:
            made = self.initializer(plan.name, first)
        else:
            integers = stored.node.inputs[0]
            assert integers is not None
            copy = self.copied(stored.node, 0, integers)
            self.requantise(copy, plan, stored, tensors)
            made = copy.outputs[0]
        for use in uses:
            self.redirect(use, made)

    def requantise(
        self, node: ir.Node, plan: WeightPlan, stored: Stored, tensors: list[ir.TensorProtocol | None]
    ) -> None:
        """Give a quantised weight other integers, scales and zero points, which others may still read."""
        for i, tensor in enumerate(tensors):
            old = node.inputs[i] if i < len(node.inputs) else None
            if old is None or tensor is None:
                continue
            alone = {node, *stored.twins}.issuperset(use.node for use in old.uses())
            if alone and old.producer() is None:
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
        """Let a node make of the same operands what `node` does."""
        for i, operand in enumerate(node.inputs):
            twin.replace_input_with(i, operand)
        twin.attributes.update(node.attributes)
        twin.outputs[0].shape, twin.outputs[0].type = node.outputs[0].shape, node.outputs[0].type

    def replace(self, origin: ir.Value, tensor: ir.TensorProtocol) -> None:
        node = origin.producer()
        if node is None:
            origin.const_value = tensor
        else:  # a Constant node: small, so it is computed here and now
            node.attributes.clear()
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(tensor.numpy(), dtype=tensor.dtype))
        origin.shape = ir.Shape(shape_of(tensor))
        origin.type = ir.TensorType(tensor.dtype)

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        value = ir.Value(
            name=self.unused(name), type=ir.TensorType(tensor.dtype), shape=ir.Shape(shape_of(tensor))
        )
        value.const_value = tensor
        tensor.name = value.name
        self.model.graph.register_initializer(value)
        return value

    def constant(self, name: str, array: Array) -> ir.Value:
        return self.initializer(name, ir.tensor(array))

    def numbers(self, name: str, values: list[int]) -> ir.Value:
        return self.constant(name, np.asarray(values, dtype=np.int64))

    def unused(self, name: str) -> str:
        return unused(name, self.names)

    def patch_chains(self, uses: list[Value]) -> None:
        """Behind uses that keep the stored tensor, patches act on the model's own nodes, once on each."""
        chained = {node_of(node): node for use in uses for node in chain(use)}
        for origin, node in chained.items():
            if node in self.repairs.patches:
                self.patch(node, self.repairs.patches[node], origin)

    def redirect(self, use: Value, made: ir.Value) -> None:
        """Let one use read another tensor; the chain on the way is copied."""
        if not use.users:
            value_of(use).replace_all_uses_with(made, replace_graph_outputs=True)
            return
        for node, operand in use.users:
            if operand >= len(node.inputs):
                raise AssertionError("a weight that a body captures is frozen")
            if isinstance(node.origin, Step):
                body, k = node.origin.place(operand)
                body.outputs[k] = self.alias(body, body[-1] if len(body) else None, made)
                continue
            if not node.chain:
                node_of(node).replace_input_with(operand, made)
                continue
            copy = self.copied(node_of(node), operand, made)
            if node in self.repairs.patches:
                self.patch(node, self.repairs.patches[node], copy)
            self.redirect(node.outputs[0], copy.outputs[0])

    def alias(self, body: ir.Graph, last: ir.Node | None, value: ir.Value) -> ir.Value:
        """A value of a body that equals one of any scope: bodies must give out values of their own."""
        made = ir.node("Identity", [value], name=self.unused(f"{value.name}.Identity"))
        made.outputs[0].name = self.unused(f"{value.name}.result")
        made.outputs[0].type, made.outputs[0].shape = value.type, value.shape
        if last is None:
            body.append(made)
        else:
            body.insert_after(last, made)
        return made.outputs[0]

    def stand_in(self, value: ir.Value, number: Array) -> None:
        """Let everyone who reads a value read a constant."""
        constant, body = self.constant(f"{value.name}.kept", number), value.graph
        if body is not None and body is not self.model.graph:
            constant = self.alias(body, value.producer(), constant)
        value.replace_all_uses_with(constant, replace_graph_outputs=True)

    def copied(self, node: ir.Node, operand: int, made: ir.Value) -> ir.Node:
        inputs = [made if i == operand else v for i, v in enumerate(node.inputs)]
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
        _scope(node).insert_before(node, copy)
        return copy

    # ---- operands and attributes

    def patch(self, site: Node, patch: Patch, node: ir.Node) -> None:
        """Act on `node`, which is the origin of `site` or a copy of that."""
        node.op_type = patch.op or node.op_type
        for name, value in patch.attributes.items():
            node.attributes.pop(name, None)
            if value is not None:
                node.attributes[name] = ir.convenience.convert_attribute(name, value)
        for i, entries in patch.operands.items():
            if i >= len(node.inputs):
                node.resize_inputs(i + 1)
            literal = [e for e in entries if isinstance(e, int)]
            base = f"{node.outputs[0].name}.operand{i}"
            made = (
                self.constant(base, patch.literal(literal, site.input(i)))
                if len(literal) == len(entries)
                else self.joined(node, i, entries, base)
            )
            node.replace_input_with(i, made)

    def joined(self, node: ir.Node, i: int, entries: Entries, base: str) -> ir.Value:
        """The old operand's elements with numbers between them."""
        old = node.inputs[i]
        assert old is not None
        pieces: list[ir.Value] = []
        joined = _pieces(old, len(entries))
        for k, entry in enumerate(entries):
            if entry is None and joined:
                pieces.append(joined[k])
                continue
            if isinstance(entry, int):
                pieces.append(self.numbers(f"{base}.literal", [entry]))
                continue
            pieces.append(self.part(node, old, k, entry, base))
        return pieces[0] if len(pieces) == 1 else self.insert(node, "Concat", pieces, {"axis": 0}, base)

    def part(self, node: ir.Node, old: ir.Value, k: int, entry: Part | None, base: str) -> ir.Value:
        """Element k of an operand, or what it is to be a part of, times a fraction."""
        if entry is None or entry.whole is None:
            bounds = [self.numbers(f"{base}.bound", [b]) for b in (k, k + 1)]
            piece = self.insert(node, "Slice", [old, *bounds], {}, f"{base}.kept")
        else:
            flat = [value_of(entry.whole), self.numbers(f"{base}.one", [1])]
            piece = self.insert(node, "Reshape", flat, {}, f"{base}.whole")
            piece = self.insert(node, "Cast", [piece], {"to": ir.DataType.INT64}, f"{base}.whole")
        factor = Fraction(1) if entry is None else entry.factor
        for op, number in (("Mul", factor.numerator), ("Div", factor.denominator)):
            if number != 1:
                operands = [piece, self.numbers(f"{base}.factor", [number])]
                piece = self.insert(node, op, operands, {}, f"{base}.scaled")
        return piece

    def insert(
        self, before: ir.Node, op: str, inputs: list[ir.Value], attributes: dict[str, Any], name: str
    ) -> ir.Value:
        made = ir.node(op, inputs, attributes, name=self.unused(f"{name}.{op}"))
        made.outputs[0].name = self.unused(name)
        made.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        _scope(before).insert_before(before, made)
        return made.outputs[0]

    # ---- shapes

    def shapes(self) -> None:
        """Declared shapes follow: static sizes as numbers, symbols where they still mean the same."""
        for value, after in self.repairs.sizes.items():
            origin = value_of(value)
            if value.weight is not None or origin.shape is None or value.sizes == after:
                continue
            origin.shape = None if after is None else _declared(origin.shape, value.sizes, after)


def _declared(shape: Any, before: tuple[Size, ...] | None, after: tuple[Size, ...]) -> Any:
    dims: list[Any] = []
    for axis, size in enumerate(after):
        if before is not None and len(before) == len(after) == len(shape) and before[axis] == size:
            dims.append(shape[axis])
        elif len(set(size)) == 1:
            dims.append(size[0])
        else:
            dims.append(None)
    return ir.Shape(dims)


def _pieces(value: ir.Value, count: int) -> list[ir.Value]:
    """The elements of a shape that is put together of `count` vectors of one element each; else nothing."""
    node = value.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != count:
        return []
    pieces = [v for v in node.inputs if v is not None and v.shape is not None and list(v.shape) == [1]]
    return pieces if len(pieces) == count else []


def _put_second(uses: Sequence[Value]) -> None:
    """Let sums take a number that has changed as their second term.

    onnxruntime looks for the eps of a layer norm there when it fuses one, and takes 1e-5 where it finds none.
    """
    for use in uses:
        *_, last = (use, *(node.outputs[0] for node in chain(use)))
        for node, operand in last.users:
            if node.op == "Add" and operand == 0:
                first, second = node_of(node).inputs
                node_of(node).replace_input_with(0, second)
                node_of(node).replace_input_with(1, first)


def _scope(node: ir.Node) -> ir.Graph | ir.Function:
    """The graph or body in which a node stands."""
    assert node.graph is not None, node
    return node.graph


def _tensors(
    plan: WeightPlan, source: Weight, origins: Mapping[str, ir.Value]
) -> list[ir.TensorProtocol | None]:
    """The planned tensor; of a quantised weight its integers, scales and zero points."""
    stored = stored_of(source)
    if stored is not None:
        return stored.grown(plan)
    return [_lazy(plan, value_of(source), {n: stored_tensor(origins[n]) for n in read_for(plan)})]


def _lazy(plan: WeightPlan, origin: ir.Value, beside: Mapping[str, ir.TensorProtocol]) -> ir.LazyTensor:
    """The planned tensor, computed when it is asked for and not kept. `beside`: the other tensors for it."""
    source = stored_tensor(origin)

    def compute() -> ir.TensorProtocol:
        made = execute(plan, read_tensor(source), lambda name: read_tensor(beside[name]))
        return ir.tensor(made, dtype=source.dtype)

    return ir.LazyTensor(compute, dtype=source.dtype, shape=ir.Shape(plan.after), name=plan.name)
