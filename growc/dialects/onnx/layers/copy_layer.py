"""One new layer: a copy of the nodes of a source's layer on another stream.

Needs: `Layered`, the layers built so far. Gives: `PlacedLayer`.

The first copy of a layer keeps its weights; later ones get their own. Copies go on to share tensors that
layers share. Layers of one number in several runs may be one body that runs more than once; these share their
tensors too. An expression of sizes may read a layer's tensor; it reads the same tensor of the new layer
instead, or one of the same size in front of it. From tables with a row for each layer the new layer takes its
own row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from growc.dialects.onnx.capture.capture import COPY_OF, MEAN_OF, ZERO
from growc.dialects.onnx.capture.quantised_weights import QuantisedWeight
from growc.dialects.onnx.capture.stored_values import shape_of, stored_tensor
from growc.dialects.onnx.layers.copy_nodes import copied, renewed
from growc.dialects.onnx.layers.layer_map import Layered
from growc.dialects.onnx.layers.layer_tables import RowTables
from growc.dialects.onnx.layers.merge_layers import counterparts, mean_tensor, unlike
from growc.dialects.onnx.origins import stored_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Node, Value
from growc.ir.walk import walk
from growc.passes.layers.layer_runs import Layer, LayerPlace, ResultLayer

NamedPart = ir.Value | ir.Node


@dataclass(eq=False)
class PlacedLayer:
    """One layer of the result.

    `source`: the layer that it copies. start, end: the stream in front of it and behind it.
    """

    source: int
    start: ir.Value
    end: ir.Value
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """The counterpart of each value of the source's layer."""
    nodes: list[ir.Node] = field(default_factory=list)
    numbered: list[tuple[NamedPart, str, bool]] = field(default_factory=list)
    """Things named by the layer's number: (it, its name in the source, whether it is the source's)."""

    @staticmethod
    def unmoved(number: int, layer: Layer, source: Layered) -> PlacedLayer:
        """Return a layer of a run that stays as it is."""
        nodes = list(dict.fromkeys(map(source.node_of, layer.nodes)))
        return PlacedLayer(number, source.value_of(layer.start), source.value_of(layer.end), {}, nodes)


class LayerCopies:
    """The new layers of all runs.

    `factors`: for the stand-in of a computed weight, the stored tensor whose zeros make it zero.
    """

    def __init__(
        self,
        source: Layered,
        orders: Mapping[int, Sequence[ResultLayer]],
        factors: Mapping[ir.Value, ir.Value],
        rows: RowTables,
    ) -> None:
        self.source, self.factors, self.rows = source, factors, rows
        self.orders = {number: [one.source for one in order] for number, order in orders.items()}
        self.common: dict[int, dict[tuple[ir.Value, bool], ir.Value]] = defaultdict(dict)
        """By the number of a new layer, its counterparts of the tensors that several runs share."""
        self.value_of, self.node_of = source.value_of, source.node_of
        self.runs: dict[int, list[PlacedLayer]] = {}
        self.expressions: dict[tuple[object, ...], ir.Node] = {}
        self.stored: dict[ir.Value, QuantisedWeight] = {}
        """The quantised weights among those that become zero."""

    def rebuild(self, number: int, order: Sequence[ResultLayer]) -> None:
        """Build a run anew. Raises GrowError (G314) if a removed layer is needed."""
        run = self.source.layers.runs[number]
        placed = self.runs[number] = []
        stream: ir.Value = self.value_of(run.layers[0].start)
        for instance in order:
            layer = run.layers[instance.source]
            new_layer = PlacedLayer(instance.source, stream, stream, {self.value_of(layer.start): stream})
            first = all(p.source != instance.source for p in placed)
            zeros = self.zeros(instance.zeroed)
            steps = {self.node_of(node): self.node_of(like) for node, like in instance.steps.items()}
            copying = _Copying(self, (number, instance.source), new_layer, first, zeros, steps)
            copying.merge(instance.merged)
            copying.run()
            placed.append(new_layer)
            stream = new_layer.end = new_layer.values[self.value_of(layer.end)]

    def moves_alike(self, value: ir.Value) -> bool:
        """Whether a stored tensor belongs to layers of several runs that all change in the same way."""
        orders = [self.orders.get(run) for run, _ in self.source.owners.common(value)]
        return len(orders) > 1 and orders[0] is not None and all(one == orders[0] for one in orders)

    def owns(self, place: LayerPlace, value: ir.Value) -> bool:
        """Whether a stored tensor is a layer's own, or that of its number in runs that change alike."""
        owners = self.source.owners
        return owners.of(value) == place or (place in owners.common(value) and self.moves_alike(value))

    def zeros(self, zeroed: Sequence[Value]) -> dict[tuple[ir.Node, int], set[ir.Value]]:
        """Return, for each (node, operand), the stored tensors behind it that become zero."""
        sites: dict[tuple[ir.Node, int], set[ir.Value]] = {}
        for use in (v for v in zeroed if self.value_of(v) not in self.rows.taken):
            own = self.factors.get(self.value_of(use), self.value_of(use))
            stored = None if use.weight is None else stored_of(use.weight)
            if stored is not None:
                self.stored[own] = stored
            for node, operand in self.readers(use):
                sites.setdefault((node, operand), set()).add(own)
        return sites

    def readers(self, value: Value) -> Iterator[tuple[ir.Node, int]]:
        """Yield the nodes that read a stored tensor, directly or through other constants."""
        for node, operand in value.users:
            if node.chain or self.node_of(node) in self.source.owners.static:
                for output in node.outputs:
                    yield from self.readers(output)
            else:
                yield self.node_of(node), operand

    def first(self, number: int, value: ir.Value) -> ir.Value | None:
        """Return the counterpart of a value in the first layer that has one; None if no layer has."""
        return next((p.values[value] for p in self.runs[number] if value in p.values), None)

    def elsewhere(self, value: ir.Value, reader: ir.Node | ir.Value) -> ir.Value:
        """Return the counterpart of a value for a reader outside of its layer. Raises GrowError (G314)."""
        place = self.source.place(value)
        if place is None or place[0] not in self.runs:
            return value
        current = self.now(place[0], value)
        if current is None and isinstance(reader, ir.Node) and self.source.data.isdisjoint(reader.outputs):
            return self.twin(value, self.runs[place[0]], place[0]) or value  # it reads sizes at most
        if current is None:
            raise needed(place, reader)
        return current

    def now(self, number: int, value: ir.Value) -> ir.Value | None:
        """Return the counterpart of a value of a run for readers outside of it; None if there is none."""
        ends = value is self.value_of(self.source.layers.runs[number].layers[-1].end)
        return self.runs[number][-1].end if ends else self.first(number, value)

    def twin(self, value: ir.Value, before: Sequence[PlacedLayer], run: int) -> ir.Value | None:
        """Return a tensor of the same size as the source's, from the latest layer that has one."""
        place = self.source.place(value)
        if place is None or place[0] not in self.runs:
            return value
        candidates = before if place[0] == run else self.runs[place[0]]
        for layer in reversed(candidates):
            if value in layer.values:
                return layer.values[value]
        alike = self.source.alike(value, place)
        for layer in reversed(candidates):
            similar = alike.get(layer.source)
            if similar is not None and similar in layer.values:
                return layer.values[similar]
        return None


class _Copying:
    """One layer while it is copied.

    `zeros`: for each (node, operand), the stored tensors behind it that become zero. `steps`: for quantising
    nodes, the nodes whose scales and zero points they take.
    """

    def __init__(
        self,
        building: LayerCopies,
        place: LayerPlace,
        placed: PlacedLayer,
        first: bool,
        zeros: Mapping[tuple[ir.Node, int], set[ir.Value]],
        steps: Mapping[ir.Node, ir.Node],
    ) -> None:
        self.building, self.source, self.graph = building, building.source, building.source.graph
        self.place, self.placed, self.first, self.zeros, self.steps = place, placed, first, zeros, steps
        self.value_of, self.node_of = building.value_of, building.node_of
        self.constants: dict[tuple[ir.Value, bool], ir.Value] = {}
        self.expressions: dict[ir.Value, ir.Value] = {}
        self.merged: list[tuple[int, Mapping[ir.Value, ir.Value]]] = []
        """The layers whose mean this one takes, each with its counterparts of this layer's tensors."""

    def merge(self, layers: Sequence[int]) -> None:
        """Take means with other layers of the source. Raises GrowError (G314) if these are not alike."""
        known = {layer: counterparts(self.source, self.place, layer) for layer in {*layers} - {self.place[1]}}
        self.merged = [(layer, known.get(layer, {})) for layer in layers]
        if layers and any(True for _ in self.building.rows.reads(*self.place, self.position)):
            raise unlike(self.place, layers[-1], "each takes a row of a table by its number")

    def run(self) -> None:
        taken = self.take_rows()
        for value in self.source.inputs.get(self.place, ()):
            new = value if self.first else ir.Value(name=value.name, shape=value.shape, type=value.type)
            self.placed.values[value] = new
            self.name(new, value.name, own=self.first)
        last = self.building.rows.last_sums(*self.place, self.position)
        for node in self.source.own[self.place]:
            if node in taken:
                continue
            if node in last:
                other = 1 - last[node]
                stream = self.operand(node, other, node.inputs[other])
                assert stream is not None, "a sum has two operands"
                self.placed.values[node.outputs[0]] = stream
                continue
            self.add(node, [self.operand(node, i, v) for i, v in enumerate(node.inputs)], own=self.first)
        self.add_sum()

    def add(self, node: ir.Node, inputs: Sequence[ir.Value | None], *, own: bool) -> ir.Node:
        """Copy a node into the new layer."""
        zeros = {i: operand for i, operand in enumerate(inputs) if (node, i) in self.zeros}
        before = [node.inputs[i] if i in zeros else operand for i, operand in enumerate(inputs)]
        copy = copied(node, before, self.operand, self.zeros)
        if zeros:
            self.building.rows.remember([copy])  # a torch call may hold some of these numbers
        for i, operand in zeros.items():
            copy.replace_input_with(i, operand)
        self.graph.append(copy)
        self.placed.nodes.append(copy)
        self.placed.values.update(zip(node.outputs, copy.outputs, strict=True))
        self.number(copy, node, own=own)
        return copy

    # ---- rows of tables

    @property
    def position(self) -> int:
        """The number of the new layer."""
        return len(self.building.runs[self.place[0]])

    def take_rows(self) -> set[ir.Node]:
        """Take the layer's own rows of tables, and return the source's nodes that took them."""
        reads = list(self.building.rows.reads(*self.place, self.position))
        for node in reads:
            copy = self.row(node)
            self.placed.values[self.value_of(node.outputs[0])] = copy.outputs[0]
        return set(map(self.node_of, reads))

    def row(self, node: Node) -> ir.Node:
        copy = self.building.rows.row(node, self.position)
        self.graph.append(copy)
        self.number(copy, self.node_of(node), own=self.first)
        return copy

    def add_sum(self) -> None:
        """Add a row if the source's last layer has none and another layer follows it now."""
        end = self.value_of(self.source.layers.runs[self.place[0]].layers[self.place[1]].end)
        for rows in self.building.rows.missing(*self.place, self.position):
            node, i = rows.sums[-1]
            new = {
                self.value_of(n.outputs[0]): self.row(n).outputs[0] for n in rows.reads[len(rows.sums) - 1]
            }
            summand = self.node_of(node).inputs[i]
            assert summand is not None
            inputs = [
                renewed(summand, new, self.graph) if k == i else self.placed.values[end] for k in (0, 1)
            ]
            self.placed.values[end] = self.add(self.node_of(node), inputs, own=False).outputs[0]

    def number(self, copy: ir.Node, node: ir.Node, *, own: bool) -> None:
        self.name(copy, node.name, own=own)
        for new, old in zip(copy.outputs, node.outputs, strict=True):
            self.name(new, old.name, own=own)

    def name(self, thing: NamedPart, name: str | None, *, own: bool) -> None:
        if name:
            self.placed.numbered.append((thing, name, own))

    def operand(self, node: ir.Node, i: int, value: ir.Value | None) -> ir.Value | None:
        """Return the operand of a copied node.

        `node`: the source's, which may lie in a body. `i`: -1 for an output of a body.
        """
        if i > 0 and node in self.steps:
            value = self.steps[node].inputs[i]
        if value is None or value in self.placed.values:
            return None if value is None else self.placed.values[value]
        zeros = self.zeros.get((node, i), set())
        if zeros or self.source.owners.is_static(value):
            return self.constant(value, zeros)
        if value in self.source.data or value.is_graph_input():
            return self.building.elsewhere(value, node)
        return self.expression(value, node)

    # ---- stored tensors

    def constant(self, value: ir.Value, zeros: set[ir.Value]) -> ir.Value:
        """Return the counterpart of a constant. The layer's own constants are copied, shared ones are not."""
        if value in self.placed.values:
            return self.placed.values[value]
        zero, inner = _reaches(value, zeros), self.graph is not _graph_of(value)
        common = self.building.moves_alike(value)
        if not zero and not inner and not self.building.owns(self.place, value):
            return value
        known = self.building.common[self.position] if common else self.constants
        if (value, zero) not in known:
            known[value, zero] = self.fresh(value, zeros)
        return known[value, zero]

    def fresh(self, value: ir.Value, zeros: set[ir.Value]) -> ir.Value:
        node, stored = value.producer(), self.building.stored.get(value)
        if value in zeros and node is not None and stored is not None:
            return self.dequantised(node, stored).outputs[value.index() or 0]
        if value in zeros:
            return self.initializer(value, _zeros(value), zero=True)
        if node is None and self.merged and self.building.owns(self.place, value):
            mean = self.mean(value)
            if mean is not None:
                return mean
        if node is None and self.first and self.graph is _graph_of(value):
            self.name(value, value.name, own=True)
            return value
        if node is None:
            return self.initializer(value, stored_tensor(value))
        inputs = [None if v is None else self.constant(v, zeros) for v in node.inputs]
        if self.first and all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            return value
        return self.computed(node, inputs).outputs[value.index() or 0]

    def mean(self, value: ir.Value) -> ir.Value | None:
        """Return the mean of a stored tensor over the merged layers; None if it holds no real numbers."""
        own = self.place[1]
        by_layer = [(layer, value if layer == own else known.get(value)) for layer, known in self.merged]
        tensor = mean_tensor(self.place, by_layer)
        if tensor is None:
            return None
        merged = self.initializer(value, tensor)
        merged.meta[MEAN_OF] = tuple("" if other is None else other.name for _, other in by_layer)
        return merged

    def dequantised(self, node: ir.Node, stored: QuantisedWeight) -> ir.Node:
        """Copy the node that computes a quantised weight, with integers that stand for zero."""
        integers, *others = node.inputs
        assert integers is not None, "what makes a weight of integers reads them first"
        zeros = self.initializer(integers, stored.zeroed(), zero=True)
        return self.computed(node, [zeros, *(None if v is None else self.constant(v, set()) for v in others)])

    def computed(self, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Node:
        """Copy a node that computes a constant from constants."""
        copy = copied(node, inputs)
        self.graph.append(copy)
        self.number(copy, node, own=False)
        for new, old in zip(copy.outputs, node.outputs, strict=True):
            new.meta[COPY_OF] = old.name
        return copy

    def initializer(
        self, value: ir.Value, tensor: ir.TensorProtocol | None, *, zero: bool = False
    ) -> ir.Value:
        count = len(self.placed.numbered)
        name = f"growc.fresh.{self.place}.{len(self.building.runs[self.place[0]])}.{count}"
        new = ir.Value(name=name, shape=value.shape, type=value.type, const_value=tensor)
        new.meta.update(value.meta)
        new.meta[COPY_OF], new.meta[ZERO] = value.name, zero
        self.graph.register_initializer(new)
        self.name(new, value.name, own=False)
        return new

    # ---- sizes

    def expression(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        """Return the counterpart of an expression of sizes, which reads the new layers' tensors."""
        if value not in self.expressions:
            self.expressions[value] = self.asked(value, reader)
        return self.expressions[value]

    def asked(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        node = value.producer()
        if value in self.source.data or value.is_graph_input():
            before = [*self.building.runs[self.place[0]], self.placed]
            twin = self.building.twin(value, before, self.place[0])
            place = self.source.place(value)
            if twin is None and place is not None:
                raise needed(place, reader)
            return twin or value
        if node is None or self.source.owners.is_static(value):
            return self.constant(value, set())
        inputs = [None if v is None else self.expression(v, reader) for v in node.inputs]
        if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            return value
        key = (node, *inputs)
        if key not in self.building.expressions:
            copy = self.building.expressions[key] = copied(node, inputs)
            self.graph.append(copy)
            self.number(copy, node, own=False)
        return self.building.expressions[key].outputs[value.index() or 0]


# --------------------------------------------------------------------------------------------- pieces


def _reaches(value: ir.Value, zeros: set[ir.Value]) -> bool:
    """Whether a constant is computed from one of `zeros`."""

    def above(value: ir.Value) -> Iterator[ir.Value]:
        node = value.producer()
        yield from () if node is None else (v for v in node.inputs if v is not None)

    return bool(zeros) and any(one in zeros for one in walk([value], above))


def _zeros(value: ir.Value) -> ir.LazyTensor:
    tensor = stored_tensor(value)
    shape, dtype = shape_of(tensor), tensor.dtype
    return ir.LazyTensor(
        lambda: ir.tensor(np.zeros(shape, dtype=dtype.numpy()), dtype=dtype),
        dtype=dtype,
        shape=ir.Shape(shape),
        name=value.name,
    )


def _graph_of(value: ir.Value) -> ir.Graph | ir.Function | None:
    node = value.producer()
    return value.graph if node is None else node.graph


def needed(place: LayerPlace, reader: ir.Node | ir.Value) -> GrowError:
    """The error that a node, or an output of the model, reads a removed layer."""
    name = reader.name or getattr(reader, "op_type", "")
    who = f"`{name}` reads it" if isinstance(reader, ir.Node) else f"the model's output `{name}` is of it"
    return GrowError(Diagnostic("G314", f"layer {place[1]} cannot go: {who}"))
