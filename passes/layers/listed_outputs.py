"""Model outputs that list the streams between layers, kept for another step.

Needs: the layers of a run, and the nodes that lead to outputs only. Gives: the layer that each such node
belongs to. If every layer gives out its start, that is the layer that starts there. Otherwise, if every layer
gives out its end, it is the layer that ends there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from growc.ir.graph import Node, Value, used_by
from growc.ir.walk import walk
from growc.passes.layers.layer_runs import Layer

Cone = tuple[tuple[str, ...], tuple[Node, ...]]
"""Nodes that make outputs from one value alone: their operators, and the nodes."""


def listed(layers: Sequence[Layer], loose: Set[Node], data: Set[Value]) -> dict[Node, Layer]:
    """The nodes of such lists, with their layers.

    loose: nodes that only outputs use.
    """
    owners: dict[Node, Layer] = {}
    if len(layers) < 2:
        return owners
    for places in ({layer.start: layer for layer in layers}, {layer.end: layer for layer in layers}):
        for cones in _alike(places, loose - owners.keys(), data):
            owners.update((node, places[place]) for place, nodes in cones for node in nodes)
    return owners


def _alike(
    places: Mapping[Value, Layer], loose: Set[Node], data: Set[Value]
) -> Iterator[list[tuple[Value, tuple[Node, ...]]]]:
    """Cones that occur at every place, equally often."""
    groups: dict[tuple[str, ...], list[tuple[Value, tuple[Node, ...]]]] = defaultdict(list)
    for place in places:
        for operators, nodes in _cones(place, loose, data):
            groups[operators].append((place, nodes))
    for cones in groups.values():
        counts = [sum(place is cone_place for cone_place, _ in cones) for place in places]
        if min(counts) == max(counts):
            yield cones


def _cones(place: Value, loose: Set[Node], data: Set[Value]) -> Iterator[Cone]:
    """The cones of a value, one for each of its readers."""
    for head in dict.fromkeys(node for node, _ in place.users if node in loose):
        behind = walk([head], lambda node: (n for n in used_by(node.outputs) if n in loose), nearest=True)
        nodes = tuple(behind)
        inside = {place, *(v for n in nodes for v in n.outputs)}
        if all(v in inside or v not in data for n in nodes for v in n.operands):
            yield tuple(n.op for n in nodes), nodes
