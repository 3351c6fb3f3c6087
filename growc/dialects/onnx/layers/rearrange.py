"""Removal, repetition and reordering of a model's layers.

Needs: the captured graph, its layers, the layers to build. Gives: a copy of the graph's model, with each of
the runs rebuilt (growc.dialects.onnx.layers.copy_layer) and everything around the old layers connected to the
new ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from growc.dialects.onnx.capture.capture import COPY_OF, RESERVED
from growc.dialects.onnx.capture.computed_weights import Folded
from growc.dialects.onnx.capture.owners import around, bodies
from growc.dialects.onnx.capture.weight_norm import weight_norm
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.layers.copy_layer import LayerCopies, NamedPart, PlacedLayer, needed
from growc.dialects.onnx.layers.layer_map import Layered
from growc.dialects.onnx.layers.layer_tables import Remember, RowTables
from growc.dialects.onnx.layers.rename import Numbering
from growc.dialects.onnx.origins import node_of, value_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Graph, Node
from growc.ir.naming import unused
from growc.passes.layers.layer_runs import DepthChange, Layer, LayerPlace, Layers, ResultLayer


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """The result of rebuilding runs of layers.

    `runs`: all layers of the result, run by run. `renamed`: the new names of inputs and outputs, None for
    removed ones. `gone`: the nodes of the source's layers, which copies replace. `taken`: for values of these
    nodes with readers outside of their run, the values that are read now. `data`: the source's values that
    depend on the model's inputs.
    """

    before: Layers
    runs: Sequence[Sequence[PlacedLayer]]
    renamed: Mapping[str, str | None]
    gone: frozenset[ir.Node]
    taken: Mapping[ir.Value, ir.Value]
    data: frozenset[ir.Value]

    def layers(self, graph: Graph, depth: DepthChange) -> Layers:
        """Return the layers of the result, on its graph as it was captured.

        Raises GrowError (G314) if another run has moved so that nothing of a layer is left.
        """
        values = {value_of(v): v for v in graph.values() if v.weight is None}
        nodes: dict[ir.Node, list[Node]] = {}
        for node in graph.nodes:
            if not node.chain:
                nodes.setdefault(node_of(node), []).append(node)
        runs = []
        for run, placed, past in zip(self.before.runs, self.runs, depth.runs, strict=True):
            new_layers = []
            for one in placed:
                layer_nodes = tuple(n for node in one.nodes for n in nodes.get(node, ()))
                start = self.taken.get(one.start, one.start)  # a run starts where another one ends
                if start not in values or one.end not in values:
                    message = f"layer {one.source} cannot stand there: nothing reads what it ends in"
                    raise GrowError(Diagnostic("G314", message))
                new_layers.append(Layer(values[start], values[one.end], layer_nodes))
            kinds = tuple(run.kinds[one.source] for one in placed)
            runs.append(replace(run, layers=tuple(new_layers), kinds=kinds, past=past))
        return Layers(tuple(runs))


def rebuild(
    graph: Graph,
    layers: Layers,
    orders: Mapping[int, Sequence[ResultLayer]],
    clone: Clone,
    folded: Sequence[Folded],
    remember: Remember,
) -> Rebuilt:
    """Rebuild the runs of these numbers in a copy of the graph's model.

    `folded`: the computed weights of the copy. `remember` is called with nodes before their numbers change.
    Raises GrowError (G314) if a removed layer is needed.
    """
    norms = {one: norm for one in folded if (norm := weight_norm(one)) is not None}
    for one in norms:  # restored, so that copies of a layer compute their weights too
        one.restore()
    rows = RowTables(layers, orders, clone, remember)
    factors = {one.stand_in: n.length for one, n in norms.items()}
    surgery = _Surgery(Layered(graph, layers, clone, rows.shared), orders, factors, rows)
    surgery.build()
    for one in folded:
        if one not in norms and one.is_given_out:
            one.restore()
    RemoveUnusedNodesPass()(clone.model)
    return surgery.finish()


class _Surgery:
    """The rebuilding of runs in a model.

    `factors`: for the stand-in of a computed weight, the stored tensor whose zeros make it zero.
    """

    def __init__(
        self,
        source: Layered,
        orders: Mapping[int, Sequence[ResultLayer]],
        factors: Mapping[ir.Value, ir.Value],
        rows: RowTables,
    ) -> None:
        self.source, self.graph, self.orders = source, source.graph, orders
        self.building = LayerCopies(source, orders, factors, rows)
        self.gone = frozenset(n for n, place in source.home.items() if place[0] in orders)
        self.ports = [*self.graph.inputs, *self.graph.outputs]
        self.names = [v.name or "" for v in self.ports]
        self.became: dict[ir.Value, ir.Value | None] = {}
        self.taken: dict[ir.Value, ir.Value] = {}
        self.exits: dict[NamedPart, str | None] = {}
        """The counterpart of each output that not every layer has, and the name of that output."""
        self.numberings = {number: self.numbering(number) for number in orders}

    def build(self) -> None:
        """Build the new layers, and disconnect the old ones."""
        for number, order in self.orders.items():
            self.building.rebuild(number, order)
        self.building.rows.resize()
        for number in self.orders:
            self.rewire(number)
        self.renew(self.graph.inputs)
        self.renew(self.graph.outputs)
        self.empty()

    def empty(self) -> None:
        """Disconnect the bodies in the old layers, so that these read nothing."""
        for outer in self.gone:
            for node in around(outer):
                for i in range(len(node.inputs)):
                    node.replace_input_with(i, None)
            for body in (b for node in (outer, *around(outer)) for b in bodies(node)):
                body.outputs.clear()

    def finish(self) -> Rebuilt:
        """Sort and name the new nodes. Raises GrowError (G314) for needed old layers and for cycles."""
        needed_node = next((n for n in self.graph if n in self.gone), None)
        if needed_node is not None:
            raise needed(self.source.home[needed_node], needed_node)
        try:
            self.graph.sort()
        except ValueError as cycle:
            message = "the layers cannot stand in this order: one needs what a later one computes"
            raise GrowError(Diagnostic("G314", message)) from cycle
        named_parts = [named for number in self.orders for named in self.numbered(number)]
        named_parts += self.behind({thing for thing, _ in named_parts})
        self.assign(sorted(named_parts, key=lambda named: named[0] not in self.exits))
        renamed: dict[str, str | None] = {}
        for value, name in zip(self.ports, self.names, strict=True):
            new = self.became.get(value, value)
            if new is None or new.name != name:
                renamed[name] = None if new is None else new.name
        before, data = self.source.layers, frozenset(self.source.data)
        runs = [self.building.runs.get(number) or self.unmoved(number) for number in range(len(before.runs))]
        return Rebuilt(before, runs, renamed, self.gone, self.taken, data)

    def unmoved(self, number: int) -> list[PlacedLayer]:
        """Return the layers of a run that stays as it is."""
        numbered_layers = enumerate(self.source.layers.runs[number].layers)
        return [PlacedLayer.unmoved(i, layer, self.source) for i, layer in numbered_layers]

    # ---- what stands around the layers

    def rewire(self, number: int) -> None:
        """Let all readers of the run's old layers read the new ones."""
        old = [v for n, place in self.source.home.items() if place[0] == number for v in n.outputs]
        for value in [*old, *(v for p, own in self.source.inputs.items() if p[0] == number for v in own)]:
            for use in tuple(value.uses()):
                reader = self.source.owners.outer.get(use.node, use.node)
                if self.source.home.get(reader, (-1, 0))[0] != number:
                    self.taken[value] = self.building.elsewhere(value, reader)
                    use.node.replace_input_with(use.idx, self.taken[value])

    def renew(self, side: MutableSequence[ir.Value]) -> None:
        """Give the model the inputs, or the outputs, of its new layers."""
        listed = list(side)
        for number, placed in self.building.runs.items():
            ports = {v: p for v in listed if (p := self.source.port(v)) is not None and p[0] == number}
            inner = [v for v in listed if v not in ports and (self.source.place(v) or (-1, 0))[0] == number]
            exits = {v: self.building.elsewhere(v, v) for v in inner}
            own = _ordered(ports, placed)
            for old, new in [*exits.items(), *own]:  # outputs must have types, inner values need not
                new.type, new.shape = new.type or old.type, new.shape or old.shape
            self.became |= exits | dict.fromkeys(ports) | dict(own[::-1])
            self.exits |= {new: old.name for old, new in exits.items()}
            at = min((listed.index(v) for v in ports), default=0)
            listed = [exits.get(v, v) for v in listed if v not in ports]
            listed[at:at] = [new for _, new in own]
        if listed != list(side):
            side[:] = self.apart(listed)

    def apart(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """Return each value once: a value that stands there again is replaced by a copy."""
        distinct: list[ir.Value] = []
        for value in values:
            if value in distinct:
                copy = ir.node("Identity", [value])
                value, [again] = copy.outputs[0], [value]
                value.name, value.type, value.shape = f"{again.name}.again", again.type, again.shape
                self.graph.append(copy)
            distinct.append(value)
        return distinct

    # ---- names

    def numbered(self, number: int) -> Iterator[tuple[NamedPart, str]]:
        """Yield everything in the new layers, with its name for its layer's new number."""
        rename = self.numberings[number].rename
        for i, layer in enumerate(self.building.runs[number]):
            for thing, old, own in layer.numbered:
                plain = self.exits.get(thing) or (old if own else f"{old}.{i}")
                yield thing, rename(old, layer.source, i) or plain

    def behind(self, layered: Collection[NamedPart]) -> Iterator[tuple[NamedPart, str]]:
        """Yield what follows all layers in one list with them, with the name for its new number."""
        outputs = (value for node in self.graph for value in node.outputs)
        for thing in chain[NamedPart](self.graph.initializers.values(), self.graph, outputs):
            if thing in layered or thing in self.ports:
                continue
            moved = (numbering.behind(thing.name or "") for numbering in self.numberings.values())
            name = next((name for name in moved if name is not None), None)
            if name is not None:
                yield thing, name

    def numbering(self, number: int) -> Numbering:
        count = len(self.source.layers.runs[number].layers)
        names = [frozenset(self.known(number, i)) for i in range(count)]
        used = ((name, value) for name, value in self.graph.initializers.items() if value.uses())
        stored = {name: value for name, value in used if _is_learned(value)}
        owns = self.building.owns
        own = [{name for name, value in stored.items() if owns((number, i), value)} for i in range(count)]
        order = [one.source for one in self.orders[number]]
        return Numbering(names, order, own, stored.keys() - set().union(*own))

    def known(self, number: int, layer: int) -> Iterator[str]:
        for node in self.source.own[number, layer]:
            yield from (name for name in (node.name, *(v.name for v in node.outputs)) if name)
            for value in (v for n in (node, *around(node)) for v in n.inputs):
                if value is None or value.producer() in self.source.home:
                    continue  # the stream is named by the layer that computes it
                if self.building.owns((number, layer), value) and value.name:
                    yield value.name
        yield from (value.name or "" for value in self.source.inputs.get((number, layer), ()))

    def assign(self, named_parts: Sequence[tuple[NamedPart, str]]) -> None:
        mine = {thing for thing, _ in named_parts}
        taken = {v.name for v in [*self.graph.inputs, *self.graph.initializers.values()] if v not in mine}
        taken |= self.graph.meta.get(RESERVED, frozenset())
        for node in (n for n in self.graph.all_nodes() if n not in self.gone):
            things: list[NamedPart] = [node, *node.outputs]
            taken |= {thing.name for thing in things if thing not in mine}
        before = [thing.name for thing, _ in named_parts]
        for k, (thing, _) in enumerate(named_parts):
            thing.name = f"growc.moved.{k}"
        for (thing, name), old in zip(named_parts, before, strict=True):
            own = unused(name, taken)
            if isinstance(thing, ir.Value) and thing.is_initializer() and own != old:
                thing.meta.setdefault(COPY_OF, old)
            thing.name = own


def _is_learned(value: ir.Value) -> bool:
    """Whether a stored tensor may be a learned weight. The names of scalars and sizes tell no numbers."""
    shape, dtype = value.shape, value.dtype
    assert shape is not None, "what is stored has a shape"
    assert dtype is not None, "and a type"
    return shape.rank() > 1 or (shape.rank() == 1 and dtype.is_floating_point())


def _ordered(
    ports: Mapping[ir.Value, LayerPlace], placed: Sequence[PlacedLayer]
) -> list[tuple[ir.Value, ir.Value]]:
    """Return the ports of the new layers, each with the source's port, in the order of the old ones.

    This is by layer, or by kind and then by layer.
    """
    ranks: Counter[int] = Counter()
    rank: dict[ir.Value, int] = {}
    for value, (_, layer) in ports.items():
        rank[value] = ranks[layer]
        ranks[layer] += 1
    layers = [layer for _, layer in ports.values()]
    ordered = []
    for position, new in enumerate(placed):
        for value in (v for v, (_, layer) in ports.items() if layer == new.source and v in new.values):
            by_layer, by_kind = (position, rank[value]), (rank[value], position)
            ordered.append((by_layer if layers == sorted(layers) else by_kind, (value, new.values[value])))
    return [pair for _, pair in sorted(ordered, key=lambda entry: entry[0])]
