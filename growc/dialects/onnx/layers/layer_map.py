"""The layers of a model as nodes of its file: the owner of each value, and like values of two layers.

Needs: the captured graph, its layers, a copy of the model. Gives: `Layered`, on the copy, which is not
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx_ir as ir

from growc.algebra.space import Size
from growc.dialects.onnx.capture.owners import NOBODY, Owners, enclosing
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.layers.matching_nodes import MatchingNodes, match_nodes
from growc.ir.graph import Graph
from growc.passes.layers.layer_runs import Layer, LayerPlace, Layers, Run


class Layered:
    """The layers of a model as nodes of its file.

    `own`: the nodes of each layer. `home`: the layer of each node. `data`: values that depend on the model's
    inputs. `shared`: constants that belong to no layer, even if only one uses them.
    """

    def __init__(self, graph: Graph, layers: Layers, clone: Clone, shared: Iterable[ir.Value]) -> None:
        self.graph: ir.Graph = clone.model.graph
        self.layers = layers
        self.value_of, self.node_of = clone.value_of, clone.node_of
        places = [(r, i) for r, run in enumerate(layers.runs) for i in range(len(run.layers))]
        outer = enclosing(self.graph)
        self.own = {(r, i): self._top_nodes(layers.runs[r].layers[i], outer) for r, i in places}
        self.home = {n: place for place, nodes in self.own.items() for n in nodes}
        self.data = {self.value_of(v) for v in layers.data}
        self.owners = Owners(self.graph, self.home, self.data)
        self.owners.working.update(dict.fromkeys(shared, NOBODY))
        self.sizes: Mapping[ir.Value, tuple[Size, ...] | None] = {
            self.value_of(v): v.sizes for v in layers.data
        }
        self.outputs = set(self.graph.outputs)
        self.given = {v: place for r in range(len(layers.runs)) for v, place in self._given(r)}
        self.paired: dict[tuple[LayerPlace, int], MatchingNodes] = {}
        self.states = {self.value_of(v) for pair in graph.states for v in pair}
        self.inputs: dict[LayerPlace, list[ir.Value]] = {}
        for r, run in enumerate(layers.runs):
            self.inputs |= self._inputs(r, run)
        self.private = {v for own in self.inputs.values() for v in own}

    def _inputs(self, number: int, run: Run) -> dict[LayerPlace, list[ir.Value]]:
        """Return the model's inputs that belong to one layer each, if every layer has as many."""
        inputs: dict[LayerPlace, list[ir.Value]] = {(number, i): [] for i in range(len(run.layers))}
        for value in self.graph.inputs:
            place = None if value.is_initializer() else self.owners.of(value)
            if place in inputs and (len(run.layers) > 1 or value in self.states):
                inputs[place].append(value)
        return inputs if len({len(own) for own in inputs.values()}) == 1 else {}

    def _given(self, number: int) -> Iterator[tuple[ir.Value, LayerPlace]]:
        """Yield the input stream of each layer, if the model outputs all of them."""
        starts = [self.value_of(layer.start) for layer in self.layers.runs[number].layers]
        if len(starts) > 1 and self.outputs.issuperset(starts):
            yield from ((value, (number, layer)) for layer, value in enumerate(starts))

    def port(self, value: ir.Value) -> LayerPlace | None:
        """Return the layer of an input or output if every layer of the run has its own."""
        place = self.place(value)
        if value in self.given or value in self.private or place is None:
            return self.given.get(value, place)
        run = self.layers.runs[place[0]].layers
        behind = value is self.value_of(run[-1].end) and place[0] in {run for run, _ in self.given.values()}
        each = all(self._same_place(value, place, i) in self.outputs for i in range(len(run)))
        return place if each and not behind and (len(run) > 1 or value in self.states) else None

    def place(self, value: ir.Value) -> LayerPlace | None:
        """Return the layer whose node computes a value, or whose own input it is."""
        node = value.producer()
        if node is not None:
            return self.home.get(node)
        return self.owners.of(value) if value in self.private else None

    def alike(self, value: ir.Value, place: LayerPlace) -> dict[int, ir.Value]:
        """Return, for each layer of the run, a value with the size of this value of another layer."""
        similar = {}
        for i, layer in enumerate(self.layers.runs[place[0]].layers):
            own = self.inputs.get((place[0], i), ())
            candidates = (
                self._same_place(value, place, i),
                self.value_of(layer.start),
                self.value_of(layer.end),
                *own,
            )
            same = next((v for v in candidates if v is not None and self._same_size(v, value)), None)
            if same is not None:
                similar[i] = same
        return similar

    def _same_size(self, a: ir.Value, b: ir.Value) -> bool:
        size = self.sizes.get(a)
        return size is not None and size == self.sizes.get(b)

    def _same_place(self, value: ir.Value, place: LayerPlace, layer: int) -> ir.Value | None:
        """Return the value at the same place among the nodes of another layer."""
        if value in self.private:
            return self.inputs[place[0], layer][self.inputs[place].index(value)]
        node = value.producer()
        twin = None if node is None else self.matching(place, layer).get(node)
        number = value.index() or 0
        return twin.outputs[number] if twin is not None and number < len(twin.outputs) else None

    def matching(self, place: LayerPlace, layer: int) -> MatchingNodes:
        """Return, for the nodes of one layer, the nodes of another of its run that do the same."""
        if (place, layer) not in self.paired:
            run, other = self.layers.runs[place[0]].layers, (place[0], layer)
            starts = self.value_of(run[place[1]].start), self.value_of(run[layer].start)
            ends = self.value_of(run[place[1]].end), self.value_of(run[layer].end)
            self.paired[place, layer] = match_nodes(self.own[place], self.own[other], starts, ends)
        return self.paired[place, layer]

    def _top_nodes(self, layer: Layer, outer: Mapping[ir.Node, ir.Node]) -> list[ir.Node]:
        """Return the nodes of the outermost graph that are, or contain, a layer's nodes."""
        nodes = dict.fromkeys(self.node_of(n) for n in layer.nodes)
        return list(dict.fromkeys(outer.get(n, n) for n in nodes))
