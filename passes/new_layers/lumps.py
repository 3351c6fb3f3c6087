"""Values that are some number for more than single inputs, as zero is behind a ReLU.

Needs: the axis graph, what weights alone make, norms in pieces. Gives: `motions`, how every value of the
source moves with the input (growc.algebra.unit_ranges). A new layer reads the stream of its place, and what
is no accident there may be a pole.

A sum moves if one of its terms does: nothing takes that back but by accident. Weights make zero of zeros,
which all units of a row may be behind a ReLU, so that what they make moves as what they read does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from growc.algebra.unit_ranges import MOVES, STILL, VARIES, Range
from growc.ir.graph import Node, Value
from growc.ir.notation import NORMS
from growc.passes.axes.infer import Axes
from growc.passes.axes.norms import Norm
from growc.passes.dataflow.images import image

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
