"""The products and sums that a model computes, in FLOPs.

A product of two operands costs one multiplication and one addition for each term of its sums, as
torch.utils.flop_counter counts. The line of an operator gives the axes of its products; all else costs
nothing. In the backward pass a product is computed once for each of its factors that depends on a trained
tensor, and so needs a gradient. So the first layer of an image model costs as much backward as forward, and
all others twice as much.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from growc.algebra.space import Size
from growc.ir.graph import Node, Value, Weight
from growc.ir.notation import Product
from growc.ir.traits import QUANTISE
from growc.passes.axes.infer import LineInstance
from growc.passes.compilation import Analysis, Result

ValueSizes = Mapping[Value, tuple[Size, ...] | None]

SUMMING = frozenset({"contract", "attention", "recurrent"})
"""Treatments of operators that sum products."""


def with_gradients(c: Analysis, trained: Collection[str] | None) -> set[Value]:
    """The values that depend on trained tensors: those named, or (None) any stored one."""
    dependent = {v for v in c.graph.uses() if v.weight is not None and _is_trained(v.weight, trained)}
    for node in c.graph.nodes:
        if any(v in dependent for v in node.operands):
            dependent.update(v for v in node.outputs if v.floating or node.has(QUANTISE))
    return dependent


def _is_trained(weight: Weight, trained: Collection[str] | None) -> bool:
    if trained is None:
        return weight.floating and weight.elements > 1 and not weight.assumed
    return any(name in trained for name in (weight.name, *weight.aliases, *weight.computed))


def costs(c: Analysis, sizes: ValueSizes, needing: Collection[Value]) -> tuple[int, int, tuple[str, ...]]:
    """FLOPs of one run forward and backward, and the nodes that are not counted.

    sizes: of all values. needing: the values that need gradients.
    """
    forward = backward = 0
    uncounted: list[str] = []
    dead = c.repairs.taken.dead if isinstance(c, Result) else ()
    for instance in (i for i in c.axes.instances if i.node not in dead):
        node, terms = instance.node, terms_of(c, instance, sizes)
        if terms is None:
            uncounted.append(f"{node.kind} {node.name}".rstrip())
        for product, number in terms or ():
            sides = (product.left, product.right)
            forward += 2 * number
            backward += 2 * number * sum(any(node.input(i) in needing for i in side) for side in sides)
    return forward, backward, tuple(uncounted)


def terms_of(c: Analysis, instance: LineInstance, sizes: ValueSizes) -> list[tuple[Product, int]] | None:
    """The products of a node, each with its number of multiplications; None if one number is unknown."""
    products = products_of(c, instance)
    numbers = [multiplications(instance.node, factor_axes, sizes) for factor_axes in products or ()]
    counted = [
        (factor_axes, n) for factor_axes, n in zip(products or (), numbers, strict=True) if n is not None
    ]
    return None if products is None or len(counted) < len(products) else counted


def products_of(c: Analysis, instance: LineInstance) -> Sequence[Product] | None:
    """The products that a node sums; None if they, or their number, are unknown."""
    node, line, dialect = instance.node, instance.line, c.graph.dialect
    if not dialect.knows(node.op):
        return None if any(v.floating and v.sizes != () for v in node.operands) else ()
    if line.treatment == "opaque" and node.treatment in SUMMING:
        return None
    inside = node.guards or not dialect.outermost(node)
    return None if line.products and inside else line.products


def multiplications(node: Node, product: Product, sizes: ValueSizes) -> int | None:
    """The number of multiplications in a product; None if a size is unknown, or decided by data."""
    total = 1
    for number, axis, result in product.over:
        value = node.outputs[number] if result else node.input(number)
        size = None if value is None else (sizes.get(value) or ())[axis : axis + 1]
        if not size or len(set(size[0])) > 1:
            return None
        total *= size[0][0]
    return total
