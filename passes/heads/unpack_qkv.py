"""Packed projections that make queries, keys and values head by head, and the cuts that would separate them.

Needs: the axis graph, its roles, the statements. Gives: `Packed`. Where the channels of a projection are
(queries keys values) of each head, or are cut on an axis of three, the heads of all three are one axis. Then
keys cannot have fewer. The same rows in the order queries, keys, values can be cut into parts of any size.
Channel numbers that are moved as the graph moves channels tell the row of each element of a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from growc.algebra.indexmap import Ints
from growc.algebra.space import find
from growc.ir.graph import Node, Value, makers
from growc.ir.traits import SIZES, TURN, VIEW
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes
from growc.passes.axes.queries import AxisQueries
from growc.passes.dataflow.trace_elements import moved
from growc.passes.edits import Packed, PackedPart
from growc.passes.raising.attention import Attention, shared_projection
from growc.passes.roles.name_axes import Roles


def packed_heads(axes: Axes, roles: Roles) -> list[Packed]:
    """Every attention whose parts must be separated before key/value heads can be averaged."""
    flow = AxisQueries(axes)
    packings = (_packed(flow, attention) for attention in roles.attention if attention.heads)
    return [one for one in packings if one is not None]


def _packed(flow: AxisQueries, attention: Attention) -> Packed | None:
    """The packing of the projection that makes queries, keys and values, in an order that ties their heads.

    None where there is no such projection.
    """
    places, projection = shared_projection(flow, attention)
    if projection is None or len(places) < len(attention.operands):
        return None
    above = [ancestors(instance.node.inputs[i]) for instance, i in attention.operands]
    return _Cone(flow, projection.node.outputs[0], above).packed()


def ancestors(value: Value | None) -> set[Value]:
    """A value, and all values that its elements are made of."""

    def unknown(values: Iterable[Value | None]) -> Iterator[Value]:
        yield from (v for v in values if v is not None and v.known is None)

    return set(walk(unknown([value]), lambda one: unknown(one.producer.operands if one.producer else ())))


class _Cone:
    """The values that are made of a projection by moving its channels.

    `numbers`: for each value, the number of the element of the projection at every place.
    """

    def __init__(self, flow: AxisQueries, result: Value, above: Sequence[set[Value]]) -> None:
        self.flow, self.above, self.top = flow, above, _biased(flow, result)
        sizes = self.top.sizes or ()
        self.point = int(np.argmax(np.prod(np.array(sizes), axis=0))) if sizes else 0
        shape = [s[self.point] for s in sizes]
        self.width = shape[-1] if shape else 1
        self.numbers: dict[Value, Ints] = {self.top: np.arange(int(np.prod(shape))).reshape(shape)}
        for node in flow.axes.graph.nodes:
            if node.input(0) in self.numbers:
                outputs = moved(flow.axes.graph, node, self.numbers[node.required(0)], self.point)
                self.numbers.update(zip(node.outputs, outputs, strict=False))

    def packed(self) -> Packed | None:
        """The parts; None where they cannot be found, or are cut off the whole axis already."""
        channels_of_value = {
            value: frozenset((n % self.width).reshape(-1).tolist()) for value, n in self.numbers.items()
        }
        channels_of_role = [self.reached(role, channels_of_value) for role in range(len(self.above))]
        if (
            sum(map(len, channels_of_role)) != self.width
            or len(frozenset().union(*channels_of_role)) != self.width
        ):
            return None
        cuts = [self.cuts(mine, channels_of_value) for mine in channels_of_role]
        if any(len(first_cuts) != 1 for first_cuts in cuts) or not self.alone(
            channels_of_role, channels_of_value
        ):
            return None
        values = [first_cuts[0] for first_cuts in cuts]
        whole = self.last_whole(values)
        parts = [part for value in values if (part := self.last_part(value, whole)) is not None]
        before = [self.numbers[maker.required(0)] for maker in makers(values)]
        as_they_are = all(any(n == self.width for n in numbers.shape) for numbers in before)
        uses = self.uses()
        if as_they_are or uses is None or len(parts) < len(values):
            return None
        return Packed(whole, tuple(p for p, _ in parts), tuple(rows for _, rows in parts), tuple(uses))

    def reached(self, role: int, held: dict[Value, frozenset[int]]) -> frozenset[int]:
        """The channels that reach the operand with this number (0 queries, 1 keys, 2 values)."""
        ends = [v for v in held if v in self.above[role] and self.leaves_here(v, role)]
        return frozenset().union(*(held[v] for v in ends))

    def leaves_here(self, value: Value, role: int) -> bool:
        """Whether some operator on the way does more to a value than move its elements."""
        users = [node for node, _ in value.users if any(out in self.above[role] for out in node.outputs)]
        return not users or any(out not in self.numbers for node in users for out in node.outputs)

    def cuts(self, mine: frozenset[int], held: dict[Value, frozenset[int]]) -> list[Value]:
        """The first values on the way that have only channels of one part."""
        moved_values = [(v, v.producer) for v in held if v is not self.top and held[v] <= mine]
        return [v for v, node in moved_values if node is not None and not held[node.required(0)] <= mine]

    def alone(self, own: Sequence[frozenset[int]], held: dict[Value, frozenset[int]]) -> bool:
        """Whether values with channels of several parts are only moved."""
        outputs = set(self.flow.axes.graph.outputs)
        mixed = [v for v, channels in held.items() if not any(channels <= mine for mine in own)]
        users = (node for v in mixed for node, _ in v.users if not node.has(SIZES))
        return outputs.isdisjoint(mixed) and all(out in held for node in users for out in node.outputs)

    def last_whole(self, cuts: Sequence[Value]) -> Value:
        """The last value in front of all parts whose last axis is that of all channels, in their order."""
        common = set.intersection(*(ancestors(v) for v in cuts))
        rows = np.arange(self.width)
        whole = [
            v
            for v, numbers in self.numbers.items()
            if v in common and numbers.shape[-1:] == rows.shape and (numbers % self.width == rows).all()
        ]
        return whole[-1]

    def last_part(self, value: Value, whole: Value) -> tuple[PackedPart, Ints] | None:
        """The layout and rows of the last value on the way that is only moved."""
        part, following = self.part(value, whole), _only_user(value)
        is_output = value in self.flow.axes.graph.outputs
        if is_output or following is None or following.outputs[0] not in self.numbers:
            return part
        return self.last_part(following.outputs[0], whole) or part

    def part(self, value: Value, whole: Value) -> tuple[PackedPart, Ints] | None:
        """The layout of a part, and its rows.

        None where its axes are not the axes of the whole and factors of its rows.
        """
        lead = self.numbers[whole].shape[:-1]
        place = np.argsort(self.numbers[whole].reshape(-1))[self.numbers[value]]
        coordinates = [*np.unravel_index(place // self.width, lead), place % self.width] if lead else [place]
        order: list[int] = []
        sizes: list[int] = []
        for axis, size in enumerate(value.sizes or ()):
            along = [c for c, coordinate in enumerate(coordinates) if _varies(coordinate, axis)]
            same_size = [c for c, n in enumerate((whole.sizes or ())[:-1]) if n == size and c not in order]
            front = [c for c in same_size if c in along or (not along and lead[c] == 1)]
            if len(along) > 1 or (not front and len(set(size)) > 1):
                return None
            order.append(front[0] if front else len(lead) + len(sizes))
            sizes += [] if front else [size[0]]
        shape = *lead, *sizes
        if sorted(order) != list(range(len(shape))) or place.size != np.prod(shape):
            return None
        straight = np.transpose(np.arange(place.size).reshape(shape), order)
        rows = place.reshape(-1)[np.argsort(straight.reshape(-1))][: int(np.prod(sizes))] % self.width
        whole_rows = np.arange(place.size // len(rows))[:, None] * self.width + rows
        same = (np.transpose(whole_rows.reshape(shape), order) == place).all()
        return (PackedPart(value, tuple(sizes), tuple(order)), rows) if same else None

    def uses(self) -> list[tuple[Value, int]] | None:
        """The weights that make the channels, each with their axis; None where others have or read them."""
        axes, space = self.flow.axes, find(self.flow.axes.of(self.top)[-1])
        bears = {v for v, spaces in axes.spaces.items() if any(find(s) is space for s in spaces)}
        uses = []
        for use in axes.graph.uses():
            matching_axes = [k for k, s in enumerate(axes.of(use)) if find(s) is space]
            if len(matching_axes) > 1 or (
                matching_axes and (use.weight is None or use.weight.stored is not None)
            ):
                return None
            uses += [(use, matching_axes[0])] if matching_axes else []
        users = [node for v in bears if v not in self.numbers for node, _ in v.users]
        inside = all(out in bears for node in users if not node.has(SIZES) for out in node.outputs)
        at_the_boundary = bears & {*axes.graph.outputs, *axes.graph.inputs}
        return uses if inside and not at_the_boundary else None


def _only_user(value: Value) -> Node | None:
    """The only operator that uses a value and its sizes, if it has one result; else None."""

    def counts(node: Node) -> bool:
        return all(out.known is not None for out in node.outputs)

    def behind(node: Node) -> Iterator[Node]:
        yield from (user for out in node.outputs if counts(node) for user, _ in out.users)

    users = {node for node, _ in value.users if not node.has(SIZES)}
    users |= {n for n in walk((n for n, _ in value.users if n.has(SIZES)), behind) if not counts(n)}
    return next(iter(users)) if len(users) == 1 and len(next(iter(users)).outputs) == 1 else None


def _varies(numbers: Ints, axis: int) -> bool:
    """Whether numbers differ along an axis."""
    return bool((numbers != np.take(numbers, [0], axis=axis)).any())


def _biased(flow: AxisQueries, value: Value) -> Value:
    """The last value behind a product through elementwise operators with numbers of the model."""
    while len(value.users) == 1:
        [(node, _)] = value.users
        others = [v for v in node.operands if v is not value]
        keeps_shape = len(node.outputs) == 1 and node.outputs[0].sizes == value.sizes
        if not keeps_shape or node.has(VIEW, TURN) or not others or not all(v in flow.static for v in others):
            break
        value = node.outputs[0]
    return value
