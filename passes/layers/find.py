"""Detection of layers: equal consecutive parts of a stream.

Needs: the axis graph after simulation, the scopes of its residual sums. Gives:
`growc.passes.layers.layer_runs.Layers`.

Bypasses on one stream (growc.passes.layers.residual_branches) are a sequence of tokens, and layers are a
repetition in it (growc.passes.layers.repetition). A layer starts where a bypass starts, so that its phase is
never in doubt. In a model without bypasses, layers are the repetition in its chain of products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile

from growc.ir.graph import Node, Value, makers
from growc.ir.traits import SUM
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes
from growc.passes.dataflow.post_dominators import PostDominators
from growc.passes.dataflow.reachability import data_values, depths, learned_activations, users
from growc.passes.layers.carried_values import handed_on
from growc.passes.layers.layer_nodes import layers_between
from growc.passes.layers.layer_prefix import in_front
from growc.passes.layers.layer_runs import Layers, RunPlaces
from growc.passes.layers.repetition import Repetition, repetitions
from growc.passes.layers.residual_branches import UNTOUCHED, Bypass, Streams, elements
from growc.passes.new_layers.propagate_facts import widens


@dataclass(eq=False)
class Series:
    """Consecutive layers before their nodes are known.

    places: the values between the layers.
    blocks: the bypasses of each layer.
    """

    places: list[Value]
    blocks: list[list[Bypass]]

    @property
    def sums(self) -> set[Node]:
        """The sums of all bypasses."""
        return {b.sum for block in self.blocks for b in block}

    @property
    def built(self) -> object:
        """A value that is equal for series whose layers consist of the same parts."""
        return [b.coarse for b in self.blocks[-1]]


def find_layers(axes: Axes, scope_of: Mapping[Node, str]) -> Layers:
    """Find all runs of layers.

    scope_of: the scope in which a residual sum lies.
    """
    data = data_values(axes.graph, learned_activations(axes))
    below = [Streams(axes, data, tree) for tree in trees(axes, data)]
    series: list[Series] = []
    for streams in below:
        known_sums = {node for s in series for node in s.sums}
        series += [s for s in series_below(streams) if known_sums.isdisjoint(s.sums)]
    series = once_cut(series, below)
    residual = bool(series)
    if not residual:
        series = [s for streams in below for s in chain_below(streams)]
    order = {v: k for k, n in enumerate(axes.graph.nodes) for v in n.outputs}
    series = outermost(series, order, comes_from=below[0].comes_from) if series else []
    scopes = [scope_of.get(s.blocks[0][0].sum, "") for s in series]
    indices = [i for i in range(len(series)) if belongs(i, series, scopes)]
    indices.sort(key=lambda i: order.get(series[i].places[0], -1))
    places = [RunPlaces(tuple(series[i].places), scopes[i], residual) for i in indices]
    return layers_between(places, axes.graph, data)


def trees(axes: Axes, data: frozenset[Value]) -> Iterator[PostDominators]:
    """Post-dominator trees: of the deepest output, and of each output that reaches products no earlier one
    reaches.
    """
    depth = depths(axes.graph, data)
    working = {i.node for i in axes.instances if i.line.treatment == "contract"}
    seen: set[Node] = set()
    for root in sorted((v for v in axes.graph.outputs if v in depth), key=lambda v: -depth[v]):
        fresh = fresh_above(root, data, seen)
        if fresh & working:
            yield PostDominators(axes.graph, data, root)
        seen |= fresh


def fresh_above(root: Value, data: frozenset[Value], seen: set[Node]) -> set[Node]:
    """The nodes that a value is made by, except those in `seen`."""

    def above(values: Iterator[Value]) -> Iterator[Node]:
        yield from (node for node in makers(values) if node not in seen)

    return set(walk(above(iter([root])), lambda node: above(v for v in node.operands if v in data)))


# ------------------------------------------------------------------------------------------ series


def series_below(streams: Streams) -> Iterator[Series]:
    """The layers on every stream below one output."""
    for stretch in streams.stretches():
        tokens = [b.token for b in stretch]
        repeats = repetitions(tokens, [b.coarse for b in stretch], [b.mixes for b in stretch])
        for repetition in repeats or [Repetition(0, len(stretch), 1)]:
            yield from series_of(repetition, stretch, streams.tree)


def once_cut(series: list[Series], below: Sequence[Streams]) -> list[Series]:
    """The series, with those joined that values handed on beside the stream had separated."""
    for streams in below:
        for sums, beside in handed_on(streams):
            tree = PostDominators(streams.axes.graph, streams.data, streams.tree.root, beside)
            candidates = [
                s for s in series_below(Streams(streams.axes, streams.data, tree)) if s.sums <= sums
            ]
            for joined in (s for s in candidates if len(s.blocks) > 1):
                overlapping = [s for s in series if not joined.sums.isdisjoint(s.sums)]
                if all(len(s.blocks) < len(joined.blocks) for s in overlapping):
                    series = [*(s for s in series if s not in overlapping), joined]
    return series


def chain_below(streams: Streams) -> Iterator[Series]:
    """Equal consecutive products, each with what follows it, for models without residual sums."""
    chain = streams.chain()
    tokens = [b.token for b in chain]
    for repetition in repetitions(tokens, tokens, [False] * len(chain)):
        yield from series_of(repetition, chain, streams.tree)


def series_of(repetition: Repetition, stretch: Sequence[Bypass], tree: PostDominators) -> Iterator[Series]:
    """A repetition as a series, cut into single blocks if each of them mixes positions once."""
    period, count = repetition.period, repetition.count
    mixing = [b.mixes for b in stretch[repetition.start : repetition.start + period]]
    inner = next(q for q in range(1, period + 1) if period % q == 0 and mixing == mixing[:q] * (period // q))
    if inner > 1:
        period, count = inner, count * period // inner
    bounds = range(repetition.start, repetition.stop, period)
    blocks = [list(stretch[i : i + period]) for i in bounds]
    places = places_of(repetition, bounds, stretch, tree)
    once = len(places) == 2 and places[0].sizes != places[1].sizes
    if len(places) > 1 and not once:  # A layer that can be repeated gives the size that it takes.
        yield Series(places, blocks[: len(places) - 1])


def place_of(bypass: Bypass, tree: PostDominators) -> Value:
    """The value at which a layer that starts with a bypass starts: before widening casts that nothing else
    uses.

    It lies behind operators that round the stream, so that a copy of the layer finds the stream rounded, as
    the layer did.
    """
    place = bypass.start
    while place.producer is not None and widens(place.producer):
        before = place.producer.inputs[0]
        if (
            before is None
            or before not in tree.data
            or [n for n in users(before, tree.data) if n in tree.parent] != [place.producer]
        ):
            break
        place = before
    return place


def places_of(
    repetition: Repetition, bounds: Sequence[int], stretch: Sequence[Bypass], tree: PostDominators
) -> list[Value]:
    """The values where the layers start, and where the last one ends.

    The last layer ends as far behind its last sum as the layers before it: operators between layers, such as
    the norm of a post-norm model, belong to the layer before them. For a single layer its own blocks decide,
    or the functions that both precede its start and follow its last sum. If less layout follows the last sum
    than stands between layers, layers start before that layout. If operators between layers also stand in
    front of the first layer but not behind the last, they belong to the layer behind them. Terms that are
    only added between layers belong to neither.
    """
    place = {
        i: place_of(stretch[i], tree) for i in range(repetition.start, min(repetition.stop + 1, len(stretch)))
    }
    if len({value.dtype for value in place.values()}) > 1:
        place = {i: stretch[i].start for i in place}
    places = [place[i] for i in bounds]
    inner = [i for i in range(repetition.start + 1, repetition.stop) if i not in bounds]
    last = stretch[repetition.stop - 1].end
    outside, inside = (
        [operators(stretch[i - 1].end, place[i], tree) for i in reversed(some)]
        for some in (bounds[1:], inner)
    )
    followed = repetition.stop < len(stretch)

    def candidates() -> Iterator[list[Value] | None]:
        yield from (ended(places, last, path, tree) for path in outside)
        yield in_front(places, [stretch[i - 1].end for i in (*bounds[1:], repetition.stop)])
        single = [] if outside or inside or followed else [closing(last, places[0], tree)]
        yield from (ended(places, last, path, tree) for path in (*inside, *single))

    for found_places in candidates():
        if found_places is not None:
            return found_places
    if followed:
        return [*places, place[repetition.stop]]
    paths = [*outside, *inside]
    return [*places, last] if paths and all(node.has(SUM) for path in paths for node in path) else places


def ended(
    places: Sequence[Value], last: Value, way: Sequence[Node], tree: PostDominators
) -> list[Value] | None:
    """The places, followed by the end of the last layer behind these operators.

    If only some of the operators follow, and the rest is layout that stands before every start, the starts
    move before that layout. None if neither holds.
    """
    end = along(last, way, tree)
    if end is not None and elements(end) == elements(places[-1]):
        return [*places, end]
    for spare in range(1, len(way) + 1):
        earlier = [before(p, way[-spare:]) for p in places]
        end = along(last, way[:-spare], tree)
        if end is not None and None not in earlier:
            return [*(p for p in earlier if p is not None), end]
    return None


def before(place: Value, layout: Sequence[Node]) -> Value | None:
    """The value from which these operators make a place, if they are all layout; None otherwise."""
    for operator in reversed(layout):
        node = place.producer
        if node is None or node.op != operator.op or not node.has(*UNTOUCHED) or node.inputs[0] is None:
            return None
        place = node.inputs[0]
    return place


def closing(last: Value, start: Value, tree: PostDominators) -> list[Node]:
    """The functions directly behind a sum that also stand, in this order, directly before a start."""
    behind = list(islice((v for v in tree.way(last) if isinstance(v, Node)), 3))
    before: list[Node] = []
    node = start.producer
    while node is not None and len(node.inputs) == 1 and len(before) < len(behind):
        before.insert(0, node)
        node = node.inputs[0].producer if node.inputs[0] is not None else None
    named = [[(node.op, dict(node.attributes)) for node in nodes] for nodes in (before, behind)]
    alike = (k for k in range(len(before), 0, -1) if named[0][-k:] == named[1][:k])
    return behind[: next((k for k in alike if behind[k - 1].outputs[0].sizes == start.sizes), 0)]


def operators(value: Value, place: Value, tree: PostDominators) -> list[Node]:
    """The operators that everything from a value to a place passes."""
    passed = takewhile(lambda vertex: vertex is not place, tree.way(value))
    return [vertex for vertex in passed if isinstance(vertex, Node)]


def along(value: Value, way: Sequence[Node], tree: PostDominators) -> Value | None:
    """The value behind these operators; None if other operators stand there."""
    passed = list(islice((v for v in tree.way(value) if isinstance(v, Node)), len(way)))
    if [node.op for node in passed] != [node.op for node in way]:
        return None
    return passed[-1].outputs[0] if passed else value


def belongs(index: int, series: Sequence[Series], scopes: Sequence[str]) -> bool:
    """Whether a series consists of layers. A single block beside real runs must be built like one of them."""
    candidate = series[index]
    runs = [
        s for s, scope in zip(series, scopes, strict=True) if scope == scopes[index] and len(s.blocks) > 1
    ]
    return len(candidate.blocks) > 1 or not runs or any(s.built == candidate.built for s in runs)


def outermost(
    series: Sequence[Series], order: Mapping[Value, int], comes_from: Callable[[Value, Value], bool]
) -> list[Series]:
    """Series that do not lie inside a layer of another series: a layer is copied with everything in it.

    The outer one of two nested series stays, unless it is a single layer around several.
    """

    def inside(one: Series, other: Series) -> bool:
        start, end = one.places[0], one.places[-1]
        around = (
            (a, b)
            for a, b in pairwise(other.places)
            if order.get(a, -1) <= order.get(start, -1) and order.get(end, -1) <= order.get(b, -1)
        )
        same = len(one.places) == 2 and (start, end) in pairwise(other.places)
        return not same and any(comes_from(start, a) and comes_from(b, end) for a, b in around)

    dropped: set[Series] = set()
    for one in series:
        for other in (s for s in series if s is not one and inside(one, s)):
            dropped.add(other if len(other.places) == 2 < len(one.places) else one)
    return [s for s in series if s not in dropped]
