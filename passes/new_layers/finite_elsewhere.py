"""Whether a new layer is finite where it stands: zero times a number is zero, times infinity it is not.

Needs: a layer, what is zero in it, the bounds of the stream where it stands. Gives: the values that may be
infinite or no number there, each with the node that makes it so.

What neither the stream nor a zero reaches is what the source computes too, so it is as finite as there. A
stream in another place is any number within its bounds that takes no value on more than a null set; the rules
for ranges are those of growc.passes.dataflow.images.

`motions` says how every value of the source moves with the input (growc.algebra.unit_ranges): some are one
number for more than single inputs, as zero is behind a ReLU. A new layer reads the stream of its place, and
what is no accident there may be a pole. A sum moves if one of its terms does: nothing takes that back but by
accident. Weights make zero of zeros, which all units of a row may be behind a ReLU, so that what they make
moves as what they read does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from growc.algebra.indexmap import Bools
from growc.algebra.unit_ranges import MOVES, STILL, VARIES, Range
from growc.ir.graph import Node, Value
from growc.ir.notation import NORMS
from growc.ir.traits import JOIN, RANK, SIZES, WRITE
from growc.passes.axes.infer import Axes
from growc.passes.axes.norms import Norm, without_eps
from growc.passes.dataflow.images import gives_on, image
from growc.passes.layers.layer_runs import Layer

NOTHING = Range.anything(1, STILL).within(0.0, 0.0)


@dataclass
class Elsewhere:
    """The ranges of the values of one new layer.

    stream: the range of its start. zeroed: the uses of weights, and rows, that are zero; drawn: those that
    are other numbers than in the source. static: what is made of weights alone. norms: those in pieces, by
    the node that closes them.
    """

    layer: Layer
    stream: Range
    zeroed: Collection[Value]
    drawn: Collection[Value]
    static: Collection[Value]
    treatment: Mapping[Node, str]
    norms: Mapping[Node, Norm]
    ranges: dict[Value, Range] = field(default_factory=dict)
    wild: dict[Value, Node] = field(default_factory=dict)
    """Where a value became wild."""

    def __post_init__(self) -> None:
        self.zeros = {v.weight for v in self.zeroed if v.weight is not None}
        self.reached = {self.layer.start, *self.zeroed, *self.drawn}
        self.ranges |= dict.fromkeys(self.zeroed, NOTHING)
        self.ranges[self.layer.start] = self.stream
        self.inside = set(self.layer.nodes)
        for node in self.layer.nodes:
            self.through(node)

    def of(self, value: Value) -> Range:
        """The range of a value: of what the layer only reads, that of what the source computes."""
        producer = value.producer
        if value not in self.ranges and value in self.static and producer not in self.inside and producer:
            self.through(producer)
        if value not in self.ranges and value.weight is not None and value.weight in self.zeros:
            self.reached.add(value)  # what other uses of such a weight are is not told
            self.ranges[value] = Range.anything(1)
        elif value not in self.ranges and value.known is not None:
            self.ranges[value] = _known(value)
        elif value not in self.ranges:
            self.ranges[value] = Range.anything(1, STILL if value in self.static else MOVES)
        return self.ranges[value]

    def through(self, node: Node) -> None:
        """What a node makes of its operands."""
        given = {i: self.of(v) for i, v in enumerate(node.inputs) if v is not None}
        reached = not node.has(SIZES) and any(v in self.reached for v in node.operands)
        made = self.made(node, given, np.array([not reached]))
        for out in node.outputs:
            if out in self.zeroed or (out.known is not None and not reached):
                continue
            one = made if out.floating or out is node.outputs[0] else Range.anything(1)
            if not reached:
                still = STILL if out in self.static else MOVES
                one = replace(one, motion=np.array([still]), wild=np.array([False]))
            else:
                self.reached.add(out)
            self.ranges[out] = one
            if one.wild.any():
                self.wild[out] = next((self.wild[v] for v in node.operands if v in self.wild), node)

    def made(self, node: Node, given: dict[int, Range], same: Bools) -> Range:
        """The range of a node's results; `same`: whether the source has these too."""
        if not given:
            return Range.anything(1)
        treatment, norm = self.treatment.get(node, ""), self.norms.get(node)
        wild = np.logical_or.reduce([one.wild for one in given.values()])
        if norm is not None and not norm.by_operator:
            return self.normed(norm)
        if treatment in ("layer_norm", "rms_norm", "per_channel"):
            vanishing = given[0].flat(centred=treatment == "layer_norm") & without_eps(node)
            return _scaled(given).bad(wild | vanishing)
        if treatment == "contract":
            return _contracted(given).bad(wild)
        if "made_of" in node.attributes or treatment in ("attention", "recurrent"):
            return Range.anything(1).bad(wild)
        if node.has(WRITE) and node.attributes.get("reduction", "none") == "none":
            return given[0].union(given.get(2, NOTHING))
        if node.has(RANK) and node.outputs[0].floating:
            return given[0]
        if gives_on(node) and not node.has(JOIN):
            given = {0: given[0]}
        return image(node, given, same)

    def normed(self, norm: Norm) -> Range:
        """What a norm in pieces makes of what it norms: its formula speaks for the pieces."""
        source = self.of(norm.source)
        motion = VARIES if norm.gain is not None or source.holds(0).any() else int(source.motion[0])
        made = replace(Range.anything(1, motion), wild=source.wild)
        return made.bad(source.flat(centred=norm.formula.centred)) if norm.bare else made


def _known(value: Value) -> Range:
    """Any of the numbers that a value is known to hold."""
    numbers = [np.asarray(a, dtype=np.float64).reshape(-1) for a in value.known or () if a.dtype.kind != "c"]
    every = np.concatenate([*numbers, []])
    whole = Range.anything(1, STILL)
    return whole.within(every.min(), every.max()) if every.size and np.isfinite(every).all() else whole


def _is_zero(one: Range) -> bool:
    return bool((one.low == 0).all() and (one.high == 0).all())


def _scaled(given: Mapping[int, Range]) -> Range:
    """A norm with its gain and its bias."""
    x, gain, bias = given[0], given.get(1, Range.anything(1, STILL)), given.get(2, NOTHING)
    return bias if _is_zero(x) or _is_zero(gain) else Range.anything(1, int(x.motion[0]))


def _contracted(given: Mapping[int, Range]) -> Range:
    """Sums of products: of a weight it takes no value on more than a null set."""
    a, b, bias = given[0], given.get(1, Range.anything(1)), given.get(2, NOTHING)
    if _is_zero(a) or _is_zero(b):
        return bias
    if STILL in (a.motion[0], b.motion[0]):
        return Range.anything(1, STILL if a.motion[0] == b.motion[0] else MOVES)
    positive = _is_zero(bias) and a.low[0] >= 0 and b.low[0] >= 0
    low = min(a.low[0] * b.low[0], 1.0) if positive else -np.inf
    motion = MOVES if a.motion[0] == b.motion[0] == MOVES else VARIES
    return replace(Range.anything(1, motion).within(low, np.inf, analytic=True), ends=a.ends | b.ends)


# ----------------------------------------------------------------------------- how values move

NO_ROWS = np.zeros(1, dtype=bool)


def motions(axes: Axes, static: Collection[Value], norms: Mapping[Node, Norm]) -> Callable[[Value], int]:
    """How a value moves: STILL, MOVES, or VARIES where it may be some number for more than single inputs."""
    treatment = {i.node: i.line.treatment for i in axes.instances}
    found: dict[Value, int] = {}

    def of(value: Value) -> int:
        if value in static or value.known is not None or value.weight is not None:
            return STILL
        return found.get(value, MOVES if value.floating else VARIES)

    for node in axes.graph.nodes:
        norm = norms.get(node)
        if norm is not None and not norm.by_operator:
            made = of(norm.source)
        else:
            made = _made(node, treatment.get(node, ""), {i: of(v) for i, v in enumerate(node.inputs) if v})
        found |= dict.fromkeys(node.outputs, made)
    return of


def _made(node: Node, treatment: str, given: Mapping[int, int]) -> int:
    """How what a node makes moves, by how its operands do."""
    moving = [motion for motion in given.values() if motion != STILL]
    if "made_of" in node.attributes or treatment in ("", "opaque"):
        return VARIES
    if not moving:
        return STILL
    if treatment in ("add", "contract", "recurrent"):
        return MOVES if MOVES in moving else VARIES
    if treatment == "attention":
        return given[2]
    if treatment == "lookup" and given[0] == STILL:
        return MOVES
    if treatment in NORMS:
        return given[0]
    ranges = {i: Range.anything(1, motion) for i, motion in given.items()}
    return int(image(node, ranges, NO_ROWS).motion[0])
