"""`from next layer`: the rows of new units come from the layer above (bert2BERT, AKI, eq. 14–16).

Needs: the steps of one statement, those of the statements before it, the layers. Gives: the steps. Steps that
make units name the tensor of the next layer of the same kind, as the statements before left it. Weights that
read the new units stay the layer's own. The last layer of a kind takes itself. So does a weight that lies in
no layer, or whose shape differs by then from that in the next layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from growc.ir.graph import Node, Value
from growc.ir.lowered_statement import Stage
from growc.ir.traits import SUM
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes
from growc.passes.axes.norms import Norm
from growc.passes.layers.layer_runs import Layer, LayerPlace, Layers
from growc.passes.layers.origin_of_layers import Ancestry
from growc.passes.solving.norms import OPERATORS
from growc.plans.plan import AxisStep, Gap, NextLayer

Steps = Mapping[Value, Sequence[AxisStep]]


class NextLayers:
    """For each use of a weight in a layer, the use at the same place of the next layer."""

    def __init__(
        self, layers: Layers, axes: Axes, norms: Sequence[Norm], ancestry: Ancestry, moment: int
    ) -> None:
        self.layers, self.ancestry, self.moment = layers, ancestry, moment
        operators = [i.node for i in axes.instances if i.line.treatment in OPERATORS]
        whole = {use for node in operators for use in _weights(node)}
        self.of_norms = whole | {use for norm in norms for use in _behind(norm.result)}
        self.uses = {
            (r, i): list(_uses(layer))
            for r, run in enumerate(layers.runs)
            for i, layer in enumerate(run.layers)
        }
        self.place = {use: place for place, uses in self.uses.items() for use in uses}

    def of(self, use: Value) -> Value | None:
        """The use in the next layer; None where there is no next layer, or it has no such weight."""
        place = self.place.get(use)
        next_place = None if place is None else self.above(place)
        if place is None or next_place is None:
            return None
        index = self.uses[place].index(use)
        other = self.uses[next_place][index] if index < len(self.uses[next_place]) else None
        return other if other is not None and _alike(use, other) else None

    def above(self, place: LayerPlace) -> LayerPlace | None:
        """The next layer of the same kind, as layers stood before the statement."""
        run = self.layers.runs[place[0]]
        before = [run.history.number_before(i, self.moment) for i in range(len(run.layers))]
        later = [
            i
            for i, number in enumerate(before)
            if number > before[place[1]] and run.kinds[i] == run.kinds[place[1]]
        ]
        return (place[0], min(later, key=lambda i: before[i])) if later else None


def _uses(layer: Layer) -> Iterator[Value]:
    """The uses of weights in a layer, in canonical order."""
    for node in layer.nodes:
        yield from _weights(node)


def _stored(value: Value) -> Value | None:
    """The use of a weight that a value is, apart from its layout."""
    use = value.unmoved
    return use if use.weight is not None else None


def _weights(node: Node) -> Iterator[Value]:
    """The uses of weights that a node reads."""
    return filter(None, map(_stored, node.operands))


def _behind(result: Value) -> Iterator[Value]:
    """Gain and bias of a norm in pieces: the weights that its result is multiplied with or added to first."""

    def met(value: Value) -> Iterator[tuple[Value, Node]]:
        for node, operand in value.users:
            others = [_stored(v) for i, v in enumerate(node.inputs) if i != operand and v is not None]
            if len(others) == 1 and others[0] is not None and (node.has(SUM) or node.treatment == "multiply"):
                yield others[0], node

    for value in walk([result], lambda v: (out for _, node in met(v) for out in node.outputs)):
        yield from (use for use, _ in met(value))


def _alike(a: Value, b: Value) -> bool:
    assert a.weight is not None
    assert b.weight is not None
    plain = a.weight.stored is None and b.weight.stored is None
    return plain and a.weight.shape == b.weight.shape and _reader(a) == _reader(b)


def shape_after(use: Value, steps: Steps) -> list[int]:
    """The shape that some steps give a weight."""
    assert use.weight is not None
    shape = list(use.weight.shape)
    for step in steps.get(use, ()):
        shape[step.axis] = step.layout.after
    return shape


def _reader(use: Value) -> tuple[str, int]:
    node, operand = use.users[0]
    return node.op, operand


def from_next_layer(
    after: Steps, before: Steps, stage: Stage, following: NextLayers
) -> dict[Value, list[AxisStep]]:
    """The steps of a statement with `from next layer`."""
    verbs = ("makes",) if stage.axis == "hidden" else ("makes", "scales")
    steps_by_use: dict[Value, list[AxisStep]] = {}
    for use, steps in after.items():
        other = following.of(use)
        steps_by_use[use] = list(steps)
        if other is None or other is use or (stage.axis == "hidden" and use in following.of_norms):
            continue
        theirs = after.get(other, ())
        if any(shape_after(use, one) != shape_after(other, one) for one in (before, after)) or len(
            theirs
        ) < len(steps):
            continue
        assert other.weight is not None
        for k, step in enumerate(steps):  # earlier steps of the statement apply to both weights
            source = NextLayer(other.weight.name, (*before.get(other, ()), *theirs[:k]))
            steps_by_use[use][k] = replace(step, next=source) if step.verb in verbs else step
    return steps_by_use


def gaps_of(steps: Steps, stage: Stage) -> Iterator[Gap]:
    """Yield a gap if new units come from another layer: they compute something else, and are read."""
    if stage.options.zero_outputs:
        return
    for use, done in steps.items():
        if any(s.next is not None for s in done):
            yield Gap.at(use.users[0][0], f"new units of {stage.axis} come from the next layer")
            return
