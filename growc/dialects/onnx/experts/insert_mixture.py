"""A mixture of experts in the place of a feed-forward network, in a copy of a model.

Needs: the network (growc.passes.raising.feed_forward). Gives: the same model with a stack of networks there:
experts stand along a new first axis of everything in between, and of every stored tensor, which has one of
them so far. A router scores them at each position by what the network reads. The largest scores choose, a
softmax over the chosen ones weighs them, so that weights sum to one; all others weigh nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np
import onnx_ir as ir

from growc.dialects.onnx.capture.capture import ORDER, UPCYCLED
from growc.dialects.onnx.capture.fused_ops import in_order
from growc.dialects.onnx.capture.stored_tensors import (
    OnDemand,
    is_known,
    read_tensor,
    shape_of,
    stored_tensor,
)
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.writer import Writer, scope_of
from growc.ir.graph import Node, Order, Upcycled, Value
from growc.passes.edits import Mixture


def insert(mixture: Mixture, there: Clone) -> list[ir.Node]:
    """Put a mixture into a copy of a model; gives the nodes that it takes the place of."""
    return _Inserting(mixture, there).run()


Attribute = int | Sequence[int] | ir.TensorProtocol
"""An attribute of a node that is put in."""

END = np.iinfo(np.int64).max
"""The end of every axis."""


class _Inserting(Writer):
    def __init__(self, mixture: Mixture, there: Clone) -> None:
        super().__init__(there)
        self.mixture, self.network = mixture, mixture.network
        self.many: dict[Value, ir.Value] = {}
        """What stands for a value, with experts in front."""
        self.last = there.node_of(self.network.nodes[-1])
        self.parts = {use: k for k, use in enumerate(self.network.stacks)}
        self.stem = _stem([use.name for use in self.network.stacks]) or f"{self.network.gives.name}."

    def run(self) -> list[ir.Node]:
        network, there = self.network, self.there
        old = [*map(there.node_of, network.nodes)]
        for node in network.nodes:
            self.widened(node)
        for node in network.shapes:
            self.without_experts(node)
        gives = there.value_of(network.gives)
        made = self.combined(self.many[network.gives], self.gates(), network.gives.rank)
        made.type, made.shape = gives.type, gives.shape
        gives.replace_all_uses_with(made, replace_graph_outputs=True)
        made.name, gives.name = gives.name, self.unused(f"{gives.name}.before")
        graph = scope_of(self.last)
        graph.remove(list(reversed(old)), safe=True)
        if not in_order(graph):
            graph.sort()  # sizes that are asked of a stack may be read far in front
        return old

    def add(self, op: str, inputs: Sequence[ir.Value | None], name: str, **attributes: Attribute) -> ir.Value:
        """A node in front of the network's end, with one result."""
        made = self.insert(self.last, op, list(inputs), attributes, f"{self.stem}{name}")
        made.type = self.there.value_of(self.network.given).type
        return made

    # ---- the network, once for all experts

    def widened(self, node: Node) -> None:
        """A node of the network, on a stack."""
        own, rank = self.there.node_of(node), node.outputs[0].rank
        given = [None if v is None else self.operand(v, rank) for v in node.inputs]
        if node.op == "Gemm":
            self.many[node.outputs[0]] = self.product(node, own, given)
            return
        attributes = {name: a.value for name, a in own.attributes.items()}
        if node.op == "Transpose":
            order = attributes.get("perm") or tuple(reversed(range(rank)))
            attributes["perm"] = [0, *(axis + 1 for axis in order)]
        elif node.op == "Split":
            attributes["axis"] = _behind(attributes.get("axis", 0))
        elif node.op == "Reshape":
            front = self.numbers(f"{self.stem}experts", [self.mixture.experts])
            given[1] = self.insert(self.last, "Concat", [front, given[1]], {"axis": 0}, f"{own.name}.sizes")
        elif node.op == "Slice":
            given = [*given, None][:5] if len(given) < 4 else given
            given[3] = self.numbers(f"{self.stem}axes", self.axes_of(node))
        name = self.unused(f"{own.name}.experts")
        outputs = len(own.outputs)
        copy = ir.node(own.op_type, given, attributes, domain=own.domain, num_outputs=outputs, name=name)
        scope_of(self.last).insert_before(self.last, copy)
        for value, old, new in zip(node.outputs, own.outputs, copy.outputs, strict=True):
            new.name, new.type = self.unused(f"{old.name}.experts"), old.type
            self.many[value] = new

    def axes_of(self, node: Node) -> list[int]:
        """The axes that a cut names, in a stack."""
        named, starts = node.input(3), node.required(1)
        if named is None or named.known is None:
            return [axis + 1 for axis in range((starts.sizes or ((0,),))[0][0])]
        return [_behind(int(axis)) for axis in named.known[0].reshape(-1)]

    def product(self, node: Node, own: ir.Node, given: Sequence[ir.Value | None]) -> ir.Value:
        """Matrices side by side, and their biases behind them."""
        left, right, *bias = given
        if node.integer("transB"):
            rank = node.outputs[0].rank + 1
            turned = [*range(rank - 2), rank - 1, rank - 2]
            right = self.add("Transpose", [right], f"{own.name}.turned", perm=turned)
        made = self.add("MatMul", [left, right], f"{own.name}.experts")
        if bias and bias[0] is not None:
            made = self.add("Add", [made, bias[0]], f"{own.name}.biases")
        return made

    def operand(self, value: Value, rank: int) -> ir.Value:
        """What a node on a stack reads. `rank`: of what it makes for one network."""
        if value in self.many:
            return self.many[value]
        use = value.unmoved
        if use not in self.parts:
            return self.there.value_of(value)
        if use not in self.many:
            self.many[use] = self.stack(use, rank - use.rank)
        if value is not use:
            self.many[value] = self.moved(value, rank - use.rank)
        return self.many[value]

    def moved(self, value: Value, ones: int) -> ir.Value:
        """What lies between a stored tensor and a node, on a stack with so many axes more in between."""
        node = value.producer
        assert node is not None
        given = self.operand(node.required(0), node.required(0).rank + ones)
        own = self.there.node_of(node)
        attributes = {name: a.value for name, a in own.attributes.items()}
        if node.op == "Transpose":
            front = range(1 + ones)
            order = attributes.get("perm") or tuple(reversed(range(value.rank)))
            attributes["perm"] = [*front, *(axis + 1 + ones for axis in order)]
        return self.add(node.op, [given], f"{own.name}.experts", **attributes)

    def stack(self, use: Value, ones: int) -> ir.Value:
        """A stored tensor of every expert: so far of one, which has the source's."""
        old = self.there.value_of(use)
        tensor = stored_tensor(old)
        shape = (1, *[1] * ones, *shape_of(tensor))
        name = str(old.name)
        old.name = self.unused(f"{name}.before")
        value = self.fresh(name, _reshaped(tensor, shape))
        return self.marked(value, 0, self.mark(self.parts[use], reads=use is self.network.inner))

    def fresh(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """A stored tensor of exactly this name."""
        self.names.discard(name)
        return self.initializer(name, tensor)

    def marked(self, value: ir.Value, axis: int, mark: Upcycled) -> ir.Value:
        """A stored tensor with one expert along an axis, which stands for all of them."""
        count = self.mixture.experts
        value.meta[UPCYCLED] = mark
        value.meta[ORDER] = Order(axis, np.zeros(count, dtype=np.int64), 1, "experts")
        return value

    def mark(self, part: int, *, router: bool = False, reads: bool = False) -> Upcycled:
        """What a stored tensor is of the mixture."""
        return Upcycled(self.mixture.statement, self.mixture.number, part, router, reads)

    def without_experts(self, node: Node) -> None:
        """Sizes that were asked of what one network makes."""
        own = self.there.node_of(node)
        start, end = node.integer("start", 0), node.integer("end", END)
        sizes = self.numbered("Shape", [self.many[node.required(0)]], own)
        for first, last in ((1, END), (start, end)):
            bounds = [self.numbers(f"{own.name}.bound", [number]) for number in (first, last)]
            sizes = self.numbered("Slice", [sizes, *bounds], own)
        own.outputs[0].replace_all_uses_with(sizes, replace_graph_outputs=True)

    def numbered(self, op: str, inputs: Sequence[ir.Value | None], own: ir.Node) -> ir.Value:
        """A node whose result is a whole number."""
        return self.insert(own, op, list(inputs), {}, f"{own.name}.experts")

    # ---- the router

    def gates(self) -> ir.Value:
        """The weight of every expert at every position: a softmax over the chosen ones, zero for others."""
        network = self.network
        given = self.there.value_of(network.given)
        rows = (network.given.sizes or ())[-1][0]
        dtype = ir.DataType.FLOAT if given.dtype is None else given.dtype
        zeros = ir.tensor(np.zeros((rows, 1), dtype=dtype.numpy()), dtype=dtype)
        router = self.initializer(f"{self.stem}router.weight", zeros)
        mark = self.mark(len(self.parts), router=True)
        scores = self.add("MatMul", [given, self.marked(router, 1, mark)], "router.scores")
        top = self.numbers(f"{self.stem}router.top", [self.mixture.top])
        name = self.unused(f"{self.stem}router.TopK")
        ranking = ir.node("TopK", [scores, top], {"axis": -1}, num_outputs=2, name=name)
        scope_of(self.last).insert_before(self.last, ranking)
        best, chosen = ranking.outputs
        best.name, best.type = self.unused(f"{self.stem}router.best"), given.type
        chosen.name = self.unused(f"{self.stem}router.chosen")
        chosen.type = ir.TensorType(ir.DataType.INT64)
        shares = self.add("Softmax", [best], "router.shares", axis=-1)
        sizes = self.insert(self.last, "Shape", [scores], {}, f"{self.stem}router.sizes")
        nothing = ir.tensor(np.zeros(1, dtype=dtype.numpy()), dtype=dtype)
        rest = self.add("ConstantOfShape", [sizes], "router.rest", value=nothing)
        return self.add("ScatterElements", [rest, chosen, shares], "router.gates", axis=-1)

    def combined(self, outputs: ir.Value, gates: ir.Value, rank: int) -> ir.Value:
        """The weighted sum of what all experts give."""
        turned = self.add("Transpose", [gates], "router.turned", perm=[rank - 1, *range(rank - 1)])
        last, first = (self.numbers(f"{self.stem}router.axis", [axis]) for axis in (-1, 0))
        factors = self.add("Unsqueeze", [turned, last], "router.factors")
        weighed = self.add("Mul", [outputs, factors], "router.weighed")
        return self.add("ReduceSum", [weighed, first], "router.sum", keepdims=0)


def _stem(names: Sequence[str]) -> str:
    """What dotted names have in common, with the dot behind it."""
    parts = zip(*(name.split(".")[:-1] for name in names), strict=False)
    return "".join(f"{same[0]}." for same in takewhile(lambda found: len(set(found)) == 1, parts))


def _behind(axis: int) -> int:
    """The number of an axis in a stack."""
    return axis if axis < 0 else axis + 1


def _reshaped(tensor: ir.TensorProtocol, shape: tuple[int, ...]) -> OnDemand:
    """A stored tensor in another shape, read when it is asked for."""
    return OnDemand(lambda: read_tensor(tensor).reshape(shape), tensor.dtype, shape, is_known(tensor))
