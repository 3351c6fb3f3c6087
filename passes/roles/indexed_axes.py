"""Axes whose units are taken by number: vocab, positions, experts.

Needs: the flow of an axis graph. Gives: the spaces of these names.

- vocab: the rows of a table that a model input looks up, and an output of that size. If several tables make
  one space, directly or through a weight, only the largest counts.
- positions: the rows of a table of units that a weight reads, looked up or cut by computed numbers.
- experts: the axis of a stack of matrices from which the numbers of a ranking choose, and the axis of the
  ranked scores. Or the axis of a stack that is used as a whole, if a weight makes that axis. Or the axis of
  scores whose units are taken one by one, each for a network of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from growc.algebra.space import Space, find, leaves, segments
from growc.ir.graph import Node, Value, backward
from growc.ir.notation import Term, is_whole, labels, names_of
from growc.ir.traits import RANK, REPEAT, SAME, SIZES, TAKE, TURN, VIEW
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.queries import AxisQueries
from growc.passes.axes.routing import ROUTED

TAKING = (SAME, VIEW, TURN, REPEAT, TAKE)
"""Traits of operators whose results hold only elements of their first operand."""


def vocabularies(flow: AxisQueries) -> list[Space]:
    """The spaces of which model inputs hold unit numbers."""
    tables: dict[tuple[Space, ...], list[Space]] = defaultdict(list)
    for index, table, axis in _lookups(flow):
        if _given(index):
            spaces = flow.axes.of(table)
            beside = (find(s) for k, s in enumerate(spaces) if k != axis)
            tables[tuple(beside)].append(find(spaces[axis]))
    largest = {units: max(s.size for s in rows) for units, rows in tables.items()}
    above = {units: _made_of(flow, units, largest) for units in tables}
    vocab_spaces = [
        s
        for units, rows in tables.items()
        for s in rows
        if s.size == max([largest[units], *(largest[other] for other in above[units])])
    ]
    sizes = {s.size for s in vocab_spaces}
    for value in flow.axes.graph.outputs:
        vocab_spaces += [find(s) for s in flow.axes.of(value)[-1:] if find(s).size in sizes]
    return list(dict.fromkeys(vocab_spaces))


def _made_of(
    flow: AxisQueries, units: Collection[Space], tables: Iterable[tuple[Space, ...]]
) -> list[tuple[Space, ...]]:
    """The tables, named by their units, from whose units a weight makes `units`."""
    read = {
        x for m in flow.maps if any(s in units for s in flow.made(m)) for s in flow.read(m) for x in leaves(s)
    }
    return [other for other in tables if other != units and not read.isdisjoint(other)]


def positions(flow: AxisQueries, taken: Collection[Space]) -> list[Space]:
    """The positions for which a model has a stored table, learned or constant.

    `taken`: atoms with another name.
    """
    read_spaces = {s for m in flow.maps for s in flow.read(m) if not any(x in taken for x in leaves(s))}
    position_spaces: list[Space] = []
    for index, table, axis in _lookups(flow):
        spaces = flow.axes.of(table)
        computed = not _given(index) and not _all_equal(index)
        if computed and any(find(s) in read_spaces for s in spaces):
            position_spaces.append(find(spaces[axis]))
    for instance in flow.axes.instances:
        value = instance.node.input(0)
        cut = value in flow.static and any(one.end for one in instance.node.addresses)
        if cut and value is not None and any(find(s) in read_spaces for s in flow.axes.of(value)):
            position_spaces += _of_first(flow, instance, lambda term: term == "#")
    return [s for s in dict.fromkeys(position_spaces) if s.kind == "atom" and not s.unit and s not in taken]


def experts(flow: AxisQueries, taken: Collection[Space]) -> list[Space]:
    """The spaces of experts, from which routers choose. `taken`: the atoms of heads."""
    spaces: dict[Space, None] = {}
    lookups = [
        i for i in flow.axes.instances if i.line.treatment == "lookup" and i.node.inputs[0] in flow.static
    ]
    chosen = set(flow.chosen.values())
    for lookup in sorted(lookups, key=lambda i: i not in chosen):  # vectors after the matrices: their biases
        scores = [s for v in lookup.node.inputs[1:] if v is not None for s in _ranked(flow, v)]
        if lookup in chosen or any(s in spaces for s in scores):
            numbered = _of_first(flow, lookup, lambda term: term in ("#", ROUTED)) if scores else ()
            spaces.update(dict.fromkeys([*scores, *numbered]))
    routed = {s for m in flow.maps for s in flow.made(m)} - set(taken)
    for instance in flow.maps:
        spaces.update(dict.fromkeys(s for s in _stacked(flow, instance) if s in routed))
    listed = (find(flow.axes.of(e.whole)[e.axis]) for e in flow.axes.experts)
    spaces.update(dict.fromkeys(s for s in listed if s in routed))
    return [s for s in spaces if s.kind == "atom" or all(x.unit for x in segments(s))]


def spelling_of_experts(axes: Axes, spaces: Collection[Space], looped: Collection[int]) -> str:
    """The storage of the networks along an axis, in words: in a stack, one by one, or in a loop.

    `looped`: the numbers of iterations of loops whose body was captured once for each.
    """

    def lies_on(value: Value, axis: int) -> bool:
        return any(find(axes.of(value)[axis]) is find(space) for space in spaces)

    if any(lies_on(one.whole, one.axis) for one in axes.experts):
        return "looped over" if any(find(s).size[0] in looped for s in spaces) else "listed one by one"
    inner = (i for i in axes.instances if not axes.graph.dialect.outermost(i.node))
    chosen = ((v, k) for i in inner if i.line.treatment == "lookup" for v, k, _ in i.reads())
    return "looped over" if any(lies_on(*place) for place in chosen) else "stacked"


def routers(flow: AxisQueries, routed: Collection[Space]) -> set[Value]:
    """The uses of weights that score experts. `routed`: the spaces of experts."""
    ranked = set(routed)
    for instance in flow.axes.instances:
        if instance.node.has(RANK) and any(out.users for out in instance.node.outputs):
            ranked |= {s for out in instance.node.outputs for s in _ranked(flow, out)}
    uses = set()
    for product in flow.maps:
        batch = set(_stacked(flow, product))
        if any(s in ranked and s not in batch for s in flow.made(product)):
            uses.add(backward(product.node.required(flow.weight_of(product) or 0), lambda node: True))
    return uses


def _of_first(flow: AxisQueries, instance: LineInstance, chosen: Callable[[Term], bool]) -> Iterator[Space]:
    """Yield the axes of the first operand whose terms satisfy `chosen`."""
    places = ((v, axis) for i, v, axis, term in instance.operands() if i == 0 and chosen(term))
    yield from (find(flow.axes.of(value)[axis]) for value, axis in places)


def _stacked(flow: AxisQueries, instance: LineInstance) -> Iterator[Space]:
    """Yield the axes along which a product has a matrix of its own for each unit."""
    operand = flow.weight_of(instance) or 0
    value, terms = instance.node.inputs[operand], instance.line.inputs[operand] or ()
    other = set(names_of(instance.line.inputs[1 - operand]))
    result_labels = set(names_of(instance.line.outputs[0]))
    matrices = flow.read(instance) and flow.made(instance)
    if value is not None and matrices and value.unmoved.weight is not None:
        for space, term in zip(flow.axes.of(value), terms, strict=True):
            if labels(term) and set(labels(term)) <= other & result_labels and space.static:
                yield find(space)


def _ranked(flow: AxisQueries, index: Value) -> Iterator[Space]:
    """Yield the axes of the scores whose ranking makes an index."""

    def above(value: Value) -> Iterator[Value]:
        instance = flow.maker(value)
        if instance is not None and instance.line.treatment != "contract" and not instance.node.has(RANK):
            yield from instance.node.operands

    for value in walk([index], above):
        instance = flow.maker(value)
        if instance is not None and instance.node.has(RANK):
            yield from _of_first(flow, instance, is_whole)


def _lookups(flow: AxisQueries) -> Iterator[tuple[Value, Value, int]]:
    """Yield (index, table, numbered axis of the table) for every look-up along one axis.

    Where the operator's line numbers some axes (`#`), the other axes do not count.
    """
    for instance in flow.axes.instances:
        node, terms = instance.node, list(instance.line.inputs[0] or ()) if instance.line.inputs else []
        table, index = node.input(0), node.input(1)
        if table is None or index is None or table not in flow.static or not table.floating:
            continue
        if instance.line.treatment != "lookup" or len(terms) != table.rank:
            continue
        axes = [one.axis for one in node.addresses if terms[one.axis] in ("#", "_", ROUTED)]
        numbered = [axis for axis in axes if terms[axis] == "#"] or axes
        yield from ((index, table, axis) for axis in numbered if len(numbered) == 1)


def _all_equal(value: Value) -> bool:
    """Whether all numbers are known to be equal, also where they are taken from other known numbers."""
    while value.known is None and (node := value.producer) is not None and node.has(*TAKING):
        data = node.inputs[0]
        assert data is not None
        value = data
    flat = [known.reshape(-1) for known in value.known or ()]
    return bool(flat) and all(bool((numbers[1:] == numbers[:-1]).all()) for numbers in flat)


def _given(index: Value) -> bool:
    """Whether an index holds numbers of a model input, which may be moved, shifted and masked."""
    for value in walk([index], _moved):
        node = value.producer
        if node is not None and (not _moved(value) or node.outputs[0].dtype == "bool" or _counts(node)):
            return False
    return index.weight is None and index.known is None


def _moved(value: Value) -> list[Value]:
    """The operands from which a value takes its numbers."""
    node = value.producer
    data = () if node is None else node.inputs[:1] if node.has(TAKE) else node.inputs
    data = data[1:] if node is not None and node.treatment == "select" else data
    return [v for v in data if v is not None and v.weight is None and v.known is None]


def token_inputs(flow: AxisQueries, vocab: Collection[Space]) -> list[Value]:
    """The model inputs whose numbers are looked up in tables of a vocabulary. `vocab`: its spaces."""
    inputs = (
        value
        for index, table, axis in _lookups(flow)
        if find(flow.axes.of(table)[axis]) in vocab and _given(index)
        for value in walk([index], _moved)
        if value.producer is None
    )
    return list(dict.fromkeys(inputs))


def _counts(node: Node) -> bool:
    """Whether a node may make numbers that none of its operands has."""
    marks = any(one.operand == 0 for one in node.addresses)
    return marks or node.laws.mixes or node.treatment == "opaque" or node.has(SIZES, RANK)
