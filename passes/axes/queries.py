"""Who is made from whom: the axis graph as the rules for roles ask about it.

Needs: the axis graph. Gives: `Flow`, which knows weights from activations, what a weight reads and makes, and
whether a value is made from another one through a weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Node, Value, backward, makers, static_values
from growc.ir.notation import Axes as Terms
from growc.ir.notation import is_whole, labels, names_of
from growc.ir.traits import DEQUANTISE, MOVES, QUANTISE, SAME
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, Instance
from growc.passes.raising.norms import find_norms

THROUGH = (SAME, QUANTISE, DEQUANTISE)
"""Traits of operators behind which a value is still the same one."""


class Flow:
    """Questions about one axis graph."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.by_node = {i.node: i for i in axes.instances}
        self.order = {n: k for k, n in enumerate(axes.graph.nodes)}
        self.static = static_values(axes.graph)
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
        """What norms in pieces make, before their gains."""
        return {norm.result for norm in find_norms(self.axes.graph)}

    def parameter_values(self) -> set[Value]:
        """Static values that no product stands in front of: what is made of learned queries is none."""
        found = {v for v in self.static if v.weight is not None}
        for node in self.axes.graph.nodes:
            instance = self.by_node.get(node)
            product = instance is not None and instance.line.treatment == "contract"
            operands = [v for v in node.operands if v.known is None or v.weight is not None]
            if operands and not product and all(v in found for v in operands):
                found.update(node.outputs)
        return found

    def chosen_weights(self) -> dict[Value, Instance]:
        """Matrices that run-time numbers choose from a stack of them, each with its look-up."""
        found: dict[Value, Instance] = {}
        for instance in self.axes.instances:
            source, treatment = instance.node.input(0), instance.line.treatment
            if "made_of" in instance.node.attributes:
                for out in instance.node.outputs:
                    given = instance.node.sources(out)
                    matrices = all(v in found or (v in self.static and v.rank >= 2) for v in given)
                    found.update({out: instance} if given and matrices else {})
            elif source is None:
                continue
            elif treatment == "lookup" and source in self.static and source.floating and source.rank >= 3:
                found.update((out, instance) for out in instance.node.outputs)
            elif treatment == "layout" and source in found:
                found.update((out, found[source]) for out in instance.node.outputs)
        return found

    def weight_of(self, instance: Instance) -> int | None:
        """The operand of a contraction that is a weight, is made from weights, or is chosen from a stack."""
        operands = [(i, v) for i in (1, 0) if (v := instance.node.input(i)) is not None and v.rank >= 2]
        found = [i for i, v in operands if v in self.parameters]
        found += [i for i, v in operands if v in self.static and v.rank == 2]
        return next(iter(found + [i for i, v in operands if v in self.chosen]), None)

    def read(self, instance: Instance) -> list[Space]:
        """The spaces that a product with a weight contracts, whole axes of what it reads."""
        operand = self.weight_of(instance) or 0
        made = set(names_of(instance.line.outputs[0]))
        summed = set(names_of(instance.line.inputs[operand])) - made
        return self._bearing(instance.node.inputs[1 - operand], instance.line.inputs[1 - operand], summed)

    def made(self, instance: Instance) -> list[Space]:
        """The spaces that a product with a weight makes, whole axes of its result."""
        operand = self.weight_of(instance) or 0
        own = set(names_of(instance.line.inputs[operand])) - set(names_of(instance.line.inputs[1 - operand]))
        return self._bearing(instance.node.outputs[0], instance.line.outputs[0], own)

    def _bearing(self, value: Value | None, terms: Terms | None, names: set[str]) -> list[Space]:
        spaces = () if value is None else self.axes.of(value)
        pairs = zip(spaces, terms or (), strict=True)
        return [find(space) for space, term in pairs if names & set(labels(term))]

    def maker(self, value: Value) -> Instance | None:
        """The instance of the node that makes a value, if a live one does."""
        return None if value.producer is None else self.by_node.get(value.producer)

    def atoms(self, value: Value) -> set[Space]:
        """The atoms of all axes of a value."""
        return set(atoms_of(self.axes.of(value)))

    def product_above(self, softmax: Node) -> Instance | None:
        """The product of two activations that a softmax normalises, through elementwise operators."""
        return next(self.products_above(softmax), None)

    def products_above(self, softmax: Node) -> Iterator[Instance]:
        """All products of activations that a softmax normalises the sum of, the nearest first."""
        left = self.atoms(softmax.required(0))
        found = (one for one, _, _ in self._next_to(softmax, down=False) if self._meet(one))
        yield from (one for one in found if left.issuperset(atoms_of(_rows_and_columns(one))))

    def product_below(self, softmax: Node) -> tuple[Instance, int] | None:
        """The product of what a softmax gives with another activation, and which operand that is."""
        below = self._next_to(softmax, down=True)
        return next(((one, 1 - place) for one, place, _ in below if self._meet(one) and place < 2), None)

    def mixings(self, softmax: Node) -> list[Instance]:
        """The products with weights that mix heads next to a softmax, before it and behind it."""
        found = (
            one
            for down in (False, True)
            for one, _, columns in self._next_to(softmax, down)
            if self._passed(one, columns, down) is not None
        )
        return list(dict.fromkeys(found))

    def _meet(self, instance: Instance) -> bool:
        """Whether it is a product of two activations."""
        return instance.line.treatment == "contract" and self.weight_of(instance) is None

    def _next_to(self, softmax: Node, down: bool) -> Iterator[tuple[Instance, int, Space]]:
        """What stands before a softmax, or behind it, up to products, but for those with a weight that leaves
        the axis alone that the softmax normalises. With the operand by which a way down comes to it, and with
        what that axis is.
        """
        value, terms = softmax.required(0), self.by_node[softmax].line.inputs[0] or ()
        own = [find(s) for s, term in zip(self.axes.of(value), terms, strict=False) if is_whole(term)]

        def beside(node: Node, columns: Space) -> Iterator[tuple[Instance, int, Space]]:
            given = makers(v for v in node.inputs if v not in self.static)
            uses = [use for v in node.outputs for use in v.users] if down else [(n, 0) for n in given]
            yield from ((self.by_node[n], place, columns) for n, place in uses if n in self.by_node)

        def behind(step: tuple[Instance, int, Space]) -> Iterator[tuple[Instance, int, Space]]:
            one, _, columns = step
            product = one.line.treatment == "contract"
            left = self._passed(one, columns, down) if product else columns
            return iter(()) if left is None else beside(one.node, left)

        return walk(beside(softmax, own[0] if own else Space(())), behind, nearest=True)

    def _passed(self, instance: Instance, space: Space, down: bool) -> Space | None:
        """An axis of the result of a product with a weight (down: of what it reads), as it is on the other
        side; None where the weight has a part in it, or the product looks at more than one place.
        """
        operand = self.weight_of(instance)
        if operand is None or not self.is_pointwise(instance):
            return None
        read, made = (
            list(zip(self.axes.of(value), terms or (), strict=False))
            for value, terms in (
                (instance.node.required(1 - operand), instance.line.inputs[1 - operand]),
                (instance.node.outputs[0], instance.line.outputs[0]),
            )
        )
        here, there = (read, made) if down else (made, read)
        weight = set(names_of(instance.line.inputs[operand]))
        for axis, (own, term) in enumerate(here):
            if find(own) is find(space) and weight.isdisjoint(labels(term)):
                same = there[axis : axis + 1] if term == "_" else there
                return next((find(other) for other, t in same if t == term), None)
        return None

    def is_pointwise(self, instance: Instance) -> bool:
        """Whether a product with a weight works on each position alone: no window, no depthwise kernel."""
        weight = self.weight_of(instance) or 0
        value, terms = instance.node.required(weight), instance.line.inputs[weight] or ()
        made = set(names_of(instance.line.outputs[0]))
        window = [s for s, t in zip(value.sizes or (), terms, strict=True) if t == "_" and set(s) != {1}]
        return not window and any(set(labels(t)) - made for t in terms)

    def projections(self, value: Value | None) -> list[Instance]:
        """The products with weights that are the next above a value."""

        def above(node: Node) -> Iterator[Node]:
            given = [node.inputs[i] for i in node.taken] if node.has(*MOVES) else node.inputs
            return makers(given if node in self.by_node and node not in self.weighted else ())

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


def _rows_and_columns(product: Instance) -> Iterator[Space]:
    """Of the axes of a product that it has from one operand alone, the last one of each."""
    made = names_of(product.line.outputs[0])
    for place in (0, 1):
        own, other = (names_of(product.line.inputs[k]) for k in (place, 1 - place))
        yield from (product.spaces[n] for n in [n for n in made if n in own and n not in other][-1:])


def through_casts(value: Value) -> Value:
    """The value before any Cast, Identity, or rounding to integers and back."""
    return backward(value, lambda node: node.has(*THROUGH))
