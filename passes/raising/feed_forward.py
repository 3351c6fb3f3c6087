"""Feed-forward networks that can become a stack of networks: the ends and the operators of each.

Needs: the axis graph. Gives: a `Network` for an axis of inner units. It goes from the products that make the
units to the one product that reads them, with the biases behind that. All its operators must work on each
position alone, so that one more axis can be put in front. Raises StaysError with the node that prevents this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass

from growc.algebra.space import Space, atoms_of, find
from growc.ir.graph import Node, Value
from growc.ir.traits import SIZES
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.queries import AxisQueries

ALONG = frozenset({"Split", "Slice", "Transpose", "Reshape"})
"""Operators that name axes or list sizes. One more axis in front can be added to these."""

PLAIN = ("add", "multiply", "divide", "remainder", "select", "pointwise", "layout")
"""Treatments of operators that may work on each element alone."""

PRODUCTS = frozenset({"MatMul", "Gemm"})
"""Products that can take a stack of matrices as their weight."""

ON_THE_WAY = frozenset({"Transpose", "Cast", "Identity", "Concat", "MatMul"})
"""Operators that may stand between stored tensors and their reader, beside elementwise ones."""


@dataclass(frozen=True, eq=False)
class Network:
    """A feed-forward network.

    input, output: its input and its result, positions in front of channels. nodes: its operators, in order.
    shapes: the operators that read sizes of its inner values. stacks: the uses of its stored tensors.
    scales: of these, those that multiply the matrix by a number if they are multiplied by it that reads the
    inner units; empty if there are none.
    """

    input: Value
    output: Value
    nodes: Sequence[Node]
    shapes: Sequence[Node]
    stacks: Sequence[Value]
    scales: Collection[Value]


class StaysError(Exception):
    """The cause why a network cannot become one of a stack."""


class Networks(AxisQueries):
    """The networks of one model. experts: the model's spaces of experts."""

    def __init__(self, axes: Axes, experts: Collection[Space]) -> None:
        super().__init__(axes)
        self.outputs, self.routed = set(axes.graph.outputs), set(atoms_of(experts))
        self.static = axes.graph.static
        self.alone = {node for one in axes.experts for node in one.owners}

    def network(self, inner: Sequence[Space]) -> Network:
        """The network with these inner units. Raises StaysError."""
        atoms = set(atoms_of(inner))
        makers, reader = self.ends(atoms)
        activations = {self.activation(one) for one in makers}
        if len(activations) != 1:
            raise StaysError("the products that make its units read different values")
        nodes, shapes = self.between(makers, reader)
        result = self.behind(nodes)
        activation = activations.pop()
        if activation.rank < 2:
            raise StaysError("it works on a single position, without an axis of positions")
        if [*map(find, self.axes.of(activation)[:-1])] != [*map(find, self.axes.of(result)[:-1])]:
            raise StaysError("it does not work on each position by itself")
        stacks = list(dict.fromkeys(use for node in nodes for use in self.stacked(node, atoms)))
        scales = self.scaling(reader.node.required(1), set(stacks))
        return Network(activation, result, nodes, shapes, stacks, scales)

    def ends(self, atoms: set[Space]) -> tuple[list[LineInstance], LineInstance]:
        """The products that make the units, and the one that reads them."""

        def bears(value: Value) -> bool:
            return not atoms.isdisjoint(atoms_of(self.axes.of(value)))

        makers, readers = list[LineInstance](), list[LineInstance]()
        for product in self.maps:
            if product.node.outputs[0] in self.static:
                continue
            weight = product.node.required(self.weight_of(product) or 0)
            if not bears(weight):
                continue
            if product.node in self.alone or not self.routed.isdisjoint(atoms_of(self.axes.of(weight))):
                raise StaysError("it is that of experts already")
            if bears(self.activation(product)) and bears(product.node.outputs[0]):
                raise StaysError(f"{_named(product.node)} makes its units of its units")
            (readers if bears(self.activation(product)) else makers).append(product)
        if not makers or len(readers) != 1:
            raise StaysError(
                f"products with weights that make its units: {len(makers)}, that read them: {len(readers)}"
            )
        return makers, readers[0]

    def activation(self, product: LineInstance) -> Value:
        """The activation that a product multiplies its weight by."""
        return product.node.required(1 - (self.weight_of(product) or 0))

    def between(self, makers: Sequence[LineInstance], reader: LineInstance) -> tuple[list[Node], list[Node]]:
        """The operators from the makers to the reader, and those that read sizes of the values between."""
        inner, nodes, shapes = set[Value](), list[Node](), list[Node]()
        first = {one.node for one in makers}
        for node in self.axes.graph.nodes:
            reads = not inner.isdisjoint(node.operands)
            if reads and node.op == "Shape":
                shapes.append(node)
            elif reads or node in first:
                self.require(node, first | {reader.node})
                nodes.append(node)
                if node is not reader.node:
                    inner.update(node.outputs)
        if not self.outputs.isdisjoint(inner):
            raise StaysError("the model gives out what lies inside")
        return nodes, shapes

    def require(self, node: Node, ends: set[Node]) -> None:
        """Raise StaysError unless an operator can work on a stack of networks."""
        instance = self.by_node.get(node)
        plain = node.op in PRODUCTS if node in ends else instance is not None and self.is_plain(instance)
        if node.op == "Gemm" and (node.real("alpha", 1.0), node.real("beta", 1.0)) != (1.0, 1.0):
            raise StaysError(f"{_named(node)} multiplies its operands by a number")
        if node.op == "Gemm" and node.integer("transA"):
            raise StaysError(f"{_named(node)} transposes what it reads")
        if node in ends and instance is not None and self.weight_of(instance) != 1:
            raise StaysError(f"{_named(node)} has its weight on the left")
        if not plain or node.captured or node.guards or not self.axes.graph.dialect.outermost(node):
            raise StaysError(f"{_named(node)} does not work on many networks side by side")

    def is_plain(self, instance: LineInstance) -> bool:
        """Whether an operator works on each element alone, or takes one more axis in front."""
        node, line = instance.node, instance.line
        if not line.treatment.startswith(PLAIN) or node.has(SIZES):
            return False
        keeps_axes = any(terms == line.outputs[0] for terms in line.inputs) and len(node.outputs) == 1
        return node.op in ALONG or (
            keeps_axes and "_" not in (line.outputs[0] or ("_",)) and not _chooses(line.outputs)
        )

    def behind(self, nodes: list[Node]) -> Value:
        """The result of the network, biases included. Appends the nodes that add biases to `nodes`."""
        result = nodes[-1].outputs[0]
        while len(result.users) == 1 and result not in self.outputs:
            node, operand = result.users[0]
            other = node.input(1 - operand) if node.treatment == "add" and len(node.inputs) == 2 else None
            bias = None if other is None else other.unmoved.weight
            if bias is None or bias.elements == 1 or other is None or other.rank > 1:
                break
            nodes.append(node)
            result = node.outputs[0]
        return result

    def stacked(self, node: Node, atoms: Set[Space]) -> Iterator[Value]:
        """Yield the uses of stored tensors of which every expert will have its own."""
        for operand in node.inputs:
            if operand is not None and operand in self.static:
                yield from self.stored(operand, node, atoms)

    def stored(self, value: Value, reader: Node, atoms: Set[Space]) -> Iterator[Value]:
        """Yield the uses of stored tensors that an operand made of weights is made of.

        Integers are shared, if they are not numbers of the inner units, whose atoms are given.
        """
        weight, producer = value.weight, value.producer
        counts = not atoms.isdisjoint(atoms_of(self.axes.of(value)))
        if weight is None:
            operands = producer.operands if producer is not None and (counts or value.known is None) else ()
            uses = [use for operand in operands for use in self.stored(operand, reader, atoms)]
            if uses and producer is not None and not self.is_on_the_way(producer):
                raise StaysError(f"`{uses[0].name}` is moved on its way to {_named(reader)}")
            yield from uses
        elif weight.elements > 1 and (weight.floating or counts):
            if weight in self.axes.used_often:
                raise StaysError(f"`{weight.name}` is used in several places")
            if weight.stored is not None or weight.computed or weight.shift or weight.order is not None:
                raise StaysError(f"`{weight.name}` is not stored as it is used")
            yield value

    def scaling(self, matrix: Value, stacks: Set[Value]) -> frozenset[Value]:
        """The stored tensors that multiply a matrix by a number if they are multiplied by it."""
        instance = None if matrix.producer is None else self.by_node.get(matrix.producer)
        if matrix in stacks or instance is None:
            return frozenset({matrix} & stacks)
        parts = [self.scaling(operand, stacks) for operand in instance.node.operands]
        treatment = instance.line.treatment
        if treatment in ("layout", "add") and all(parts):
            return frozenset().union(*parts)
        if treatment in ("multiply", "contract"):
            return next(filter(None, parts), frozenset())
        return parts[0] if treatment == "divide" else frozenset()

    def is_on_the_way(self, node: Node) -> bool:
        """Whether an operator may stand between stored tensors and the operator that reads them."""
        instance = self.by_node.get(node)
        elementwise = node.op not in ALONG and instance is not None and self.is_plain(instance)
        return node.op in ON_THE_WAY or elementwise


def _chooses(outputs: Sequence[Sequence[object] | None]) -> bool:
    """Whether an axis of a result is read as a whole."""
    return any(isinstance(t, str) and t.endswith(("~", "!")) for terms in outputs for t in terms or ())


def _named(node: Node) -> str:
    return f"`{node.name or node.kind}` ({node.kind})"
