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

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from growc.algebra.space import Space, atoms_of, factors, find, segments
from growc.errors.brief import brief
from growc.ir.graph import Node, Value
from growc.passes.axes.infer import Axes
from growc.passes.axes.queries import Flow
from growc.passes.raising.attention import Attention, find_attention
from growc.passes.roles.channels import channel_spaces, counters
from growc.passes.roles.indexed_axes import experts, positions, routers, vocabularies
from growc.passes.roles.residual_streams import feed_forward, gated_branches, residual_sums, streams
from growc.passes.roles.submodels import Scopes, find_scopes

NAMES = ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions", "experts", "channels")


@dataclass(frozen=True)
class RoleAxis:
    """One axis that bears a name: a space, or a row-major product of several. at: the attention whose heads
    they are.
    """

    __repr__ = brief

    spaces: tuple[Space, ...]
    at: Node | None = field(default=None, compare=False)

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
    attention: list[Attention] = field(default_factory=list)
    expanded: set[Space] = field(default_factory=set)
    counters: set[Space] = field(default_factory=set)
    scopes: Scopes = field(default_factory=Scopes)
    routers: frozenset[Value] = frozenset()
    """Uses of weights that score experts."""

    def without_groups(self, heads: Iterable[Space]) -> tuple[Space, ...]:
        """Of the factors of `heads` those that key/value heads have too."""
        return tuple(space for space in heads if space not in self.expanded)

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
        found.attention = find_attention(self)
        own = {x for a in found.attention for x in a.own}
        found.expanded = {x for a in found.attention for x in a.heads if x not in own}
        heads = [RoleAxis(a.heads, a.node) for a in found.attention]
        heads += [RoleAxis((s,), a.node) for a in found.attention for s in a.mixed]
        depths = [depth for a in found.attention for depth in a.depths if depth]
        taken = {x for h in heads for x in h.spaces}
        grouped = any(s in found.expanded for h in heads for s in h.spaces)
        heads += [] if grouped else [RoleAxis((s,)) for s in self.beside(taken)]
        found.axes["hidden"] = [RoleAxis((s,)) for s in hidden]
        found.axes["heads"] = _distinct(heads)
        kept = [RoleAxis(found.without_groups(h.spaces), h.at) for h in heads]
        found.axes["kv_heads"] = _distinct(kept) if grouped else found.axes["heads"]
        found.axes["head_dim"] = _distinct(list(map(RoleAxis, depths)))
        inside = [*(s for h in heads for s in h.spaces), *(s for d in depths for s in d)]
        named = set(atoms_of(inside))
        branches = gated_branches(self, sums)
        found.axes["ffn"] = [RoleAxis((s,)) for s in feed_forward(self, hidden, named, branches)]
        found.axes["vocab"] = [RoleAxis((s,)) for s in vocabularies(self)]
        routed = experts(self, taken)
        found.axes["experts"] = [RoleAxis((s,)) for s in routed]
        found.routers = frozenset(routers(self, set(routed)))
        found.axes["positions"] = [RoleAxis((s,)) for s in positions(self, taken | set(routed))]
        apart = named - set(atoms_of(hidden))  # what a head has may be a part of the stream
        channels = channel_spaces(self.axes, set(hidden), apart)
        found.axes["channels"] = [RoleAxis(c) for c in channels]
        found.counters = counters(self.axes, channels)
        found.axes = {name: found.axes[name] for name in NAMES if found.axes[name]}
        found.scopes = find_scopes(self, sums)
        return found

    def beside(self, heads: Collection[Space]) -> Iterator[Space]:
        """What stands end to end with heads in front of the same factor."""
        for use in self.axes.graph.uses():
            for space in self.axes.of(use):
                several = factors(space)[:-1]
                for ends in (segments(factor) for factor in several):
                    if any(one in heads for one in ends):
                        others = (s for s in ends if s.kind == "atom" and not s.unit and s not in heads)
                        yield from (s for s in others if s in self.on_weights)


def _distinct(axes: list[RoleAxis]) -> list[RoleAxis]:
    return list({tuple(map(find, a.spaces)): a for a in axes}.values())
