"""Calls of the result, rebuilt from those of the source's FX graph on the rewritten model.

The nodes of the rewritten model must remember their calls (growc.dialects.torch.operators.call) and their
state in the source (growc.dialects.torch.emit.literals). The result lists all calls in an order in which they
can run. A call is made once for every place where it stands. Its arguments are the new operands.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import Any

import numpy as np
import onnx_ir as ir
from torch import Tensor, fx

from growc.dialects.torch.capture.export import ExportedModule
from growc.dialects.torch.emit.literals import Parameter, changed, refusal
from growc.dialects.torch.emit.module_stacks import ModuleMove, move_of
from growc.dialects.torch.lowering.constants import Constants
from growc.dialects.torch.lowering.lower import SAME
from growc.dialects.torch.operators.arrays import to_numpy
from growc.dialects.torch.operators.call import SITE, ArgumentPath, CallOrigin
from growc.ir.walk import walk
from growc.passes.layers.layer_runs import LayerPlace


@dataclass(eq=False)
class RebuiltCall:
    """A call of the source with its arguments and layer in the result. Without `call` it is a tensor.

    move: the old and new module path of the call, if they differ.
    """

    call: fx.Node | None
    layer: LayerPlace | None = None
    arguments: Mapping[fx.Node, RebuiltCall] = field(default_factory=dict, repr=False)
    literals: Mapping[ArgumentPath, Any] = field(default_factory=dict)
    tensor: ir.Value | None = None
    move: ModuleMove | None = None


class Rebuilding:
    """All calls of the result.

    tensors: the placeholders of the source by the names of inputs and stored tensors. places: the layer of a
    node of the model, by run and position.
    """

    def __init__(
        self,
        captured: ExportedModule,
        model: ir.Model,
        tensors: Mapping[str, fx.Node],
        places: Mapping[ir.Node, LayerPlace],
    ) -> None:
        self.model, self.places = model, places
        self.source, self.constants = captured.program.graph, Constants(captured)
        self.same: Mapping[fx.Node, fx.Node] = model.meta[SAME]
        self.stored = {node: name for name, node in tensors.items()}
        self.known: dict[fx.Node, Any] = {}
        self.calls: dict[object, RebuiltCall] = {}
        self.tensors: dict[ir.Value | fx.Node, RebuiltCall] = {}
        self.named: dict[tuple[fx.Node, ir.Value], RebuiltCall] = {}
        self.elsewhere: dict[tuple[fx.Node, LayerPlace | None], RebuiltCall] = {}
        self.current: dict[fx.Node, list[ir.Value]] = {}
        for node in model.graph:
            for value in node.outputs:
                for name in names_of(value):
                    self.current.setdefault(name, []).append(value)

    def all(self) -> list[RebuiltCall]:
        """Return every call, in the order of the source, layer by layer."""
        self.model.graph.sort()  # operands come first, so that recursion stays shallow
        for node in self.model.graph:
            for value in node.outputs:
                for name in names_of(value):
                    self.build(name, value)
        return in_order(self.calls.values(), self.source)

    def output(self, value: ir.Value) -> RebuiltCall:
        """Return the call or tensor that gives an output of the model."""
        last = value.producer()
        assert last is not None
        operand = last.inputs[0]
        assert operand is not None
        return self.resolved(last.meta[SITE].node, operand)

    # ---- values under the names of calls

    def build(self, name: fx.Node, value: ir.Value) -> RebuiltCall:
        """Return the call for `name`, one of the names of `value`."""
        if (name, value) not in self.named:
            self.named[name, value] = self._built(name, value)
        return self.named[name, value]

    def _built(self, name: fx.Node, value: ir.Value) -> RebuiltCall:
        node = value.producer()
        if node is None and name in self.same:
            return self.call(name, [], value)
        if node is None:
            return self.anywhere(name) if self.still_makes(name, value) else self.tensor(value)
        own: fx.Node = node.meta[SITE].node
        if name is own:
            return self.call(own, parts_of(node), value)
        if name.target is operator.getitem and name.args[0] is own:
            whole = self.call(own, parts_of(node), value)
            return self.add(name, {own: whole}, {}, whole.layer)
        return self.call(name, [], value)

    def tensor(self, value: ir.Value) -> RebuiltCall:
        """Return an input or a tensor of the module."""
        return self.tensors.setdefault(value, RebuiltCall(None, tensor=value))

    def still_makes(self, name: fx.Node, value: ir.Value) -> bool:
        """Whether a stored tensor is a constant that the source's calls still compute as it is now."""
        if value.const_value is None or not self.constants.stands(name):
            return False
        initializers = self.model.graph.initializers
        inputs = ((node, initializers.get(self.stored[node])) for node in self.constants.given(name))
        return not any(self.differs(*pair) for pair in ((name, value), *inputs))

    def differs(self, name: fx.Node, value: ir.Value | None) -> bool:
        """Whether a stored tensor differs from that of the source."""
        if value is None or value.const_value is None:
            return False
        before = to_numpy(self.constants.value(name, self.known))
        return not np.array_equal(before, value.const_value.numpy())

    def resolved(self, argument: fx.Node, value: ir.Value) -> RebuiltCall:
        """Return a value under the name of an argument, or under the name that replaces it.

        Raises GrowError (G308) if nothing in the module computes it.
        """
        if value.producer() is None:
            return self.build(argument, value)
        names = names_of(value)
        if not names:
            raise refusal(value.producer(), "nothing in the module computes it")
        if argument in names:
            return self.build(argument, value)
        before = next((names_of(v) for v in self.current.get(argument, ())), [argument])
        return self.build(names[min(before.index(argument), len(names) - 1)], value)

    # ---- calls

    def call(self, call: fx.Node, parts: Sequence[ir.Node], value: ir.Value) -> RebuiltCall:
        """Return a call with its current arguments. A call without nodes only names `value`."""
        arguments = {
            argument: self.argument(argument, call, parts, value) for argument in call.all_input_nodes
        }
        stored = {
            argument: rebuilt.tensor for argument, rebuilt in arguments.items() if rebuilt.tensor is not None
        }
        rebuilt = self.add(call, arguments, changed(call, parts, stored), self.place(value))
        rebuilt.move = rebuilt.move or move_of(value.producer())
        return rebuilt

    def add(
        self,
        call: fx.Node,
        arguments: Mapping[fx.Node, RebuiltCall],
        literals: Mapping[ArgumentPath, Any],
        layer: LayerPlace | None = None,
    ) -> RebuiltCall:
        """Return a call. Calls of the same arguments and literals are made once."""
        literal_keys = frozenset((path, _key(literal)) for path, literal in literals.items())
        key = (call, literal_keys, *arguments.values())
        return self.calls.setdefault(key, RebuiltCall(call, layer, arguments, literals))

    def argument(
        self, argument: fx.Node, call: fx.Node, parts: Sequence[ir.Node], value: ir.Value
    ) -> RebuiltCall:
        """Return the current call or tensor for an argument of a call."""
        for part in parts:
            site: CallOrigin = part.meta[SITE]
            sizes = {place.where for place in site.carried.values()}  # which are literals
            for i, named in site.operands.items():
                operand = part.inputs[i] if i < len(part.inputs) else None
                if named is argument and operand is not None and i not in sizes:
                    return self.resolved(argument, operand)
        if not parts and (argument is self.same.get(call) or argument in names_of(value)):
            return self.resolved(argument, value)
        return self.anywhere(argument, self.place(value))

    def anywhere(self, argument: fx.Node, layer: LayerPlace | None = None) -> RebuiltCall:
        """Return the call or tensor for an argument without an operand: that of this layer, or the only one.

        Raises GrowError (G308) if it is several tensors, and none of them is in this layer.
        """
        if (argument, layer) not in self.elsewhere:
            self.elsewhere[argument, layer] = self._anywhere(argument, layer)
        return self.elsewhere[argument, layer]

    def _anywhere(self, argument: fx.Node, layer: LayerPlace | None) -> RebuiltCall:
        if argument.op == "placeholder":
            name = self.stored[argument]
            graph = self.model.graph
            matches = [v for v in [*graph.inputs, *graph.initializers.values()] if v.name == name]
            value = matches[0] if matches else ir.Value(name=name)
            return self.tensors.setdefault(
                matches[0] if matches else argument, RebuiltCall(None, tensor=value)
            )
        values = self.current.get(argument, [])
        several = len(values) > 1 and isinstance(argument.meta.get("val"), Tensor)
        if several:  # sizes are the same in all layers
            values = [v for v in values if self.place(v) == layer]
            if not values:
                raise refusal(self.current[argument][0].producer(), "it is several tensors by now")
        if values:
            return self.build(argument, values[0])
        arguments = {node: self.anywhere(node, layer) for node in argument.all_input_nodes}
        return self.add(argument, arguments, {}, layer if arguments else None)

    def place(self, value: ir.Value) -> LayerPlace | None:
        """Return the layer that makes a value."""
        node = value.producer()
        return None if node is None else self.places.get(node)


def _key(literal: Any) -> Hashable:
    """Return a hashable key that tells literals apart."""
    if isinstance(literal, (list, tuple)):
        return tuple(map(_key, literal))
    if isinstance(literal, Parameter):
        return literal.value
    # Symbolic sizes and some other values have no hash.
    return literal if isinstance(literal, (int, float, str)) else id(literal)


def names_of(value: ir.Value) -> list[fx.Node]:
    """Return the calls that a value is the result of: its maker, and calls that pass it on unchanged."""
    node = value.producer()
    if node is None or SITE not in node.meta:
        return []
    site: CallOrigin = node.meta[SITE]
    return [name for name, item in site.results.get(value.index() or 0, []) if item is None]


def parts_of(last: ir.Node) -> list[ir.Node]:
    """Return the nodes of one call, from the node of its result backwards."""

    def before(part: ir.Node) -> Iterator[ir.Node]:
        for node in (value.producer() for value in part.inputs if value is not None):
            if node is not None and SITE in node.meta and node.meta[SITE].node is last.meta[SITE].node:
                yield node

    return list(walk([last], before, nearest=True))


def in_order(calls: Collection[RebuiltCall], source: fx.Graph) -> list[RebuiltCall]:
    """Return calls in an order in which they can run, near the order of their graph, layer by layer."""
    ranks = _ranks(calls, source)
    order = TopologicalSorter(
        {
            rebuilt: [argument for argument in rebuilt.arguments.values() if argument.call is not None]
            for rebuilt in calls
        }
    )
    order.prepare()
    ready: list[tuple[tuple[int, ...], RebuiltCall]] = []
    ordered: list[RebuiltCall] = []
    while order.is_active():
        for rebuilt in order.get_ready():
            heappush(ready, (ranks[rebuilt], rebuilt))
        ordered.append(heappop(ready)[1])
        order.done(ordered[-1])
    return ordered


def _ranks(calls: Collection[RebuiltCall], source: fx.Graph) -> dict[RebuiltCall, tuple[int, ...]]:
    """Return the sort keys of calls.

    A key has the start of the call's run of layers (or its own place), its layer, and its place.
    """
    numbers: dict[fx.Node | None, int] = {node: k for k, node in enumerate(source.nodes)}
    starts: dict[int, int] = {}
    for rebuilt in calls:
        if rebuilt.layer is not None:
            run = rebuilt.layer[0]
            starts[run] = min(numbers[rebuilt.call], starts.get(run, len(numbers)))
    ranks: dict[RebuiltCall, tuple[int, ...]] = {}
    for k, rebuilt in enumerate(calls):
        number = numbers[rebuilt.call]
        ranks[rebuilt] = (number, 0, number, k)
        if rebuilt.layer is not None:
            ranks[rebuilt] = (starts[rebuilt.layer[0]], rebuilt.layer[1], number, k)
    return ranks
