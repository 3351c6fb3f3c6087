"""Feed-forward networks that can become a stack of networks: the ends and the operators of each.

Needs: the axis graph. Gives: a `Network` for an axis of inner units. It goes from the products that make the
units to the one product that reads them, with the biases behind that. All its operators must work on each
position alone, so that one more axis can be put in front. Raises StaysError with the node that prevents this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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

ON_THE_WAY = frozenset({"Transpose", "Cast", "Identity"})
"""Operators that may stand between a stored tensor and the operator that reads it."""


@dataclass(frozen=True, eq=False)
class Network:
    """A feed-forward network.

    input, output: its input and its result, positions in front of channels. nodes: its operators, in order.
    shapes: the operators that read sizes of its inner values. stacks: the uses of its stored tensors. inner:
    of these, the one whose matrix reads the inner units.
    """

    input: Value
    output: Value
    nodes: Sequence[Node]
    shapes: Sequence[Node]
    stacks: Sequence[Value]
    inner: Value


class StaysError(Exception):
    """The cause why a network cannot become one of a stack."""


class Networks(AxisQueries):
    """The networks of one model. experts: the model's spaces of experts."""

    def __init__(self, axes: Axes, experts: Collection[Space]) -> None:
        super().__init__(axes)
        self.outputs, self.routed = set(axes.graph.outputs), set(atoms_of(experts))
        self.alone = {node for one in axes.experts for node in one.owners}

    def network(self, inner: Sequence[Space]) -> Network:
        """The network with these inner units. Raises StaysError."""
        makers, reader = self.ends(set(atoms_of(inner)))
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
        stacks = list(dict.fromkeys(use for node in nodes for use in self.stacked(node)))
        return Network(activation, result, nodes, shapes, stacks, reader.node.required(1).unmoved)

    def ends(self, atoms: set[Space]) -> tuple[list[LineInstance], LineInstance]:
        """The products that make the units, and the one that reads them."""

        def bears(value: Value) -> bool:
            return not atoms.isdisjoint(atoms_of(self.axes.of(value)))

        makers, readers = list[LineInstance](), list[LineInstance]()
        for product in self.maps:
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

    def stacked(self, node: Node) -> Iterator[Value]:
        """Yield the uses of stored tensors of which every expert will have its own."""
        for operand in node.inputs:
            use = None if operand is None else operand.unmoved
            weight = None if use is None else use.weight
            if use is None or weight is None or not weight.floating or weight.elements == 1:
                continue
            current = operand
            while current is not None and current is not use:
                if current.producer is None or current.producer.op not in ON_THE_WAY:
                    raise StaysError(f"`{weight.name}` is moved on its way to {_named(node)}")
                current = current.producer.inputs[0]
            if weight in self.axes.used_often:
                raise StaysError(f"`{weight.name}` is used in several places")
            if weight.stored is not None or weight.computed or weight.shift or weight.order is not None:
                raise StaysError(f"`{weight.name}` is not stored as it is used")
            yield use


def _chooses(outputs: Sequence[Sequence[object] | None]) -> bool:
    """Whether an axis of a result is read as a whole."""
    return any(isinstance(t, str) and t.endswith(("~", "!")) for terms in outputs for t in terms or ())


def _named(node: Node) -> str:
    return f"`{node.name or node.kind}` ({node.kind})"
