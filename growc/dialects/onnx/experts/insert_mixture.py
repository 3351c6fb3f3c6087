"""A mixture of experts in place of a feed-forward network, in a copy of a model.

Needs: the network (growc.passes.raising.feed_forward). Gives: the same model with a stack of networks. The
experts are a new first axis of every value inside the network, and of every stored tensor, which has one
expert so far.

A router scores the experts at each position from the network's input. A softmax over the largest scores gives
the weights of the chosen experts, which sum to one. All other experts have weight zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np
import onnx_ir as ir

from growc.dialects.onnx.capture.capture import ORDER, UPCYCLED
from growc.dialects.onnx.capture.fused_ops import in_order
from growc.dialects.onnx.capture.stored_values import (
    OnDemand,
    is_known,
    read_tensor,
    shape_of,
    stored_tensor,
)
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.dtype_names import dtype_named
from growc.dialects.onnx.origins import value_of
from growc.dialects.onnx.writer import Writer, scope_of
from growc.ir.graph import Node, Order, Upcycled, Value
from growc.ir.traits import SIZES
from growc.ir.walk import walk
from growc.passes.edits import Mixture


def insert(mixture: Mixture, clone: Clone) -> list[ir.Node]:
    """Put a mixture into a copy of a model, and return the nodes that it replaces."""
    return _Inserting(mixture, clone).run()


NewAttribute = int | Sequence[int] | ir.TensorProtocol
"""An attribute of an inserted node."""

END = np.iinfo(np.int64).max
"""The end of every axis."""


class _Inserting(Writer):
    def __init__(self, mixture: Mixture, clone: Clone) -> None:
        super().__init__(clone)
        self.mixture, self.network = mixture, mixture.network
        self.many: dict[Value, ir.Value] = {}
        """The counterpart of each value, with experts as its first axis."""
        self.last = clone.node_of(self.network.nodes[-1])
        self.parts = {use: k for k, use in enumerate(self.network.stacks)}
        self.own = self.of_weights()
        """The stored tensors of the network, and what is made of them in front of it."""
        self.stem = _stem([use.name for use in self.network.stacks]) or f"{self.network.output.name}."

    def run(self) -> list[ir.Node]:
        network, clone = self.network, self.clone
        replaced = [*map(clone.node_of, network.nodes), *map(clone.node_of, network.shapes)]
        for node in network.nodes:
            self.widened(node)
        for node in network.shapes:
            self.without_experts(node)
        gives = clone.value_of(network.output)
        mixed = self.combined(self.many[network.output], self.gates(), network.output.rank)
        self.replace(gives, mixed)
        clone.values[value_of(network.output)] = mixed
        graph = scope_of(self.last)
        graph.remove(list(reversed(replaced)), safe=True)
        if not in_order(graph):
            graph.sort()  # the stack's sizes may be read far in front of it
        return replaced

    def add(
        self, op: str, inputs: Sequence[ir.Value | None], name: str, **attributes: NewAttribute
    ) -> ir.Value:
        """Add a node in front of the network's end, and return its one result."""
        result = self.insert(self.last, op, list(inputs), attributes, f"{self.stem}{name}")
        result.type = self.clone.value_of(self.network.input).type
        return result

    # ---- the network, once for all experts

    def widened(self, node: Node) -> None:
        """Copy a node of the network, for stacked operands."""
        own, rank = self.clone.node_of(node), node.outputs[0].rank
        operands = [None if v is None else self.operand(v, rank) for v in node.inputs]
        if node.op == "Gemm":
            self.many[node.outputs[0]] = self.product(node, own, operands)
            return
        attributes = {name: a.value for name, a in own.attributes.items()}
        if node.op == "Transpose":
            order = attributes.get("perm") or tuple(reversed(range(rank)))
            attributes["perm"] = [0, *(axis + 1 for axis in order)]
        elif node.op == "Split":
            attributes["axis"] = _behind(attributes.get("axis", 0))
        elif node.op == "Reshape":
            front = self.numbers(f"{self.stem}experts", [self.mixture.experts])
            operands[1] = self.insert(
                self.last, "Concat", [front, operands[1]], {"axis": 0}, f"{own.name}.sizes"
            )
        elif node.op == "Slice":
            operands = [*operands, None][:5] if len(operands) < 4 else operands
            operands[3] = self.numbers(f"{self.stem}axes", self.axes_of(node))
        name = self.unused(f"{own.name}.experts")
        outputs = len(own.outputs)
        copy = ir.node(own.op_type, operands, attributes, domain=own.domain, num_outputs=outputs, name=name)
        scope_of(self.last).insert_before(self.last, copy)
        for value, old, new in zip(node.outputs, own.outputs, copy.outputs, strict=True):
            new.name, new.type = self.unused(f"{old.name}.experts"), old.type
            self.many[value] = new

    def of_weights(self) -> set[Value]:
        """Return the stored tensors that experts have of their own, and the operands made of them."""
        inside = {*self.network.nodes, *self.network.shapes}

        def made(value: Value) -> Iterator[Value]:
            readers = (node for node, _ in value.users if node not in inside and not node.has(SIZES))
            yield from (out for node in readers for out in node.outputs)

        return set(walk(self.parts, made))

    def axes_of(self, node: Node) -> list[int]:
        """Return the axes that a Slice names, as axes of the stack."""
        named, starts = node.input(3), node.required(1)
        if named is None or named.known is None:
            return [axis + 1 for axis in range((starts.sizes or ((0,),))[0][0])]
        return [_behind(int(axis)) for axis in named.known[0].reshape(-1)]

    def product(self, node: Node, own: ir.Node, operands: Sequence[ir.Value | None]) -> ir.Value:
        """Return the products with stacked matrices, plus their biases."""
        left, right, *bias = operands
        if node.integer("transB"):
            rank = node.outputs[0].rank + 1
            order = [*range(rank - 2), rank - 1, rank - 2]
            right = self.add("Transpose", [right], f"{own.name}.turned", perm=order)
        result = self.add("MatMul", [left, right], f"{own.name}.experts")
        if bias and bias[0] is not None:
            result = self.add("Add", [result, bias[0]], f"{own.name}.biases")
        return result

    def operand(self, value: Value, rank: int) -> ir.Value:
        """Return the stacked operand of a node. `rank`: of the node's result for one network."""
        if value in self.many:
            return self.many[value]
        if value not in self.own:
            return self.clone.value_of(value)
        ones = rank - value.rank
        self.many[value] = self.stack(value, ones) if value in self.parts else self.moved(value, ones)
        return self.many[value]

    def moved(self, value: Value, ones: int) -> ir.Value:
        """Apply to stacks the operator between stored tensors and a node.

        `ones`: how many axes of size one follow the experts.
        """
        node = value.producer
        assert node is not None
        stacks = [None if v is None else self.operand(v, value.rank + ones) for v in node.inputs]
        own = self.clone.node_of(node)
        attributes = {name: a.value for name, a in own.attributes.items()}
        if node.op == "Transpose":
            front = range(1 + ones)
            order = attributes.get("perm") or tuple(reversed(range(value.rank)))
            attributes["perm"] = [*front, *(axis + 1 + ones for axis in order)]
        elif node.op == "Concat":
            attributes["axis"] = _behind(node.integer("axis"), 1 + ones)
        return self.add(node.op, stacks, f"{own.name}.experts", **attributes)

    def stack(self, use: Value, ones: int) -> ir.Value:
        """Return a stored tensor with an axis of experts. So far it holds one, with the source's weights."""
        old = self.clone.value_of(use)
        tensor = stored_tensor(old)
        shape = (1, *[1] * ones, *shape_of(tensor))
        name = str(old.name)
        old.name = self.unused(f"{name}.before")
        value = self.fresh(name, _reshaped(tensor, shape))
        return self.marked(value, 0, self.mark(self.parts[use], reads=use in self.network.scales))

    def fresh(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """Add a stored tensor of exactly this name."""
        self.names.discard(name)
        return self.initializer(name, tensor)

    def marked(self, value: ir.Value, axis: int, mark: Upcycled) -> ir.Value:
        """Mark a stored tensor's axis of experts, where one expert stands for all."""
        count = self.mixture.experts
        value.meta[UPCYCLED] = mark
        value.meta[ORDER] = Order(axis, np.zeros(count, dtype=np.int64), 1, "experts")
        return value

    def mark(self, part: int, *, router: bool = False, reads: bool = False) -> Upcycled:
        """Return the place of a stored tensor in the mixture."""
        return Upcycled(self.mixture.statement, self.mixture.number, part, router, reads)

    def without_experts(self, node: Node) -> None:
        """Let a Shape of a value inside the network read the stack, without its axis of experts."""
        own = self.clone.node_of(node)
        start, end = node.integer("start", 0), node.integer("end", END)
        sizes = self.numbered("Shape", [self.many[node.required(0)]], own)
        for first, last in ((1, END), (start, end)):
            bounds = [self.numbers(f"{own.name}.bound", [number]) for number in (first, last)]
            sizes = self.numbered("Slice", [sizes, *bounds], own)
        self.replace(own.outputs[0], sizes)

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Put a value in the place of another one, under its name."""
        new.type, new.shape = old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        new.name, old.name = old.name, self.unused(f"{old.name}.before")

    def numbered(self, op: str, inputs: Sequence[ir.Value | None], own: ir.Node) -> ir.Value:
        """Add a node whose result is an integer."""
        return self.insert(own, op, list(inputs), {}, f"{own.name}.experts")

    # ---- the router

    def gates(self) -> ir.Value:
        """Return each expert's weight at every position: a softmax over the chosen ones, zero for others."""
        network = self.network
        network_input = self.clone.value_of(network.input)
        rows = (network.input.sizes or ())[-1][0]
        dtype = network_input.dtype or self.computed_type()
        zeros = ir.tensor(np.zeros((rows, 1), dtype=dtype.numpy()), dtype=dtype)
        router = self.initializer(f"{self.stem}router.weight", zeros)
        mark = self.mark(len(self.parts), router=True)
        scores = self.add("MatMul", [network_input, self.marked(router, 1, mark)], "router.scores")
        top = self.numbers(f"{self.stem}router.top", [self.mixture.top])
        name = self.unused(f"{self.stem}router.TopK")
        ranking = ir.node("TopK", [scores, top], {"axis": -1}, num_outputs=2, name=name)
        scope_of(self.last).insert_before(self.last, ranking)
        best, chosen = ranking.outputs
        best.name, best.type = self.unused(f"{self.stem}router.best"), ir.TensorType(dtype)
        chosen.name = self.unused(f"{self.stem}router.chosen")
        chosen.type = ir.TensorType(ir.DataType.INT64)
        shares = self.add("Softmax", [best], "router.shares", axis=-1)
        sizes = self.insert(self.last, "Shape", [scores], {}, f"{self.stem}router.sizes")
        nothing = ir.tensor(np.zeros(1, dtype=dtype.numpy()), dtype=dtype)
        rest = self.add("ConstantOfShape", [sizes], "router.rest", value=nothing)
        return self.add("ScatterElements", [rest, chosen, shares], "router.gates", axis=-1)

    def computed_type(self) -> ir.DataType:
        """The element type that the network computes in, for files that declare no type of its input."""
        inferred = self.network.input.dtype  # weights may be stored in another one
        return dtype_named(inferred) if inferred else ir.DataType.FLOAT

    def combined(self, outputs: ir.Value, gates: ir.Value, rank: int) -> ir.Value:
        """Return the weighted sum of all experts' outputs."""
        experts_first = self.add("Transpose", [gates], "router.turned", perm=[rank - 1, *range(rank - 1)])
        last, first = (self.numbers(f"{self.stem}router.axis", [axis]) for axis in (-1, 0))
        factors = self.add("Unsqueeze", [experts_first, last], "router.factors")
        weighed = self.add("Mul", [outputs, factors], "router.weighed")
        return self.add("ReduceSum", [weighed, first], "router.sum", keepdims=0)


def _stem(names: Sequence[str]) -> str:
    """Return the common prefix of dotted names, with its last dot."""
    parts = zip(*(name.split(".")[:-1] for name in names), strict=False)
    return "".join(f"{same[0]}." for same in takewhile(lambda same_part: len(set(same_part)) == 1, parts))


def _behind(axis: int, front: int = 1) -> int:
    """Return the index of an axis in a stack, behind `front` new axes."""
    return axis if axis < 0 else axis + front


def _reshaped(tensor: ir.TensorProtocol, shape: tuple[int, ...]) -> OnDemand:
    """Return a stored tensor in another shape, read on demand."""
    return OnDemand(lambda: read_tensor(tensor).reshape(shape), tensor.dtype, shape, is_known(tensor))
