"""Names for spaces, by structure alone: hidden, heads, kv_heads, head_dim, ffn, vocab, positions, channels.

Needs: the axis graph after ties. Gives: `Roles`, for every name the axes that bear it, in topological order.

- hidden: what a sum adds, one operand being made from the other through at least one weight (a residual
  stream).
- heads: the batch axes of the product under a softmax that also stand on weights; head_dim is what it
  contracts;
  a factor of heads that only a broadcast (Expand) brings in is the group, the rest is kv_heads.
- ffn: made from hidden and read into hidden, without heads in it.
- vocab: the numbers of the largest table that a model input looks up, and of an output of that size.
- positions: the numbers of a table of hidden units that is looked up or cut by computed positions.
- channels: see growc.passes.channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from growc.axes import Space, find, leaves, segments
from growc.graph import Node, Value, static_values
from growc.operators import Term, labels
from growc.passes.channels import channel_spaces, counters
from growc.passes.spaces import Axes, Instance

THROUGH = frozenset({"Cast", "Identity", "QuantizeLinear", "DequantizeLinear"})
"""Operators behind which a value is still the same one."""

NAMES = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions", "channels")


@dataclass(frozen=True)
class RoleAxis:
    """One axis that bears a name: a space, or a row-major product of several."""

    spaces: tuple[Space, ...]

    @property
    def size(self) -> int:
        """Its size at the first sample point (roles are static)."""
        return int(np.prod([s.size[0] for s in self.spaces], dtype=np.int64))


@dataclass
class Roles:
    """The axes of each name, in topological order; `expanded` are atoms that only a broadcast brings in,
    `counters` factors of channels that count groups.
    """

    axes: dict[str, list[RoleAxis]] = field(default_factory=dict)
    expanded: set[int] = field(default_factory=set)
    counters: set[int] = field(default_factory=set)

    def sizes(self, name: str) -> list[int]:
        """The distinct sizes of a name, in order."""
        return list(dict.fromkeys(a.size for a in self.axes.get(name, [])))


def find_roles(axes: Axes) -> Roles:
    """Name the spaces of an axis graph."""
    return _Finder(axes).roles()


class _Finder:
    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.by_node = {i.node: i for i in axes.instances}
        self.order = {n: k for k, n in enumerate(axes.graph.nodes)}
        self.static = static_values(axes.graph)
        self.maps = [
            i for i in axes.instances if i.line.treatment == "contract" and self.weight_of(i) is not None
        ]

        self.on_weights = {
            id(leaf)
            for m in self.maps
            for space in self.axes.of(m.node.inputs[self.weight_of(m) or 0])  # type: ignore[arg-type]
            for leaf in leaves(space)
        }

    def roles(self) -> Roles:
        found = Roles()
        hidden = self.hidden()
        attention = list(self.attention())
        found.expanded = self.expanded()
        heads = [RoleAxis(h) for h, _ in attention]
        grouped = any(id(s) in found.expanded for h in heads for s in h.spaces)
        found.axes["hidden"] = [RoleAxis((s,)) for s in hidden]
        found.axes["heads"] = _distinct(heads)
        kept = [tuple(s for s in h.spaces if id(s) not in found.expanded) for h in heads]
        found.axes["kv_heads"] = _distinct([RoleAxis(k) for k in kept]) if grouped else found.axes["heads"]
        found.axes["head_dim"] = _distinct([RoleAxis(d) for _, d in attention if d])
        found.axes["ffn"] = [RoleAxis((s,)) for s in self.ffn(hidden, heads)]
        found.axes["vocab"] = [RoleAxis((s,)) for s in self.vocab()]
        found.axes["positions"] = [RoleAxis((s,)) for s in self.positions(heads)]
        named = {id(x) for h, d in attention for s in (*h, *d) for x in leaves(s)}
        channels = channel_spaces(self.axes, {id(s) for s in hidden}, named)
        found.axes["channels"] = [RoleAxis(c) for c in channels]
        found.counters = counters(self.axes, channels)
        found.axes = {name: found.axes[name] for name in NAMES if found.axes[name]}
        return found

    # ---- what stands where

    def weight_of(self, instance: Instance) -> int | None:
        """The operand of a contraction that is static (a weight, or made from weights)."""
        for i in (1, 0):
            value = instance.node.input(i)
            if value is not None and value in self.static and value.rank >= 2:
                return i
        return None

    def spaces_of(self, instance: Instance, operand: int, side: str) -> list[Space]:
        """Spaces of the labels of a weight operand that are contracted (`in`) or made (`out`)."""
        inputs, outputs = instance.line.inputs, instance.line.outputs
        made = {n for t in outputs[0] or () for n in labels(t)}
        terms = inputs[operand] or ()
        value = instance.node.inputs[operand]
        assert value is not None
        spaces = zip(terms, self.axes.of(value), strict=True)
        other = {n for i, ts in enumerate(inputs[:2]) if i != operand for t in ts or () for n in labels(t)}

        def wanted(term: Term) -> bool:
            names = labels(term)
            if side == "in":
                return bool(names) and all(n in other and n not in made for n in names)
            return any(n in made and n not in other for n in names)

        return [find(s) for t, s in spaces if wanted(t)]

    # ---- hidden

    def hidden(self) -> list[Space]:
        produced = {id(s) for m in self.maps for s in self.spaces_of(m, self.weight_of(m) or 0, "out")}
        contracted = {id(s) for m in self.maps for s in self.spaces_of(m, self.weight_of(m) or 0, "in")}
        found: dict[int, Space] = {}
        for instance in self.axes.instances:
            if instance.node.op == "Add" and self.is_residual(instance.node):
                for space in self.axes.of(instance.node.outputs[0]):
                    root = find(space)
                    if id(root) in produced and id(root) in contracted:
                        found.setdefault(id(root), root)
        return list(found.values())

    def is_residual(self, node: Node) -> bool:
        a, b = node.inputs[0], node.inputs[1]
        if a is None or b is None or a in self.static or b in self.static:
            return False
        return self.made_from(a, b) or self.made_from(b, a)

    def made_from(self, branch: Value, base: Value) -> bool:
        """Whether `branch` is computed from `base` through at least one weight."""
        base = through_casts(base)
        limit = self.order.get(base.producer, -1) if base.producer else -1
        seen: set[tuple[int, bool]] = set()
        pending = [(branch, False)]
        while pending:
            value, mapped = pending.pop()
            if value is base or through_casts(value) is base:
                if mapped:
                    return True
                continue
            node = value.producer
            if node is None or self.order[node] <= limit or (id(node), mapped) in seen:
                continue
            seen.add((id(node), mapped))
            instance = self.by_node.get(node)
            if instance is None:
                continue
            linear = instance.line.treatment == "contract" and self.weight_of(instance) is not None
            pending.extend((v, mapped or linear) for v in node.operands)
        return False

    # ---- attention

    def attention(self) -> Iterator[tuple[tuple[Space, ...], tuple[Space, ...]]]:
        """(heads, head_dim) of every product of two activations under a softmax."""
        for instance in self.axes.instances:
            if instance.line.treatment == "attention":
                yield from self.operator(instance)
            if instance.node.op != "Softmax":
                continue
            product = self.product_above(instance.node)
            if product is None:
                continue
            names = [labels(t) for t in (product.line.outputs[0] or ())]
            both = [{n for t in ts or () for n in labels(t)} for ts in product.line.inputs[:2]]
            shared = both[0] & both[1]
            stretched = _stretched(product)
            batch = [n for ns in names for n in ns if n in shared or n in stretched]
            inner = [find(product.spaces[n]) for n in sorted(shared - set(batch))]
            heads = tuple(x for n in batch for x in leaves(product.spaces[n]) if self.is_head(x))
            depth = [s for s in inner if any(id(x) in self.on_weights for x in leaves(s))]
            if heads:
                yield heads, tuple(depth)
                values = self.depth_of_values(instance.node)
                if [s.size for s in values] == [s.size for s in depth]:
                    yield heads, values

    def is_head(self, space: Space) -> bool:
        """A batch axis that stands on weights; one that the inputs size may stand on repeated weights."""
        return id(space) in self.on_weights and space.static

    def depth_of_values(self, softmax: Node) -> tuple[Space, ...]:
        """What a head of the values has, where the product of the probabilities with them is found."""
        pending, seen = [softmax.outputs[0]], {softmax}
        while pending:
            value = pending.pop(0)
            for node, i in value.users:
                if node in seen or node not in self.by_node:
                    continue
                seen.add(node)
                instance = self.by_node[node]
                if instance.line.treatment != "contract":
                    pending.extend(node.outputs)
                elif self.weight_of(instance) is None and i < 2:
                    made = {n for t in instance.line.outputs[0] or () for n in labels(t)}
                    ours = {n for t in instance.line.inputs[i] or () for n in labels(t)}
                    theirs = [n for t in instance.line.inputs[1 - i] or () for n in labels(t)]
                    own = [find(instance.spaces[n]) for n in theirs if n in made and n not in ours]
                    return tuple(s for s in own if any(id(x) in self.on_weights for x in leaves(s)))
        return ()

    def operator(self, instance: Instance) -> Iterator[tuple[tuple[Space, ...], tuple[Space, ...]]]:
        """(heads, head_dim) of an attention operator."""
        terms = instance.line.inputs[0] or ()
        heads = [x for n in labels(terms[1]) for x in leaves(instance.spaces[n]) if id(x) in self.on_weights]
        depth = find(instance.spaces["d"])
        if heads:
            yield tuple(heads), (depth,)
            values = find(instance.spaces["e"])
            if values.size == depth.size:
                yield tuple(heads), (values,)

    def product_above(self, softmax: Node) -> Instance | None:
        """The product of two activations that a softmax normalises, through elementwise operators."""
        pending, seen = [softmax.inputs[0]], set()
        while pending:
            value = pending.pop(0)
            node = None if value is None else value.producer
            if node is None or node in seen or node not in self.by_node:
                continue
            seen.add(node)
            instance = self.by_node[node]
            if instance.line.treatment == "contract":
                if self.weight_of(instance) is None:
                    return instance
                continue
            pending.extend(v for v in node.inputs if v is not None and v not in self.static)
        return None

    def expanded(self) -> set[int]:
        """Atoms that a broadcast makes and no weight but a query's bears: the groups of grouped attention."""
        found: set[int] = set()
        for instance in self.axes.instances:
            if instance.line.treatment == "attention" and "g" in instance.spaces:
                found |= {id(x) for x in leaves(instance.spaces["g"])}
            if instance.line.treatment == "contract" and self.weight_of(instance) is None:
                found |= {id(x) for n in _stretched(instance) for x in leaves(instance.spaces[n])}
            if instance.node.op in ("Expand", "Tile"):
                before = {n for t in instance.line.inputs[0] or () for n in labels(t)}
                if not any(id(x) in self.on_weights for n in before for x in leaves(instance.spaces[n])):
                    continue
                after = [n for t in instance.line.outputs[0] or () for n in labels(t)]
                found |= {id(x) for n in after if n not in before for x in leaves(instance.spaces[n])}
        return found

    # ---- feed-forward

    def ffn(self, hidden: list[Space], heads: list[RoleAxis]) -> list[Space]:
        streams = {id(s) for s in hidden}
        taken = {id(x) for h in heads for x in h.spaces} | {id(x) for s in hidden for x in leaves(s)}
        made: dict[int, Space] = {}
        read: set[int] = set()
        for instance in self.maps:
            operand = self.weight_of(instance) or 0
            ins, outs = self.spaces_of(instance, operand, "in"), self.spaces_of(instance, operand, "out")
            if any(id(s) in streams for s in ins):
                made.update((id(find(p)), find(p)) for s in outs for p in segments(s))
            if any(id(s) in streams for s in outs):
                read |= {id(find(p)) for s in ins for p in segments(s)}
        tables = {id(find(s)) for _, table in self.lookups() for s in self.axes.of(table)}
        wanted = [s for k, s in made.items() if k in read and k not in streams and k not in tables]
        return [s for s in wanted if not any(id(x) in taken for x in leaves(s))]

    # ---- tables

    def vocab(self) -> list[Space]:
        found: list[Space] = []
        for node, table in self.lookups():
            index = node.inputs[1]
            if index is not None and _from_input(index):
                found.append(find(self.axes.of(table)[_axis(node, table)]))
        if not found:
            return []
        size = max(s.size for s in found)
        kept = [s for s in found if s.size == size]
        for value in self.axes.graph.outputs:
            for space in self.axes.of(value)[-1:]:
                if find(space).size == size:
                    kept.append(find(space))
        return list({id(s): s for s in kept}.values())

    def positions(self, heads: list[RoleAxis]) -> list[Space]:
        """Tables of units that a weight reads or a stream holds, numbered by something computed."""
        taken = {id(x) for h in heads for x in h.spaces}
        streams = {
            id(s)
            for m in self.maps
            for s in self.spaces_of(m, self.weight_of(m) or 0, "in")
            if not any(id(x) in taken for x in leaves(s))
        }
        found: list[Space] = []
        for node, table in self.lookups():
            spaces, index = self.axes.of(table), node.inputs[1]
            computed = (
                index is not None and not _from_input(index) and not (index.known and _all_equal(index))
            )
            if computed and any(id(find(s)) in streams for s in spaces):
                found.append(find(spaces[_axis(node, table)]))
        for instance in self.axes.instances:
            value = instance.node.input(0)
            if instance.node.op == "Slice" and value is not None and value in self.static:
                spaces = self.axes.of(value)
                if any(id(find(s)) in streams for s in spaces):
                    terms = instance.line.inputs[0] or ()
                    found += [find(s) for s, t in zip(spaces, terms, strict=True) if t == "#"]
        return [s for s in {id(s): s for s in found}.values() if s.kind == "atom" and not s.unit]

    def lookups(self) -> Iterator[tuple[Node, Value]]:
        for instance in self.axes.instances:
            table = instance.node.input(0)
            if instance.node.op == "Gather" and table is not None and table in self.static and table.floating:
                yield instance.node, table


def _stretched(product: Instance) -> set[str]:
    """Batch labels of a product that only one operand has: the other one is broadcast along them."""
    out = product.line.outputs[0] or ()
    found: set[str] = set()
    for k in (0, 1):
        own, other = product.line.inputs[k] or (), product.line.inputs[1 - k] or ()
        for i in range(3, len(out) + 1):
            if i <= len(own) and (i > len(other) or other[-i] == "1") and own[-i] == out[-i]:
                found.update(labels(out[-i]))
    return found


def _axis(node: Node, table: Value) -> int:
    return int(node.attributes.get("axis", 0)) % max(table.rank, 1)


def _all_equal(value: Value) -> bool:
    return all(len(np.unique(k)) <= 1 for k in value.known or ())


_TRANSPARENT = frozenset(
    {"Reshape", "Cast", "Sub", "Add", "Unsqueeze", "Squeeze", "Clip", "Where", "Flatten", "Slice"}
)


def _from_input(value: Value) -> bool:
    """Whether an index is a model input, but for its shape and offsets."""
    while value.producer is not None and value.producer.op in _TRANSPARENT:
        operands = [
            v for v in value.producer.inputs if v is not None and v.weight is None and v.known is None
        ]
        if not operands:
            return False
        value = operands[0]
    return value.producer is None and value.weight is None


def through_casts(value: Value) -> Value:
    """The value before any Cast, Identity, or rounding to integers and back."""
    while value.producer is not None and value.producer.op in THROUGH:
        value = value.producer.inputs[0]  # type: ignore[assignment]
    return value


def _distinct(axes: list[RoleAxis]) -> list[RoleAxis]:
    return list({tuple(id(find(s)) for s in a.spaces): a for a in axes}.values())
