"""Random initial weights of new layers that are not copies.

Needs: the axis graph, the layers. Gives: the new contents of each weight of a layer, with the steps that
write them. Only weights that the layer does not share change; in a model that runs its layers more than once,
layers with one number share them. New layers are random in the operator G_random of Du et al. 2024 (arXiv
2405.15319). Here the deviation is the one with which all fills of the language draw:

1. a weight that is contracted with activations is drawn, with the deviation of the source's tensor, mean 0;
2. the gain of a norm, and a vector that multiplies or divides activations, is one;
3. the bias of a product or a norm, and a vector that is added to activations, is zero;
4. of a norm by stored statistics, the means are zero and the variances one;
5. everything else stays as in the layer that was copied: tables, frequencies, masks, single numbers.

Numbers are drawn row by row of the contracted axis, so that they do not depend on the layout in which an
exporter stores a matrix. An activation is a value that depends on the layer's stream, on a real input or on a
table that is looked up. So positions times frequencies are no activation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from growc.algebra.draws import Draws
from growc.ir.graph import Node, Value, Weight
from growc.ir.notation import labels, names_of
from growc.passes.axes.infer import Axes
from growc.passes.dataflow.reachability import made_from
from growc.passes.layers.layer_runs import Layer, Layers
from growc.plans.plan import DRAWN, ONE, ZERO, AxisStep, Layout, LeafStep

SHOWN = 3
"""The number of tensors that a note names."""

NAME = "new layer"
"""The label of these steps in the plan."""

AFFINE = {1: ONE, 2: ZERO}
"""The fillers of the gain and the bias of a norm, by operand."""

BY_OPERAND = {
    "contract": {0: DRAWN, 1: DRAWN, 2: ZERO},
    "recurrent": {1: DRAWN, 2: DRAWN, 3: ZERO},
    "layer_norm": AFFINE,
    "rms_norm": AFFINE,
    "per_channel": {**AFFINE, 3: ZERO, 4: ONE},
}
"""Cases 1, 2 and 4, and the biases of case 3: the fillers of an operator's operands, by its treatment."""

OF_VECTORS = {"add": {0: ZERO, 1: ZERO}, "multiply": {0: ONE, 1: ONE}, "divide": {1: ONE}}
"""Cases 2 and 3 for elementwise operators, whose gains and biases are vectors."""


class Anew(NamedTuple):
    """The new contents of a weight: the filler of its rows, and the axis along which they lie."""

    filler: int
    axis: int


class DrawnLayers:
    """The new contents of the weights of drawn layers."""

    def __init__(self, axes: Axes, layers: Layers) -> None:
        graph, self.uses = axes.graph, defaultdict[Weight, list[Value]](list)
        self.lines = {instance.node: instance.line for instance in axes.instances}
        for use in graph.uses():
            assert use.weight is not None
            self.uses[use.weight].append(use)
        self.places = layers.home
        starts = [run.layers[0].start for run in layers.runs]
        inputs = [value for value in graph.inputs if value.floating]
        tables = [out for node in graph.nodes if _looks_up(node) for out in node.outputs]
        self.activations = made_from([*starts, *inputs, *tables])

    def of(self, layer: Layer) -> dict[Weight, Anew]:
        """The new contents of each weight of a layer that changes, in canonical order."""
        return {weight: anew for weight, anew in self._found(layer).items() if anew is not None}

    def kept(self, layer: Layer) -> list[Weight]:
        """The layer's own weights that stay copies, except for single numbers."""
        return [w for w, anew in self._found(layer).items() if anew is None and w.floating and w.elements > 1]

    def readers(self, weight: Weight) -> set[tuple[int, int] | None]:
        """The layers that read a weight, by run and number; None stands for readers in no layer."""
        return {None if use.reader is None else self.places.get(use.reader) for use in self.uses[weight]}

    def _is_own(self, weight: Weight) -> bool:
        """Whether a single layer reads a weight, or layers of one number in a model that runs its layers
        again.
        """
        numbers = {None if place is None else place[1] for place in self.readers(weight)}
        return len(numbers) == 1 and None not in numbers

    def _found(self, layer: Layer) -> dict[Weight, Anew | None]:
        fillers: dict[Weight, list[Anew | None]] = defaultdict(list)
        for node in layer.nodes:
            for place, value in enumerate(node.inputs):
                weight = None if value is None else value.unmoved.weight
                if weight is not None and self._is_own(weight):
                    filler = self._kind(node, place, weight)
                    fillers[weight].append(None if filler is None else Anew(filler, self._rows(node, place)))
        return {w: kinds[0] if len(set(kinds)) == 1 else None for w, kinds in fillers.items()}

    def _rows(self, node: Node, place: int) -> int:
        """The axis of a stored tensor that an operand contracts over; 0 if it is unknown."""
        line, value = self.lines.get(node), node.required(place)
        terms = None if line is None else line.inputs[place]
        output_names = set() if line is None else {name for out in line.outputs for name in names_of(out)}
        axis = next((i for i, term in enumerate(terms or ()) if output_names.isdisjoint(labels(term))), None)
        while axis is not None and value.producer is not None and value.producer.chain:
            line_before = self.lines.get(value.producer)
            before, after = (
                (None, None) if line_before is None else (line_before.inputs[0], line_before.outputs[0])
            )
            has_axis = before is not None and after is not None and after[axis] in before
            axis = (
                before.index(after[axis]) if before is not None and after is not None and has_axis else None
            )
            value = value.producer.required(0)
        return axis or 0

    def _kind(self, node: Node, place: int, weight: Weight) -> int | None:
        """The filler of a weight according to one node that reads it; None if it stays."""
        siblings = (v for i, v in enumerate(node.inputs) if i != place and v is not None)
        if not weight.floating or weight.assumed or not any(v in self.activations for v in siblings):
            return None
        kinds = BY_OPERAND.get(node.treatment)
        if kinds is None and weight.elements > 1 and sum(size > 1 for size in weight.shape) == 1:
            kinds = OF_VECTORS.get(node.treatment)
        return None if kinds is None else kinds.get(place)


def _looks_up(node: Node) -> bool:
    return node.treatment == "lookup" and bool(node.inputs) and node.required(0).unmoved.weight is not None


@dataclass(frozen=True)
class Redraw:
    """One use of a weight that is to be drawn.

    moment: the number of the statement.
    """

    moment: int
    use: Value
    anew: Anew
    draws: Draws
    std: float | None = None

    def step(self, shape: Sequence[int]) -> AxisStep:
        """The step that replaces all numbers of a tensor of this shape."""
        size, kind = shape[self.anew.axis], self.anew.filler
        index, filler = np.full(size, -1), np.full(size, kind)
        key = self.draws.key if kind == DRAWN else 0
        leaf = LeafStep(size, index, np.ones(size), filler, key, std=self.std if kind == DRAWN else None)
        return AxisStep(self.anew.axis, Layout("leaf", (), leaf), "makes", NAME)


def redraws(axes: Axes, layers: Layers) -> tuple[list[Redraw], list[str]]:
    """The uses to draw in a model whose layers moved, and notes on weights that stay. Zeros stay zero."""
    if not any(past is not None for run in layers.runs for past in run.history.drawn):
        return [], []
    drawn, all_redraws, copies = DrawnLayers(axes, layers), list[Redraw](), list[str]()
    drawn_weights = set[Weight]()  # A weight of several runs is drawn with the first of them.
    for run in layers.runs:
        for layer, past in zip(run.layers, run.history.drawn, strict=True):
            if past is None:
                continue
            ordinals = count()  # Counts matrices: exporters add and drop gains of one and zero biases.
            for weight, anew in drawn.of(layer).items():
                draws = past.draws.at(next(ordinals)) if anew.filler == DRAWN else past.draws
                alike = all(layers.runs[r].history.drawn[k] for r, k in filter(None, drawn.readers(weight)))
                uses = drawn.uses[weight] if alike and not weight.zero and weight not in drawn_weights else ()
                drawn_weights.add(weight)
                all_redraws += [Redraw(past.moment, use, anew, draws, past.std) for use in uses]
            copies += [weight.name for weight in drawn.kept(layer)]
    return all_redraws, [_note(copies)] if copies else []


def _note(kept: Sequence[str]) -> str:
    """The note on weights that stay copies."""
    names = ", ".join(f"`{name}`" for name in kept[:SHOWN]) + (", …" if len(kept) > SHOWN else "")
    return f"{len(kept)} tensors of new layers stay copies, since nothing says how they are drawn: {names}"
