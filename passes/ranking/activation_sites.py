"""What importance is measured on: the tensors of a model in which the units of a space can be seen.

Needs: the axis graph. Gives: `Reading`s; docs/language.md, "Rankings on width" (weight subcloning, section
4.1). For a residual stream: what the first branch reads, what every branch adds, and every sum. For any other
space: what the weights that read it contract (for what only activations contract, these). Each tensor once,
whatever casts stand around it. For what else a ranking chooses from: how often it does; for what else is
added up, that; for what else a softmax shares out among, the shares.

Minitron's statistics (`using`) take what weights contract on every axis, the stream too, and of heads the
norm of what each gives. `before activation` takes what weights give in front of an activation instead.
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
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.queries import THROUGH, Flow, through_casts
from growc.passes.raising.attention import REPEAT_OP
from growc.passes.ranking.unit_scores import Table, Tables
from growc.passes.roles.residual_streams import Residual, residual_sums
from growc.recipe.statistics import IMPORTANCE, Statistic


@dataclass(frozen=True, eq=False)
class Reading:
    """One tensor, and those of its axes that have units."""

    value: Value
    kept: tuple[int, ...]
    less: Value | None = None
    """What is taken off first: what a branch adds, where its bias is added behind the sum."""
    numbered: Space | None = None
    """Where it holds numbers of units: of which; what is measured is how often each stands there."""
    grouped: tuple[Space, ...] = ()
    """The atoms whose units count as a whole: of each the norm over what else stands along the axes."""

    def spaces(self, axes: Axes) -> list[Space]:
        """The spaces along which it is measured."""
        if self.grouped or self.numbered is not None:
            return list(self.grouped) or [s for s in (self.numbered,) if s is not None]
        return [axes.of(self.value)[k] for k in self.kept]


@dataclass
class Activations:
    """The readings of a model, and of which of them each atom's importance is the sum."""

    axes: Axes
    statistic: Statistic = IMPORTANCE
    heads: Collection[Space] = ()
    """The atoms that count heads."""
    readings: list[Reading] = field(default_factory=list)
    of_atom: dict[Space, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        flow, using = Flow(self.axes), self.statistic.using
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
            for one in _in_front(flow, value, inner) if in_front else (value,):
                self.add(one, inner)
            if using:
                self.add(value, atoms & on_stream)
        self.choices()

    def choices(self) -> None:
        """What chooses from units that no weight reads, and what shares out among them."""
        known = set(self.of_atom)
        for ranking, space in self.axes.ranked.items():
            numbers = ranking.outputs[-1]
            atoms = set(leaves(space)) - known
            if atoms and numbers.users:
                self.readings.append(Reading(numbers, (numbers.rank,), numbered=find(space)))
                for atom in atoms:
                    self.of_atom[atom].append(len(self.readings) - 1)
        known = set(self.of_atom)
        for value, spaces in _summed(self.axes):
            self.add(value, set(atoms_of(spaces)) - known)

    def add(self, value: Value, atoms: set[Space], less: Value | None = None) -> None:
        """A tensor that shows the units of some atoms."""
        value = _unrepeated(value)
        spaces = self.axes.of(value)
        atoms = {x for x in atoms_of(spaces) if x.static and x in atoms}
        if not atoms or value.weight is not None:
            return
        kept = tuple(k for k, s in enumerate(spaces) if find(s).static and any(True for _ in leaves(s)))
        less = None if less is None else through_casts(less)
        whole = self.whole([spaces[k] for k in kept], atoms)
        self.read(Reading(value, kept, less), atoms.difference(whole))
        self.read(Reading(value, kept, less, grouped=whole), atoms.intersection(whole))

    def whole(self, spaces: Sequence[Space], atoms: set[Space]) -> tuple[Space, ...]:
        """The atoms of heads, where a head has several numbers along these spaces."""
        found = tuple(dict.fromkeys(x for x in atoms_of(spaces) if x in atoms and x in self.heads))
        alone = all(x in found or x.size[0] == 1 for x in atoms_of(spaces))
        return found if self.statistic.using and not alone else ()

    def read(self, reading: Reading, atoms: set[Space]) -> None:
        """Each reading once, for all atoms that it is for."""
        if not atoms:
            return
        same = (i for i, r in enumerate(self.readings) if _is_same(r, reading))
        place = next(same, len(self.readings))
        if place == len(self.readings):
            self.readings.append(reading)
        for atom in atoms:
            if place not in self.of_atom[atom]:
                self.of_atom[atom].append(place)

    def tables(self, found: Sequence[Floats]) -> Tables:
        """What was found of each reading, as scores of the atoms that it is for."""
        made = []
        for reading, values in zip(self.readings, found, strict=False):
            sizes = [atom.size[0] for atom in reading.grouped]
            made.append(Table(reading.spaces(self.axes), values.reshape(sizes) if sizes else values))
        return {atom: [made[k] for k in places] for atom, places in self.of_atom.items()}


def _is_same(a: Reading, b: Reading) -> bool:
    return a.value is b.value and a.less is b.less and a.grouped == b.grouped and a.numbered is b.numbered


def _unrepeated(value: Value) -> Value:
    """The value before any cast, and before heads that are put into groups."""
    return backward(value, lambda node: node.has(*THROUGH) or node.op == REPEAT_OP)


def _of_streams(
    flow: Flow, sums: dict[Node, Residual]
) -> Iterator[tuple[Value, Sequence[Space], Value | None]]:
    """What the first branch of each stream reads, what branches add, and the sums; what to take off first."""
    behind: dict[Value, set[Space]] = defaultdict(set)
    for node in flow.axes.graph.nodes:
        passed = set().union(*(behind[v] for v in node.operands if v in behind))
        residual = sums.get(node)
        if residual is not None:
            own = set(residual.streams)
            if not own & behind[residual.base]:
                yield residual.base, residual.streams, None
            total = _biased(flow, node.outputs[0])
            branch = next(v for v in node.operands if v is not residual.base)
            late = total is not node.outputs[0]
            yield total if late else branch, residual.streams, residual.base if late else None
            yield total, residual.streams, None
            passed |= own
        for out in node.outputs:
            behind[out] |= passed


def _biased(flow: Flow, total: Value) -> Value:
    """A sum with the bias of its branch, which some fused operators add last."""
    if len(total.users) != 1 or total in flow.axes.graph.outputs:
        return total
    [(node, operand)] = total.users
    bias = node.inputs[1 - operand] if node.has(SUM) and len(node.inputs) == 2 else None
    return node.outputs[0] if bias is not None and bias in flow.parameters else total


def _summed(axes: Axes) -> Iterator[tuple[Value, list[Space]]]:
    """What is added up over an axis, and the shares that a softmax makes."""
    for instance in axes.instances:
        value, made = instance.node.input(0), instance.line.outputs[0] or ()
        if instance.line.treatment in ("mean", "sum") and value is not None:
            gone = [n for n in names_of(instance.line.inputs[0]) if n not in names_of(made)]
            yield value, [instance.spaces[n] for n in gone]
        elif instance.node not in axes.routes:
            shares = [n for n in choosing(instance.line) if f"{n}~" in made]
            yield instance.node.outputs[0], [instance.spaces[n] for n in shares]


def _contracted(flow: Flow) -> Iterator[tuple[Value, list[Space]]]:
    """What weights read; after that, what activations contract with each other."""
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
        made = set(names_of(instance.line.outputs[0]))
        both = zip(instance.node.inputs[:2], instance.line.inputs[:2], strict=False)
        for value, terms in both:
            gone = [find(instance.spaces[n]) for n in names_of(terms) if n not in made]
            spaces = [s for s in gone if not any(x in read for x in leaves(s))]
            if value is not None and spaces and not _is_inner(value, instance):
                yield _unscaled(flow, value), spaces


def _in_front(flow: Flow, value: Value, atoms: set[Space]) -> list[Value]:
    """What weights give, bias included, that the units in a tensor are elementwise functions of; the tensor
    itself where it is made in any other way.
    """
    found: dict[Value, None] = {}
    seen: set[Value] = set()
    left = [value]
    while left:
        one = through_casts(left.pop())
        instance = flow.maker(one)
        if one in seen or instance is None or atoms.isdisjoint(atoms_of(flow.axes.of(one))):
            continue
        seen.add(one)
        if instance.node in flow.weighted:
            found[_biased(flow, one)] = None
        elif instance.line.treatment in ("contract", "attention", "lookup", "recurrent"):
            return [value]
        else:
            left += [v for v in instance.node.inputs if v is not None and v not in flow.static]
    return list(found) or [value]


def _is_inner(value: Value, instance: Instance) -> bool:
    """Whether an attention operator makes its operand itself, and shows it to nobody."""
    made = through_casts(value).producer
    return instance.line.treatment == "attention" and made is not None and made.part_of != ""


def _unscaled(flow: Flow, value: Value) -> Value:
    """What a tensor was before it was scaled by one number: fused products take such a scale as their own."""
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
