"""The layers between given places of streams, with their nodes.

Needs: the graph, the values between the layers of each run. Gives:
`growc.passes.layers.layer_runs.Layers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress, pairwise

from growc.ir.graph import Graph, Node, Value
from growc.passes.axes.infer import Axes
from growc.passes.dataflow.reachability import data_values, learned_activations, users
from growc.passes.layers.layer_kinds import kinds_of
from growc.passes.layers.layer_runs import KeptPlaces, Layer, Layers, Run, RunPlaces
from growc.passes.layers.layer_tables import find_rows
from growc.passes.layers.listed_outputs import listed


def layers_between(places: Sequence[RunPlaces], graph: Graph, data: frozenset[Value]) -> Layers:
    """The layers between the places of each run.

    If several runs end at one value, only the one that has its nodes counts.
    """
    layers = nodes_of([one.values for one in places], graph, data)
    complete = [all(layer.end.producer in layer.nodes for layer in run_layers) for run_layers in layers]
    if not all(complete):
        places = [*compress(places, complete)]
        layers = nodes_of([one.values for one in places], graph, data)
    static, rows = graph.static - data, find_rows(graph, layers, data)
    kinds = [kinds_of(run_layers, static=static, rows=rows) for run_layers in layers]
    return Layers(tuple(map(_run, places, layers, kinds)), data, rows)


def kept_layers(places: KeptPlaces, axes: Axes) -> Layers | None:
    """The layers of a model that was edited inside of layers; None if a place is gone."""
    value_at = {value.origin: value for value in axes.graph.values() if value.weight is None}
    runs: list[RunPlaces] = []
    for run in places.runs:
        values = [value_at.get(places.counterpart(value.origin)) for value in run.values]
        runs.append(replace(run, values=tuple(value for value in values if value is not None)))
    if any(len(new.values) < len(old.values) for new, old in zip(runs, places.runs, strict=True)):
        return None
    return layers_between(runs, axes.graph, data_values(axes.graph, learned_activations(axes)))


def _run(places: RunPlaces, layers: Sequence[Layer], kinds: tuple[int, ...]) -> Run:
    """A run with the kinds of its layers."""
    again = (q for q in range(1, len(kinds) // 2 + 1) if kinds[q:] == kinds[:-q])
    return Run(tuple(layers), places.scope, kinds, next(again, 1), places.residual)


def nodes_of(series: Sequence[Sequence[Value]], graph: Graph, data: frozenset[Value]) -> list[list[Layer]]:
    """The layers between the places of each series, with their nodes."""
    layers = [[Layer(a, b, ()) for a, b in pairwise(s)] for s in series]
    owners = _owners(layers, graph, data)
    nodes: dict[Layer, list[Node]] = {layer: [] for run_layers in layers for layer in run_layers}
    for node in graph.nodes:
        owner = owners.get(node)
        if isinstance(owner, Layer):
            nodes[owner].append(node)
    return [[Layer(x.start, x.end, tuple(nodes[x])) for x in run_layers] for run_layers in layers]


LOOSE = "loose"
"""The owner of nodes that only outputs of the model use."""


def _owners(
    layers: Sequence[Sequence[Layer]], graph: Graph, data: frozenset[Value]
) -> dict[Node, Layer | str | None]:
    """For each node, the layer that uses all its results, or the layer that alone feeds it."""
    ends: dict[Value, Layer | None] = {run_layers[0].start: None for run_layers in layers}
    ends |= {layer.end: layer for run_layers in layers for layer in run_layers}
    owners: dict[Node, Layer | str | None] = {}
    for node in reversed(graph.nodes):
        data_outputs = [v for v in node.outputs if v in data]
        if any(v in ends for v in data_outputs):
            owners[node] = next(ends[v] for v in data_outputs if v in ends)
        elif data_outputs and node.op:
            after = {owners[n] for v in data_outputs for n in users(v, data) if n in owners}
            after -= {LOOSE}
            owners[node] = LOOSE if not after else after.pop() if len(after) == 1 else None
    for node in graph.nodes:
        if owners.get(node) == LOOSE:
            owners[node] = _tapped(node, data, ends, owners)
    for run_layers in layers:
        owners |= listed(run_layers, {node for node, owner in owners.items() if owner == LOOSE}, data)
    return owners


def _tapped(
    node: Node,
    data: frozenset[Value],
    ends: Mapping[Value, Layer | None],
    owners: Mapping[Node, Layer | str | None],
) -> Layer | str | None:
    """The layer whose inner values a node leads to a model output."""
    read = [v for v in node.operands if v in data]
    inner = {owners.get(v.producer) for v in read if v not in ends and v.producer is not None} - {None}
    layer = inner.pop() if len(inner) == 1 else None
    ended = any(ends[v] is layer for v in read if v in ends)
    return layer if isinstance(layer, Layer) and not ended else LOOSE
