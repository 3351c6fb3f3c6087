"""Renumbering of table rows when a table keeps some of its rows or gets more.

Needs: the axis graph, and the map of every space. Gives: for each model input that picks rows of a table, if
other rows than the first stay, the old number of every new row. For each look-up by constants: the new
constants. Raises GrowError (G313) for numbers that would silently mean other units: numbers with other uses,
numbers that are not plain inputs, and constants of dropped units.

Also gives the atoms along which the model computes numbers of its own, which no weight of the result can
follow. Such numbers belong to places. A map may drop units at the end or append new ones, but not move them.
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
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.queries import THROUGH


def renumbered(axes: Axes, maps: Mapping[Space, IndexMap]) -> dict[str, Ints]:
    """The old numbers, by input. `maps`: the map of each space that changed.

    Raises GrowError (G313) if an input gives numbers of units that are new.
    """
    by_node = {i.node: i for i in axes.instances}
    old_numbers: dict[str, Ints] = {}
    for instance in axes.instances:
        for _, space in addressed(axes, instance):
            row_map = mapped(space, maps)
            if row_map is None or _same_numbers(row_map):
                continue
            for index in instance.node.inputs[1:]:
                source = None if index is None or index.known is not None else _input(axes, index, by_node)
                if source is not None and source.weight is None:
                    if row_map.junk.any() or row_map.size > row_map.source:
                        raise _refused(instance.node, f"takes their numbers from `{source.name}`", "")
                    _only_looks_up(axes, source, find(space), by_node)
                    old_numbers[source.name] = row_map.index
    return old_numbers


def _same_numbers(kept: IndexMap) -> bool:
    """Whether the remaining units keep their numbers, so that units were only added or dropped at the end."""
    first = kept.index[: kept.source]
    return bool((first == np.arange(len(first))).all())


def mapped(space: Space, maps: Mapping[Space, IndexMap]) -> IndexMap | None:
    """The map of a whole axis, from those of its atoms; None if no atom was mapped."""
    atoms = list(leaves(space))
    if not any(a in maps for a in atoms):
        return None
    return assemble(space, [maps.get(a, IndexMap.identity(a.size[0])) for a in atoms])


def constants(axes: Axes, maps: Mapping[Space, IndexMap]) -> dict[Node, tuple[int, ...]]:
    """The new constants of look-ups whose constants change: the numbered units have other numbers, or the
    constants count from an end that moves. Raises GrowError (G313) if a number is of a unit that is gone, or
    the constant cannot be rewritten.
    """
    new_constants: dict[Node, tuple[int, ...]] = {}
    for instance in axes.instances:
        for axis, space in addressed(axes, instance):
            axis_map = mapped(space, maps)
            numbers = None if axis_map is None else _constant(instance.node, axis)
            if axis_map is None or numbers is None:
                continue
            places = {int(u): k for k, u in reversed(list(enumerate(axis_map.index))) if u >= 0}
            new_numbers = [places.get(int(n) % axis_map.source, -1) for n in numbers.reshape(-1)]
            if new_numbers == numbers.reshape(-1).tolist():
                continue
            only_axis = len(list(addressed(axes, instance))) == 1
            if -1 in new_numbers or numbers.size > MAX_PATCHED or not only_axis:
                still_there = (
                    numbers % axis_map.source < axis_map.size
                ).all() and axis_map.size < axis_map.source
                raise _refused(instance.node, "numbers them by constants", FIRST if still_there else "")
            new_constants[instance.node] = tuple(new_numbers)
    return new_constants


FIRST = "`by first` keeps the numbers as they are"

MAX_PATCHED = 512
"""The largest number of elements of a constant that is rewritten."""


def _constant(node: Node, axis: int) -> Array | None:
    """The numbers by which a look-up reads an axis, if they are stored."""
    address = next((entry for entry in node.addresses if entry.axis == axis and not entry.result), None)
    index = None if address is None else node.inputs[address.operand]
    if address is None or index is None:
        return None
    weight = index.unmoved.weight
    if index.known is not None and all(np.array_equal(k, index.known[0]) for k in index.known):
        numbers = index.known[0]
    elif weight is not None:
        numbers = np.asarray(weight.read())
    else:
        return None
    return numbers if address.column is None else numbers[..., address.column]


def addressed(axes: Axes, instance: LineInstance) -> Iterator[tuple[int, Space]]:
    """The axes of tables that a look-up numbers, with their spaces."""
    if instance.line.treatment == "lookup":
        yield from ((axis, axes.of(table)[axis]) for i, table, axis in instance.numbered() if i == 0)


def _moves(node: Node, by_node: Mapping[Node, LineInstance]) -> bool:
    """Whether a node passes the numbers of its first operand on unchanged."""
    return node.has(*THROUGH) or (node in by_node and by_node[node].line.treatment == "layout")


def _input(axes: Axes, value: Value, by_node: Mapping[Node, LineInstance]) -> Value:
    """The model input that numbers come from."""
    source = backward(value, lambda node: _moves(node, by_node))
    if source.producer is not None:
        raise _refused(source.producer, "computes them")
    return source


def _only_looks_up(axes: Axes, source: Value, space: Space, by_node: Mapping[Node, LineInstance]) -> None:
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
    """Atoms along which a computed value (known, but no weight) differs from unit to unit, with the node that
    reads it.
    """
    reasons: dict[Space, Reason] = {}
    for instance in axes.instances:
        for value in instance.node.inputs:
            if value is None or value.known is None or value.weight is not None or _addresses(value):
                continue
            for axis, space in enumerate(axes.of(value)):
                if _differs(value, axis):
                    reason = Reason(instance.node, "numbers are computed that differ along it")
                    reasons.update((x, reason) for x in leaves(space) if x.static and x not in reasons)
    return reasons


GRIDS = (SAME, VIEW, REPEAT, JOIN, SUM)
"""Traits of the operators by which an exporter makes the addresses of an assignment."""


def _addresses(value: Value) -> bool:
    """Whether numbers only say where something is written. The mending pass accounts for those."""
    return bool(value.users) and all(
        node.has(SIZES)
        or (
            node.has(WRITE)
            and any(address.operand == i and address.column is not None for address in node.addresses)
        )
        or (node.has(*GRIDS) and all(map(_addresses, node.outputs)))
        for node, i in value.users
    )


def _differs(value: Value, axis: int) -> bool:
    """Whether elements along an axis differ from each other."""
    arrays = [k for k in value.known or () if k.ndim > axis and k.shape[axis] > 1]
    return any((k != k.take([0], axis)).any() for k in arrays)
