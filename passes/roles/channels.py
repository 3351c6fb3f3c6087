"""The channels of convolutions.

Needs: the axis graph. Gives: every space that is a channel axis of a convolution, as its factors, and which
of these count groups.

A space that the model's inputs or outputs have is not channels. Nor is a stream that no convolution reads (a
patch embedding makes it). Grouped convolutions and group norms keep their number of groups. The channels of
a depthwise convolution are those of its input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from growc.algebra.space import Space, atoms_of, factors, find, leaves, segments
from growc.ir.notation import names_of
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.solving.treatments import REDUCTIONS

Factors = tuple[Space, ...]


def channel_spaces(axes: Axes, streams: Collection[Space], named: Collection[Space]) -> list[Factors]:
    """Every channel space, in topological order.

    `streams`: residual streams. `named`: atoms with another name.
    """
    channels: dict[Factors, None] = {}
    read_spaces = {find(s) for i in _convolutions(axes) for s in _segments(axes, i, 0)}
    for instance in _convolutions(axes):
        for side in (0, 1):
            for space in _segments(axes, instance, side):
                unread_stream = space in streams and space not in read_spaces
                if unread_stream or space.unit or any(x in named or _outside(x) for x in leaves(space)):
                    continue
                channels[tuple(factors(space))] = None
    return list(channels)


def counters(axes: Axes, channels: Sequence[Factors]) -> set[Space]:
    """The factors of channels that count groups, or the results of each channel.

    Where a statistic runs over one factor, the factor beside it counts groups. A statistic over groups is an
    exception.
    """
    counting: set[Space] = set()
    for instance in _convolutions(axes):
        spaces = instance.spaces
        if "i" in spaces and "g" in spaces:
            counting |= set(leaves(spaces["g"]))
        elif "o" in spaces and "g" in spaces:
            counting |= set(leaves(spaces["o"]))
    groups = frozenset(counting)
    for instance in axes.instances:
        inside, left_alone = _normalised(axes, instance)
        for parts in channels:
            own = set(atoms_of(parts))
            if own & inside - groups:
                counting |= own & left_alone - inside
    return counting


def _convolutions(axes: Axes) -> Iterator[LineInstance]:
    return (i for i in axes.instances if i.line.slides)


def _segments(axes: Axes, instance: LineInstance, side: int) -> Iterator[Space]:
    """Yield the segments of the channel axis of a convolution's input (0) or result (1)."""
    value = instance.node.inputs[0] if side == 0 else instance.node.outputs[0]
    assert value is not None
    if len(axes.of(value)) > 1:
        yield from map(find, segments(axes.of(value)[1]))


def _outside(space: Space) -> bool:
    """Whether an axis of the model's inputs or outputs has the space."""
    return any(reason is not None and reason.node is None for reason in (space.frozen, space.addressed))


def _normalised(axes: Axes, instance: LineInstance) -> tuple[set[Space], set[Space]]:
    """The atoms of the axes that a statistic runs over, and those of the axes that it leaves alone."""
    value, line = instance.node.input(0), instance.line
    if value is None or not (line.over or line.treatment in REDUCTIONS):
        return set(), set()
    named = set(names_of(line.inputs[0]))
    kept = set(names_of(line.outputs[0])) - set(line.over)
    spaces = instance.spaces
    reduced, untouched = (set(atoms_of(spaces[n] for n in names)) for names in (named - kept, named & kept))
    return reduced, untouched
