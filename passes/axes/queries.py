"""Queries of the axis graph by the rules for roles.

Needs: the axis graph. Gives: `AxisQueries`, which tells weights from activations. It knows which spaces a
weight reads and makes, and whether a value is made from another one through a weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Node, Value, backward, makers
from growc.ir.notation import AxisTerms, is_whole, labels, names_of
from growc.ir.traits import DEQUANTISE, MOVES, QUANTISE, SAME
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.raising.norms import find_norms

THROUGH = (SAME, QUANTISE, DEQUANTISE)
"""Traits of operators that pass a value on unchanged, except for casts and rounding."""


class AxisQueries:
    """Questions about one axis graph."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.by_node = {i.node: i for i in axes.instances}
        self.order = {n: k for k, n in enumerate(axes.graph.nodes)}
        self.static = axes.graph.static
        self.parameters = self.parameter_values()
        self.chosen = self.chosen_weights()
        self.maps = [
            i for i in axes.instances if i.line.treatment == "contract" and self.weight_of(i) is not None
        ]
        self.weighted = {i.node: i for i in self.maps}
        self.on_weights = {
            leaf
            for m in self.maps
            for space in axes.of(m.node.required(self.weight_of(m) or 0))
            for leaf in leaves(space)
            if leaf.static
        }

    @cached_property
    def normed(self) -> set[Value]:
        """The results of norms in pieces, before their gains."""
        return {norm.result for norm in find_norms(self.axes.graph)}

    def parameter_values(self) -> set[Value]:
        """Static values that no product makes; the product of learned queries with a weight is none."""
        parameters = {v for v in self.static if v.weight is not None}
        for node in self.axes.graph.nodes:
            instance = self.by_node.get(node)
            product = instance is not None and instance.line.treatment == "contract"
            operands = [v for v in node.operands if v.known is None or v.weight is not None]
            if operands and not product and all(v in parameters for v in operands):
                parameters.update(node.outputs)
        return parameters

    def chosen_weights(self) -> dict[Value, LineInstance]:
        """Matrices that run-time numbers choose from a stack, each with its look-up."""
        lookups: dict[Value, LineInstance] = {}
        for instance in self.axes.instances:
            source, treatment = instance.node.input(0), instance.line.treatment
            if "made_of" in instance.node.attributes:
                for out in instance.node.outputs:
                    sources = instance.node.sources(out)
                    matrices = all(v in lookups or (v in self.static and v.rank >= 2) for v in sources)
                    lookups.update({out: instance} if sources and matrices else {})
            elif source is None:
                continue
            elif treatment == "lookup" and source in self.static and source.floating and source.rank >= 3:
                lookups.update((out, instance) for out in instance.node.outputs)
            elif treatment == "layout" and source in lookups:
                lookups.update((out, lookups[source]) for out in instance.node.outputs)
        return lookups

    def weight_of(self, instance: LineInstance) -> int | None:
        """The operand of a contraction that is a weight, is made from weights, or is chosen from a stack of
        them.
        """
        operands = [(i, v) for i in (1, 0) if (v := instance.node.input(i)) is not None and v.rank >= 2]
        candidates = [i for i, v in operands if v in self.parameters]
        candidates += [i for i, v in operands if v in self.static and v.rank == 2]
        return next(iter(candidates + [i for i, v in operands if v in self.chosen]), None)

    def read(self, instance: LineInstance) -> list[Space]:
        """The spaces that a product with a weight contracts, as whole axes of its other operand."""
        operand = self.weight_of(instance) or 0
        output_names = set(names_of(instance.line.outputs[0]))
        summed = set(names_of(instance.line.inputs[operand])) - output_names
        return self._bearing(instance.node.inputs[1 - operand], instance.line.inputs[1 - operand], summed)

    def made(self, instance: LineInstance) -> list[Space]:
        """The spaces that a product with a weight makes, as whole axes of its result."""
        operand = self.weight_of(instance) or 0
        weight_names = set(names_of(instance.line.inputs[operand])) - set(
            names_of(instance.line.inputs[1 - operand])
        )
        return self._bearing(instance.node.outputs[0], instance.line.outputs[0], weight_names)

    def _bearing(self, value: Value | None, terms: AxisTerms | None, names: set[str]) -> list[Space]:
        spaces = () if value is None else self.axes.of(value)
        pairs = zip(spaces, terms or (), strict=True)
        return [find(space) for space, term in pairs if names & set(labels(term))]

    def maker(self, value: Value) -> LineInstance | None:
        """The instance of the node that makes a value, if a live one does."""
        return None if value.producer is None else self.by_node.get(value.producer)

    def atoms(self, value: Value) -> set[Space]:
        """The atoms of all axes of a value."""
        return set(atoms_of(self.axes.of(value)))

    def product_above(self, softmax: Node) -> LineInstance | None:
        """The nearest product of two activations that a softmax normalises, through elementwise operators."""
        return next(self.products_above(softmax), None)

    def products_above(self, softmax: Node) -> Iterator[LineInstance]:
        """All products of activations whose sum a softmax normalises, the nearest first."""
        softmax_atoms = self.atoms(softmax.required(0))
        products = (product for product, _, _ in self._next_to(softmax, down=False) if self._meet(product))
        yield from (
            product for product in products if softmax_atoms.issuperset(atoms_of(_rows_and_columns(product)))
        )

    def product_below(self, softmax: Node) -> tuple[LineInstance, int] | None:
        """The product of a softmax's result with another activation, and the number of that other operand."""
        below = self._next_to(softmax, down=True)
        return next(
            ((product, 1 - place) for product, place, _ in below if self._meet(product) and place < 2), None
        )

    def mixings(self, softmax: Node) -> list[LineInstance]:
        """The products with weights that mix heads next to a softmax, before and behind it."""
        mixings = (
            product
            for down in (False, True)
            for product, _, columns in self._next_to(softmax, down)
            if self._passed(product, columns, down) is not None
        )
        return list(dict.fromkeys(mixings))

    def _meet(self, instance: LineInstance) -> bool:
        """Whether an instance is a product of two activations."""
        return instance.line.treatment == "contract" and self.weight_of(instance) is None

    def _next_to(self, softmax: Node, down: bool) -> Iterator[tuple[LineInstance, int, Space]]:
        """The instances before a softmax, or behind it, up to products. The search passes through a product
        with a weight if the weight leaves the softmax's normalised axis alone.

        Yields the instance, the operand by which a way down reaches it, and the space of the normalised axis
        there.
        """
        value, terms = softmax.required(0), self.by_node[softmax].line.inputs[0] or ()
        normalised = [find(s) for s, term in zip(self.axes.of(value), terms, strict=False) if is_whole(term)]

        def beside(node: Node, columns: Space) -> Iterator[tuple[LineInstance, int, Space]]:
            nodes = makers(v for v in node.inputs if v not in self.static)
            uses = [use for v in node.outputs for use in v.users] if down else [(n, 0) for n in nodes]
            yield from ((self.by_node[n], place, columns) for n, place in uses if n in self.by_node)

        def behind(step: tuple[LineInstance, int, Space]) -> Iterator[tuple[LineInstance, int, Space]]:
            instance, _, columns = step
            product = instance.line.treatment == "contract"
            remaining = self._passed(instance, columns, down) if product else columns
            return iter(()) if remaining is None else beside(instance.node, remaining)

        return walk(beside(softmax, normalised[0] if normalised else Space(())), behind, nearest=True)

    def _passed(self, instance: LineInstance, space: Space, down: bool) -> Space | None:
        """The axis on the other side of a product with a weight, for an axis of its result (down: of its
        other operand).

        None if the weight reads or makes that axis, or if the product works on several positions at once.
        """
        operand = self.weight_of(instance)
        if operand is None or not self.is_pointwise(instance):
            return None
        read, written = (
            list(zip(self.axes.of(value), terms or (), strict=False))
            for value, terms in (
                (instance.node.required(1 - operand), instance.line.inputs[1 - operand]),
                (instance.node.outputs[0], instance.line.outputs[0]),
            )
        )
        near_side, far_side = (read, written) if down else (written, read)
        weight = set(names_of(instance.line.inputs[operand]))
        for axis, (own_space, term) in enumerate(near_side):
            if find(own_space) is find(space) and weight.isdisjoint(labels(term)):
                candidates = far_side[axis : axis + 1] if term == "_" else far_side
                return next((find(other_space) for other_space, t in candidates if t == term), None)
        return None

    def is_pointwise(self, instance: LineInstance) -> bool:
        """Whether a product with a weight works on each position alone, without a window or a depthwise
        kernel.
        """
        weight = self.weight_of(instance) or 0
        value, terms = instance.node.required(weight), instance.line.inputs[weight] or ()
        output_names = set(names_of(instance.line.outputs[0]))
        window = [s for s, t in zip(value.sizes or (), terms, strict=True) if t == "_" and set(s) != {1}]
        return not window and any(set(labels(t)) - output_names for t in terms)

    def projections(self, value: Value | None) -> list[LineInstance]:
        """The nearest products with weights above a value."""

        def above(node: Node) -> Iterator[Node]:
            operands = [node.inputs[i] for i in node.taken] if node.has(*MOVES) else node.inputs
            return makers(operands if node in self.by_node and node not in self.weighted else ())

        return [self.weighted[node] for node in walk(makers([value]), above) if node in self.weighted]

    def made_from(self, branch: Value, base: Value) -> bool:
        """Whether `branch` is computed from `base` through at least one weight."""
        base = through_casts(base)
        limit = self.order.get(base.producer, -1) if base.producer else -1

        def above(place: tuple[Value, bool]) -> Iterator[tuple[Value, bool]]:
            value, mapped = place
            instance = self.maker(value)
            if instance is None or self.order[instance.node] <= limit or through_casts(value) is base:
                return
            linear = instance.line.treatment == "contract" and self.weight_of(instance) is not None
            yield from ((v, mapped or linear) for v in instance.node.operands)

        places = walk([(branch, False)], above)
        return any(mapped and through_casts(value) is base for value, mapped in places)


def _rows_and_columns(product: LineInstance) -> Iterator[Space]:
    """For each operand of a product, the last axis of the result that comes from that operand alone."""
    output_names = names_of(product.line.outputs[0])
    for place in (0, 1):
        own_names, other_names = (names_of(product.line.inputs[k]) for k in (place, 1 - place))
        yield from (
            product.spaces[n]
            for n in [n for n in output_names if n in own_names and n not in other_names][-1:]
        )


def through_casts(value: Value) -> Value:
    """The value before any Cast, Identity, or rounding to integers and back."""
    return backward(value, lambda node: node.has(*THROUGH))
