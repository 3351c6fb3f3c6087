"""Experts stored as separate networks become one `UnstackedExperts`, recognised by how their results meet.

Needs: a simulated graph. Gives: a record for every axis whose units are cut out one by one, or compared by
number, and have networks of their own: networks that meet in a sum are a stack along that axis.

CUTS has the ways to cut out a unit. One forward pass gives each value tags: the axes, and those of their
units without which the value is zero. TABLE says what each operator makes of such values: another spelling is
another row. One backward pass finds the nodes that serve one unit alone. Where units meet in anything but
sums, or the model outputs some of them, their axis cannot change, and the record names the node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from growc.algebra.space import Reason
from growc.ir.graph import Graph, Node, Value, Weight
from growc.ir.operator_rows import columns
from growc.ir.traits import TAKE
from growc.passes.axes.routing import numbers_of_rankings, ranked_axis
from growc.passes.axes.unstacked_experts import UnitNumbers, UnstackedExperts

TABLE = """
    #   operator                  operands                         result

    4   SIZES                     any                              nothing
    5   Not body                  any                              refusal  makes something else of them
    6   SUM                       = unit|zero                      units
    7   SUM                       = one|constant                   units    counted
    8   SUM                       unit|zero                        units    alike
    9   SUM                       unit|constant                    refusal  adds a constant to several of them
    10  SUM                       any                              nothing  alike
    11  WRITE                     = unit, = any                    units
    12  WRITE                     other, = any                     nothing
    13  multiply contract lookup  = any                            units
    14  And GatherElements        = any                            units
    15  divide                    = unit, = any                    units
    16  select                    = any, = unit|zero, = unit|zero  units
    17  select                    = unit, = any, = unit|zero       units
    18  any                       = unit|constant                  units
    19  any                       = any                            refusal  joins them with something else
    20  any                       any                              refusal  joins what several of them give
"""
"""The results of operators on tagged values. A tagged value is zero without its units.

The first row that fits holds. CUTS are rows 1 to 3. An operator is a name, a treatment (small letters), a
trait (capital letters) or `any`; `body` is an operator whose body takes such a value from around it. The last
term stands for all further operands too.

- Operands: `unit` is a value with a tag, `one` is a value with the tag of a single unit. `zero`, `constant`
  (zero too) and `other` have no tag. Behind `=` all tags are equal.
- Results: `units`: the result is zero without all units of the operands. `nothing`: it has no tag.
- `alike`: the operands have the sizes of the result, which keeps them without some of the operands.
- `counted`: the constant belongs to the unit that it is added to.
"""


@dataclass(frozen=True)
class ExpertRow:
    """One row of the table. For each operand: its possible kinds, and whether its tag equals other tags."""

    number: int
    operators: frozenset[str]
    operands: Sequence[tuple[frozenset[str], bool]]
    result: str
    words: str


def _rows(text: str) -> Iterator[ExpertRow]:
    for number, operators, operands, result, *words in columns(text):
        terms = [(frozenset(t.strip("= ").split("|")), t.startswith("=")) for t in operands.split(", ")]
        yield ExpertRow(int(number), frozenset(operators.split()), terms, result, "".join(words))


ROWS = list(_rows(TABLE))


def find_experts(graph: Graph) -> list[UnstackedExperts]:
    """Every axis whose units have networks of their own, including axes that cannot change."""
    return list(_Raising(graph).found())


class _Raising:
    """The tags of all values, for all axes whose units are cut out."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.static, self.outputs = graph, graph.static, set(graph.outputs)
        self.tagged: dict[Value, list[UnstackedExperts]] = defaultdict(list)
        self.refusals: dict[UnstackedExperts, Reason] = {}
        self.constants: dict[UnstackedExperts, Counter[int]] = defaultdict(Counter)
        """The number of constants that are added to the result of each unit."""

    def found(self) -> Iterator[UnstackedExperts]:
        """Yield the axes whose units have networks of their own."""
        every = [UnstackedExperts(*place, cuts) for place, cuts in _cuts(self.graph, self.static)]
        for experts in every:
            for node, cut in experts.cuts.items():
                for out, unit in zip(node.outputs, cut, strict=True):
                    self.tag(experts, out, frozenset({unit}))
        for node in self.graph.nodes:
            for experts in dict.fromkeys(e for v in node.operands for e in self.tagged.get(v, ())):
                self.follow(experts, node)
        matrices = self.backward()
        for experts in every:
            units = {unit for cut in experts.cuts.values() for unit in cut}
            counts = Counter(weight for unit in units for weight in matrices[experts, unit])
            with_matrix = [
                unit for unit in units if any(counts[weight] == 1 for weight in matrices[experts, unit])
            ]
            if len(with_matrix) == len(units) or (len(with_matrix) > 1 and experts in self.refusals):
                if len({self.constants[experts][unit] for unit in units}) > 1:
                    cause = "gives units of which not all have constants added to them"
                    self.refuse(experts, next(iter(experts.cuts)), cause)
                yield replace(experts, refusal=self.refusals.get(experts))

    def tag(self, experts: UnstackedExperts, value: Value, units: UnitNumbers) -> None:
        """Note that a value is zero without some units."""
        experts.values[value] = units
        self.tagged[value].append(experts)

    def refuse(self, experts: UnstackedExperts, node: Node, cause: str) -> None:
        """Note the first cause why units cannot be removed."""
        self.refusals.setdefault(experts, Reason(node, cause))

    def follow(self, experts: UnstackedExperts, node: Node) -> None:
        """Tag the results of a node, unless they are made of all units together."""
        units = self.made(experts, node)
        if units is None or len(units) == experts.count:
            return
        if not self.outputs.isdisjoint(node.outputs):
            self.refuse(experts, node, "gives some of them out")
        for out in node.outputs:
            self.tag(experts, out, units)

    def made(self, experts: UnstackedExperts, node: Node) -> UnitNumbers | None:
        """The units without which a node's results are zero; None where there are none, or on a refusal."""
        names = {"any", node.op, node.treatment, *(trait.name for trait in node.traits)}
        names = {"body"} if any(v in experts.values for v in node.captured) else names
        row = next(r for r in ROWS if not r.operators.isdisjoint(names) and self.fits(r, experts, node))
        operands = [v for v in node.inputs if v is not None]
        units: UnitNumbers = frozenset().union(*(experts.values.get(v, ()) for v in operands))
        if row.words == "alike" and any(v.sizes != node.outputs[0].sizes for v in operands):
            self.refuse(experts, node, "stretches what one of them gives")
            return None
        if row.result == "refusal":
            self.refuse(experts, node, row.words)
        if row.words == "counted":
            self.constants[experts].update(units)
        return units if row.result == "units" else None

    def fits(self, row: ExpertRow, experts: UnstackedExperts, node: Node) -> bool:
        """Whether a row fits these operands."""
        unit_sets = set()
        for i, value in enumerate(node.inputs):
            kinds, equal = row.operands[min(i, len(row.operands) - 1)]
            if value is not None and not self.is_one_of(kinds, value, experts.values.get(value)):
                return False
            if equal and value in experts.values:
                unit_sets.add(experts.values[value])
        return len(unit_sets) <= 1

    def is_one_of(self, kinds: frozenset[str], value: Value, units: UnitNumbers | None) -> bool:
        """Whether an operand is of one of the kinds of a term of the table."""
        if "any" in kinds:
            return True
        if units is not None:
            return "unit" in kinds or ("one" in kinds and len(units) == 1)
        constant = "constant" in kinds and (value in self.static or value.known is not None)
        return (
            "other" in kinds or constant or (not kinds.isdisjoint(("zero", "constant")) and _is_zero(value))
        )

    def backward(self) -> Mapping[tuple[UnstackedExperts, int], set[Weight]]:
        """Record the nodes that serve one unit alone; return the matrices of nodes that serve one unit."""
        serving: dict[Node, Mapping[UnstackedExperts, Serving]] = {}
        matrices: dict[tuple[UnstackedExperts, int], set[Weight]] = defaultdict(set)
        for node in reversed(self.graph.nodes):
            needed = [out for out in node.outputs if out.users or out in self.outputs]
            serving[node] = _agreed([self.serves(out, serving) for out in needed])
            for experts, (unit, alone) in serving[node].items():
                matrices[experts, unit].update(v.weight for v in node.operands if v.weight and v.rank > 1)
                if alone:
                    experts.owners[node] = unit
        return matrices

    def serves(
        self, value: Value, serving: Mapping[Node, Mapping[UnstackedExperts, Serving]]
    ) -> dict[UnstackedExperts, Serving]:
        """The units that need a value: the unit of its tag, or the one unit of all its readers."""
        readers = [serving[node] for node, _ in value.users] + [{}] * (value in self.outputs)
        units_by_axis = _agreed(readers)
        for experts in self.tagged.get(value, ()):
            units = experts.values[value]
            units_by_axis.pop(experts, None)
            units_by_axis |= {experts: (min(units), True)} if len(units) == 1 else {}
        return units_by_axis


Serving = tuple[int, bool]
"""The only unit of an axis that needs a node or value, and whether nothing else needs it."""


def _agreed(readers: Sequence[Mapping[UnstackedExperts, Serving]]) -> dict[UnstackedExperts, Serving]:
    """For each axis, the unit of its readers, if they have only one."""
    agreed: dict[UnstackedExperts, Serving] = {}
    for experts in dict.fromkeys(e for reader in readers for e in reader):
        servings = [reader.get(experts) for reader in readers]
        units = {one[0] for one in servings if one is not None}
        if len(units) == 1:
            agreed[experts] = units.pop(), all(one is not None and one[1] for one in servings)
    return agreed


def _is_zero(value: Value) -> bool:
    """Whether a value is zero throughout. Stored vectors are not read."""
    if value.known is None and value.weight is not None and value.rank > 1:
        return not np.asarray(value.weight.read()).any()
    if value.known is not None:
        return not any(k.any() for k in value.known)
    constant = None if value.producer is None else value.producer.laws.constant
    return constant is not None and value.producer is not None and not constant(value.producer).any()


# ------------------------------------------------------------------------------------ how units are cut out


class Cut(NamedTuple):
    """The value that is cut, the axis of the cut, and the unit of each result."""

    whole: Value
    axis: int
    units: tuple[int, ...]


def _by_number(node: Node, _: RankingNodes) -> Cut | None:
    """1: a node takes one unit of operand 0 by a constant number."""
    places = [one for one in node.addresses if not one.result] if node.has(TAKE) else []
    numbers = [_number(node.input(one.operand)) for one in places]
    if None in numbers or len({one.axis for one in places}) != 1:
        return None
    whole, result, axis = node.required(0), node.outputs[0], places[0].axis
    single = result.rank < whole.rank or (result.sizes is not None and set(result.sizes[axis]) == {1})
    return Cut(whole, axis, (numbers[0] or 0,)) if single else None


def _by_place(node: Node, _: RankingNodes) -> Cut | None:
    """2: a node splits an axis so that every unit is a separate result."""
    if node.op != "Split":
        return None
    axis = node.integer("axis", 0)
    single = all(out.sizes is not None and set(out.sizes[axis]) == {1} for out in node.outputs)
    return Cut(node.required(0), axis, tuple(range(len(node.outputs)))) if single else None


def _compared(node: Node, rankings: RankingNodes) -> Cut | None:
    """3: a node compares the numbers from a ranking with a constant number."""
    for numbers, other in (node.inputs, node.inputs[::-1]) if node.op == "Equal" else ():
        number, ranking = _number(other), None if numbers is None else rankings.get(numbers)
        axis = None if ranking is None else ranked_axis(ranking)
        if number is not None and number >= 0 and ranking is not None and axis is not None:
            return Cut(ranking.required(0), axis, (number,))
    return None


CUTS = (_by_number, _by_place, _compared)
"""Rows 1 to 3: the ways to cut a unit out of an axis, or to compare its number."""

RankingNodes = Mapping[Value, Node]


def _cuts(
    graph: Graph, static: Iterable[Value]
) -> Iterator[tuple[tuple[Value, int], dict[Node, tuple[int, ...]]]]:
    """Yield (value, axis) of every cut into several units, and the units that each node takes."""
    by_place: dict[tuple[Value, int], dict[Node, tuple[int, ...]]] = defaultdict(dict)
    rankings = numbers_of_rankings(graph)
    for node in graph.nodes:
        cut = next((cut for rule in CUTS if (cut := rule(node, rankings)) is not None), None)
        if cut is None or not cut.whole.sizes or cut.whole in static or cut.whole.known is not None:
            continue
        size = set(cut.whole.sizes[cut.axis])
        if len(size) == 1 and max(size) > 1 and all(-max(size) <= unit < max(size) for unit in cut.units):
            by_place[cut.whole, cut.axis % cut.whole.rank][node] = tuple(
                unit % max(size) for unit in cut.units
            )
    for place, cuts in by_place.items():
        if len({unit for units in cuts.values() for unit in units}) > 1:
            yield place, cuts


def _number(value: Value | None) -> int | None:
    """The integer that a constant is; None if it is not one integer."""
    known = None if value is None else value.known
    if known is None or known[0].size != 1 or known[0].dtype != np.int64 or known[0].ndim > 1:
        return None
    return int(known[0].reshape(-1)[0]) if all((k == known[0]).all() for k in known) else None
