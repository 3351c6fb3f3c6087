"""Names for spaces, by structure alone: hidden, heads, kv_heads, head_dim, ffn, vocab, positions, experts,
channels.

Needs: the axis graph after ties. Gives: `Roles`, for every name the axes that bear it, in topological order.

- hidden, ffn: see growc.passes.roles.residual_streams.
- heads: the batch axes of the product under a softmax that also stand on weights, one head where there are
  none; head_dim is what it contracts, and what a head of the values has; a factor of heads that only a
  broadcast (Expand) brings in is the group, the rest is kv_heads. What stands end to end with heads, of the
  same width, are heads too (of a convolution beside the attention).
- vocab, positions, experts: see growc.passes.roles.indexed_axes.
- channels: see growc.passes.roles.channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from growc.algebra.space import Space, atoms_of, factors, find, leaves, segments
from growc.errors.brief import brief
from growc.ir.graph import Node, Value
from growc.ir.notation import labels, names_of
from growc.ir.traits import REPEAT
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.queries import Flow
from growc.passes.raising.heads import REPEAT_OP, weighs
from growc.passes.roles.channels import channel_spaces, counters
from growc.passes.roles.indexed_axes import experts, positions, routers, vocabularies
from growc.passes.roles.residual_streams import feed_forward, residual_sums, streams
from growc.passes.roles.submodels import Scopes, find_scopes

NAMES = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions", "experts", "channels")


@dataclass(frozen=True)
class RoleAxis:
    """One axis that bears a name: a space, or a row-major product of several."""

    __repr__ = brief

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

    __repr__ = brief

    axes: dict[str, list[RoleAxis]] = field(default_factory=dict)
    expanded: set[Space] = field(default_factory=set)
    counters: set[Space] = field(default_factory=set)
    scopes: Scopes = field(default_factory=Scopes)
    routers: frozenset[Value] = frozenset()
    """Uses of weights that score experts."""

    def groups(self) -> list[Space]:
        """What of every `heads` shares a key/value head."""
        return [s for a in self.axes.get("heads", []) for s in a.spaces if s in self.expanded]

    def sizes(self, name: str) -> list[int]:
        """The distinct sizes of a name, in order."""
        return list(dict.fromkeys(a.size for a in self.axes.get(name, [])))


def find_roles(axes: Axes) -> Roles:
    """Name the spaces of an axis graph."""
    return _Finder(axes).roles()


class _Finder(Flow):
    def roles(self) -> Roles:
        found = Roles()
        sums = residual_sums(self)
        hidden = streams(self, sums)
        attention = list(self.attention())
        found.expanded = self.expanded()
        heads = [RoleAxis(h) for h, _ in attention]
        taken = {x for h in heads for x in h.spaces}
        grouped = any(s in found.expanded for h in heads for s in h.spaces)
        heads += [] if grouped else [RoleAxis((s,)) for s in self.beside(taken)]
        found.axes["hidden"] = [RoleAxis((s,)) for s in hidden]
        found.axes["heads"] = _distinct(heads)
        kept = [tuple(s for s in h.spaces if s not in found.expanded) for h in heads]
        found.axes["kv_heads"] = _distinct([RoleAxis(k) for k in kept]) if grouped else found.axes["heads"]
        found.axes["head_dim"] = _distinct([RoleAxis(d) for _, d in attention if d])
        inside = [*(s for h in heads for s in h.spaces), *(s for _, d in attention for s in d)]
        named = set(atoms_of(inside))
        found.axes["ffn"] = [RoleAxis((s,)) for s in feed_forward(self, hidden, named)]
        found.axes["vocab"] = [RoleAxis((s,)) for s in vocabularies(self)]
        routed = experts(self, taken)
        found.axes["experts"] = [RoleAxis((s,)) for s in routed]
        found.routers = frozenset(routers(self, set(routed)))
        found.axes["positions"] = [RoleAxis((s,)) for s in positions(self, taken | set(routed))]
        channels = channel_spaces(self.axes, set(hidden), named)
        found.axes["channels"] = [RoleAxis(c) for c in channels]
        found.counters = counters(self.axes, channels)
        found.axes = {name: found.axes[name] for name in NAMES if found.axes[name]}
        found.scopes = find_scopes(self, sums)
        return found

    # ---- attention

    def attention(self) -> Iterator[tuple[tuple[Space, ...], tuple[Space, ...]]]:
        """(heads, head_dim) of every product of two activations under a softmax."""
        for instance in self.axes.instances:
            if instance.line.treatment == "attention":
                yield from self.operator(instance)
            if not weighs(instance.node):
                continue
            product = self.product_above(instance.node)
            if product is None:
                continue
            both = [set(names_of(terms)) for terms in product.line.inputs[:2]]
            shared = both[0] & both[1]
            stretched = _stretched(product)
            batch = [n for n in names_of(product.line.outputs[0]) if n in shared or n in stretched]
            inner = [find(product.spaces[n]) for n in sorted(shared - set(batch))]
            heads = tuple(x for n in batch for x in leaves(product.spaces[n]) if x in self.on_weights)
            depth = [s for s in inner if any(x in self.on_weights for x in leaves(s))]
            if heads or depth:
                yield heads, tuple(depth)
                yield heads, self.depth_of_values(instance.node)

    def beside(self, heads: Collection[Space]) -> Iterator[Space]:
        """What stands end to end with heads in front of the same factor."""
        for use in self.axes.graph.uses():
            for space in self.axes.of(use):
                several = factors(space)[:-1]
                for ends in (segments(factor) for factor in several):
                    if any(one in heads for one in ends):
                        others = (s for s in ends if s.kind == "atom" and not s.unit and s not in heads)
                        yield from (s for s in others if s in self.on_weights)

    def depth_of_values(self, softmax: Node) -> tuple[Space, ...]:
        """What a head of the values has, where the product of the probabilities with them is found."""
        below = self.product_below(softmax)
        if below is None:
            return ()
        instance, i = below
        made = set(names_of(instance.line.outputs[0]))
        ours = set(names_of(instance.line.inputs[1 - i]))
        own = [find(instance.spaces[n]) for n in names_of(instance.line.inputs[i]) if n in made - ours]
        return tuple(s for s in own if any(x in self.on_weights for x in leaves(s)))

    def operator(self, instance: Instance) -> Iterator[tuple[tuple[Space, ...], tuple[Space, ...]]]:
        """(heads, head_dim) of an attention operator."""
        terms = instance.line.inputs[0] or ()
        heads = [x for n in labels(terms[1]) for x in leaves(instance.spaces[n]) if x in self.on_weights]
        depth = find(instance.spaces["d"])
        if heads:
            yield tuple(heads), (depth,)
            yield tuple(heads), (find(instance.spaces["e"]),)

    def expanded(self) -> set[Space]:
        """Atoms that a broadcast makes and no weight but a query's bears: the groups of grouped attention."""
        found: set[Space] = set()
        for instance in self.axes.instances:
            shares = instance.line.treatment == "attention" or instance.node.op == REPEAT_OP
            if shares and "g" in instance.spaces:
                found |= set(leaves(instance.spaces["g"]))
            if instance.line.treatment == "contract" and self.weight_of(instance) is None:
                found |= {x for n in _stretched(instance) for x in leaves(instance.spaces[n])}
            if instance.node.has(REPEAT):
                before = set(names_of(instance.line.inputs[0]))
                if not any(x in self.on_weights for n in before for x in leaves(instance.spaces[n])):
                    continue
                after = names_of(instance.line.outputs[0])
                found |= {x for n in after if n not in before for x in leaves(instance.spaces[n])}
        return found - self.of_both_sides()

    def of_both_sides(self) -> set[Space]:
        """Atoms that weights make in both operands of a product: a part of a key may be broadcast too."""
        found: set[Space] = set()
        for product in self.axes.instances:
            contracts = product.line.treatment == "contract" and self.weight_of(product) is None
            if contracts or product.line.treatment == "attention":
                a, b = (self.made_above(v) for v in product.node.inputs[:2] if v is not None)
                found |= a & b
        return found

    def made_above(self, value: Value) -> set[Space]:
        """Atoms of a value that the weights next above it make, and nothing in between brings in."""
        found: set[Space] = set()
        atoms = {value: self.atoms(value)}

        def above(below: Value) -> Iterator[Value]:
            instance = self.maker(below)
            if instance is not None and instance.line.treatment != "contract":
                for v in (v for v in instance.node.operands if v not in self.static):
                    atoms.setdefault(v, atoms[below] & self.atoms(v))
                    yield v

        for below in walk([value], above):
            instance = self.maker(below)
            if instance is not None and instance.line.treatment == "contract":
                found |= atoms[below] & set(atoms_of(self.made(instance)))
        return found


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


def _distinct(axes: list[RoleAxis]) -> list[RoleAxis]:
    return list({tuple(map(find, a.spaces)): a for a in axes}.values())
