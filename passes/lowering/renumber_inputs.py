"""Numbers that mean other units when a table keeps some of its rows, or gets more.

Needs: the axis graph, and what became of every space. Gives: for each model input that picks rows of a table
of which not just the first stay, the old number of every new one; for each look-up by constants, the numbers
that these become. Raises GrowError (G313) where an input's numbers are used for anything else, where they
come from anything but an input, and where constants number units that go: there they would silently mean
other units.

And for atoms, which numbers of its own the model computes along them: no weight of the result can follow
these. They are of places: a map may leave units away at the end, or put new ones behind them, but not move
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from growc.algebra.indexmap import Array, IndexMap, Ints
from growc.algebra.space import Reason, Space, find, leaves
from growc.algebra.whole_axis import assemble
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Node, Value, backward
from growc.ir.traits import JOIN, REPEAT, SAME, SIZES, SUM, VIEW, WRITE
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.queries import THROUGH


def renumbered(axes: Axes, made: Mapping[Space, IndexMap]) -> dict[str, Ints]:
    """The old numbers, by input. `made`: what spaces were mapped to."""
    by_node = {i.node: i for i in axes.instances}
    found: dict[str, Ints] = {}
    for instance in axes.instances:
        for _, space in addressed(axes, instance):
            kept = mapped(space, made)
            if kept is None or _same_numbers(kept):
                continue
            for index in instance.node.inputs[1:]:
                source = None if index is None or index.known is not None else _input(axes, index, by_node)
                if source is not None and source.weight is None:
                    if kept.junk.any() or kept.size > kept.source:
                        raise _refused(instance.node, f"takes their numbers from `{source.name}`", "")
                    _only_looks_up(axes, source, find(space), by_node)
                    found[source.name] = kept.index
    return found


def _same_numbers(kept: IndexMap) -> bool:
    """Whether the units that stay have the numbers that they had: others came behind them, or went there."""
    first = kept.index[: kept.source]
    return bool((first == np.arange(len(first))).all())


def mapped(space: Space, made: Mapping[Space, IndexMap]) -> IndexMap | None:
    """What a whole axis was mapped to, by what its atoms were; None where none was."""
    atoms = list(leaves(space))
    if not any(a in made for a in atoms):
        return None
    return assemble(space, [made.get(a, IndexMap.identity(a.size[0])) for a in atoms])


def constants(axes: Axes, made: Mapping[Space, IndexMap]) -> dict[Node, tuple[int, ...]]:
    """What the constants of look-ups become, where they change: the units that they number have other
    numbers, or they count from an end that moves.
    """
    found: dict[Node, tuple[int, ...]] = {}
    for instance in axes.instances:
        for axis, space in addressed(axes, instance):
            whole = mapped(space, made)
            numbers = None if whole is None else _constant(instance.node, axis)
            if whole is None or numbers is None:
                continue
            places = {int(u): k for k, u in reversed(list(enumerate(whole.index))) if u >= 0}
            wanted = [places.get(int(n) % whole.source, -1) for n in numbers.reshape(-1)]
            if wanted == numbers.reshape(-1).tolist():
                continue
            alone = len(list(addressed(axes, instance))) == 1
            if -1 in wanted or numbers.size > MAX_PATCHED or not alone:
                stay = (numbers % whole.source < whole.size).all() and whole.size < whole.source
                raise _refused(instance.node, "numbers them by constants", FIRST if stay else "")
            found[instance.node] = tuple(wanted)
    return found


FIRST = "`by first` keeps the numbers as they are"

MAX_PATCHED = 512
"""Constants of more numbers are not written anew."""


def _constant(node: Node, axis: int) -> Array | None:
    """The numbers that a look-up takes of an axis, where they are stored."""
    address = next((one for one in node.addresses if one.axis == axis and not one.result), None)
    index = None if address is None else node.inputs[address.operand]
    if address is None or index is None:
        return None
    weight = index.unmoved.weight
    if index.known is not None and all(np.array_equal(k, index.known[0]) for k in index.known):
        found = index.known[0]
    elif weight is not None:
        found = np.asarray(weight.read())
    else:
        return None
    return found if address.column is None else found[..., address.column]


def addressed(axes: Axes, instance: Instance) -> Iterator[tuple[int, Space]]:
    """The axes of tables that a look-up numbers, by their places and spaces."""
    if instance.line.treatment == "lookup":
        yield from ((axis, axes.of(table)[axis]) for i, table, axis in instance.numbered() if i == 0)


def _moves(node: Node, by_node: Mapping[Node, Instance]) -> bool:
    """Whether a node passes the numbers of its first operand on as they are."""
    return node.has(*THROUGH) or (node in by_node and by_node[node].line.treatment == "layout")


def _input(axes: Axes, value: Value, by_node: Mapping[Node, Instance]) -> Value:
    """The model input that numbers come from."""
    source = backward(value, lambda node: _moves(node, by_node))
    if source.producer is not None:
        raise _refused(source.producer, "computes them")
    return source


def _only_looks_up(axes: Axes, source: Value, space: Space, by_node: Mapping[Node, Instance]) -> None:
    def looks_up(node: Node, operand: int) -> bool:
        instance = by_node.get(node)
        rows = [] if instance is None else [find(s) for _, s in addressed(axes, instance)]
        return node.has(SIZES) or (operand > 0 and rows == [space])

    def further(user: tuple[Node, int]) -> Iterator[tuple[Node, int]]:
        if not looks_up(*user):
            yield from (after for out in user[0].outputs for after in out.users)

    for node, operand in walk(source.users, further):
        if not looks_up(node, operand) and (operand > 0 or not _moves(node, by_node)):
            raise _refused(node, "uses them as well")


def _refused(node: Node, what: str, remedy: str = FIRST) -> GrowError:
    message = f"these units cannot get other numbers: `{node.name or node.kind}` {what}"
    return GrowError(Diagnostic("G313", message, help=remedy))


# --------------------------------------------------------------------------------- computed numbers


def computed_along(axes: Axes) -> dict[Space, Reason]:
    """For every atom that a known value which is no weight tells units of apart, where that is."""
    found: dict[Space, Reason] = {}
    for instance in axes.instances:
        for value in instance.node.inputs:
            if value is None or value.known is None or value.weight is not None or _addresses(value):
                continue
            for axis, space in enumerate(axes.of(value)):
                if _differs(value, axis):
                    reason = Reason(instance.node, "numbers are computed that differ along it")
                    found.update((x, reason) for x in leaves(space) if x.static and x not in found)
    return found


GRIDS = (SAME, VIEW, REPEAT, JOIN, SUM)
"""Traits of what an exporter makes the addresses of an assignment with."""


def _addresses(value: Value) -> bool:
    """Whether numbers say nothing but where something is written: mending accounts for those."""
    return bool(value.users) and all(
        node.has(SIZES)
        or (node.has(WRITE) and any(one.operand == i and one.column is not None for one in node.addresses))
        or (node.has(*GRIDS) and all(map(_addresses, node.outputs)))
        for node, i in value.users
    )


def _differs(value: Value, axis: int) -> bool:
    """Whether the elements along an axis are not all alike."""
    known = [k for k in value.known or () if k.ndim > axis and k.shape[axis] > 1]
    return any((k != k.take([0], axis)).any() for k in known)
