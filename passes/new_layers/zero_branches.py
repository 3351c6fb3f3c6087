"""Branches that write into a stream inside a layer, and the weights that must be zero for the layer to be the
identity.

Needs: a layer, the axis graph, the data values. Gives: a `Branch` for every term of the layer's sums, or the
`Obstacle` on the stream itself (the norm of a post-norm model, a factor).

A term is zero if its last per-channel parameters are: a layer scale, or gain and bias of a norm on the
branch. Otherwise weight and bias of the projection must be zero, and those of every projection if the term is
a sum of several (experts).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from growc.algebra.unit_ranges import MOVES, UnitRange
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Node, Value
from growc.ir.notation import NORMS
from growc.ir.traits import DEQUANTISE, SAME, SUM
from growc.passes.axes.infer import Axes
from growc.passes.axes.norms import Norm
from growc.passes.dataflow.images import has_pole
from growc.passes.layers.layer_runs import Branch, Layer, Layers, Obstacle, Run, RunHistory
from growc.passes.new_layers.drawn_layers import DrawnLayers
from growc.passes.new_layers.element_facts import ElementFacts
from growc.passes.new_layers.finite_in_place import RangesInPlace, motions
from growc.passes.new_layers.idempotent import Find, finder
from growc.passes.new_layers.propagate_facts import SETTLING, settles, steps_for, through
from growc.passes.new_layers.zero_weights import NotZeroError, ZeroWeights
from growc.passes.raising.cancelling_operations import not_undone, taken_back
from growc.passes.raising.norms import find_norms
from growc.passes.solving.build_constraints import carriers_of

ARITHMETIC = frozenset({"add", "multiply", "divide"})
"""Treatments of the operators by which norms in pieces act on the stream."""

ELSEWHERE = "put new layers where the stream has the axes that they take, and leave those that change them"
"""The remedy for layers that do not fit the stream in their place."""


@dataclass(frozen=True)
class Passage:
    """The stream through a new layer: its facts before and behind the layer, and the obstacle on its way.

    before, after: the facts.
    obstacle: the node that changes the stream; None if the stream passes unchanged.
    steps: the quantising operators that take the steps of other ones, so that the stream keeps its own steps.
    drawn: whether the layer's other weights are drawn.
    """

    stands: Value
    """The stream in this place, as a value of the source."""
    before: ElementFacts
    after: ElementFacts
    obstacle: Obstacle | None
    steps: Mapping[Node, Node] = field(default_factory=dict)
    drawn: bool = False


class Branches:
    """The branches of layers of one model."""

    def __init__(self, axes: Axes, layers: Layers) -> None:
        self.layers, self.data = layers, layers.data
        self.static = axes.graph.static - self.data
        self.rows = {row for rows in layers.rows if rows.constant for row in rows.taken}
        self.carriers = carriers_of(axes)
        self.treatment = {i.node: i.line.treatment for i in axes.instances}
        self.axes = axes
        self.twice = finder(axes)
        self.polar = any(has_pole(node) for node in axes.graph.nodes)
        self.poles: dict[tuple[Layer, float, float, int, bool], Obstacle | None] = {}

    @cached_property
    def norms(self) -> Mapping[Node, Norm]:
        """Norms in pieces, by the node that closes them."""
        return {norm.close: norm for norm in find_norms(self.axes.graph)}

    @cached_property
    def drawn(self) -> DrawnLayers:
        """The new contents of the weights of drawn layers."""
        return DrawnLayers(self.axes, self.layers)

    @cached_property
    def motion(self) -> Callable[[Value], int]:
        """A function that says how a value of the source moves with the input."""
        return motions(self.axes, self.static, self.norms)

    def of(self, layer: Layer) -> tuple[Branch, ...] | Obstacle:
        """The branches of a layer in the order of their sums, or the obstacle."""
        branches_or_obstacle = self.way(layer)
        if isinstance(branches_or_obstacle, Obstacle):
            return replace(branches_or_obstacle, branches=tuple(self.normed(layer)))
        return branches_or_obstacle

    def normed(self, layer: Layer) -> Iterator[Branch]:
        """The terms added to the stream of a layer that norms the stream itself.

        Terms that are added beside the stream, for queries and keys alone, are left out.
        """
        stream, inside = {layer.start}, set(layer.nodes)
        following: list[tuple[Node, list[int]]] = []
        for node in layer.nodes:
            places = [i for i, v in enumerate(node.inputs) if v in stream]
            follows = node.has(*SETTLING) or self.treatment.get(node) in ARITHMETIC | NORMS
            if places and follows and (places[0] == 0 or node.has(SUM)):
                stream.update(node.outputs)
                following.append((node, places))
        leading = {layer.end} if layer.end in stream else set(stream)
        for node, places in reversed(following):
            if leading.intersection(node.outputs):
                leading.update(node.required(i) for i in places)
        for node, places in following:
            summed = node.has(SUM) and not any(v in self.static for v in node.inputs)
            if summed and leading.intersection(node.outputs):
                with contextlib.suppress(NotZeroError):
                    yield from list(self.terms(node, places, inside))

    def way(self, layer: Layer) -> tuple[Branch, ...] | Obstacle:
        """The branches of a layer whose stream nothing else touches, or the obstacle."""
        stream_values = self.kept(layer)
        branches: list[Branch] = []
        path = list(steps(layer.end, layer.start, lambda node, i: node.inputs[i] in stream_values))
        if (path[-1][0].inputs[path[-1][1]] if path else layer.end) is not layer.start:
            return self.obstacle(layer, stream_values)
        for node, _ in path:
            streams = [i for i, v in enumerate(node.inputs) if v in stream_values]
            if node.has(SUM) and len(streams) > 1:
                return Obstacle(node, "adds the stream to itself")
            try:
                branches[:0] = self.terms(node, streams, set(layer.nodes))
            except NotZeroError as error:
                return Obstacle(error.node or node, "is not zero where the weights before it are")
        nodes = [node for node, _ in path[::-1]]
        reordering = not_undone(nodes) if layer.start.sizes == layer.end.sizes else nodes[-1]
        return tuple(branches) if reordering is None else Obstacle(reordering, "reorders the stream")

    def kept(self, layer: Layer) -> set[Value]:
        """The values of a layer that are the stream, with terms added.

        Whether a rounding or bound changes the stream depends on the layer's place.
        """
        stream_values = {layer.start}
        for node in layer.nodes:
            places = [i for i, v in enumerate(node.inputs) if v in stream_values]
            if places and (node.has(SUM) or settles(node, places[0], self.twice) or taken_back(node)):
                stream_values.update(node.outputs)
        return stream_values

    # ------------------------------------------------------------------------------------- places

    def passages(self, run: Run, past: RunHistory) -> Iterator[Passage | None]:
        """The stream through each layer of the run's current list; None for layers that add to it.

        Raises GrowError (G314) if a layer would take a stream of another type or with other axes than in the
        source. The same holds for the value behind the last layer.
        """
        value = stands = run.layers[0].start
        held = behind(value, self.twice)
        pasts = zip(past.order, past.zeroed, past.drawn, strict=True)
        for place, (source, zero, drawn) in enumerate(pasts):
            layer = run.layers[source]
            taken_type, stream_type = layer.start.dtype, held.dtype
            casts = all(n.has(SAME) for n, _ in layer.start.users if n in layer.nodes)
            if taken_type and stream_type and taken_type != stream_type and not casts:
                takes = f"it takes {taken_type} (`{layer.start.name}`), and the stream is {stream_type} there"
                raise GrowError(Diagnostic("G314", f"layer {source} cannot be layer {place}: {takes}"))
            if not fits(value, layer.start):
                takes = f"it takes {axes_of(layer.start)} (`{layer.start.name}`)"
                message = (
                    f"layer {source} cannot be layer {place}: {takes}, and `{value.name}` is {axes_of(value)}"
                )
                raise GrowError(Diagnostic("G314", message, help=ELSEWHERE))
            value = layer.end
            passage = self.passed(layer, held, stands, drawn=drawn is not None) if zero else None
            stands = stands if zero else layer.end
            held = behind(layer.end, self.twice, layer.start, held) if passage is None else passage.after
            yield passage
        last = run.layers[-1].end
        if not fits(value, last):
            gives = f"it gives {axes_of(value)} (`{value.name}`), and `{last.name}` is {axes_of(last)}"
            message = f"layer {past.order[-1]} cannot be the last: {gives}"
            raise GrowError(Diagnostic("G314", message, help=ELSEWHERE))

    def passed(self, layer: Layer, held: ElementFacts, stands: Value, *, drawn: bool = False) -> Passage:
        """The passage of a stream with these facts through a layer with zero outputs.

        stands: the value of the source that the stream is there.
        drawn: whether the layer's other weights are drawn.
        """
        branches = self.way(layer)
        if isinstance(branches, Obstacle):
            after = behind(layer.end, self.twice, layer.start, held)
            return Passage(stands, held, after, branches, drawn=drawn)
        current, changing, step_sources, stream_values = held, None, dict[Node, Node](), self.kept(layer)
        values = {layer.start: held}
        for node, place in list(
            steps(layer.end, layer.start, lambda node, i: node.inputs[i] in stream_values)
        )[::-1]:
            if not node.has(SUM) and not taken_back(node):
                behind_it, unchanged = through(node, place, current, self.twice)
                like = None if unchanged else steps_for(node, current)
                if like is not None:
                    behind_it, unchanged = through(node, place, current, self.twice, like)
                    step_sources[node] = like
                current, changing = behind_it, changing or (None if unchanged else node)
            values[node.outputs[0]] = current
        if changing is None and not current.same(held):
            changing = layer.end.producer
        for node in layer.nodes:  # Branches also read the stream in its quantisation steps.
            at = values.get(node.inputs[0]) if node.has(DEQUANTISE) and node.inputs[0] else None
            like = None if at is None or through(node, 0, at, self.twice)[1] else steps_for(node, at)
            step_sources |= {} if like is None else {node: like}
        cause = "rounds or bounds a stream that is not so in this place"
        pole = self.pole(layer, branches, held, stands, drawn) if changing is None else None
        obstacle = pole if changing is None else Obstacle(changing, cause)
        return Passage(stands, held, current, obstacle, step_sources, drawn)

    def pole(
        self, layer: Layer, branches: Sequence[Branch], held: ElementFacts, stands: Value, drawn: bool
    ) -> Obstacle | None:
        """The node that makes the end of a zero branch infinite or no number, as an obstacle; None if there
        is none.
        """
        motion = self.motion(stands) if self.polar else MOVES
        key = (layer, held.low, held.high, motion, drawn)
        if key not in self.poles and self.polar:
            zeroed = {use for branch in branches for use in branch.writer}
            stream = UnitRange.anything(1, motion).within(held.low, held.high, analytic=True)
            redrawn = (
                {use for weight in self.drawn.of(layer) for use in self.drawn.uses[weight]}
                if drawn
                else set()
            )
            facts = self.static, self.treatment, self.norms
            wild_values = RangesInPlace(layer, stream, zeroed, redrawn - zeroed, *facts).wild
            at = next((wild_values[branch.value] for branch in branches if branch.value in wild_values), None)
            cause = "may be infinite or no number there, which no zero hides"
            self.poles[key] = None if at is None else Obstacle(at, cause)
        return self.poles.get(key)

    def obstacle(self, layer: Layer, kept: set[Value]) -> Obstacle:
        """The first node that changes the stream on its way to the layer's end."""
        touched: dict[Value, Node] = {}
        for node in layer.nodes:
            if any(v in kept for v in node.operands):
                touched.update((v, node) for v in node.outputs if v not in kept)
            elif self.treatment.get(node) not in ("contract", "recurrent", "attention"):
                first = next((touched[v] for v in node.operands if v in touched), None)
                touched.update({} if first is None else dict.fromkeys(node.outputs, first))
        node = touched.get(layer.end, layer.end.producer or layer.nodes[-1])
        norm = self.treatment.get(node) in NORMS
        return Obstacle(node, "norms the stream itself" if norm else "changes the stream itself")

    def terms(self, node: Node, streams: Sequence[int], inside: set[Node]) -> Iterator[Branch]:
        """The branches that a sum adds to the stream."""
        search = ZeroWeights(self.static, self.data, self.rows, self.carriers, self.treatment, inside)
        for i, value in enumerate(node.inputs if node.has(SUM) else ()):
            if i not in streams and value is not None:
                yield Branch(node, i, value, tuple(dict.fromkeys(search.of(value))))


def steps(
    value: Value, start: Value | None, passes: Callable[[Node, int], bool]
) -> Iterator[tuple[Node, int]]:
    """The nodes on the way back from a value to `start`, each with the first operand that it passes on."""
    while value is not start and (node := value.producer) is not None:
        place = next((i for i, v in enumerate(node.inputs) if v is not None and passes(node, i)), None)
        if place is None:
            return
        yield node, place
        value = node.required(place)


def fits(replacement: Value, replaced: Value) -> bool:
    """Whether a value can replace another one: it has as many axes, and the same fixed sizes."""
    pairs = list(zip(replacement.sizes or (), replaced.sizes or (), strict=False))
    both_known = replacement.sizes is not None and replaced.sizes is not None
    return not both_known or (
        replacement.rank == replaced.rank and all(a == b or len(set(b)) > 1 for a, b in pairs)
    )


def axes_of(value: Value) -> str:
    """The sizes of a value as text, with `?` for each that the model leaves open."""
    return str([s[0] if len(set(s)) == 1 else "?" for s in value.sizes or ()]).replace("'", "")


def behind(
    value: Value, find: Find, start: Value | None = None, held: ElementFacts | None = None
) -> ElementFacts:
    """The facts of a value, from all roundings and bounds on its way.

    held: the facts of `start`, if the way begins there.
    """
    path = list(steps(value, start, lambda node, i: settles(node, i, find)))
    first = path[-1][0].required(path[-1][1]) if path else value
    facts = held if held is not None and first is start else ElementFacts.of(first)
    for node, place in reversed(path):
        facts, _ = through(node, place, facts, find)
    return facts
