"""One new layer: a copy of the nodes of a source's layer on another stream.

Needs: `Layered`, the layers built so far. Gives: `Placed`. The first copy of a layer keeps its weights, later
ones get tensors of their own; what layers share they go on to share. What an expression of sizes asks of a
layer's tensor it asks of the same tensor of the new layer, or of one of the same size that stands before it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from growc.diagnostic import Diagnostic, GrowError
from growc.dialects.onnx.capture import COPY_OF, ZERO
from growc.dialects.onnx.layered import Layered, origin_of
from growc.dialects.onnx.owners import Place, bodies
from growc.dialects.onnx.tensors import constant_of
from growc.graph import Value
from growc.layers import Instance, Layer

Named = ir.Value | ir.Node


@dataclass(eq=False)
class Placed:
    """One layer of the result. `source`: the layer that it is a copy of; start, end: the stream."""

    source: int
    start: ir.Value
    end: ir.Value
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """What stands for each value of the source's layer."""
    nodes: list[ir.Node] = field(default_factory=list)
    numbered: list[tuple[Named, str, bool]] = field(default_factory=list)
    """What is named by the layer's number: (it, its name in the source, whether it is the source's own)."""

    @staticmethod
    def unmoved(number: int, layer: Layer) -> Placed:
        """A layer of a run that stays as it is."""
        nodes = list(dict.fromkeys(map(origin_of, layer.nodes)))
        return Placed(number, layer.start.origin, layer.end.origin, {}, nodes)


class Building:
    """The new layers of all runs. `factors`: for what stands for a weight, a tensor that is zero if it is."""

    def __init__(self, source: Layered, factors: Mapping[ir.Value, ir.Value]) -> None:
        self.source, self.factors = source, factors
        self.runs: dict[int, list[Placed]] = {}
        self.expressions: dict[tuple[object, ...], ir.Node] = {}

    def rebuild(self, number: int, order: Sequence[Instance]) -> None:
        """Build a run anew. Raises GrowError (G314) where a layer that is gone is needed."""
        run = self.source.layers.runs[number]
        placed = self.runs[number] = []
        stream: ir.Value = run.layers[0].start.origin
        for instance in order:
            layer = run.layers[instance.source]
            made = Placed(instance.source, stream, stream, {layer.start.origin: stream})
            first = all(p.source != instance.source for p in placed)
            _Copying(self, (number, instance.source), made, first, self.zeros(instance.zeroed)).run()
            placed.append(made)
            stream = made.end = made.values[layer.end.origin]

    def zeros(self, zeroed: Sequence[Value]) -> dict[tuple[ir.Node, int], set[ir.Value]]:
        """(node, operand) -> the stored tensors on the way there that become zero."""
        sites: dict[tuple[ir.Node, int], set[ir.Value]] = {}
        for use in zeroed:
            node, operand = use.users[0]
            while node.chain:
                node, operand = node.outputs[0].users[0]
            own = self.factors.get(use.origin, use.origin)
            sites.setdefault((origin_of(node), operand), set()).add(own)
        return sites

    def first(self, number: int, value: ir.Value) -> ir.Value | None:
        """What stands for a value in the first layer that has it; None where no layer does."""
        return next((p.values[value] for p in self.runs[number] if value in p.values), None)

    def elsewhere(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        """A value from outside of a layer, as the layer's copy reads it."""
        place = self.source.place(value)
        if place is None or place[0] not in self.runs:
            return value
        found = self.first(place[0], value)
        if found is None:
            raise needed(place, reader)
        return found

    def twin(self, value: ir.Value, before: Sequence[Placed], run: int) -> ir.Value | None:
        """A tensor of the same size as one of the source's, of a layer built so far; the latest one."""
        place = self.source.place(value)
        if place is None or place[0] not in self.runs:
            return value
        candidates = before if place[0] == run else self.runs[place[0]]
        for made in reversed(candidates):
            if value in made.values:
                return made.values[value]
        alike = self.source.alike(value, place)
        for made in reversed(candidates):
            found = alike.get(made.source)
            if found is not None and found in made.values:
                return made.values[found]
        return None


class _Copying:
    """One layer while it is copied. `zeros`: (node, operand) -> stored tensors behind it that are zero."""

    def __init__(
        self,
        building: Building,
        place: Place,
        made: Placed,
        first: bool,
        zeros: Mapping[tuple[ir.Node, int], set[ir.Value]],
    ) -> None:
        self.building, self.source, self.graph = building, building.source, building.source.graph
        self.place, self.made, self.first, self.zeros = place, made, first, zeros
        self.constants: dict[tuple[ir.Value, bool], ir.Value] = {}
        self.expressions: dict[ir.Value, ir.Value] = {}

    def run(self) -> None:
        for value in self.source.inputs.get(self.place, ()):
            new = value if self.first else ir.Value(name=value.name, shape=value.shape, type=value.type)
            self.made.values[value] = new
            self.name(new, value.name, own=self.first)
        for node in self.source.own[self.place]:
            inputs = [self.operand(node, i, v) for i, v in enumerate(node.inputs)]
            copy = copied(node, inputs, self.operand, self.zeros)
            self.graph.append(copy)
            self.made.nodes.append(copy)
            self.made.values.update(zip(node.outputs, copy.outputs, strict=True))
            self.number(copy, node, own=self.first)

    def number(self, copy: ir.Node, node: ir.Node, *, own: bool) -> None:
        self.name(copy, node.name, own=own)
        for new, old in zip(copy.outputs, node.outputs, strict=True):
            self.name(new, old.name, own=own)

    def name(self, thing: Named, name: str | None, *, own: bool) -> None:
        if name:
            self.made.numbered.append((thing, name, own))

    def operand(self, node: ir.Node, i: int, value: ir.Value | None) -> ir.Value | None:
        """What a copy reads. `node`: the source's, in a body too (`i`: -1 for what a body gives out)."""
        if value is None or value in self.made.values:
            return None if value is None else self.made.values[value]
        zeros = self.zeros.get((node, i), set())
        if zeros or self.source.owners.is_static(value):
            return self.constant(value, zeros)
        if value in self.source.data or value.is_graph_input():
            return self.building.elsewhere(value, node)
        return self.expression(value, node)

    # ---- stored tensors

    def constant(self, value: ir.Value, zeros: set[ir.Value]) -> ir.Value:
        """A stored tensor, or what is made of it: the layer's own are copied, shared ones are not."""
        zero, inner = _reaches(value, zeros), self.graph is not _graph_of(value)
        if not zero and not inner and self.source.owners.of(value) != self.place:
            return value
        key = (value, zero)
        if key not in self.constants:
            self.constants[key] = self.fresh(value, zeros)
        return self.constants[key]

    def fresh(self, value: ir.Value, zeros: set[ir.Value]) -> ir.Value:
        node = value.producer()
        if value in zeros:
            return self.initializer(value, _zeros(value), zero=True)
        if node is None and self.first and self.graph is _graph_of(value):
            self.name(value, value.name, own=True)
            return value
        if node is None:
            return self.initializer(value, value.const_value)
        inputs = [None if v is None else self.constant(v, zeros) for v in node.inputs]
        if self.first and all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            return value
        copy = copied(node, inputs)
        self.graph.append(copy)
        self.number(copy, node, own=False)
        for new, old in zip(copy.outputs, node.outputs, strict=True):
            new.meta[COPY_OF] = old.name
        return copy.outputs[value.index() or 0]

    def initializer(self, value: ir.Value, tensor: Any, *, zero: bool = False) -> ir.Value:
        name = f"growc.fresh.{self.place}.{len(self.building.runs[self.place[0]])}.{len(self.made.numbered)}"
        new = ir.Value(name=name, shape=value.shape, type=value.type, const_value=tensor)
        new.meta.update(value.meta)
        new.meta[COPY_OF], new.meta[ZERO] = value.name, zero
        self.graph.register_initializer(new)
        self.name(new, value.name, own=False)
        return new

    # ---- sizes

    def expression(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        """An expression of sizes, asked of the new layers' tensors."""
        if value not in self.expressions:
            self.expressions[value] = self.asked(value, reader)
        return self.expressions[value]

    def asked(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        node = value.producer()
        if value in self.source.data or value.is_graph_input():
            before = [*self.building.runs[self.place[0]], self.made]
            found = self.building.twin(value, before, self.place[0])
            place = self.source.place(value)
            if found is None and place is not None:
                raise needed(place, reader)
            return found or value
        if node is None or self.source.owners.is_static(value):
            return self.constant(value, set())
        inputs = [None if v is None else self.expression(v, reader) for v in node.inputs]
        if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            return value
        key = (node, *(id(v) for v in inputs))
        if key not in self.building.expressions:
            copy = self.building.expressions[key] = copied(node, inputs)
            self.graph.append(copy)
            self.number(copy, node, own=False)
        return self.building.expressions[key].outputs[value.index() or 0]


# --------------------------------------------------------------------------------------------- pieces


def _reaches(value: ir.Value, zeros: set[ir.Value]) -> bool:
    """Whether a constant is made of one of these."""
    node = value.producer()
    inputs = () if node is None else node.inputs
    return bool(zeros) and (value in zeros or any(v is not None and _reaches(v, zeros) for v in inputs))


def _zeros(value: ir.Value) -> ir.LazyTensor:
    tensor = constant_of(value)
    shape, dtype = tuple(int(d) for d in tensor.shape), tensor.dtype
    return ir.LazyTensor(
        lambda: ir.tensor(np.zeros(shape, dtype=dtype.numpy()), dtype=dtype),
        dtype=dtype,
        shape=ir.Shape(shape),
        name=value.name,
    )


Read = Callable[[ir.Node, int, ir.Value], ir.Value | None]
"""What a copy of a node reads in the place of an operand."""


def copied(
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    read: Read = lambda reader, i, value: value,
    own: Container[tuple[ir.Node, int]] = (),
) -> ir.Node:
    """A copy of a node that reads other operands; its bodies `read` what they take from around, and the
    operands of `own` in place of the bodies' own values.
    """
    attributes = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            body = attribute.as_graph().clone(allow_outer_scope_values=True)
            _redirect(attribute.as_graph(), body, node, read, own)
            attribute = ir.AttrGraph(attribute.name, body)
        attributes.append(attribute)
    copy = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        attributes,
        overload=node.overload,
        num_outputs=len(node.outputs),
        version=node.version,
        name=node.name,
        doc_string=node.doc_string,
        metadata_props=dict(node.metadata_props),
    )
    copy.meta.update(node.meta)
    for new, old in zip(copy.outputs, node.outputs, strict=True):
        new.name, new.type = old.name, old.type
        new.shape = None if old.shape is None else _declared(old.shape, node.graph)
    return copy


def _declared(shape: ir.Shape, graph: ir.Graph | ir.Function | None) -> ir.Shape:
    """A shape for a copy: a length that no input bears is the source's own."""
    borne = {d for v in (() if graph is None else graph.inputs) for d in v.shape or ()}
    return ir.Shape([d if isinstance(d, int) or d in borne else None for d in shape])


def _redirect(
    source: ir.Graph, body: ir.Graph, outer: ir.Node, read: Read, own: Container[tuple[ir.Node, int]]
) -> None:
    """Let the copy of a body read what `read` gives for what lies around the source's."""
    inside = {v for n in source.all_nodes() for v in n.outputs}
    inside |= {v for b in (source, *(b for n in source.all_nodes() for b in bodies(n))) for v in _own(b)}
    places = [(outer, source, body)]
    while places:
        reader, old, new = places.pop()
        for one, other in zip(old, new, strict=True):
            for i, value in enumerate(one.inputs):
                if value is not None and (value not in inside or (one, i) in own):
                    other.replace_input_with(i, read(one, i, value))
            places += [(one, a, b) for a, b in zip(bodies(one), bodies(other), strict=True)]
        for k, value in enumerate(old.outputs):
            if value not in inside:
                new.outputs[k] = read(reader, -1, value) or value


def _own(body: ir.Graph) -> list[ir.Value]:
    return [*body.inputs, *body.initializers.values()]


def _graph_of(value: ir.Value) -> ir.Graph | ir.Function | None:
    node = value.producer()
    return value.graph if node is None else node.graph


def needed(place: Place, reader: ir.Node | ir.Value) -> GrowError:
    """A node, or an output of the model, reads a layer that is gone."""
    name = reader.name or getattr(reader, "op_type", "")
    who = f"`{name}` reads it" if isinstance(reader, ir.Node) else f"the model's output `{name}` is of it"
    return GrowError(Diagnostic("G314", f"layer {place[1]} cannot go: {who}"))
