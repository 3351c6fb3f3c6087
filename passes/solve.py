"""States: what every tensor of the result is, in terms of the source's, and where that cannot be exact.

Needs: links and one lowered statement. Gives: `Solution`, the state of every class of variables, the factors
of eps, and every gap.

One forward pass over the links. A class that only weights make takes the requested map (weighted by 1/sqrt(C)
where an RMS norm reads it and counts differ, or where two activations are contracted over it); norms,
products and nonlinearities carry it on; behind a gain it is plain copies again, unless a tied table reads it:
then it is the state that pairs with the table's. A weight that contracts a known state takes a left inverse
of it. docs/theory.md proves each step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np

from growc.axes import Space, factors, find
from growc.composites import assemble, distribute, scalable, shows
from growc.graph import Node, Value
from growc.indexmap import Bools, Floats, IndexMap
from growc.links import Link, Links, Var
from growc.passes.gains import Gains
from growc.plans import Gap
from growc.stage import Request, Sizes, Stage

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
    spent: set[Var] = field(default_factory=set)
    """The classes of such gains: behind mean rows they have nothing left to do."""
    given_up: dict[Var, IndexMap] = field(default_factory=dict)
    """For a class of which some units were given up: the state that weights make all the same."""

    def of(self, var: Var) -> IndexMap:
        """The state of a variable's class."""
        return self.states[self.links.root(var)]

    def whole(self, var: Var) -> IndexMap:
        """The state of a variable in terms of all units of the source, dropped ones too."""
        request = self.stage.requests.get(id(find(self.links.atoms[var])))
        state = self.of(var)
        return state.after(request.map) if request is not None and request.drops else state


def solve(
    links: Links, stage: Stage, sizes: Sizes, carriers: set[Value], changed: Collection[Value] = ()
) -> Solution:
    """Solve all classes. `sizes`: as they stand before the statement; `carriers`: weights and their layouts;
    `changed`: uses of weights that earlier statements have changed.

    Where two states meet in one class that no norm reads, and differ in new units only, those units are given
    up: readers take zero columns for them. That changes states upstream of the meeting too, so all is solved
    again.
    """
    given_up: dict[Var, Bools] = {}
    while True:
        solver = _Solver(links, stage, sizes, carriers, given_up, changed)
        done = solver.run()
        if not solver.more:
            return done
        given_up = {
            root: solver.more[root] | given_up[root]
            if root in given_up and root in solver.more
            else solver.more.get(root, given_up.get(root))  # type: ignore[misc]
            for root in [*given_up, *solver.more]
        }


class _Solver:
    def __init__(
        self,
        links: Links,
        stage: Stage,
        sizes: Sizes,
        carriers: set[Value],
        given_up: dict[Var, Bools],
        changed: Collection[Value],
    ) -> None:
        self.links, self.stage, self.sizes, self.given_up = links, stage, sizes, given_up
        self.more: dict[Var, Bools] = {}
        self.normed: set[Var] = set()
        self.done = Solution(links, stage)
        self.free: dict[Var, bool] = defaultdict(lambda: True)
        self.rms: set[Var] = set()
        self.quantised: set[Var] = set()
        self.partners: dict[Var, list[Var]] = defaultdict(list)
        self.readers = 0
        for var, owner in enumerate(links.owner):
            root = links.root(var)
            self.free[root] = self.free[root] and owner is not None and owner in carriers
            weight = None if owner is None else owner.weight
            if weight is not None and (weight.stored is not None or not weight.floating):
                self.quantised.add(root)
        for link in links.links:
            if link.kind in ("norm", "output"):
                self.normed.update(links.root(v) for v in link.sources)
            if link.formula is not None and not link.formula.centred:
                self.rms.update(links.root(v) for v in link.sources)
            if link.kind == "pair":
                a, b = (links.root(v) for v in link.sources)
                self.partners[a].append(b)
                self.partners[b].append(a)
        self.spread_rms()
        self.gains = Gains(links, changed, self.quantised)
        self.contracted = self._contracted(carriers)

    def _contracted(self, carriers: set[Value]) -> set[Var]:
        """Classes of activations that are contracted with each other, and what these are made from.

        Such states must pair, and no weight stands between to settle it: where nothing else determines them,
        both are isometries. A product with a table (rotary) or a gain passes the choice on to what it scales.
        """
        makers: dict[Var, list[Link]] = defaultdict(list)
        pending: list[Var] = []
        for link in self.links.links:
            roots = [self.links.root(v) for v in link.sources]
            owners = [self.links.owner[v] for v in link.sources]
            if link.kind == "pair" and not any(o in carriers for o in owners):
                pending += roots
            if link.kind != "make":
                for target in link.targets:
                    makers[self.links.root(target)].append(link)
        found: set[Var] = set()
        while pending:
            root = pending.pop()
            if root in found:
                continue
            found.add(root)
            for link in makers[root]:
                scaled = [self.links.root(v) for v in link.sources if link.kind in ("product", "quotient")]
                free = [r for r in scaled if all(m.kind in ("product", "quotient") for m in makers[r])]
                pending += [r for r in free if not self.free[r]][:1]
        return found

    def spread_rms(self) -> None:
        """What passes factors on to an RMS norm is read by it: a state may be scaled in front of both. Of a
        product that is the factor which weights make and nothing else reads.
        """
        made: set[Var] = set()
        bent: set[Var] = set()
        for link in self.links.links:
            made.update(self.links.root(t) for t in link.targets if link.kind != "make")
            if link.kind == "pointwise" and not link.homogeneous:
                bent.update(self.links.root(v) for v in link.sources)
        for link in reversed(self.links.links):
            roots = [self.links.root(v) for v in link.sources]
            if not any(self.links.root(t) in self.rms for t in link.targets):
                continue
            if link.kind == "pointwise" and link.homogeneous:
                self.rms.update(roots)
            elif link.kind == "product" and not any(self.free[r] for r in roots):
                self.rms.update([r for r in roots if r not in made | bent][:1])

    def run(self) -> Solution:
        for link in self.links.links:
            getattr(self, f"do_{link.kind}")(link)
        for var in range(len(self.links.atoms)):
            self.need(var)
        return self.done

    # ---------------------------------------------------------------- states

    def request(self, var: Var) -> Request | None:
        return self.stage.requests.get(id(find(self.links.atoms[var])))

    def known(self, var: Var) -> IndexMap | None:
        return self.done.states.get(self.links.root(var))

    def give(self, var: Var, state: IndexMap, verb: str = PRIMAL) -> IndexMap:
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
        unpaired = root in self.contracted and not state.pairs_with(state)
        wanted = unpaired or (root in self.rms and state.rms_norm() is None)
        return state.isometric() if wanted and not self.stage.options.plain else state

    def is_free(self, var: Var) -> bool:
        """Whether only weights stand in this class, and nothing has determined them yet."""
        return self.free[self.links.root(var)] and self.known(var) is None

    def gap(self, link: Link, cause: str, remedy: str = "") -> None:
        node = link.node
        made = Gap("" if node is None else node.name, "" if node is None else node.kind, cause, remedy)
        if made not in self.done.gaps:
            self.done.gaps.append(made)

    def arrive(self, link: Link, target: Var, state: IndexMap) -> None:
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
        new_only = root not in self.normed and not (differ & held.copies & state.copies).any()
        if new_only and held.without(differ).left_inverse(np.ones(held.size)) is not None:
            self.more[root] = differ
            return
        self.gap(
            link, f"{self.axis_name(target)} arrives here in another state than the rest of its sum expects"
        )

    def axis_name(self, var: Var) -> str:
        request = self.request(var)
        return self.stage.axis if request is not None else "an axis"

    # ---------------------------------------------------------------- links

    def do_make(self, link: Link) -> None:
        if link.node is not None and link.node.chain:  # a weight on its way to its use decides nothing
            return
        for target in link.targets:
            if not self.free[self.links.root(target)]:
                self.need(target)

    def do_broadcast(self, link: Link) -> None:
        """All units of a new axis are alike: a row of the requested map that does not sum to one is a copy of
        any.
        """
        for target in link.targets:
            state = self.base(target)
            kept = np.isclose(state.row_sums, 1.0) & ~state.junk
            index = np.where(kept, state.index, 0)
            weight, mean = np.where(kept, state.weight, 1.0), np.where(kept, state.mean, 0.0)
            self.arrive(link, target, IndexMap.of(state.source, index, weight, mean))

    def do_pointwise(self, link: Link) -> None:
        after = self.need(link.sources[0]).pointwise(zero=link.zero, homogeneous=link.homogeneous)
        for target in link.targets:
            self.arrive(link, target, after)

    def do_shift(self, link: Link) -> None:
        after = self.need(link.sources[0]).shifted()
        for target in link.targets:
            self.arrive(link, target, after)

    def do_product(self, link: Link, inverse: bool = False) -> None:
        if len(link.sources) == 1:
            state = self.need(link.sources[0])
            for target in link.targets:
                self.arrive(link, target, state.reciprocal() if inverse else state)
            return
        a, b = link.sources
        if self.is_free(a) and not self.is_free(b) and not inverse:
            a, b = b, a
        state = self.need(a)
        if self.is_free(b) and not (self.free[self.links.root(a)] and self.free[self.links.root(b)]):
            self.scale(link, a, b, inverse)
            return
        other = self.need(b)
        after = state.times(other.reciprocal() if inverse else other)
        for target in link.targets:
            self.arrive(link, target, after)

    def do_quotient(self, link: Link) -> None:
        divisor = link.sources[-1]
        if not self.is_free(divisor) and self.need(divisor).zeros.any():
            self.gap(link, f"units of {self.axis_name(divisor)} that are zero are divided by")
        self.do_product(link, inverse=True)

    def scale(self, link: Link, scaled: Var, gain: Var, inverse: bool) -> None:
        """A per-channel weight behind a state: it can take any factor on a row that is a copy.

        Means of what it makes are means of its products with what stands in front. Where only weights stand
        there, their rows are these means, and it does nothing to them.
        """
        target, state = link.targets[0], self.need(scaled)
        wanted = self.known(target)
        if wanted is None:
            wanted = self.give(target, self.choose(link, state, target))
        same = state.copies & wanted.copies & (state.index == wanted.index)
        lost = ~(same | (state.zeros & wanted.zeros) | wanted.junk)
        if lost.any() and (inverse or not self.weigh_means(state, wanted, lost, scaled, gain)):
            self.gap(
                link,
                f"a per-channel weight cannot carry {self.axis_name(gain)} into the state expected behind it",
            )
        top, bottom = (state.weight, wanted.weight) if inverse else (wanted.weight, state.weight)
        factor = np.divide(top, bottom, out=np.ones(state.size), where=same)
        index = np.where(same, state.index, -1)
        self.give(gain, IndexMap.of(state.source, index, factor, None, state.junk), GAIN)

    def weigh_means(self, state: IndexMap, wanted: IndexMap, lost: Bools, scaled: Var, gain: Var) -> bool:
        """Whether only mean units are lost, and what makes them in front of the gain can weigh them by it."""
        means = (state.index < 0) & (wanted.index < 0) & (state.mean != 0) & (state.mean == wanted.mean)
        beside = "" if (lost & ~means).any() else self.gains.weighing(scaled, gain, self.request(gain))
        if beside:
            self.done.factors[self.links.root(scaled)] = beside
            self.done.spent.add(self.links.root(gain))
        return bool(beside)

    def choose(self, link: Link, state: IndexMap, target: Var) -> IndexMap:
        """The state behind a gain: plain copies, or what pairs with the tied tables that read it, or what
        products of it with itself and norms behind it want.
        """
        plain = IndexMap.of(state.source, state.index, None, None, state.junk | (state.mean != 0))
        for partner in self.partners[self.links.root(target)]:
            table = self.done.states.get(partner)
            if table is None or plain.pairs_with(table):
                continue
            paired = plain.paired(table)
            if paired is not None:
                return paired
        return self.isometric(target, plain)

    def do_pair(self, link: Link) -> None:
        a, b = link.sources
        if self.is_free(a) and (not self.is_free(b) or self.constness(a) > self.constness(b)):
            a, b = b, a
        state = self.need(a)
        if self.is_free(b):
            self.read(link, state, b)
        elif not state.pairs_with(self.need(b)):
            tied = self.free[self.links.root(b)] or DUAL in (
                self.done.verbs.get(self.links.root(x)) for x in (a, b)
            )
            table = any(o is not None and o.weight is not None for o in self.owners(b))
            if tied or table:
                self.gap(
                    link,
                    f"a weight that also makes {self.axis_name(a)} reads it, "
                    "and no norm stands between to settle it",
                    "`untie head` lets the two become different weights",
                )
            else:
                self.gap(
                    link, f"two activations are contracted over {self.axis_name(a)}, whose maps do not pair"
                )

    def owners(self, var: Var) -> list[Value | None]:
        root = self.links.root(var)
        return [o for v, o in enumerate(self.links.owner) if self.links.root(v) == root]

    def constness(self, var: Var) -> int:
        owner = self.links.owner[var]
        return 0 if owner is None else 2 if owner.weight is not None else 1

    def read(self, link: Link, state: IndexMap, reader: Var) -> None:
        """A weight contracts this state: it takes a left inverse of it."""
        root = self.links.root(reader)
        self.done.ordinals[root] = self.readers
        self.readers += 1
        request = self.request(reader)
        shares = self.shares(state, request, self.done.ordinals[root])
        inverse = state.left_inverse(self.alone(state) if root in self.quantised else shares)
        if inverse is None:
            self.gap(link, f"not every unit of {self.axis_name(reader)} is still there")
            inverse = state.plain()
        self.give(reader, inverse, DUAL)
        self.done.read[root] = state
        drawn = request is not None and request.fill in ("random fill", "zero fill")
        if drawn and not self.stage.options.zero_outputs and state.junk.any():
            why = (
                "drawn at random"
                if request is not None and request.fill == "random fill"
                else "not zero any more"
            )
            self.gap(link, f"it reads new units of {self.axis_name(reader)} that are {why}")

    def alone(self, state: IndexMap) -> Floats:
        """Shares that leave each unit to its first copy: integers and their scales stay as they are."""
        shares = np.zeros(state.size)
        rows = np.flatnonzero(state.copies)
        _, first = np.unique(state.index[rows], return_index=True)
        shares[rows[first]] = 1.0
        return shares

    def shares(self, state: IndexMap, request: Request | None, ordinal: int) -> Floats:
        """The share of each copy in a reading weight; the shares of one unit's copies sum to one."""
        rows = state.copies
        groups = np.where(rows, state.index, 0)
        counts = np.bincount(groups[rows], minlength=state.source)
        if request is None:
            return 1.0 / np.maximum(counts[groups], 1)
        if self.stage.options.zero_outputs:
            return np.asarray(rows & ~request.new, dtype=np.float64)
        shares = 1.0 / np.maximum(counts[groups], 1)
        if self.stage.options.split_random:
            shares[rows] = request.draws.at("shares", ordinal).shares(groups[rows], state.source)
        return shares

    # ---------------------------------------------------------------- whole axes

    def assemble(self, variables: tuple[Var, ...], space: Space | None, *, brief: bool = False) -> IndexMap:
        """The map of a whole axis from the states of its leaves. `brief`: of factors of a product that stay,
        two units stand for all.
        """
        assert space is not None
        pending = [self.need(v) for v in variables]
        if brief and all(f.kind == "atom" for f in factors(space)):
            pending = [IndexMap.identity(min(s.size, 2)) if s.is_identity else s for s in pending]
        made = assemble(space, pending)
        assert not pending
        return made

    def do_choice(self, link: Link) -> None:
        assert link.node is not None
        what = f"{link.node.op} over {self.stage.axis}"
        states = [self.need(v) for v in link.sources]
        if not all(state.is_order and state.same(states[0]) for state in states):
            self.gap(link, f"{what} reads units that are not all there once")
        elif link.detail == "pointwise" and any(r.drops for v in link.sources if (r := self.request(v))):
            self.gap(link, f"{what} chooses from fewer, or shares out among fewer")

    def do_statistic(self, link: Link) -> None:
        state = self.assemble(link.sources, link.space, brief=True)
        kept: dict[str, Callable[[], bool]] = {
            "mean": state.is_weighted_evenly,
            "sum": state.sums_to_one,
            "extreme": state.covers,
            "fold": lambda: state.is_identity,
            "fold squares": lambda: state.is_identity,
        }
        if not kept[link.detail]():
            self.gap(link, f"a {link.detail} over {self.stage.axis} weighs the units differently now")

    def do_norm(self, link: Link) -> None:
        assert link.space is not None
        assert link.formula is not None
        state = self.assemble(link.sources, link.space, brief=True)
        found = link.formula.behind(state)
        before = [self.need(v) for v in link.sources]
        if found is None:
            after, factor = before, 1.0
            self.gap(link, *self.norm_cause(link, state))
        else:
            behind, factor = found
            row = int(np.flatnonzero(behind.copies)[0])
            dropped = self.dropped(link)
            scale = float(behind.weight[row] / state.weight[row]) / dropped**0.5
            factor *= dropped**0.5 if link.formula.outside else dropped
            if not np.isclose(scale, 1.0, 1e-9) and not scalable(link.space):
                self.gap(
                    link, f"{link.formula.name} over {self.stage.axis} scales a segment of a single unit"
                )
            after = distribute(link.space, before, scale)
        if factor != 1.0:
            self.scale_eps(link, factor)
        for target, one in zip(link.targets, after, strict=True):
            self.arrive(link, target, one)

    def dropped(self, link: Link) -> float:
        """By how much the mean square of an axis grows as units go that contribute nothing to it: d/d'.

        It counts where `rescaled in norms` says so, which makes dropping such units exact.
        """
        assert link.space is not None
        assert link.formula is not None
        if self.stage.options.rescale != "norms" or link.formula.total:
            return 1.0
        after = self.sizes.copy()
        after.apply(self.stage)
        return self.sizes.of(link.space)[0] / after.of(link.space)[0]

    def scale_eps(self, link: Link, factor: float) -> None:
        norm, node = link.norm, link.node
        assert node is not None
        if norm is not None and not norm.by_operator:
            if norm.eps is not None:
                self.done.eps[norm.eps_weight()] = factor
        elif link.formula is not None and not link.formula.total:
            self.done.epsilons[node] = factor

    def norm_cause(self, link: Link, state: IndexMap) -> tuple[str, str]:
        assert link.formula is not None
        name, axis, fill = link.formula.name, self.stage.axis, "average fill"
        multiple = f"a multiple of {state.source}" if len(link.sources) == 1 else "a whole multiple"
        if state.junk.any():
            return f"{name} over {axis} sees units that are no combination of the source's", ""
        if state.zeros.any() and any(r.fill == fill for r in self.stage.requests.values()):
            cause = f"{name} over {axis} reads a stream that a norm makes (post-norm), "
            cause += "where mean units have become zeros"
            return cause, f"{multiple} with `cyclic copy` is exact"
        if state.zeros.any():
            return (
                f"{name} over {axis} sees zero units on a stream that is not centred",
                f"`{fill}` is exact here",
            )
        if state.mean.any():
            return f"{name} over {axis} sees mean units beside copies", ""
        counts = ", ".join(map(str, np.unique(state.counts)))
        remedy = f"{multiple} with `cyclic copy` is exact"
        if link.formula.centred:
            remedy = f"`{fill}` is exact where no norm makes the stream; {remedy}"
        return f"{name} over {axis} sees unequal copy counts ({counts})", remedy

    def do_state(self, link: Link) -> None:
        assert link.space is not None
        for var in link.sources:
            self.need(var)
        states = [self.done.whole(v) for v in link.sources]
        self.done.outputs[link.detail, link.axis] = assemble(link.space, states)

    def do_output(self, link: Link) -> None:
        self.do_state(link)
        for var in link.sources:
            state, wanted = self.need(var), self.base(var)
            if not shows(state, wanted):
                self.gap(
                    link,
                    f"the output `{link.detail}` carries {self.axis_name(var)} in another state than it had",
                )
