"""Writing of the result's calls as an FX graph."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.capture.export import ExportedModule
from growc.dialects.torch.emit.literals import Parameter, argument, entries, refusal
from growc.dialects.torch.emit.module_stacks import STACK, moved
from growc.dialects.torch.emit.parameters import SourceTensors
from growc.dialects.torch.emit.rebuild import RebuiltCall, names_of
from growc.dialects.torch.lowering.outputs import ForwardResult
from growc.dialects.torch.operators.call import SITE, ArgumentPath
from growc.dialects.torch.run.call_signature import identifier

aten = torch.ops.aten

NOTHING: Mapping[fx.Node, fx.Node] = MappingProxyType({})


def write(
    captured: ExportedModule,
    model: ir.Model,
    calls: Sequence[RebuiltCall],
    outputs: Sequence[RebuiltCall],
    results: Sequence[ForwardResult],
    source: SourceTensors,
    replacements: Mapping[fx.Node, fx.Node] = NOTHING,
) -> tuple[fx.Graph, list[ir.Value]]:
    """Return the graph and the stored tensors that it reads.

    outputs: the calls that give the model's outputs, from which `results` are made. replacements: calls that
    stand for the calls that the model names.
    """
    writing = _Writing(model, source, replacements)
    for rebuilt in calls:
        writing.call(rebuilt)
    graph = writing.graph
    source_returns = captured.returned
    graph.output(
        [source_returns[r.number] if r.output is None else writing.node(outputs[r.output]) for r in results]
    )
    graph.eliminate_dead_code()
    graph.lint()
    read_names = {node.target for node in graph.nodes if node.op == "get_attr"}
    return graph, [value for value, node in writing.stored.items() if node.target in read_names]


MASK = 3
"""Position of the mask among the arguments of scaled dot-product attention."""


class _Writing:
    def __init__(
        self, model: ir.Model, source: SourceTensors, replacements: Mapping[fx.Node, fx.Node]
    ) -> None:
        self.graph, self.source, self.replacements = fx.Graph(), source, replacements
        self.nodes: dict[RebuiltCall, fx.Node] = {}
        self.results: dict[fx.Node, list[fx.Node]] = {}
        self.stored: dict[ir.Value, fx.Node] = {}
        self.inputs = {v: self.graph.placeholder(identifier(v.name or "")) for v in model.graph.inputs}

    def node(self, rebuilt: RebuiltCall) -> fx.Node:
        """Return the node of a written call, or of a tensor."""
        if rebuilt.call is not None:
            return self.nodes[rebuilt]
        assert rebuilt.tensor is not None
        return self.inputs[rebuilt.tensor] if rebuilt.tensor in self.inputs else self.tensor(rebuilt.tensor)

    def tensor(self, value: ir.Value) -> fx.Node:
        """Return the node that reads a stored tensor. It stands in front of all calls."""
        if value not in self.stored:
            first = next((n for n in self.graph.nodes if n.op == "call_function"), None)
            with self.graph.inserting_before(first):
                self.stored[value] = self.graph.get_attr(self.source.name(value))
        return self.stored[value]

    def given(self, argument: fx.Node, rebuilt: RebuiltCall) -> Any:
        """Return an argument: a number if it was one and is known now, otherwise a node."""
        number = not isinstance(argument.meta.get("val"), torch.Tensor)
        if number and rebuilt.tensor is not None and rebuilt.tensor.const_value is not None:
            return entries(rebuilt.tensor)[0]
        return self.node(rebuilt)

    def call(self, rebuilt: RebuiltCall) -> None:
        """Write one call."""
        source = rebuilt.call
        assert source is not None
        arguments = {
            argument_node: self.given(argument_node, one) for argument_node, one in rebuilt.arguments.items()
        }
        args: list[Any] = list(fx.map_arg(source.args, arguments.__getitem__))
        kwargs: dict[str, Any] = dict(fx.map_arg(source.kwargs, arguments.__getitem__))
        for path, literal in rebuilt.literals.items():
            _put(args, kwargs, path, self.said(literal, arguments))
        if source.target is aten.scaled_dot_product_attention.default:
            place: ArgumentPath = (MASK,) if len(args) > MASK else ("attn_mask",)
            mask = argument(source, place)
            if isinstance(mask, fx.Node) and mask.meta["val"].is_floating_point():
                # In a module that is converted to another dtype, torch would read the mask as of that dtype.
                _put(args, kwargs, place, self.graph.call_function(aten.to.other, (arguments[mask], args[0])))
        node = self.graph.create_node(source.op, source.target, tuple(args), kwargs, source.name)
        if stack := source.meta.get(STACK):
            node.meta[STACK] = moved(stack, rebuilt.move)
        self.nodes[rebuilt] = node
        self.results.setdefault(source, []).append(node)

    def said(self, literal: Any, arguments: Mapping[fx.Node, Any]) -> Any:
        """Return a literal as an argument. Elements that the graph computes become nodes."""
        if isinstance(literal, fx.Node):
            return arguments[literal]
        if isinstance(literal, Parameter):
            return self.tensor(literal.value)
        if isinstance(literal, ir.Value):
            return self.computed(literal)
        if isinstance(literal, (list, tuple)):
            return [self.said(part, arguments) for part in literal]
        return literal

    def computed(self, value: ir.Value) -> fx.Node:
        """Return the node of a number that the graph computes: a source's result, or derived from one.

        Raises GrowError (G308) if no call computes it.
        """
        for name in names_of(value):
            if nodes := self.results.get(self.replacements.get(name, name)):
                return nodes[0]
        node = value.producer()
        if node is None or SITE in node.meta or node.op_type not in _ARITHMETIC:
            raise refusal(node, "it is a number that no call computes")
        operands = [entries(v)[0] for v in node.inputs if v is not None]
        first, *rest = [v if not isinstance(v, ir.Value) else self.computed(v) for v in operands]
        function = _ARITHMETIC[node.op_type]
        return first if function is None else self.graph.call_function(function, (first, rest[0]))  # type: ignore[return-value]


_ARITHMETIC = {"Mul": operator.mul, "Div": operator.floordiv, "Reshape": None, "Cast": None}
"""Operators that emission inserts between a number and its use."""


def _put(args: list[Any], kwargs: dict[str, Any], path: ArgumentPath, value: Any) -> None:
    """Set the argument at a path of a call."""
    head = path[0]
    if isinstance(head, str):
        kwargs[head] = value
        return
    if len(path) != 1:
        raise AssertionError("literals inside of arguments change with the whole argument")
    args[head] = value
