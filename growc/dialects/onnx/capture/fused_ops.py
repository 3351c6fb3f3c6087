"""Fused operators: taken apart before the analysis, restored in the file that is written.

A fused node may hide values that the analysis must see: a residual sum, a bias, projections side by side. The
plain nodes show them.

Needs: an onnx-ir model. Gives: the same model with plain nodes in place of each fused node of
growc.dialects.onnx.capture.fused_decompositions, and a `Fused` for each, which can restore it.

Restoring is proved, not assumed. After the weights and attributes of the plain nodes have changed, the fused
node with its new attributes is taken apart once more. The result must equal the changed nodes; it also tells
which values are the fused node's operands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import onnx_ir as ir

from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.errors.diagnostic import Diagnostic, GrowError

PART_OF = "growc.part_of"
"""Key of a plain node's `meta`: the fused operator that it is part of."""


UNSIZED = frozenset({"MaskIndex"})
"""Operators of the neutral domain that constrain no sizes but those of the model's inputs."""

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""

MULTIPLE = "growc.multiple"
"""Attribute of a plain node: the number that must divide the last axis of its operands."""


@dataclass
class Lowering:
    """One fused node while it is taken apart: operands, attributes, and the plain nodes made so far."""

    inputs: Sequence[ir.Value | None]
    attributes: Mapping[str, Any]
    name: str = ""
    nodes: list[ir.Node] = field(default_factory=list)
    carried: dict[str, tuple[ir.Node, str]] = field(default_factory=dict)
    """Attributes of the fused node that follow an attribute of a plain node."""

    @staticmethod
    def of(node: ir.Node) -> Lowering:
        """Return the start of a fused node's decomposition, without plain nodes."""
        return Lowering(list(node.inputs), _plain(node), node.name or node.outputs[0].name or node.op_type)

    def input(self, i: int) -> ir.Value | None:
        """Return operand i, or None if it is absent."""
        return self.inputs[i] if i < len(self.inputs) else None

    def operand(self, i: int) -> ir.Value:
        """Return operand i, which its operator requires."""
        value = self.input(i)
        assert value is not None
        return value

    def several(self, op: str, *inputs: ir.Value | None, outputs: int, **attributes: Any) -> list[ir.Value]:
        """Add a node with several results. `growc::Name` is an operator of the neutral domain."""
        domain, _, kind = op.rpartition("::")
        converted = {
            k: ir.convenience.convert_attribute(k, v) for k, v in attributes.items() if v is not None
        }
        node = ir.Node(domain, kind, inputs, converted, num_outputs=outputs, name=self.name)
        for i, value in enumerate(node.outputs):
            value.name = f"{self.name}.{kind}.{len(self.nodes)}.{i}"
        self.nodes.append(node)
        return list(node.outputs)

    def add(self, op: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Add a node with one result."""
        return self.several(op, *inputs, outputs=1, **attributes)[0]

    def total(self, *terms: ir.Value | None) -> ir.Value:
        """Return the sum of the terms that are present."""
        total, *others = (t for t in terms if t is not None)
        for term in others:
            total = self.add("Add", total, term)
        return total

    def carry(self, value: ir.Value, **names: str) -> ir.Value:
        """Let attributes of the fused node (keys) follow those (by name) of the producer of `value`."""
        node = value.producer()
        assert node is not None
        self.carried |= {own: (node, its) for own, its in names.items()}
        return value


PlainValues = Sequence[ir.Value | None] | None
"""The plain values that replace a fused node's results, None for a result without one.

None instead of a sequence: the node stays.
"""

Rules = Mapping[tuple[str, str], Callable[[Lowering], PlainValues]]
"""The decompositions of fused nodes, by (domain, operator)."""


@dataclass
class Fused:
    """A fused node and the plain nodes that replace it."""

    node: ir.Node
    rule: Any
    lowering: Lowering
    outputs: list[tuple[ir.Value, ir.Value]]
    """(result of the fused node, result of a plain node that replaces it)"""
    before: dict[str, Any]
    """The carried attributes before the change."""
    within: Sequence[Mapping[int, ir.Node]]
    """For each plain node, its operands that other plain nodes compute."""

    def attributes(self) -> dict[str, Any]:
        """Return the fused node's attributes after the change."""
        carried = _carried(self.lowering)
        changed = {name: value for name, value in carried.items() if value != self.before.get(name)}
        return _plain(self.node) | changed

    def restore(self) -> None:
        """Put the fused node back in place of the plain ones. Raises GrowError (G308)."""
        places = [ir.Value(name=f"i{i}") for i in range(len(self.node.inputs))]
        operands = [None if v is None else p for v, p in zip(self.lowering.inputs, places, strict=True)]
        attributes = self.attributes()
        again = Lowering(operands, attributes, self.lowering.name)
        rebuilt = dict(zip(self.node.outputs, self.rule(again), strict=False))
        bound: dict[ir.Value, ir.Value] = {}
        if not all(_same(rebuilt[old], plain, places, bound) for old, plain in self.outputs):
            message = f"`{self.lowering.name}` ({self.node.op_type}) cannot take on the change as one node"
            raise GrowError(Diagnostic("G308", message, notes=("its parts need different things",)))
        for i, place in enumerate(places):
            if operands[i] is not None:
                self.node.replace_input_with(i, bound[place])
        for name, value in attributes.items():
            if name not in self.node.attributes or self.node.attributes[name].value != value:
                self.node.attributes[name] = ir.convenience.convert_attribute(name, value)
        self._insert()

    def on(self, value: Callable[[ir.Value], ir.Value], node: Callable[[ir.Node], ir.Node]) -> Fused:
        """Return the same fused node in a copy of the model.

        `value` and `node` return the copy's counterpart of a value or node of this model.
        """
        old = self.lowering
        inputs = [None if v is None else value(v) for v in old.inputs]
        carried = {own: (node(part), its) for own, (part, its) in old.carried.items()}
        parts = [*map(node, old.nodes)]
        alone = ir.GraphView([], [], nodes=[self.node]).clone()
        again = alone[0]
        alone.remove(again)
        outputs = [(again.outputs[k.index() or 0], value(v)) for k, v in self.outputs]
        within = [{k: node(maker) for k, maker in makers.items()} for makers in self.within]
        lowering = Lowering(inputs, old.attributes, old.name, parts, carried)
        return Fused(again, self.rule, lowering, outputs, dict(self.before), within)

    def copies(
        self,
        placed: Sequence[Mapping[ir.Value, ir.Value]],
        gone: Collection[ir.Node],
        data: Collection[ir.Value],
    ) -> list[Fused]:
        """Return this node after layers have moved: itself, or one copy in each layer with all its values.

        `placed` maps the values of the removed layers to those of each new layer. `data`: the used values
        that depend on the model's inputs. A node may end behind a layer from which it reads parts; it is then
        built from the parts that it reads now. A node without readers is dropped.
        """
        if not any(part in gone for part in self.lowering.nodes):
            if all(part.graph is None for part in self.lowering.nodes):
                return []
            self.node.name = self.node.name and _name(self.lowering.nodes)
            return [self]
        ends = [v for part in self.lowering.nodes for v in part.outputs if v in data]
        behind = {v: v for part in self.lowering.nodes if part not in gone for v in part.outputs}
        if all(result in behind for _, result in self.outputs):
            return [self._copy(behind)]
        return [self._copy(values) for values in placed if all(v in values for v in ends)]

    def _copy(self, values: Mapping[ir.Value, ir.Value]) -> Fused:
        """Return a copy on other values.

        Unused parts have no copy. The copies of parts that compute constants are found through their readers.
        """
        parts: dict[ir.Node, ir.Node | None] = {}
        for part, makers in reversed(list(zip(self.lowering.nodes, self.within, strict=True))):
            made_of = [values[v] for v in part.outputs if v in values]
            copy = parts[part] = made_of[0].producer() if made_of else parts.get(part)
            operands = {} if copy is None else {maker: copy.inputs[k] for k, maker in makers.items()}
            for maker, operand in operands.items():
                parts.setdefault(maker, None if operand is None else operand.producer())
        copies = [copy for part in self.lowering.nodes if (copy := parts[part]) is not None]
        name = _name([copy for part, copy in parts.items() if copy is not None and part.outputs[0] in values])
        attributes = ((own, parts[part], its) for own, (part, its) in self.lowering.carried.items())
        carried = {own: (copy, its) for own, copy, its in attributes if copy is not None}
        lowering = Lowering(self.lowering.inputs, self.lowering.attributes, name, copies, carried)
        node = ir.Node(
            self.node.domain,
            self.node.op_type,
            [None] * len(self.node.inputs),
            list(self.node.attributes.values()),
            num_outputs=len(self.node.outputs),
            name=name,
            version=self.node.version,
        )
        node.meta.update(self.node.meta)
        pairs = []
        for old, value in self.outputs:
            if value in values:
                new = node.outputs[old.index() or 0]
                new.name = values[value].name
                pairs.append((new, values[value]))
        for new, old in zip(node.outputs, self.node.outputs, strict=True):
            new.name = new.name or ("" if old.name == "" else f"{name}.{old.name}")
        return Fused(
            node, self.rule, lowering, pairs, dict(self.before), [_within(n, copies) for n in copies]
        )

    def _insert(self) -> None:
        last = next(part for part in reversed(self.lowering.nodes) if part.graph is not None)
        assert last.graph is not None  # parts without readers were removed when layers moved
        last.graph.insert_after(last, self.node)
        for old, plain in self.outputs:
            old.name, old.shape, old.type = plain.name, plain.shape, plain.type
            plain.replace_all_uses_with(old, replace_graph_outputs=True)


def lower(model: ir.Model, rules: Rules) -> list[Fused]:
    """Take the fused nodes of a model apart, in place.

    A node stays if it has no rule, or if its rule does not support it. If some results have no reader, the
    fused node would still check the sizes of the operands behind them, which the analysis does not see. Such
    a node becomes the plain nodes of its other results, for good; it stays if those are not in ONNX.
    """
    lowered = []
    for node in list(model.graph.all_nodes()):
        rule = rules.get((node.domain, node.op_type))
        if rule is not None and (fused := _taken_apart(node, rule)) is not None:
            lowered.append(fused)
    return lowered


def restore(fused: Sequence[Fused], otherwise: Callable[[Fused], bool] = lambda one: False) -> None:
    """Put all fused nodes back. `otherwise` tries to write a node that cannot be restored.

    It returns whether it could. Raises GrowError (G308) naming the node if neither is possible.
    """
    for one in fused:
        try:
            one.restore()
        except GrowError:
            if not otherwise(one):
                raise
    for graph in {one.node.graph: None for one in fused}:
        if graph is not None and not in_order(graph):
            graph.sort()


def in_order(graph: ir.Graph | ir.Function) -> bool:
    """Whether every node stands behind the producers of its operands."""
    seen: set[ir.Node] = set()
    for node in graph:
        makers = (v.producer() for v in node.inputs if v is not None)
        if any(m is not None and m.graph is graph and m not in seen for m in makers):
            return False
        seen.add(node)
    return True


def _taken_apart(node: ir.Node, rule: Any) -> Fused | None:
    lowering = Lowering.of(node)
    results = rule(lowering)
    if results is None:
        return None
    results = [*results, *[None] * len(node.outputs)][: len(node.outputs)]
    pairs = list(zip(node.outputs, results, strict=True))
    read = [plain for old, plain in pairs if old.uses() or old.is_graph_output()]
    alive = makers(read, lowering.nodes)
    unseen = _unseen(lowering, alive)
    if None in read or (unseen and any(part.domain == "growc" for part in alive)):
        detach(lowering.nodes)
        return None
    if unseen:
        detach([part for part in lowering.nodes if part not in alive])
        lowering.nodes = [part for part in lowering.nodes if part in alive]
        pairs = [(old, plain) for old, plain in pairs if plain in read]
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, lowering.nodes)
    for part in lowering.nodes:
        part.meta[PART_OF] = op_name(node)
    outputs = [(old, plain) for old, plain in pairs if plain is not None]
    for old, plain in outputs:
        plain.name, plain.shape, plain.type = old.name, old.shape, old.type
        old.replace_all_uses_with(plain, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    plain = lowering.nodes
    if unseen:
        for k, part in enumerate(plain[:-1]):  # they stay in the file, so each needs its own name
            part.name = f"{lowering.name}.{part.op_type}.{k}"
        return None
    return Fused(node, rule, lowering, outputs, _carried(lowering), [_within(n, plain) for n in plain])


def makers(results: Collection[ir.Value | None], parts: Sequence[ir.Node]) -> set[ir.Node]:
    """Return the parts that compute some results, directly or indirectly."""
    read, above = set(results), set[ir.Node]()
    for part in reversed(parts):
        if not read.isdisjoint(part.outputs):
            above.add(part)
            read.update(part.inputs)
    return above


def _unseen(lowering: Lowering, alive: Collection[ir.Node]) -> bool:
    """Whether a fused node checks the sizes of an operand that none of these parts reads."""
    seen = {v for part in alive for v in part.inputs}
    sized = [part for part in lowering.nodes if part not in alive and part.op_type not in UNSIZED]
    return any(v in lowering.inputs and v not in seen for part in sized for v in part.inputs if v is not None)


def detach(nodes: Sequence[ir.Node]) -> None:
    """Clear the operands of nodes that are not wanted."""
    for node in nodes:
        for i in range(len(node.inputs)):
            node.replace_input_with(i, None)


def _name(parts: Sequence[ir.Node]) -> str:
    """Return the name of the fused node that some nodes are parts of: their shortest name."""
    return min((part.name or "" for part in parts), key=len)


def _within(node: ir.Node, parts: Collection[ir.Node]) -> dict[int, ir.Node]:
    """Return the operands of a node that other parts compute."""
    makers = ((k, v.producer()) for k, v in enumerate(node.inputs) if v is not None)
    return {k: maker for k, maker in makers if maker is not None and maker in parts}


def _carried(lowering: Lowering) -> dict[str, Any]:
    return {
        own: node.attributes[its].value
        for own, (node, its) in lowering.carried.items()
        if its in node.attributes
    }


def _same(
    rebuilt: ir.Value | None,
    plain: ir.Value | None,
    places: Sequence[ir.Value],
    bound: dict[ir.Value, ir.Value],
) -> bool:
    """Whether two values are computed alike, binding the fused node's operands (`places`) on the way."""
    if rebuilt is None or plain is None:
        return rebuilt is plain
    if rebuilt in places:
        return bound.setdefault(rebuilt, plain) is plain
    a, b = rebuilt.producer(), plain.producer()
    assert a is not None
    if b is None or (a.domain, a.op_type, rebuilt.index()) != (b.domain, b.op_type, plain.index()):
        return False
    if _plain(a) != _plain(b):
        return False
    return all(
        _same(x, y, places, bound) for x, y in zip_longest(a.inputs, b.inputs)
    )  # the last may be absent


def _plain(node: ir.Node) -> dict[str, Any]:
    return {a.name: a.value for a in node.attributes.values()}
