"""What a model learns in place of an input: queries of a decoder, latents, embeddings of distances.

Needs: the axis graph. Gives: the values, stored or made of a size alone, that matrices work on though no
input reaches them. They start streams as inputs do.
"""

from __future__ import annotations

from growc.ir.graph import Value, static_values
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes
from growc.passes.dataflow.reachability import data_values
from growc.passes.layers.residual_branches import shape_of


def learned_activations(axes: Axes) -> set[Value]:
    """The values that stand for an input."""
    data, static = data_values(axes.graph), static_values(axes.graph)
    found: list[Value] = []
    for instance in axes.instances:
        if instance.line.treatment == "contract":
            pair = [v for v in instance.node.inputs[:2] if v is not None and is_table(v)]
            weights = [v for v in reversed(pair) if v in static]
            if len(pair) == 2 and weights and not any(v in data for v in pair):
                found += [v for v in pair if v is not weights[0]]

    def made_of(value: Value) -> list[Value]:
        return [] if value.producer is None else [v for v in value.producer.operands if is_table(v)]

    return {value for value in walk(found, made_of) if not made_of(value)}


def is_table(value: Value) -> bool:
    """Whether a value holds real numbers along more than one axis."""
    return value.floating and sum(size > 1 for size in shape_of(value)) > 1
