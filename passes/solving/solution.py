"""The states of one statement while they are solved: where they are stored, how one is given or refused.

Needs: links, one lowered statement, the facts about classes. Gives: `Solution`, the result, and `Solving`,
which the rules for links (passes/solving/solve.py, passes/solving/rules_whole_axis.py) read and fill.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from growc.algebra.indexmap import Bools, IndexMap
from growc.algebra.space import find
from growc.ir.graph import Node, Value
from growc.ir.lowered_statement import Sizes, SpaceRequest, Stage
from growc.passes.dataflow.ranges import Ranges
from growc.passes.solving.class_facts import Classes
from growc.passes.solving.constraints import Link, Links, Var
from growc.plans.plan import Gap
from growc.recipe.fills import Entry

MAKES, READS, SCALES = "makes", "reads", "scales"


@dataclass
class Solution:
    """The solved states of one statement."""

    links: Links
    stage: Stage
    states: dict[Var, IndexMap] = field(default_factory=dict)
    verbs: dict[Var, str] = field(default_factory=dict)
    read: dict[Var, IndexMap] = field(default_factory=dict)
    """For a class of weights that contract an activation: the state of the activation."""
    ordinals: dict[Var, int] = field(default_factory=dict)
    eps: dict[Value, float] = field(default_factory=dict)
    """Factors of eps, by the use of the weight that holds it (norms that share their root share it)."""
    epsilons: dict[Node, float] = field(default_factory=dict)
    """The same for norms that are operators, which have it as an attribute."""
    gaps: list[Gap] = field(default_factory=list)
    outputs: dict[tuple[str, int], IndexMap] = field(default_factory=dict)
    """The state of every affected axis of a model output, by (name, axis)."""
    factors: dict[Var, str] = field(default_factory=dict)
    """For a class that weights make in front of a gain: the name of the gain that weighs their mean rows."""
    ones: set[Var] = field(default_factory=set)
    """The classes of gains and divisors whose rows are one where they are no copies.

    A gain has nothing left to do behind rows that are weighted by it already. The mean of a divisor may be
    zero, so rows of a divisor are no means."""
    given_up: dict[Var, IndexMap] = field(default_factory=dict)
    """For a class with units that were given up: its state without this loss, which weights still make."""

    def of(self, var: Var) -> IndexMap:
        """The state of a variable's class."""
        return self.states[self.links.root(var)]

    def request(self, var: Var) -> SpaceRequest | None:
        """The request of the statement for a variable's atom, if there is one."""
        return self.stage.requests.get(find(self.links.atoms[var]))

    def whole(self, var: Var) -> IndexMap:
        """The state of a variable in terms of all units of the source, including those that are dropped."""
        request = self.request(var)
        state = self.of(var)
        return state.after(request.map) if request is not None and request.drops else state


class Solving:
    """The states that are known so far, with the operations that rules use.

    `given_up`: for each class, the units for which readers take zero columns. `changed`: uses of weights that
    earlier statements have changed.
    """

    def __init__(
        self,
        links: Links,
        stage: Stage,
        sizes: Sizes,
        classes: Classes,
        given_up: dict[Var, Bools],
        changed: Collection[Value],
        ranges: Ranges,
    ) -> None:
        self.links, self.stage, self.sizes, self.classes = links, stage, sizes, classes
        self.ranges, self.changed = ranges, changed
        self.given_up = given_up
        self.more: dict[Var, Bools] = {}
        """For each class, units that must be given up in the next round."""
        self.done = Solution(links, stage)
        self.request = self.done.request
        self.readers = 0

    def known(self, var: Var) -> IndexMap | None:
        """The state of a variable's class; None as long as nothing has determined it."""
        return self.done.states.get(self.links.root(var))

    def give(self, var: Var, state: IndexMap, verb: str = MAKES) -> IndexMap:
        """Set the state of a class, with the units that are given up as junk. Return this state."""
        root = self.links.root(var)
        if root in self.given_up:
            self.done.given_up[root] = state
            state = state.without(self.given_up[root])
        self.done.states[root] = state
        self.done.verbs[root] = verb
        return state

    def base(self, var: Var) -> IndexMap:
        """The requested map of an atom, over its units that are not dropped.

        It is the identity where nothing is requested.
        """
        request = self.request(var)
        return IndexMap.identity(self.sizes.of(self.links.atoms[var])[0]) if request is None else request.left

    def need(self, var: Var) -> IndexMap:
        """The state of a class. A class that nothing has determined takes the requested map."""
        state = self.known(var)
        if state is not None:
            return state
        return self.give(var, self.isometric(var, self.base(var)))

    def isometric(self, var: Var, state: IndexMap) -> IndexMap:
        """A state of a class, with copies weighted by 1/sqrt(C) where the class needs it.

        It needs it where it is contracted with itself, or where an RMS norm reads it and would not be exact.
        """
        root = self.links.root(var)
        request = self.request(var)
        unpaired = root in self.classes.contracted and not state.pairs_with(state)
        weighted = request is None or request.entries.reading is not Entry.RESCALED
        weighs_copies = unpaired or (weighted and root in self.classes.rms and state.rms_norm() is None)
        return state.isometric() if weighs_copies and not self.stage.options.plain else state

    def is_free(self, var: Var) -> bool:
        """Whether a class has only weights, and nothing has determined their state yet."""
        return self.classes.free[self.links.root(var)] and self.known(var) is None

    def gap(self, link: Link, cause: str, remedy: str = "") -> None:
        """Record that a link is not exact. Each gap is recorded once."""
        gap = Gap.at(link.node, cause, remedy)
        if gap not in self.done.gaps:
            self.done.gaps.append(gap)

    def arrive(self, link: Link, state: IndexMap) -> None:
        """Let a state reach all targets of a link."""
        for target in link.targets:
            self.meet(link, target, state)

    def meet(self, link: Link, target: Var, state: IndexMap) -> None:
        """Let a state reach a class. The first state stays; another state makes a gap.

        If no norm reads the class and only new units differ, these units are given up instead.
        """
        present, root = self.known(target), self.links.root(target)
        if present is None:
            self.give(target, state)
            return
        if root in self.given_up:
            state = state.without(self.given_up[root])
        if present.same(state):
            return
        differ = present.differs(state)
        new_only = root not in self.classes.normed and not (differ & present.copies & state.copies).any()
        if new_only and present.without(differ).left_inverse(np.ones(present.size)) is not None:
            self.more[root] = differ
            return
        self.gap(
            link, f"{self.axis_name(target)} arrives here in another state than the rest of its sum expects"
        )

    def axis_name(self, var: Var) -> str:
        """The name of the statement's axis, or "an axis" for any other, for messages."""
        request = self.request(var)
        return self.stage.axis if request is not None else "an axis"
