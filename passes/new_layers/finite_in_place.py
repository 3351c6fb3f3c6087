"""Finiteness of a new layer in its place: zero times a number is zero, but zero times infinity is not.

Needs: a layer, its zero weights, the bounds of the stream in its place. Gives: the values that may be
infinite or no number there, each with the node that causes it.

Values that neither the stream nor a zero reaches are as in the source, and so as finite as there. A stream in
another place may be any number within its bounds, and takes no value on more than a null set. The rules for
ranges are those of growc.passes.dataflow.images.

`motions` says how every value of the source moves with the input (growc.algebra.unit_ranges). Some values are
one number for more than single inputs, as the zero behind a ReLU. A new layer reads the stream of its place,
and such a number may be a pole of the layer. A sum moves if one of its terms does, since terms cancel only by
accident. Weights make zero of zeros, and all units of a row may be zero behind a ReLU. So the result of
weights moves as their operand does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from growc.algebra.indexmap import Bools
from growc.algebra.unit_ranges import MOVES, STILL, VARIES, UnitRange
from growc.ir.graph import Node, Value
from growc.ir.notation import NORMS
from growc.ir.traits import JOIN, RANK, SIZES, WRITE
from growc.passes.axes.infer import Axes
from growc.passes.axes.norms import Norm, without_eps
from growc.passes.dataflow.images import gives_on, image
from growc.passes.layers.layer_runs import Layer

NOTHING = UnitRange.anything(1, STILL).within(0.0, 0.0)
"""The range that holds zero alone."""


@dataclass
class RangesInPlace:
    """The ranges of the values of one new layer.

    stream: the range of its start.
    zeroed: the uses of weights, and rows, that are zero.
    drawn: the uses of weights whose numbers differ from the source's.
    static: values made of weights alone.
    norms: norms in pieces, by the node that closes them.
    """

    layer: Layer
    stream: UnitRange
    zeroed: Collection[Value]
    drawn: Collection[Value]
    static: Collection[Value]
    treatment: Mapping[Node, str]
    norms: Mapping[Node, Norm]
    ranges: dict[Value, UnitRange] = field(default_factory=dict)
    wild: dict[Value, Node] = field(default_factory=dict)
    """For each value that may be infinite or no number, the node that makes it so."""

    def __post_init__(self) -> None:
        self.zeros = {v.weight for v in self.zeroed if v.weight is not None}
        self.reached = {self.layer.start, *self.zeroed, *self.drawn}
        self.ranges |= dict.fromkeys(self.zeroed, NOTHING)
        self.ranges[self.layer.start] = self.stream
        self.inside = set(self.layer.nodes)
        for node in self.layer.nodes:
            self.through(node)

    def of(self, value: Value) -> UnitRange:
        """The range of a value. Values that the layer only reads have the range of the source's values."""
        producer = value.producer
        if value not in self.ranges and value in self.static and producer not in self.inside and producer:
            self.through(producer)
        if value not in self.ranges and value.weight is not None and value.weight in self.zeros:
            self.reached.add(value)  # Other uses of the weight have unknown numbers.
            self.ranges[value] = UnitRange.anything(1)
        elif value not in self.ranges and value.known is not None:
            self.ranges[value] = _known(value)
        elif value not in self.ranges:
            self.ranges[value] = UnitRange.anything(1, STILL if value in self.static else MOVES)
        return self.ranges[value]

    def through(self, node: Node) -> None:
        """Set the ranges of a node's results."""
        ranges = {i: self.of(v) for i, v in enumerate(node.inputs) if v is not None}
        reached = not node.has(SIZES) and any(v in self.reached for v in node.operands)
        result_range = self.made(node, ranges, np.array([not reached]))
        for out in node.outputs:
            if out in self.zeroed or (out.known is not None and not reached):
                continue
            out_range = result_range if out.floating or out is node.outputs[0] else UnitRange.anything(1)
            if not reached:
                still = STILL if out in self.static else MOVES
                out_range = replace(out_range, motion=np.array([still]), wild=np.array([False]))
            else:
                self.reached.add(out)
            self.ranges[out] = out_range
            if out_range.wild.any():
                self.wild[out] = next((self.wild[v] for v in node.operands if v in self.wild), node)

    def made(self, node: Node, ranges: dict[int, UnitRange], same: Bools) -> UnitRange:
        """The range of a node's results.

        same: whether the source has the same results.
        """
        if not ranges:
            return UnitRange.anything(1)
        treatment, norm = self.treatment.get(node, ""), self.norms.get(node)
        wild = np.logical_or.reduce([operand_range.wild for operand_range in ranges.values()])
        if norm is not None and not norm.by_operator:
            return self.normed(norm)
        if treatment in ("layer_norm", "rms_norm", "per_channel"):
            vanishing = ranges[0].flat(centred=treatment == "layer_norm") & without_eps(node)
            return _scaled(ranges).bad(wild | vanishing)
        if treatment == "contract":
            return _contracted(ranges).bad(wild)
        if "made_of" in node.attributes or treatment in ("attention", "recurrent"):
            return UnitRange.anything(1).bad(wild)
        if node.has(WRITE) and node.attributes.get("reduction", "none") == "none":
            return ranges[0].union(ranges.get(2, NOTHING))
        if node.has(RANK) and node.outputs[0].floating:
            return ranges[0]
        if gives_on(node) and not node.has(JOIN):
            ranges = {0: ranges[0]}
        return image(node, ranges, same)

    def normed(self, norm: Norm) -> UnitRange:
        """The range of a norm in pieces, by the formula of the whole norm."""
        source = self.of(norm.source)
        motion = VARIES if norm.gain is not None or source.holds(0).any() else int(source.motion[0])
        result_range = replace(UnitRange.anything(1, motion), wild=source.wild)
        return result_range.bad(source.flat(centred=norm.formula.centred)) if norm.bare else result_range


def _known(value: Value) -> UnitRange:
    """The range of the numbers that a value is known to hold."""
    numbers = [np.asarray(a, dtype=np.float64).reshape(-1) for a in value.known or () if a.dtype.kind != "c"]
    every = np.concatenate([*numbers, []])
    unbounded = UnitRange.anything(1, STILL)
    return (
        unbounded.within(every.min(), every.max()) if every.size and np.isfinite(every).all() else unbounded
    )


def _is_zero(unit_range: UnitRange) -> bool:
    return bool((unit_range.low == 0).all() and (unit_range.high == 0).all())


def _scaled(ranges: Mapping[int, UnitRange]) -> UnitRange:
    """The range of a norm with its gain and its bias."""
    x, gain, bias = ranges[0], ranges.get(1, UnitRange.anything(1, STILL)), ranges.get(2, NOTHING)
    return bias if _is_zero(x) or _is_zero(gain) else UnitRange.anything(1, int(x.motion[0]))


def _contracted(ranges: Mapping[int, UnitRange]) -> UnitRange:
    """The range of a sum of products. With a weight it takes no value on more than a null set."""
    a, b, bias = ranges[0], ranges.get(1, UnitRange.anything(1)), ranges.get(2, NOTHING)
    if _is_zero(a) or _is_zero(b):
        return bias
    if STILL in (a.motion[0], b.motion[0]):
        return UnitRange.anything(1, STILL if a.motion[0] == b.motion[0] else MOVES)
    positive = _is_zero(bias) and a.low[0] >= 0 and b.low[0] >= 0
    low = min(a.low[0] * b.low[0], 1.0) if positive else -np.inf
    motion = MOVES if a.motion[0] == b.motion[0] == MOVES else VARIES
    return replace(UnitRange.anything(1, motion).within(low, np.inf, analytic=True), ends=a.ends | b.ends)


# ----------------------------------------------------------------------------- how values move

NO_ROWS = np.zeros(1, dtype=bool)
"""Stands for rows of which none is as in the source."""


def motions(axes: Axes, static: Collection[Value], norms: Mapping[Node, Norm]) -> Callable[[Value], int]:
    """A function that says how a value moves: STILL, MOVES, or VARIES.

    VARIES: the value may be one number for more than single inputs.
    """
    treatment = {i.node: i.line.treatment for i in axes.instances}
    motion_of: dict[Value, int] = {}

    def of(value: Value) -> int:
        if value in static or value.known is not None or value.weight is not None:
            return STILL
        return motion_of.get(value, MOVES if value.floating else VARIES)

    for node in axes.graph.nodes:
        norm = norms.get(node)
        if norm is not None and not norm.by_operator:
            motion = of(norm.source)
        else:
            motion = _made(node, treatment.get(node, ""), {i: of(v) for i, v in enumerate(node.inputs) if v})
        motion_of |= dict.fromkeys(node.outputs, motion)
    return of


def _made(node: Node, treatment: str, motions: Mapping[int, int]) -> int:
    """The motion of a node's results, from the motions of its operands."""
    moving = [motion for motion in motions.values() if motion != STILL]
    if "made_of" in node.attributes or treatment in ("", "opaque"):
        return VARIES
    if not moving:
        return STILL
    if treatment in ("add", "contract", "recurrent"):
        return MOVES if MOVES in moving else VARIES
    if treatment == "attention":
        return motions[2]
    if treatment == "lookup" and motions[0] == STILL:
        return MOVES
    if treatment in NORMS:
        return motions[0]
    ranges = {i: UnitRange.anything(1, motion) for i, motion in motions.items()}
    return int(image(node, ranges, NO_ROWS).motion[0])
