"""The calls of the result: those of the source's FX graph, on the model as it was mended.

Needs: a rewritten model whose nodes remember their calls (growc.dialects.torch.operators.call), and what they
said before (growc.dialects.torch.emit.literals). Gives: every call that there is by now, in an order in which
they can run. A call is made once for every place where it stands: its arguments are what its operands have
become.
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

from growc.dialects.torch.capture.export import Captured
from growc.dialects.torch.emit.literals import Parameter, changed, refusal
from growc.dialects.torch.emit.module_stacks import Move, move_of
from growc.dialects.torch.lowering.constants import Constants
from growc.dialects.torch.lowering.lower import SAME
from growc.dialects.torch.operators.arrays import to_numpy
from growc.dialects.torch.operators.call import SITE, Path, Site
from growc.ir.walk import walk

Layer = tuple[int, int]
"""A layer of the result, by run and position."""


@dataclass(eq=False)
class Made:
    """A call of the source with what it has in the result, and the layer there; without `call` a tensor.

    move: where it stands in the result's modules, where that is another place than in the source's.
    """

    call: fx.Node | None
    layer: Layer | None = None
    arguments: Mapping[fx.Node, Made] = field(default_factory=dict, repr=False)
    literals: Mapping[Path, Any] = field(default_factory=dict)
    tensor: ir.Value | None = None
    move: Move | None = None


class Rebuilding:
    """All calls of the result.

    `tensors`: the placeholders of the source by the names of inputs and stored tensors; `places`: the layer
    that a node of the model stands in, by run and position.
    """

    def __init__(
        self,
        captured: Captured,
        model: ir.Model,
        tensors: Mapping[str, fx.Node],
        places: Mapping[ir.Node, Layer],
    ) -> None:
        self.model, self.places = model, places
        self.source, self.constants = captured.program.graph, Constants(captured)
        self.same: Mapping[fx.Node, fx.Node] = model.meta[SAME]
        self.stored = {node: name for name, node in tensors.items()}
        self.known: dict[fx.Node, Any] = {}
        self.calls: dict[object, Made] = {}
        self.tensors: dict[ir.Value | fx.Node, Made] = {}
        self.named: dict[tuple[fx.Node, ir.Value], Made] = {}
        self.elsewhere: dict[tuple[fx.Node, Layer | None], Made] = {}
        self.current: dict[fx.Node, list[ir.Value]] = {}
        for node in model.graph:
            for value in node.outputs:
                for name in names_of(value):
                    self.current.setdefault(name, []).append(value)

    def all(self) -> list[Made]:
        """Every call, in the order of the source, layer by layer."""
        self.model.graph.sort()  # no call has to wait for many others
        for node in self.model.graph:
            for value in node.outputs:
                for name in names_of(value):
                    self.build(name, value)
        return in_order(self.calls.values(), self.source)

    def output(self, value: ir.Value) -> Made:
        """What gives an output of the model."""
        last = value.producer()
        assert last is not None
        given = last.inputs[0]
        assert given is not None
        return self.resolved(last.meta[SITE].node, given)

    # ---- values under the names of calls

    def build(self, name: fx.Node, value: ir.Value) -> Made:
        """The call that stands for `name`, which is (a name of) `value`."""
        if (name, value) not in self.named:
            self.named[name, value] = self._built(name, value)
        return self.named[name, value]

    def _built(self, name: fx.Node, value: ir.Value) -> Made:
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

    def tensor(self, value: ir.Value) -> Made:
        """An input, or a tensor that the module holds."""
        return self.tensors.setdefault(value, Made(None, tensor=value))

    def still_makes(self, name: fx.Node, value: ir.Value) -> bool:
        """Whether a stored tensor is a constant that the calls of the source make as it is by now."""
        if value.const_value is None or not self.constants.stands(name):
            return False
        held = self.model.graph.initializers
        behind = ((given, held.get(self.stored[given])) for given in self.constants.given(name))
        return not any(self.differs(*pair) for pair in ((name, value), *behind))

    def differs(self, name: fx.Node, value: ir.Value | None) -> bool:
        """Whether a stored tensor is another one than in the source."""
        if value is None or value.const_value is None:
            return False
        before = to_numpy(self.constants.value(name, self.known))
        return not np.array_equal(before, value.const_value.numpy())

    def resolved(self, given: fx.Node, value: ir.Value) -> Made:
        """A value under the name that an argument had, or under the one that stands in its place."""
        if value.producer() is None:
            return self.build(given, value)
        names = names_of(value)
        if not names:
            raise refusal(value.producer(), "nothing in the module computes it")
        if given in names:
            return self.build(given, value)
        before = next((names_of(v) for v in self.current.get(given, ())), [given])
        return self.build(names[min(before.index(given), len(names) - 1)], value)

    # ---- calls

    def call(self, call: fx.Node, parts: Sequence[ir.Node], value: ir.Value) -> Made:
        """A call with the arguments that it has by now; one without nodes does nothing but name `value`."""
        arguments = {given: self.argument(given, call, parts, value) for given in call.all_input_nodes}
        stored = {given: made.tensor for given, made in arguments.items() if made.tensor is not None}
        made = self.add(call, arguments, changed(call, parts, stored), self.place(value))
        made.move = made.move or move_of(value.producer())
        return made

    def add(
        self,
        call: fx.Node,
        arguments: Mapping[fx.Node, Made],
        literals: Mapping[Path, Any],
        layer: Layer | None = None,
    ) -> Made:
        """A call, once for the same arguments and literals."""
        said = frozenset((path, _key(literal)) for path, literal in literals.items())
        key = (call, said, *arguments.values())
        return self.calls.setdefault(key, Made(call, layer, arguments, literals))

    def argument(self, given: fx.Node, call: fx.Node, parts: Sequence[ir.Node], value: ir.Value) -> Made:
        """What an argument of a call is by now."""
        for part in parts:
            site: Site = part.meta[SITE]
            sizes = {place.where for place in site.carried.values()}  # which literals account for
            for i, named in site.operands.items():
                found = part.inputs[i] if i < len(part.inputs) else None
                if named is given and found is not None and i not in sizes:
                    return self.resolved(given, found)
        if not parts and (given is self.same.get(call) or given in names_of(value)):
            return self.resolved(given, value)
        return self.anywhere(given, self.place(value))

    def anywhere(self, given: fx.Node, layer: Layer | None = None) -> Made:
        """An argument that no operand stands for: what it is in this layer, or wherever it is.

        Raises GrowError (G308) where it is several tensors, none of them in this layer.
        """
        if (given, layer) not in self.elsewhere:
            self.elsewhere[given, layer] = self._anywhere(given, layer)
        return self.elsewhere[given, layer]

    def _anywhere(self, given: fx.Node, layer: Layer | None) -> Made:
        if given.op == "placeholder":
            name = self.stored[given]
            graph = self.model.graph
            found = [v for v in [*graph.inputs, *graph.initializers.values()] if v.name == name]
            value = found[0] if found else ir.Value(name=name)
            return self.tensors.setdefault(found[0] if found else given, Made(None, tensor=value))
        values = self.current.get(given, [])
        if len(values) > 1 and isinstance(given.meta.get("val"), Tensor):  # sizes are the same in all layers
            values = [v for v in values if self.place(v) == layer]
            if not values:
                raise refusal(self.current[given][0].producer(), "it is several tensors by now")
        if values:
            return self.build(given, values[0])
        arguments = {node: self.anywhere(node, layer) for node in given.all_input_nodes}
        return self.add(given, arguments, {}, layer if arguments else None)

    def place(self, value: ir.Value) -> Layer | None:
        """The layer that makes a value."""
        node = value.producer()
        return None if node is None else self.places.get(node)


def _key(literal: Any) -> Hashable:
    """What tells literals apart."""
    if isinstance(literal, (list, tuple)):
        return tuple(map(_key, literal))
    if isinstance(literal, Parameter):
        return literal.value
    # Of the rest not all have a hash: symbolic sizes have none.
    return literal if isinstance(literal, (int, float, str)) else id(literal)


def names_of(value: ir.Value) -> list[fx.Node]:
    """The calls of which a value is the result: the one that makes it, and those that do nothing to it."""
    node = value.producer()
    if node is None or SITE not in node.meta:
        return []
    site: Site = node.meta[SITE]
    return [name for name, item in site.results.get(value.index() or 0, []) if item is None]


def parts_of(last: ir.Node) -> list[ir.Node]:
    """The nodes of one call, from the one that gives its result backwards."""

    def before(part: ir.Node) -> Iterator[ir.Node]:
        for node in (value.producer() for value in part.inputs if value is not None):
            if node is not None and SITE in node.meta and node.meta[SITE].node is last.meta[SITE].node:
                yield node

    return list(walk([last], before, nearest=True))


def in_order(calls: Collection[Made], source: fx.Graph) -> list[Made]:
    """Calls as they can run, in the order of a graph that they are of, layer by layer."""
    ranks = _ranks(calls, source)
    order = TopologicalSorter(
        {made: [a for a in made.arguments.values() if a.call is not None] for made in calls}
    )
    order.prepare()
    ready: list[tuple[tuple[int, ...], Made]] = []
    done: list[Made] = []
    while order.is_active():
        for made in order.get_ready():
            heappush(ready, (ranks[made], made))
        done.append(heappop(ready)[1])
        order.done(done[-1])
    return done


def _ranks(calls: Collection[Made], source: fx.Graph) -> dict[Made, tuple[int, ...]]:
    """Where a call stands: where its run of layers begins in the source, or itself; its layer; its place."""
    numbers: dict[fx.Node | None, int] = {node: k for k, node in enumerate(source.nodes)}
    starts: dict[int, int] = {}
    for made in calls:
        if made.layer is not None:
            run = made.layer[0]
            starts[run] = min(numbers[made.call], starts.get(run, len(numbers)))
    ranks: dict[Made, tuple[int, ...]] = {}
    for k, made in enumerate(calls):
        number = numbers[made.call]
        ranks[made] = (number, 0, number, k)
        if made.layer is not None:
            ranks[made] = (starts[made.layer[0]], made.layer[1], number, k)
    return ranks
