"""Outputs of the model that list what stands between layers: streams that are kept for another step.

Needs: the layers of a run, and the nodes that lead to nothing but outputs. Gives: the layer that such a node
belongs to. Where every layer gives out what it takes it is the one that starts there, else, where every layer
gives out what it makes, the one that ends there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from growc.ir.graph import Node, Value, used_by
from growc.ir.walk import walk
from growc.passes.layers.layer_runs import Layer

Cone = tuple[tuple[str, ...], tuple[Node, ...]]
"""What is made of one value for outputs alone: its operators, and its nodes."""


def listed(layers: Sequence[Layer], loose: Set[Node], data: Set[Value]) -> dict[Node, Layer]:
    """The nodes of such lists. `loose`: what only outputs use."""
    found: dict[Node, Layer] = {}
    if len(layers) < 2:
        return found
    for places in ({layer.start: layer for layer in layers}, {layer.end: layer for layer in layers}):
        for cones in _alike(places, loose - found.keys(), data):
            found.update((node, places[place]) for place, nodes in cones for node in nodes)
    return found


def _alike(
    places: Mapping[Value, Layer], loose: Set[Node], data: Set[Value]
) -> Iterator[list[tuple[Value, tuple[Node, ...]]]]:
    """What is given out in the same way at every place, and as often."""
    groups: dict[tuple[str, ...], list[tuple[Value, tuple[Node, ...]]]] = defaultdict(list)
    for place in places:
        for operators, nodes in _cones(place, loose, data):
            groups[operators].append((place, nodes))
    for cones in groups.values():
        counts = [sum(place is one for one, _ in cones) for place in places]
        if min(counts) == max(counts):
            yield cones


def _cones(place: Value, loose: Set[Node], data: Set[Value]) -> Iterator[Cone]:
    """What is made of a value alone, head by head."""
    for head in dict.fromkeys(node for node, _ in place.users if node in loose):
        behind = walk([head], lambda node: (n for n in used_by(node.outputs) if n in loose), nearest=True)
        nodes = tuple(behind)
        made = {place, *(v for n in nodes for v in n.outputs)}
        if all(v in made or v not in data for n in nodes for v in n.operands):
            yield tuple(n.op for n in nodes), nodes
