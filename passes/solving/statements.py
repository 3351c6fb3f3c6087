"""The states of all tensors, one statement at a time, and the steps of each weight that follow from them.

Needs: the lowered statements, the analysed model. Gives: the steps of every use of a weight, factors, changed
eps, the maps of outputs, and gaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from growc.algebra.indexmap import Bools, Floats, IndexMap
from growc.algebra.space import Space
from growc.ir.graph import Node, Value
from growc.ir.lowered_statement import Sizes, Stage
from growc.passes.compilation import Mapped, Solved
from growc.passes.dataflow.ranges import Ranges
from growc.passes.finish.symmetry import units_that_are_read
from growc.passes.heads.move_heads import OutputAxis, averaged, move_heads
from growc.passes.layers.origin_of_layers import Ancestry
from growc.passes.new_layers.drawn_layers import redraws
from growc.passes.solving.build_constraints import build_links, carriers_of
from growc.passes.solving.choices.shares import choice_gaps
from growc.passes.solving.merged_units import merge_units, merged
from growc.passes.solving.next_layer import NextLayers, from_next_layer, gaps_of, shape_after
from growc.passes.solving.shrinking import Rescaling, dropped
from growc.passes.solving.solution import Solution
from growc.passes.solving.solve import solve
from growc.passes.solving.statement_notes import notes_on_readers, notes_on_ties
from growc.passes.solving.weight_steps import put_in_order, weight_steps
from growc.passes.soundness.below_zero import BelowZero
from growc.passes.soundness.jumps import gaps_of_jumps
from growc.passes.upcycling.experts import gaps as mixed
from growc.passes.upcycling.experts import stacked
from growc.plans.plan import AxisStep, Gap


def solve_pass(c: Mapped) -> Solved:
    """Solve the states of all tensors, one statement at a time; list the steps of weights, and all gaps."""
    statements = _Statements(c)
    for stage in c.lowered.stages:
        statements.draw(stage.number + stage.in_parts)
        if stage.regroups:
            statements.move(stage)
        elif stage.merges:
            statements.merge(stage)
        else:
            statements.solve(stage)
        statements.sizes.apply(stage)
    statements.draw(None)
    return statements.done()


class _Statements:
    """The results of the statements so far. `sizes`: as they stand before the next statement."""

    def __init__(self, c: Mapped) -> None:
        self.c, self.sizes = c, Sizes()
        self.carriers, self.ancestry = carriers_of(c.axes), Ancestry(c.axes, c.layers)
        self.steps: dict[Value, list[AxisStep]] = defaultdict(list, put_in_order(c.graph))
        self.scales: dict[Value, float] = defaultdict(lambda: 1.0)
        self.attributes: dict[Node, dict[str, float]] = defaultdict(dict)
        self.gaps: list[Gap] = []
        self.notes: list[str] = []
        self.heard: dict[Space, Bools] = {}
        self.outgoing = Outgoing()
        self.rescaling = Rescaling(c.axes, c.ties, c.norms, c.roles.routers)
        self.ranges = Ranges(c.model.ranges)
        self.below_zero = BelowZero(c.axes, c.lowered.taken.constants, self.ranges)
        self.redraws, self.kept = redraws(c.axes, c.layers)
        self.stacked = stacked(c)
        self.gaps += mixed(self.stacked)
        self.noisy = any(stage.options.noise is not None for stage in c.lowered.stages)

    def draw(self, moment: int | None) -> None:
        """Add the steps of new layers and mixtures that statements before `moment` make.

        None: add the steps of all that remain.
        """
        due_stacks = [one for one in self.stacked if moment is None or one.moment < moment]
        for stack in due_stacks:
            self.steps[stack.use] += stack.steps(self.sizes)
        self.stacked = [one for one in self.stacked if one not in due_stacks]
        due = [moment is None or one.moment < moment for one in self.redraws]
        for one in compress(self.redraws, due):
            self.steps[one.use].append(one.step(shape_after(one.use, self.steps)))
            self.rescaling.factors.pop(one.use, None)
        self.redraws = [one for one, is_due in zip(self.redraws, due, strict=True) if not is_due]

    def move(self, stage: Stage) -> None:
        """Add a statement that splits groups of heads, moves them or replaces them by means."""
        moved, states, blends = move_heads(self.c.axes, stage, self.sizes)
        self.extend(moved)
        for place, state in states.items():
            self.outgoing.follow(place, state, blends.get(place))
        self.gaps += averaged(stage)
        for one in stage.regroups:
            for atom, size in zip((one.keys, one.group), one.sizes, strict=True):
                if len(self.heard.get(atom, ())) not in (0, size):
                    self.heard[atom] = np.ones(size, dtype=bool)

    def merge(self, stage: Stage) -> None:
        """Add a statement that replaces units by means."""
        steps, maps, blends = merge_units(self.c.axes, stage, self.sizes)
        self.extend(steps)
        for place, state in maps.items():
            self.outgoing.follow(place, state, blends[place])
        self.gaps += merged(self.c.axes, stage)
        for space in stage.merges:
            self.heard.pop(space, None)

    def solve(self, stage: Stage) -> None:
        """Add a statement with index maps."""
        c = self.c
        links = build_links(c.axes, c.norms, c.ties, set(stage.requests))
        solution = solve(links, stage, self.sizes, self.carriers, self.ranges, self.steps.keys())
        chosen = choice_gaps(c.axes, solution)
        solution.gaps[:] = solution.gaps if chosen is None else chosen
        self.heard = units_that_are_read(solution, self.heard)
        steps = weight_steps(solution, c.ties, self.ancestry, c.roles.routers)
        if stage.options.next_layer:
            following = NextLayers(c.layers, c.axes, c.norms, self.ancestry, stage.number)
            steps = from_next_layer(steps, self.steps, stage, following)
            self.gaps += gaps_of(steps, stage)
        self.extend(steps)
        self.notes += [*notes_on_readers(stage, steps), *notes_on_ties(stage)]
        self.scale_eps(solution)
        self.rescaling.apply(solution, self.sizes)
        new_gaps = [*self.gaps_of(solution)]
        self.gaps += [g for g in new_gaps if g not in self.gaps]
        for place, state in solution.outputs.items():
            self.outgoing.follow(place, state)

    def extend(self, steps_by_use: Mapping[Value, Sequence[AxisStep]]) -> None:
        """Add the steps of one more statement."""
        for use, steps in steps_by_use.items():
            self.steps[use] += steps

    def scale_eps(self, solution: Solution) -> None:
        """Scale the eps of norms, which a weight stores or a node has as an attribute."""
        for use, factor in solution.eps.items():
            self.scales[use] *= factor
        for node, factor in solution.epsilons.items():
            before = self.attributes[node].get("epsilon", node.real("epsilon", 1e-5))
            self.attributes[node]["epsilon"] = before * factor

    def gaps_of(self, solution: Solution) -> Iterator[Gap]:
        """Yield the gaps of one statement."""
        yield from dropped(solution.stage)
        yield from solution.gaps
        yield from self.below_zero.gaps(solution.stage)
        if self.noisy:
            yield from gaps_of_jumps(solution)

    def done(self) -> Solved:
        """The compilation with the results of all statements."""
        for use, factor in self.rescaling.factors.items():
            self.scales[use] *= factor
        return Solved(
            **vars(self.c),
            steps=dict(self.steps),
            scales=dict(self.scales),
            attributes=dict(self.attributes),
            gaps=self.gaps,
            outputs=self.outgoing.maps,
            blends=self.outgoing.blends,
            heard=self.heard,
            notes=tuple(
                dict.fromkeys((*self.kept, *self.rescaling.notes, *self.below_zero.notes, *self.notes))
            ),
        )


@dataclass
class Outgoing:
    """The axes of outputs that change.

    `maps`: their index maps. `blends`: matrices of the axes whose units are means of several.
    """

    maps: dict[OutputAxis, IndexMap] = field(default_factory=dict)
    blends: dict[OutputAxis, Floats] = field(default_factory=dict)

    def follow(self, place: OutputAxis, state: IndexMap, matrix: Floats | None = None) -> None:
        """Add one more statement. `matrix`: its exact effect where `state` cannot express it."""
        first = self.maps.get(place)
        if matrix is not None or place in self.blends:
            matrix_now = np.nan_to_num(state.matrix()) if matrix is None else matrix
            before = None if first is None else np.nan_to_num(first.matrix())
            before = self.blends.get(place, before)
            self.blends[place] = matrix_now if before is None else matrix_now @ before
        self.maps[place] = state if first is None else state.after(first)
