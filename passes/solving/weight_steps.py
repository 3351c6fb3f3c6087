"""The steps that change each weight, made from the states.

Needs: a solved statement. Gives: for every use of a weight, one `AxisStep` for each of its axes that changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from growc.algebra.indexmap import Floats, IndexMap, Ints
from growc.algebra.sinusoid import is_sinusoid
from growc.algebra.space import Space, find
from growc.ir.graph import Graph, Value
from growc.ir.lowered_statement import SpaceRequest
from growc.passes.axes.ties import Tie
from growc.passes.layers.origin_of_layers import Ancestry
from growc.passes.solving.choices.shares import gaps_of_ranking
from growc.passes.solving.constraints import Var
from growc.passes.solving.solution import MAKES, READS, SCALES, Solution
from growc.passes.soundness.narrowed import means_are_met
from growc.plans.plan import CONTINUED, DRAWN, MEAN, ONE, ZERO, AxisStep, Gap, Layout, LeafStep, Noise
from growc.recipe.fills import Entry
from growc.recipe.option_rules import NoiseOption

ROUTER_NOISE = 0.01
"""Scale of the noise between copies of a router's rows, where the router may choose some copies only."""


def weight_steps(
    solution: Solution, ties: Sequence[Tie], ancestry: Ancestry, routers: Collection[Value] = ()
) -> dict[Value, list[AxisStep]]:
    """The steps of every use that the statement changes, in canonical order.

    Appends a gap to `solution.gaps` where noise is not balanced.
    """
    return _Steps(solution, ties, ancestry, routers).all()


class _Steps:
    def __init__(
        self, solution: Solution, ties: Sequence[Tie], ancestry: Ancestry, routers: Collection[Value]
    ) -> None:
        self.ancestry = ancestry
        parted = any(
            one for choice in solution.stage.choices for one in gaps_of_ranking(solution.stage, choice)
        )
        self.parted = frozenset(routers) if parted else frozenset()
        """Router weights whose copied rows must differ: of equal rows, the first would always be chosen."""
        self.solution, self.links, self.stage = solution, solution.links, solution.stage
        self.request = solution.request
        self.leader = {use: tie.uses[0] for tie in ties for use in tie.uses}
        self.heads = {use for tie in ties if tie.is_head for use in tie.uses}
        self.ordinals: dict[object, int] = {}
        self.means_are_met = means_are_met(solution)

    def all(self) -> dict[Value, list[AxisStep]]:
        steps_of_use: dict[Value, list[AxisStep]] = {}
        for use in self.links.axes.graph.uses():
            steps = [s for axis in range(use.rank) if (s := self.step(use, axis)) is not None]
            if steps:
                steps_of_use[use] = steps
        return steps_of_use

    def step(self, use: Value, axis: int) -> AxisStep | None:
        variables = self.links.of(use, axis)
        if not variables:
            return None
        if any(v not in self.links.visited for v in variables):
            raise AssertionError(f"no operator speaks for axis {axis} of {use.name}")
        pending, self.axis = list(variables), axis
        layout = self.layout(use, self.links.axes.of(use)[axis], pending)
        verbs = [self.solution.verbs[self.links.root(v)] for v in variables if self.request(v) is not None]
        return (
            None if layout.is_identity else AxisStep(axis, layout, (verbs or ["makes"])[0], self.stage.axis)
        )

    def layout(self, use: Value, space: Space, pending: list[Var]) -> Layout:
        space = find(space)
        if space.kind == "atom":
            step = LeafStep.keep(space.size[0]) if space.unit else self.leaf(use, pending.pop(0))
            return Layout("leaf", (), step)
        return Layout(space.kind, tuple(self.layout(use, p, pending) for p in space.parts))

    def leaf(self, use: Value, var: Var) -> LeafStep:
        root = self.links.root(var)
        state, verb = self.solution.states[root], self.solution.verbs[root]
        if verb == MAKES:
            state = self.solution.given_up.get(root, state)
        request = self.request(var)
        if request is not None and request.drops:
            whole = state.after(request.map)
            return LeafStep(
                whole.source, whole.index, whole.weight, np.full(whole.size, ZERO, dtype=np.int64)
            )
        if request is not None and self.continues(use, request):
            filler = np.where(request.new, CONTINUED, ZERO)
            index = np.where(request.new, -1, request.map.index)
            return LeafStep(state.source, index, np.ones(state.size), filler)
        weight = state.weight.copy()
        filler = np.full(state.size, ZERO, dtype=np.int64)
        if request is not None:
            self.fill(use, root, state, request, filler, weight)
        noise = None if request is None else self.noise(use, root, state, request)
        key, drawn = 0, bool((filler == DRAWN).any())
        if request is not None and (
            drawn or _is_matrix(use)
        ):  # exporters drop biases of zero, so biases must not count in the numbering
            ordinal = self.ordinal(use)
            key = request.draws.at("new", verb, ordinal).key if drawn else 0
        block = 1 if request is None or verb == SCALES else request.unit
        factors = self.solution.factors.get(root, "")
        free = not self.means_are_met and verb == MAKES
        std = self.stage.options.std if drawn else None
        around = drawn and std is None and bool(self.stage.options.reset)
        index = state.index
        return LeafStep(state.source, index, weight, filler, key, noise, block, factors, free, std, around)

    def continues(self, use: Value, request: SpaceRequest) -> bool:
        """Whether a table over positions is sinusoidal: its formula continues it, and the fill does not."""
        weight = use.weight
        if self.stage.axis != "positions" or weight is None or not weight.floating or len(weight.shape) < 2:
            return False
        table = np.moveaxis(weight.read(), self.axis, 0)
        return is_sinusoid(table.reshape(table.shape[0], -1))

    def ordinal(self, use: Value) -> int:
        identity = self.ancestry.identity(self.leader.get(use, use), self.stage.number)
        return self.ordinals.setdefault(identity, len(self.ordinals))

    def fill(
        self, use: Value, root: Var, state: IndexMap, request: SpaceRequest, filler: Ints, weight: Floats
    ) -> None:
        """Set `filler` and `weight` of the rows that are no copies, by the fill and by the weight's verb."""
        verb, entries = self.solution.verbs[root], request.entries
        others = ~state.copies
        if verb == SCALES and (root in self.solution.ones or not use.floating):
            filler[others] = ONE
            weight[others] = 1.0
        elif verb == SCALES:
            drawn = entries.scaling is Entry.DRAWN
            filler[others] = (DRAWN if _is_matrix(use) else ONE) if drawn else MEAN
            weight[others] = weight[~others].mean() if (~others).any() and not drawn else 1.0
        elif verb == READS:
            if self.stage.options.zero_outputs:
                return
            if entries.reading is not Entry.ZERO:
                drawn_rows = state.junk if entries.reading is Entry.ANY else others
                filler[drawn_rows] = DRAWN
                weight[drawn_rows] = 1.0
            if entries.reading is Entry.RESCALED:
                arriving = np.abs(self.solution.read[root].weight[others])
                weight[others] = np.sqrt(state.source / state.size) / np.where(arriving > 0, arriving, 1.0)
        else:
            blocks = state.junk & (entries.making is Entry.MEAN) & (request.unit > 1)
            means = (state.mean != 0) | blocks
            filler[means] = MEAN
            weight[means] = np.where(blocks, 1.0, state.mean)[means]
            if entries.making is Entry.DRAWN and _is_matrix(use):
                filler[state.junk] = DRAWN
                weight[state.junk] = 1.0

    def noise(self, use: Value, root: Var, state: IndexMap, request: SpaceRequest) -> Noise | None:
        option, verb = self.stage.options.noise, self.solution.verbs[root]
        if option is None and use in self.parted and verb == MAKES and request.new.any():
            key = request.draws.at("apart", self.ordinal(use)).key
            return Noise(key, ROUTER_NOISE, request.new & state.copies, request.map.index)
        if option is None or verb == SCALES or use in self.heads or not _is_matrix(use):
            return None
        if verb == READS and self.stage.options.zero_outputs:
            return None
        assert use.weight is not None
        if (
            not use.weight.floating
            or use.weight.stored is not None
            or (verb != READS and option.kind != "new")
        ):
            return None
        rows = (
            request.new
            if option.kind == "new"
            else state.copies & (self.counts(request)[request.map.index] > 1)
        )
        balance = None
        if option.kind == "balanced":
            arriving = self.solution.read[root]
            rows, balance = rows & arriving.copies, arriving.weight
        if not rows.any():
            return None
        key = request.draws.at("noise", verb, self.ordinal(use)).key
        groups = np.where(rows, request.map.index, -1)
        if balance is None and (verb == READS or not self.unmet(request)):
            self.unbalanced(use, option)
        return Noise(key, option.scale, rows, groups, balance)

    def unmet(self, request: SpaceRequest) -> bool:
        """Whether no input of the source reaches the new units.

        That is so where units are found by number: new units have new numbers, and nothing sums over them.
        """
        summed = (v for k in self.links.links if k.kind in ("pair", "statistic", "norm") for v in k.sources)
        return find(request.space).addressed is not None and all(
            self.request(v) is not request for v in summed
        )

    @staticmethod
    def counts(request: SpaceRequest) -> Ints:
        return np.concatenate([request.map.counts, [0]])  # index -1 looks at the last entry

    def unbalanced(self, use: Value, option: NoiseOption) -> None:
        cause = f"the noise on {self.stage.axis} changes the function"
        remedy = f"`noise {option.scale:g} balanced` keeps it"
        if not any(g.cause == cause for g in self.solution.gaps):
            node = use.users[0][0]
            self.solution.gaps.append(Gap(node.name, node.op, cause, remedy))


def _is_matrix(use: Value) -> bool:
    assert use.weight is not None
    return sum(d > 1 for d in use.weight.shape) >= 2


def put_in_order(graph: Graph) -> Iterator[tuple[Value, list[AxisStep]]]:
    """The first step of each use whose units are stored in another order than the model reads them in."""
    for use in graph.uses():
        weight = use.weight
        if weight is not None and weight.order is not None and weight.upcycled is None:
            order = weight.order
            identity = LeafStep.keep(len(order.units))
            factors = np.where(order.units < 0, 0.0, identity.weight)
            leaf = replace(identity, before=order.stored, index=order.units, weight=factors)
            yield use, [AxisStep(order.axis, Layout("leaf", (), leaf), "makes", order.name)]
