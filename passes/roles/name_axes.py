"""The names of spaces, by structure alone: hidden, heads, kv_heads, head_dim, ffn, vocab, positions, experts,
channels.

Needs: the axis graph after ties. Gives: `Roles`, for every name the axes that have it, in topological order.

- hidden, ffn: see growc.passes.roles.residual_streams.
- heads: the batch axes, also of weights, of the product under a softmax; one head where there are none.
  Segments beside heads, of the same width, are heads too (of a convolution beside the attention).
- head_dim: the axis that this product contracts, and the channels of a head of the values.
- kv_heads: the heads without the factor that only a broadcast (Expand) brings in, the group.
- vocab, positions, experts: see growc.passes.roles.indexed_axes.
- channels: see growc.passes.roles.channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import prod

from growc.algebra.space import Space, atoms_of, factors, find, segments
from growc.errors.short_repr import brief
from growc.ir.graph import Node, Value
from growc.passes.axes.infer import Axes
from growc.passes.axes.queries import AxisQueries
from growc.passes.raising.attention import Attention, find_attention
from growc.passes.roles.channels import channel_spaces, counters
from growc.passes.roles.indexed_axes import experts, positions, routers, vocabularies
from growc.passes.roles.model_parts import Scopes, find_scopes
from growc.passes.roles.residual_streams import feed_forward, gated_branches, residual_sums, streams

NAMES = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions", "experts", "channels")


@dataclass(frozen=True)
class RoleAxis:
    """One axis with a name: a space, or a row-major product of several.

    at: for heads, the node of their attention.
    """

    __repr__ = brief

    spaces: tuple[Space, ...]
    at: Node | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """The size of the axis at the first sample point (roles are static)."""
        return prod(s.size[0] for s in self.spaces)


@dataclass
class Roles:
    """The axes of each name, in topological order.

    `expanded`: atoms that only a broadcast brings in. `counters`: factors of channels that count groups.
    """

    __repr__ = brief

    axes: dict[str, list[RoleAxis]] = field(default_factory=dict)
    attention: list[Attention] = field(default_factory=list)
    expanded: set[Space] = field(default_factory=set)
    counters: set[Space] = field(default_factory=set)
    scopes: Scopes = field(default_factory=Scopes)
    routers: frozenset[Value] = frozenset()
    """Uses of weights that score experts."""

    def without_groups(self, heads: Iterable[Space]) -> tuple[Space, ...]:
        """The factors of `heads` that key/value heads have too."""
        return tuple(space for space in heads if space not in self.expanded)

    def groups(self) -> list[Space]:
        """The factors of all `heads` that count the heads sharing a key/value head."""
        return [s for a in self.axes.get("heads", []) for s in a.spaces if s in self.expanded]

    def sizes(self, name: str) -> list[int]:
        """The distinct sizes of a name, in order."""
        return list(dict.fromkeys(a.size for a in self.axes.get(name, [])))


def find_roles(axes: Axes) -> Roles:
    """Name the spaces of an axis graph."""
    return _AxisNamer(axes).roles()


class _AxisNamer(AxisQueries):
    def roles(self) -> Roles:
        roles = Roles()
        sums = residual_sums(self)
        hidden = streams(self, sums)
        roles.attention = find_attention(self)
        own = {x for a in roles.attention for x in a.own}
        roles.expanded = {x for a in roles.attention for x in a.heads if x not in own}
        heads = [RoleAxis(a.heads, a.node) for a in roles.attention]
        heads += [RoleAxis((s,), a.node) for a in roles.attention for s in a.mixed]
        depths = [depth for a in roles.attention for depth in a.depths if depth]
        head_atoms = {x for h in heads for x in h.spaces}
        grouped = any(s in roles.expanded for h in heads for s in h.spaces)
        heads += [] if grouped else [RoleAxis((s,)) for s in self.beside(head_atoms)]
        roles.axes["hidden"] = [RoleAxis((s,)) for s in hidden]
        roles.axes["heads"] = _distinct(heads)
        without_groups = [RoleAxis(roles.without_groups(h.spaces), h.at) for h in heads]
        roles.axes["kv_heads"] = _distinct(without_groups) if grouped else roles.axes["heads"]
        roles.axes["head_dim"] = _distinct(list(map(RoleAxis, depths)))
        head_spaces = [*(s for h in heads for s in h.spaces), *(s for d in depths for s in d)]
        named = set(atoms_of(head_spaces))
        branches = gated_branches(self, sums)
        roles.axes["ffn"] = [RoleAxis((s,)) for s in feed_forward(self, hidden, named, branches)]
        roles.axes["vocab"] = [RoleAxis((s,)) for s in vocabularies(self)]
        expert_spaces = experts(self, head_atoms)
        roles.axes["experts"] = [RoleAxis((s,)) for s in expert_spaces]
        roles.routers = frozenset(routers(self, set(expert_spaces)))
        roles.axes["positions"] = [RoleAxis((s,)) for s in positions(self, head_atoms | set(expert_spaces))]
        named_apart = named - set(atoms_of(hidden))  # channels of a head may be a part of the stream
        channels = channel_spaces(self.axes, set(hidden), named_apart)
        roles.axes["channels"] = [RoleAxis(c) for c in channels]
        roles.counters = counters(self.axes, channels)
        roles.axes = {name: roles.axes[name] for name in NAMES if roles.axes[name]}
        roles.scopes = find_scopes(self, sums)
        return roles

    def beside(self, heads: Collection[Space]) -> Iterator[Space]:
        """Yield the other segments of a sum of which one is heads, in front of the same factor."""
        for use in self.axes.graph.uses():
            for space in self.axes.of(use):
                several = factors(space)[:-1]
                for ends in (segments(factor) for factor in several):
                    if any(one in heads for one in ends):
                        others = (s for s in ends if s.kind == "atom" and not s.unit and s not in heads)
                        yield from (s for s in others if s in self.on_weights)


def _distinct(axes: list[RoleAxis]) -> list[RoleAxis]:
    return list({tuple(map(find, a.spaces)): a for a in axes}.values())
