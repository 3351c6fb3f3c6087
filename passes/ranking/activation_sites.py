"""What importance is measured on: the tensors of a model in which the units of a space can be seen.

Needs: the axis graph. Gives: `Reading`s; docs/language.md, "Rankings on width" (weight subcloning, section
4.1). For a residual stream: what the first branch reads, what every branch adds, and every sum. For any other
space: what the weights that read it contract (for what only activations contract, these). Each tensor once,
whatever casts stand around it. For what else a ranking chooses from: how often it does; for what else is
added up, that; for what else a softmax shares out among, the shares. `Measured` has their means on the
source, for a model whose layers may stand elsewhere by now: there an axis of a copy is found again in the
source by a weight that bears both.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Node, Value, backward
from growc.ir.notation import FACTORS, choosing, names_of
from growc.ir.traits import SUM
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.queries import THROUGH, Flow, through_casts
from growc.passes.raising.attention import REPEAT_OP
from growc.passes.ranking.magnitude import placed
from growc.passes.roles.residual_streams import Residual, residual_sums


@dataclass(frozen=True, eq=False)
class Reading:
    """One tensor, and those of its axes that have units."""

    value: Value
    kept: tuple[int, ...]
    less: Value | None = None
    """What is taken off first: what a branch adds, where its bias is added behind the sum."""
    numbered: Space | None = None
    """Where it holds numbers of units: of which; what is measured is how often each stands there."""

    def spaces(self, axes: Axes) -> list[Space]:
        """The spaces along which it is measured."""
        return [self.numbered] if self.numbered is not None else [axes.of(self.value)[k] for k in self.kept]


@dataclass
class Activations:
    """The readings of a model, and of which of them each atom's importance is the sum."""

    axes: Axes
    readings: list[Reading] = field(default_factory=list)
    of_atom: dict[Space, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        flow = Flow(self.axes)
        on_stream: set[Space] = set()
        for value, streams, less in _of_streams(flow, residual_sums(flow)):
            atoms = set(atoms_of(streams))
            on_stream |= atoms
            self.add(value, atoms, less)
        for value, spaces in _contracted(flow):
            self.add(value, set(atoms_of(spaces)) - on_stream)
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
        same = (i for i, r in enumerate(self.readings) if r.value is value and r.less is less)
        place = next(same, len(self.readings))
        if place == len(self.readings):
            self.readings.append(Reading(value, kept, less))
        for atom in atoms:
            if place not in self.of_atom[atom]:
                self.of_atom[atom].append(place)

    def scores(self, means: Sequence[Floats], units: Sequence[Space]) -> Floats:
        """The importance of each unit of a product of atoms, from the mean of every element."""
        atoms = [find(s) for s in units]
        total = np.zeros(int(np.prod([a.size[0] for a in atoms], dtype=np.int64)))
        for place in self.of_atom.get(atoms[0], ()):
            found = placed(self.readings[place].spaces(self.axes), means[place], atoms)
            if found is not None:
                values, unit = found
                inside = unit >= 0
                sums = np.bincount(unit[inside], values[inside], len(total))
                total += sums / np.maximum(np.bincount(unit[inside], minlength=len(total)), 1)
        return total


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


# ----------------------------------------------------------------------- what was measured on them


@dataclass(frozen=True)
class Measured:
    """`source`: for each atom that of the source; None where both are the same."""

    activations: Activations
    means: Sequence[Floats]
    source: Mapping[Space, Space] | None = None

    def importance(self, units: Sequence[Space]) -> Floats | None:
        """The score of every unit of a product of atoms; None where these are not read."""
        atoms = [a for u in units if (a := find(u)).size[0] > 1] or [find(u) for u in units]
        found = atoms if self.source is None else [self.source.get(a) for a in atoms]
        known = [s for s, a in zip(found, atoms, strict=True) if s is not None and s.size[0] == a.size[0]]
        if len(known) < len(atoms) or any(s not in self.activations.of_atom for s in known):
            return None
        return self.activations.scores(self.means, known)


def counterparts(axes: Axes, source: Axes) -> dict[Space, Space]:
    """For each atom that of the source's at the same place of a weight that it uses once."""
    count = Counter(_root(use) for use in source.graph.uses())
    once = {_root(use): use for use in source.graph.uses() if count[_root(use)] == 1}
    found: dict[Space, Space] = {}
    for use in axes.graph.uses():
        other = once.get(_root(use))
        if other is None:
            continue
        for here, there in zip(axes.of(use), source.of(other), strict=True):
            pairs = list(zip(_several(here), _several(there), strict=False))
            if [a.size for a, _ in pairs] == [b.size for _, b in pairs]:
                found.update((a, b) for a, b in pairs if a not in found)
    return found


def _several(space: Space) -> Iterator[Space]:
    """The atoms of an axis that have several units."""
    return (atom for atom in leaves(space) if atom.size[0] > 1)


def _root(use: Value) -> str:
    assert use.weight is not None
    return use.weight.root
