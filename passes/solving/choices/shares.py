"""The factors by which shares change where every unit to choose from has f copies, and f times more are
chosen.

Needs: the choices of a lowered statement, and the states of its weights. Gives: every gap.

A ranking then chooses all copies of the units that it chose before, since equal scores stand side by side. So
every value is one of these, for a factor c that does not depend on the input:

- It has the units, or the places of the chosen ones: each copy is c times its original.
- It has both, and is zero except where a place holds a unit (numbers that are compared, one-hot): `paired`.
- It has neither: it is c times what it was.

A softmax over copies gives each 1/f, a sum over them gives f times as much, products multiply. The model is
exact if c is 1 wherever an operator that is not linear reads a value, and on all outputs.
docs/theory.md has the proof, section *Choices*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Node, Value
from growc.ir.lowered_statement import Choice, Stage
from growc.ir.traits import RANK, SIZES, WRITE
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.routing import ranked_axis
from growc.passes.raising.attention import weighs
from growc.passes.solving.choices.share_rules import (
    NORMS,
    RULES,
    SUMMING,
    LostError,
    Share,
    SharedValues,
    anything_else,
    is_zero,
    require_plain,
    same,
)
from growc.passes.solving.solution import Solution
from growc.plans.plan import Gap


def choice_gaps(axes: Axes, solution: Solution) -> list[Gap] | None:
    """The gaps of a statement that adds units to choose from.

    None where the statement adds none, or where its copies allow no judgement and there is no gap of a
    choice.
    """
    stage = solution.stage
    fixed = [space for space in stage.requests if space.chosen is not None]
    grows = any(request.map.size > request.map.source for request in stage.requests.values())
    if not stage.choices and not (fixed and grows and stage.axis == "experts"):
        return None
    gaps = list(dict.fromkeys(gap for choice in stage.choices for gap in gaps_of_ranking(stage, choice)))
    copies = {find(space): copies_of(stage, space) for space in stage.requests}
    equal = {space: count for space, count in copies.items() if count is not None}
    if gaps or len(equal) < len(copies):
        return gaps or None
    return _Shares(axes, solution, equal).found()


def copies_of(stage: Stage, space: Space) -> int | None:
    """The number of plain copies of every unit of a space; None where it differs, or some are no copies."""
    request = stage.requests.get(find(space))
    if request is None:
        return 1
    index_map = request.map
    plain = bool(index_map.copies.all()) and len(set(index_map.counts.tolist())) == 1
    return index_map.size // index_map.source if plain else None


def gaps_of_ranking(stage: Stage, choice: Choice) -> Iterator[Gap]:
    """Yield a gap if a ranking does not choose all copies of the units that it chose before."""
    name, copies = stage.axis, copies_of(stage, choice.space)
    request = stage.requests.get(choice.space)
    if copies is None and request is not None and not request.map.copies.all():
        cause = f"{choice.ranking.kind} over {name} may choose units that are no copies"
        yield Gap.at(choice.ranking, cause)
    elif copies is None and request is not None:
        counts = ", ".join(map(str, np.unique(request.map.counts)))
        cause = f"{choice.ranking.kind} over {name} meets unequal copy counts ({counts})"
        remedy = f"a multiple of {request.map.source} with `cyclic copy` can be exact"
        yield Gap.at(choice.ranking, cause, remedy)
    elif choice.after != choice.before * (copies or 1):
        count = request.map.size if request is not None else choice.space.size[0]
        count_before = request.map.source if request is not None else count
        cause = f"the router's {choice.ranking.kind} chooses {choice.after} of {count} {name}, "
        cause += f"where it chose {choice.before} of {count_before}"
        remedy = f"`top {choice.before * (copies or 1)}` chooses every copy of what it chose"
        yield Gap.at(choice.ranking, cause, remedy)


@dataclass
class _Shares:
    axes: Axes
    solution: Solution
    copies: dict[Space, int]
    """The number of copies of each unit of a space, or of each place for a chosen unit."""
    shares: dict[Value, Share] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)

    def __post_init__(self) -> None:
        stage = self.solution.stage
        self.slots = {slot: find(c.space) for c in stage.choices for slot in c.slots}
        self.copies |= {slot: self.copies.get(space, 1) for slot, space in self.slots.items()}
        self.rankings = {c.ranking for c in stage.choices}

    def found(self) -> list[Gap]:
        """The gaps: every place where a share is not what it was."""
        deciding = self.deciding()
        for instance in self.axes.instances:
            if instance.node in deciding:
                self.visit(instance)
        for value in self.axes.graph.outputs:
            share = self.of(value)
            if not share.plain:
                cause = f"the output `{value.name}` is {share.factor:g} times what it was, or has other units"
                self.gaps.append(Gap.at(None, cause))
        return list(dict.fromkeys(self.gaps))

    def deciding(self) -> set[Node]:
        """The nodes on which outputs depend. A ranking that orders one unit depends on no score."""

        def above(value: Value) -> Iterator[Value]:
            node = value.producer
            alone = node is not None and node.has(RANK) and value is node.outputs[-1]
            if node is not None and not node.has(SIZES) and not (alone and _chooses_one_of_one(node)):
                yield from node.operands

        values = walk(self.axes.graph.outputs, above)
        return {value.producer for value in values if value.producer is not None}

    def atoms(self, value: Value) -> frozenset[Space]:
        """The axes of a value that have copies."""
        return frozenset(atoms_of(self.axes.of(value))) & self.copies.keys()

    def of(self, value: Value) -> Share:
        """The share of a value. That of a weight follows from the statement's copies."""
        if value.weight is not None and (atoms := self.atoms(value)):
            return Share(self.stored(value, atoms))
        return self.shares.get(value, Share())

    def stored(self, use: Value, atoms: frozenset[Space]) -> float:
        """The common factor of the copies in a weight. Raises LostError where there is none."""
        factor = 1.0
        for axis in range(use.rank):
            for var in self.solution.links.of(use, axis):
                if find(self.solution.links.atoms[var]) in atoms:
                    state = self.solution.of(var)
                    if not state.copies.all() or not np.allclose(state.weight, state.weight[0]):
                        raise LostError("reads units that are no equal copies")
                    factor *= float(state.weight[0])
        return factor

    def visit(self, instance: LineInstance) -> None:
        node = instance.node
        values = [v for v in node.inputs if v is not None]
        near = any(v in self.shares or self.atoms(v) for v in (*values, *node.captured, *node.outputs))
        if node.has(SIZES) or not near:
            return
        try:
            share = self.made(instance, [(v, self.of(v)) for v in values])
        except LostError as lost:
            self.gaps.append(Gap.at(node, f"{node.kind} {lost}"))
            share = lost.left
        numbers = node.outputs[-1:] if node in self.rankings else ()
        for out in node.outputs:
            if not share.plain and out not in numbers:
                self.shares[out] = share

    def made(self, instance: LineInstance, operands: SharedValues) -> Share:
        """The share of a node's results, from those of its operands. Raises LostError where it has none."""
        node, treatment = instance.node, instance.line.treatment
        if any(v in self.shares or self.atoms(v) for v in node.captured):
            raise LostError("reads it inside of a body")
        if node in self.rankings:
            return same(operands[:1])
        if node.has(RANK) and self.atoms(operands[0][0]):
            raise LostError(f"ranks {self.solution.stage.axis} of which there are copies, beside the choice")
        if node in self.axes.routes:
            return self.routed(node, operands)
        summed_spaces = frozenset().union(*map(self.atoms, node.operands)) - self.atoms(node.outputs[0])
        if weighs(node) and (over := self.chosen(instance)):
            require_plain(operands)
            return Share(1 / over)
        if self.together(instance):
            raise LostError("reads all units together, and there are more of them")
        if treatment in NORMS:
            return self.normed(instance, operands)
        rule = RULES.get(treatment, anything_else)
        share = rule(node, operands)
        return self.summed(instance, operands, summed_spaces, share) if summed_spaces else share

    def together(self, instance: LineInstance) -> bool:
        """Whether a node reads as a whole an axis whose units have copies."""
        return any(
            isinstance(term, str)
            and (term == "_" or term.endswith("~"))
            and not self.copies.keys().isdisjoint(leaves(self.axes.of(value)[axis]))
            for value, axis, term in instance.reads()
        )

    def chosen(self, instance: LineInstance) -> int:
        """The number of copies of each unit on the axes of a softmax; 0 where it runs over other axes."""
        terms = instance.line.inputs[0] or ()
        over = [find(instance.spaces[t.rstrip("~")]) for t in terms if isinstance(t, str) and t.endswith("~")]
        return math.prod(self.copies[s] for s in over if s in self.copies) if over else 0

    def routed(self, node: Node, operands: SharedValues) -> Share:
        """The share of a look-up by chosen numbers, or of a comparison of chosen numbers with all numbers."""
        stops = [stop for stop in self.axes.routes[node] if stop.result]
        if not stops:
            return same(operands[:1])
        if node.has(WRITE):
            data, update = operands[0], operands[-1]
            zero = is_zero(data[0]) or math.isclose(data[1].factor, update[1].factor)
            if data[1].paired or update[1].paired or not zero:
                raise LostError("writes shares beside others")
            return update[1]
        others = [v for v, _ in operands[2:] if v.known is not None]
        if any(np.asarray(v.known[0]).reshape(-1)[0] for v in others if v.known):
            raise LostError("marks what was not chosen")
        return Share(paired=True)

    def normed(self, instance: LineInstance, operands: SharedValues) -> Share:
        """The share of a norm.

        Over copies the sum of magnitudes grows; over other axes nothing may change.
        """
        over = {find(x) for name in instance.line.over for x in atoms_of([instance.spaces[name]])}
        mine = over & self.copies.keys()
        power = NORMS[instance.line.treatment]
        if operands[0][1].paired or (mine and not power):
            raise LostError("norms units that have copies")
        if mine:
            return Share(math.prod(self.copies[s] for s in mine) ** (-1 / power))
        if not power:
            require_plain(operands)
        return Share()

    def summed(
        self, instance: LineInstance, operands: SharedValues, gone: frozenset[Space], summand_share: Share
    ) -> Share:
        """The share of a sum over copies."""
        treatment = instance.line.treatment
        if treatment not in SUMMING:
            raise LostError("takes some of the units apart from their copies")
        pairs = frozenset().union(*(self.atoms(v) for v, share in operands if share.paired))
        kept_spaces = self.atoms(instance.node.outputs[0])
        more = float(math.prod(self.copies[s] for s in gone - pairs))
        if pairs and not pairs & kept_spaces:
            more *= max(self.copies[s] for s in pairs)
        paired = summand_share.paired and pairs <= kept_spaces
        if treatment == "mean":
            more /= math.prod(self.copies[s] for s in gone)
        if treatment == "extreme":
            if summand_share.paired:
                raise LostError("compares what was chosen with what was not")
            more = 1
        return Share(summand_share.factor * more, paired)


def _chooses_one_of_one(ranking: Node) -> bool:
    """Whether a ranking chooses one unit from one."""
    scores, ranked = ranking.required(0), ranking.outputs[-1]
    if scores.sizes is None or ranked.sizes is None or ranked.rank != scores.rank:
        return False
    axis = ranked_axis(ranking)
    return axis is not None and set(scores.sizes[axis]) == set(ranked.sizes[axis]) == {1}
