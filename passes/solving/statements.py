"""The states of all tensors, statement by statement, and what follows from them for each weight.

Needs: the lowered statements, the analysed model. Gives: the steps of every use of a weight, factors, changed
eps, what becomes of outputs, and gaps.
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
from growc.passes.finish.symmetry import heard
from growc.passes.heads.move_heads import averaged, move_heads
from growc.passes.layers.origin_of_layers import Ancestry
from growc.passes.new_layers.drawn_layers import redraws
from growc.passes.solving.build_constraints import build_links, carriers_of
from growc.passes.solving.choices.shares import choice_gaps
from growc.passes.solving.merged_units import merge_units, merged
from growc.passes.solving.next_layer import NextLayers, from_next_layer, gaps_of, shape_after
from growc.passes.solving.shrinking import Rescaling, dropped
from growc.passes.solving.solution import Solution
from growc.passes.solving.solve import solve
from growc.passes.solving.weight_steps import put_in_order, weight_steps
from growc.passes.soundness.below_zero import BelowZero
from growc.passes.soundness.jumps import jumps
from growc.passes.upcycling.experts import gaps as mixed
from growc.passes.upcycling.experts import stacked
from growc.plans.plan import AxisStep, Gap


def solve_pass(c: Mapped) -> Solved:
    """States of all tensors, statement by statement; what is done to each weight; what is not exact."""
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
    """What the statements come to so far; `sizes` as they stand before the next one."""

    def __init__(self, c: Mapped) -> None:
        self.c, self.sizes = c, Sizes()
        self.carriers, self.ancestry = carriers_of(c.axes), Ancestry(c.axes, c.layers)
        self.steps: dict[Value, list[AxisStep]] = defaultdict(list, put_in_order(c.graph))
        self.scales: dict[Value, float] = defaultdict(lambda: 1.0)
        self.attributes: dict[Node, dict[str, float]] = defaultdict(dict)
        self.gaps: list[Gap] = []
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
        """The weights of new layers and mixtures that statements before a moment make; None: all that are
        left.
        """
        made = [one for one in self.stacked if moment is None or one.moment < moment]
        for stack in made:
            self.steps[stack.use] += stack.steps(self.sizes)
        self.stacked = [one for one in self.stacked if one not in made]
        due = [moment is None or one.moment < moment for one in self.redraws]
        for one in compress(self.redraws, due):
            self.steps[one.use].append(one.step(shape_after(one.use, self.steps)))
            self.rescaling.factors.pop(one.use, None)
        self.redraws = [one for one, now in zip(self.redraws, due, strict=True) if not now]

    def move(self, stage: Stage) -> None:
        """Groups of heads that split, change places or become means."""
        moved, kept, blends = move_heads(self.c.axes, stage, self.sizes)
        self.extend(moved)
        for place, state in kept.items():
            self.outgoing.follow(place, state, blends.get(place))
        self.gaps += averaged(stage)
        for one in stage.regroups:
            for atom, size in zip((one.keys, one.group), one.sizes, strict=True):
                if len(self.heard.get(atom, ())) not in (0, size):
                    self.heard[atom] = np.ones(size, dtype=bool)

    def merge(self, stage: Stage) -> None:
        """Units that become means."""
        made, maps, blends = merge_units(self.c.axes, stage, self.sizes)
        self.extend(made)
        for place, state in maps.items():
            self.outgoing.follow(place, state, blends[place])
        self.gaps += merged(self.c.axes, stage)
        for space in stage.merges:
            self.heard.pop(space, None)

    def solve(self, stage: Stage) -> None:
        """A statement with maps."""
        c = self.c
        links = build_links(c.axes, c.norms, c.ties, set(stage.requests))
        solution = solve(links, stage, self.sizes, self.carriers, self.ranges, self.steps.keys())
        chosen = choice_gaps(c.axes, solution)
        solution.gaps[:] = solution.gaps if chosen is None else chosen
        self.heard = heard(solution, self.heard)
        made = weight_steps(solution, c.ties, self.ancestry, c.roles.routers)
        if stage.options.next_layer:
            following = NextLayers(c.layers, c.axes, c.norms, self.ancestry, stage.number)
            made = from_next_layer(made, self.steps, stage, following)
            self.gaps += gaps_of(made, stage)
        self.extend(made)
        self.scale_eps(solution)
        self.rescaling.apply(solution, self.sizes)
        fresh = [*self.gaps_of(solution)]
        self.gaps += [g for g in fresh if g not in self.gaps]
        for place, state in solution.outputs.items():
            self.outgoing.follow(place, state)

    def extend(self, made: Mapping[Value, Sequence[AxisStep]]) -> None:
        """The steps of one statement more."""
        for use, found in made.items():
            self.steps[use] += found

    def scale_eps(self, solution: Solution) -> None:
        """The eps of norms, which weights hold or nodes have as an attribute."""
        for use, factor in solution.eps.items():
            self.scales[use] *= factor
        for node, factor in solution.epsilons.items():
            before = self.attributes[node].get("epsilon", node.real("epsilon", 1e-5))
            self.attributes[node]["epsilon"] = before * factor

    def gaps_of(self, solution: Solution) -> Iterator[Gap]:
        """What is not exact in one statement."""
        yield from dropped(solution.stage)
        yield from solution.gaps
        yield from self.below_zero.gaps(solution.stage)
        if self.noisy:
            yield from jumps(solution)

    def done(self) -> Solved:
        """The compilation with what the statements came to."""
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
            notes=(*self.kept, *self.rescaling.notes, *self.below_zero.notes),
        )


Place = tuple[str, int]
"""An output by name, and one of its axes."""


@dataclass
class Outgoing:
    """`maps` of all axes that change; `blends`: matrices of those on which units are means of several."""

    maps: dict[Place, IndexMap] = field(default_factory=dict)
    blends: dict[Place, Floats] = field(default_factory=dict)

    def follow(self, place: Place, state: IndexMap, matrix: Floats | None = None) -> None:
        """One statement more. `matrix`: what it does where `state` cannot say it."""
        first = self.maps.get(place)
        if matrix is not None or place in self.blends:
            own = np.nan_to_num(state.matrix()) if matrix is None else matrix
            before = None if first is None else np.nan_to_num(first.matrix())
            before = self.blends.get(place, before)
            self.blends[place] = own if before is None else own @ before
        self.maps[place] = state if first is None else state.after(first)
