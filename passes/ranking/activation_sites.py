"""Tensors on which importance is measured: those that show the units of a space.

Needs: the axis graph. Gives: `ActivationSite`s; docs/language.md, "Rankings on width" (weight subcloning,
section 4.1). For a residual stream they are the tensor that the first branch reads, the output of every
branch, and every sum. For any other space they are the operands that weights contract over it; if only
activations contract over it, the operands of these. Each tensor counts once, whatever casts stand around it.
For other units that a ranking chooses from, the frequency of choice is measured. For other units that are
added up, the terms are; for other units that a softmax weighs, the shares.

Minitron's statistics (`using`) take the operands of weights on every axis, including the stream, and for
heads the norm of each head's output. `before activation` takes the results of weights in front of an
activation instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Node, Value, backward
from growc.ir.notation import FACTORS, choosing, names_of
from growc.ir.traits import SUM
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.queries import THROUGH, AxisQueries, through_casts
from growc.passes.raising.attention import REPEAT_OP
from growc.passes.ranking.unit_scores import Table, Tables
from growc.passes.roles.residual_streams import Residual, residual_sums
from growc.recipe.statistics import IMPORTANCE, Statistic


@dataclass(frozen=True, eq=False)
class ActivationSite:
    """One tensor, and those of its axes that have units."""

    value: Value
    kept: tuple[int, ...]
    less: Value | None = None
    """The value to subtract first: a branch's output is read this way if its bias is added behind the sum."""
    numbered: Space | None = None
    """The space whose unit numbers the tensor holds. The measurement is then how often each number occurs."""
    grouped: tuple[Space, ...] = ()
    """The atoms whose units are measured as a whole, by the norm over all other axes."""

    def spaces(self, axes: Axes) -> list[Space]:
        """The spaces along which the tensor is measured."""
        if self.grouped or self.numbered is not None:
            return list(self.grouped) or [s for s in (self.numbered,) if s is not None]
        return [axes.of(self.value)[k] for k in self.kept]


@dataclass
class Activations:
    """The readings of a model, and for each atom those whose sum is its importance."""

    axes: Axes
    statistic: Statistic = IMPORTANCE
    heads: Collection[Space] = ()
    """The atoms that count heads."""
    readings: list[ActivationSite] = field(default_factory=list)
    of_atom: dict[Space, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        flow, using = AxisQueries(self.axes), self.statistic.using
        on_stream: set[Space] = set()
        for value, streams, less in _of_streams(flow, residual_sums(flow)):
            atoms = set(atoms_of(streams))
            on_stream |= atoms
            if not using:
                self.add(value, atoms, less)
        for value, spaces in _contracted(flow):
            atoms = set(atoms_of(spaces))
            inner = atoms - on_stream
            in_front = self.statistic.before_activation
            for result in _in_front(flow, value, inner) if in_front else (value,):
                self.add(result, inner)
            if using:
                self.add(value, atoms & on_stream)
        self.choices()

    def choices(self) -> None:
        """Add readings of rankings whose units no weight reads, and of sums and softmaxes over such units."""
        read_atoms = set(self.of_atom)
        for ranking, space in self.axes.ranked.items():
            numbers = ranking.outputs[-1]
            atoms = set(leaves(space)) - read_atoms
            if atoms and numbers.users:
                self.readings.append(ActivationSite(numbers, (numbers.rank,), numbered=find(space)))
                for atom in atoms:
                    self.of_atom[atom].append(len(self.readings) - 1)
        read_atoms = set(self.of_atom)
        for value, spaces in _summed(self.axes):
            self.add(value, set(atoms_of(spaces)) - read_atoms)

    def add(self, value: Value, atoms: set[Space], less: Value | None = None) -> None:
        """Add readings of a tensor that shows the units of some atoms."""
        value = _unrepeated(value)
        spaces = self.axes.of(value)
        atoms = {atom for atom in atoms_of(spaces) if atom.static and atom in atoms}
        if not atoms or value.weight is not None:
            return
        unit_axes = tuple(k for k, s in enumerate(spaces) if find(s).static and any(True for _ in leaves(s)))
        less = None if less is None else through_casts(less)
        grouped = self.whole([spaces[k] for k in unit_axes], atoms)
        self.read(ActivationSite(value, unit_axes, less), atoms.difference(grouped))
        self.read(ActivationSite(value, unit_axes, less, grouped=grouped), atoms.intersection(grouped))

    def whole(self, spaces: Sequence[Space], atoms: set[Space]) -> tuple[Space, ...]:
        """The atoms of heads, if a head has several numbers along these spaces."""
        head_atoms = tuple(
            dict.fromkeys(atom for atom in atoms_of(spaces) if atom in atoms and atom in self.heads)
        )
        one_number_each = all(atom in head_atoms or atom.size[0] == 1 for atom in atoms_of(spaces))
        return head_atoms if self.statistic.using and not one_number_each else ()

    def read(self, reading: ActivationSite, atoms: set[Space]) -> None:
        """Add a reading for these atoms. Each reading is stored once."""
        if not atoms:
            return
        places = (i for i, r in enumerate(self.readings) if _is_same(r, reading))
        place = next(places, len(self.readings))
        if place == len(self.readings):
            self.readings.append(reading)
        for atom in atoms:
            if place not in self.of_atom[atom]:
                self.of_atom[atom].append(place)

    def tables(self, measured: Sequence[Floats]) -> Tables:
        """The measured values of each reading, as scores of its atoms."""
        tables = []
        for reading, values in zip(self.readings, measured, strict=False):
            sizes = [atom.size[0] for atom in reading.grouped]
            tables.append(Table(reading.spaces(self.axes), values.reshape(sizes) if sizes else values))
        return {atom: [tables[k] for k in places] for atom, places in self.of_atom.items()}


def _is_same(a: ActivationSite, b: ActivationSite) -> bool:
    return a.value is b.value and a.less is b.less and a.grouped == b.grouped and a.numbered is b.numbered


def _unrepeated(value: Value) -> Value:
    """The value before any cast, and before key/value heads are repeated for groups."""
    return backward(value, lambda node: node.has(*THROUGH) or node.op == REPEAT_OP)


def _of_streams(
    flow: AxisQueries, sums: dict[Node, Residual]
) -> Iterator[tuple[Value, Sequence[Space], Value | None]]:
    """The tensors of each stream: the first branch's operand, the outputs of branches, and the sums.

    With each comes the value to subtract first.
    """
    behind: dict[Value, set[Space]] = defaultdict(set)
    for node in flow.axes.graph.nodes:
        passed = set().union(*(behind[v] for v in node.operands if v in behind))
        residual = sums.get(node)
        if residual is not None:
            residual_streams = set(residual.streams)
            if not residual_streams & behind[residual.base]:
                yield residual.base, residual.streams, None
            total = _biased(flow, node.outputs[0])
            branch = next(v for v in node.operands if v is not residual.base)
            late = total is not node.outputs[0]
            yield total if late else branch, residual.streams, residual.base if late else None
            yield total, residual.streams, None
            passed |= residual_streams
        for out in node.outputs:
            behind[out] |= passed


def _biased(flow: AxisQueries, total: Value) -> Value:
    """A sum together with the bias of its branch, which some fused operators add last."""
    if len(total.users) != 1 or total in flow.axes.graph.outputs:
        return total
    [(node, operand)] = total.users
    bias = node.inputs[1 - operand] if node.has(SUM) and len(node.inputs) == 2 else None
    return node.outputs[0] if bias is not None and bias in flow.parameters else total


def _summed(axes: Axes) -> Iterator[tuple[Value, list[Space]]]:
    """Operands that are added up over an axis, and the shares that a softmax makes."""
    for instance in axes.instances:
        value, out_terms = instance.node.input(0), instance.line.outputs[0] or ()
        if instance.line.treatment in ("mean", "sum") and value is not None:
            summed_names = [n for n in names_of(instance.line.inputs[0]) if n not in names_of(out_terms)]
            yield value, [instance.spaces[n] for n in summed_names]
        elif instance.node not in axes.routes:
            shares = [n for n in choosing(instance.line) if f"{n}~" in out_terms]
            yield instance.node.outputs[0], [instance.spaces[n] for n in shares]


def _contracted(flow: AxisQueries) -> Iterator[tuple[Value, list[Space]]]:
    """The operands of weights, then the operands of products of activations."""
    weighed = set(flow.maps)
    read: set[Space] = set()
    for instance in flow.maps:
        value = instance.node.inputs[1 - (flow.weight_of(instance) or 0)]
        if value is not None:
            spaces = flow.read(instance)
            read |= set(atoms_of(spaces))
            yield value, spaces
    for instance in flow.axes.instances:
        if instance.line.treatment not in ("contract", "attention") or instance in weighed:
            continue
        output_names = set(names_of(instance.line.outputs[0]))
        both = zip(instance.node.inputs[:2], instance.line.inputs[:2], strict=False)
        for value, terms in both:
            contracted = [find(instance.spaces[n]) for n in names_of(terms) if n not in output_names]
            spaces = [s for s in contracted if not any(leaf in read for leaf in leaves(s))]
            if value is not None and spaces and not _is_inner(value, instance):
                yield _unscaled(flow, value), spaces


def _in_front(flow: AxisQueries, value: Value, atoms: set[Space]) -> list[Value]:
    """The results of weights, bias included, of which the units in a tensor are elementwise functions.

    The tensor itself if it is made in any other way.
    """
    results: dict[Value, None] = {}
    seen: set[Value] = set()
    pending = [value]
    while pending:
        current = through_casts(pending.pop())
        instance = flow.maker(current)
        if current in seen or instance is None or atoms.isdisjoint(atoms_of(flow.axes.of(current))):
            continue
        seen.add(current)
        if instance.node in flow.weighted:
            results[_biased(flow, current)] = None
        elif instance.line.treatment in ("contract", "attention", "lookup", "recurrent"):
            return [value]
        else:
            pending += [v for v in instance.node.inputs if v is not None and v not in flow.static]
    return list(results) or [value]


def _is_inner(value: Value, instance: LineInstance) -> bool:
    """Whether an attention operator makes its operand itself, so that no other node has it."""
    producer = through_casts(value).producer
    return instance.line.treatment == "attention" and producer is not None and producer.part_of != ""


def _unscaled(flow: AxisQueries, value: Value) -> Value:
    """A tensor before its scaling by single numbers, which fused products contain."""
    while (node := through_casts(value).producer) is not None and node.treatment in FACTORS:
        single = [
            i
            for i, v in enumerate(node.inputs)
            if v is not None and (v in flow.static or v.known is not None) and _is_one_number(v)
        ]
        data = [v for i, v in enumerate(node.inputs) if i not in single]
        if len(data) != 1 or data[0] is None or (node.treatment == "divide" and single != [1]):
            break
        value = data[0]
    return value


def _is_one_number(value: Value) -> bool:
    return value.sizes is not None and all(set(size) == {1} for size in value.sizes)
