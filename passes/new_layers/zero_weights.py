"""The weights that must be zero for a value of a layer to be zero.

Needs: the axis graph, the layer's nodes. Gives: the uses of these weights. The search passes through constant
factors, layout, casts and functions with f(0) = 0, and takes the last parameters that it meets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from growc.ir.graph import Node, Value, used_by
from growc.ir.traits import DEQUANTISE, QUANTISE, TURN, VIEW
from growc.ir.walk import walk
from growc.passes.layers.residual_branches import shape_of
from growc.passes.new_layers.element_facts import numbers

KEEPS_ZERO = frozenset({"mean", "sum", "extreme", "lookup", "divide", "remainder"})
"""Treatments whose result is zero if the first operand is."""

Uses = tuple[Value, ...]
"""Uses of weights, and rows of tables."""


class NotZeroError(Exception):
    """No weights can be zero such that the result of a node is zero."""

    def __init__(self, node: Node | None) -> None:
        super().__init__()
        self.node = node


@dataclass(eq=False)
class ZeroWeights:
    """The search for zero weights in one layer.

    static: values made of weights alone. data: values made of inputs. rows: rows of tables.
    carriers: weights and their layouts. treatment: the treatment of each node. inside: the layer's nodes.
    carried: values that loop bodies carry and start with as zeros, while their results are examined.
    """

    static: Collection[Value]
    data: Collection[Value]
    rows: Collection[Value]
    carriers: Collection[Value]
    treatment: Mapping[Node, str]
    inside: Collection[Node]
    carried: set[Value] = field(default_factory=set)

    def of(self, value: Value) -> Uses:
        """The uses of weights, and rows, that make a value zero. Raises NotZeroError if there are none."""
        if value.known is not None and not any(a.any() for a in value.known):
            return ()
        if value in self.rows:
            return (value,)
        node = value.producer
        if value in self.static and not self.only_inside(value):
            raise NotZeroError(node)
        if value.weight is not None and value.floating:
            if value.weight.assumed and not value.weight.read().any():
                return ()
            if value.weight.shift or value.weight.assumed:
                raise NotZeroError(node)  # The stored numbers would not be zero.
            return (value,)
        if node is None or (value in self.data and node not in self.inside):
            raise NotZeroError(node)
        treatment = self.treatment.get(node, "layout" if node.chain else "")
        if treatment == "multiply":
            return self.zero_factor(node)
        if treatment == "contract":
            return self.zero_product(node)
        if treatment in ("layer_norm", "rms_norm", "per_channel"):
            return self.zero_norm(node)
        if "made_of" in node.attributes:
            return self.zero_around(node, value)
        return self.all_zero(self.elements_of(node, value, treatment))

    def zero_around(self, node: Node, value: Value) -> Uses:
        """The uses that make an operand or result of a loop body zero.

        A carried value is zero if it starts as zero and the body leaves it zero.
        """
        starts = node.attributes.get("starts")
        start = starts.get(node.outputs.index(value)) if isinstance(starts, dict) else None
        carried = None if start is None else node.inputs[start]
        if value in self.carried:
            return ()
        if carried is None or carried.producer is None:
            sources = node.sources(value)
            if not sources:
                raise NotZeroError(node)
            return self.all_zero(sources)
        begin = carried.producer
        first = begin.inputs[begin.outputs.index(carried)]
        self.carried.add(carried)
        try:
            return self.all_zero([v for v in (first, *node.sources(value)) if v is not None])
        finally:
            self.carried.discard(carried)

    def elements_of(self, node: Node, result: Value, treatment: str) -> list[Value]:
        """The operands that must be zero for a result to be zero. Raises NotZeroError if none suffice."""
        inputs = node.inputs
        if node.has(QUANTISE, DEQUANTISE):
            return [self.quantised(node)]
        if treatment == "add" and result.floating:  # Operands that are not real are sizes.
            places: Sequence[int] = [i for i, v in enumerate(inputs) if v is not None and v.floating]
        elif treatment == "add":
            places = range(len(inputs))
        elif treatment == "select":
            places = (1, 2)
        elif treatment == "layout":
            places = node.taken
        elif treatment.startswith("pointwise zero"):  # A maximum is zero if all operands are.
            places = [i for i, v in enumerate(inputs) if not i or (v and v.sizes == result.sizes)]
        elif treatment in KEEPS_ZERO:
            places = (0,)
        else:
            raise NotZeroError(node)
        return [v for i in places if i < len(inputs) and (v := inputs[i]) is not None]

    def quantised(self, node: Node) -> Value:
        """The operand that must be zero for the result of a quantising node to be zero. Raises NotZeroError.

        The whole number for zero is the zero point of the operator that made it. Only if that zero point is
        zero are whole zeros real zeros.
        """
        whole_numbers = node.inputs[0]
        while node.has(DEQUANTISE) and whole_numbers is not None and whole_numbers.producer is not None:
            before = whole_numbers.producer
            if (
                before.has(QUANTISE)
                and before.inputs[0] is not None
                and self.paired(before, node, whole_numbers)
            ):
                return before.inputs[0]
            if not before.has(VIEW, TURN):
                break
            whole_numbers = before.inputs[0]
        if node.inputs[0] is None or middle(node) != (0.0,):
            raise NotZeroError(node)
        return node.inputs[0]

    def paired(self, before: Node, node: Node, value: Value) -> bool:
        """Whether the zero points of two quantising nodes are the same number for every unit."""
        zero_before, zero_after = middle(before), middle(node)
        axes = [(n.attributes.get("axis", 1), n.attributes.get("block_size", 0)) for n in (before, node)]
        alike = value is node.inputs[0] and axes[0] == axes[1]
        return zero_before is not None and zero_before == zero_after and (len(zero_before) == 1 or alike)

    def all_zero(self, values: Sequence[Value]) -> Uses:
        """The uses that make all of several values zero."""
        return tuple(use for v in values for use in self.of(v))

    def any_zero(self, values: Sequence[Value], node: Node) -> Uses:
        """The uses that make a value zero, for the first of the values that has any."""
        for value in values:
            try:
                return self.of(value)
            except NotZeroError as error:
                blocked = error
        raise NotZeroError(node) if not values else blocked

    def zero_factor(self, node: Node) -> Uses:
        """The uses that make a product of elements zero: a parameter with an element for each unit,
        preferably a stored one, else the other factor.
        """
        operands = sorted((v for v in node.inputs if v is not None), key=lambda v: v.weight is None)
        scales = [v for v in operands if v in self.static and prod(shape_of(v)) > 1]
        activations = [v for v in operands if v not in self.static and v.known is None]
        return self.any_zero([*scales, *activations], node)

    def zero_product(self, node: Node) -> Uses:
        """The uses that make a contraction zero: a matrix, looked up or not, with its bias.

        For two activations, the one that weights make.
        """
        factors = [v for v in node.inputs[:2] if v is not None]
        matrices = [v for v in factors if v in self.static or v in self.carriers]
        bias = [v for v in node.inputs[2:] if v is not None]
        return (*self.any_zero(matrices or factors, node), *self.all_zero(bias))

    def zero_norm(self, node: Node) -> Uses:
        """Gain and bias of a norm; without a gain, the uses that make its operand zero."""
        operands = [v for v in (node.input(1), node.input(0)) if v is not None]
        bias = [v for v in (node.input(2),) if v is not None]
        return (*self.any_zero(operands, node), *self.all_zero(bias))

    def only_inside(self, value: Value) -> bool:
        """Whether nothing outside of the layer uses a value made of weights."""

        def outside(values: Iterable[Value]) -> Iterator[Node]:
            yield from (node for node in used_by(values) if node not in self.inside)

        outside_nodes = walk(outside([value]), lambda node: outside(node.outputs))
        return not any(v in self.data for node in outside_nodes for v in node.outputs)


def middle(node: Node) -> tuple[float, ...] | None:
    """The zero points of a quantising node, as one number if they are equal; None if they are not stored."""
    value = node.input(2)
    if value is None:
        return (0.0,)
    array = numbers(value)
    zero_points = () if array is None else tuple(np.asarray(array, dtype=np.float64).reshape(-1).tolist())
    return (zero_points[:1] if len(set(zero_points)) == 1 else zero_points) or None
