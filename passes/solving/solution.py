"""The states of one statement while they are solved: what holds them, and how one is given or refused.

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
from growc.ir.lowered_statement import Request, Sizes, Stage
from growc.passes.dataflow.ranges import Ranges
from growc.passes.solving.class_facts import Classes
from growc.passes.solving.constraints import Link, Links, Var
from growc.plans.plan import Gap
from growc.recipe.fills import Entry

PRIMAL, DUAL, GAIN = "makes", "reads", "scales"


@dataclass
class Solution:
    """The solved states of one statement."""

    links: Links
    stage: Stage
    states: dict[Var, IndexMap] = field(default_factory=dict)
    verbs: dict[Var, str] = field(default_factory=dict)
    read: dict[Var, IndexMap] = field(default_factory=dict)
    """For a class that contracts activations: the state that arrives."""
    ordinals: dict[Var, int] = field(default_factory=dict)
    eps: dict[Value, float] = field(default_factory=dict)
    """Factors of eps, by the use of the weight that holds it (norms that share their root share it)."""
    epsilons: dict[Node, float] = field(default_factory=dict)
    """The same for norms that are operators, which have it as an attribute."""
    gaps: list[Gap] = field(default_factory=list)
    outputs: dict[tuple[str, int], IndexMap] = field(default_factory=dict)
    """The state of every affected axis of a model output, by (name, axis)."""
    factors: dict[Var, str] = field(default_factory=dict)
    """For a class that weights make in front of a gain: the gain, which their mean rows are weighted by."""
    ones: set[Var] = field(default_factory=set)
    """The classes of gains whose rows are one where they are no copies: behind rows that are weighted by them
    they have nothing left to do, and of divisors the mean may be zero."""
    given_up: dict[Var, IndexMap] = field(default_factory=dict)
    """For a class of which some units were given up: the state that weights make all the same."""

    def of(self, var: Var) -> IndexMap:
        """The state of a variable's class."""
        return self.states[self.links.root(var)]

    def request(self, var: Var) -> Request | None:
        """What the statement asks of a variable's atom."""
        return self.stage.requests.get(find(self.links.atoms[var]))

    def whole(self, var: Var) -> IndexMap:
        """The state of a variable in terms of all units of the source, dropped ones too."""
        request = self.request(var)
        state = self.of(var)
        return state.after(request.map) if request is not None and request.drops else state


class Solving:
    """The states that are known so far, and what rules do to them.

    `given_up`: units of classes, for which readers take zero columns; `changed`: uses of weights that earlier
    statements have changed.
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
        """Units that are to be given up, by class."""
        self.done = Solution(links, stage)
        self.request = self.done.request
        self.readers = 0

    def known(self, var: Var) -> IndexMap | None:
        """The state of a variable's class, where something has determined it."""
        return self.done.states.get(self.links.root(var))

    def give(self, var: Var, state: IndexMap, verb: str = PRIMAL) -> IndexMap:
        """Let a class have a state, less the units that are given up; returns it."""
        root = self.links.root(var)
        if root in self.given_up:
            self.done.given_up[root] = state
            state = state.without(self.given_up[root])
        self.done.states[root] = state
        self.done.verbs[root] = verb
        return state

    def base(self, var: Var) -> IndexMap:
        """The requested map of an atom (of its units that are not dropped); the identity where nothing is
        requested.
        """
        request = self.request(var)
        return IndexMap.identity(self.sizes.of(self.links.atoms[var])[0]) if request is None else request.left

    def need(self, var: Var) -> IndexMap:
        """The state of a class; one that nothing determines takes the requested map."""
        state = self.known(var)
        if state is not None:
            return state
        return self.give(var, self.isometric(var, self.base(var)))

    def isometric(self, var: Var, state: IndexMap) -> IndexMap:
        """A state of a class, weighted where it has to be: contracted with itself, or read by RMS norms."""
        root = self.links.root(var)
        request = self.request(var)
        unpaired = root in self.classes.contracted and not state.pairs_with(state)
        weighted = request is None or request.entries.reading is not Entry.RESCALED
        wanted = unpaired or (weighted and root in self.classes.rms and state.rms_norm() is None)
        return state.isometric() if wanted and not self.stage.options.plain else state

    def is_free(self, var: Var) -> bool:
        """Whether only weights stand in this class, and nothing has determined them yet."""
        return self.classes.free[self.links.root(var)] and self.known(var) is None

    def gap(self, link: Link, cause: str, remedy: str = "") -> None:
        """Say that a link is not exact, once."""
        made = Gap.at(link.node, cause, remedy)
        if made not in self.done.gaps:
            self.done.gaps.append(made)

    def arrive(self, link: Link, state: IndexMap) -> None:
        """A state reaches all targets of a link."""
        for target in link.targets:
            self.meet(link, target, state)

    def meet(self, link: Link, target: Var, state: IndexMap) -> None:
        """A state reaches a class: the first one stays, another one is a gap."""
        held, root = self.known(target), self.links.root(target)
        if held is None:
            self.give(target, state)
            return
        if root in self.given_up:
            state = state.without(self.given_up[root])
        if held.same(state):
            return
        differ = held.differs(state)
        new_only = root not in self.classes.normed and not (differ & held.copies & state.copies).any()
        if new_only and held.without(differ).left_inverse(np.ones(held.size)) is not None:
            self.more[root] = differ
            return
        self.gap(
            link, f"{self.axis_name(target)} arrives here in another state than the rest of its sum expects"
        )

    def axis_name(self, var: Var) -> str:
        """The axis of the statement, or any other, in words."""
        request = self.request(var)
        return self.stage.axis if request is not None else "an axis"
