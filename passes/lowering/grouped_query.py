"""Combined effect of statements on `heads` and `kv_heads` of grouped-query attention.

K key/value heads serve G query heads each; K' and G' are the numbers after the last statement. If `kv_heads`
grow and G' < G, every group first splits into G/G'. Then the maps of `kv_heads` act on whole groups, so that
query heads travel with them. The maps of `heads` act inside groups (docs/language.md). A ranking of `heads`
ranks each group by itself: a shuffle puts the remaining heads in front, and all groups drop the rest.

`by mean` averages key/value heads (growc.passes.heads.move_heads) and leaves query heads as they are.
Statements before it are settled first, and statements after it see other groups. If every group has one head
(growc.passes.heads.insert_groups), statements before `by mean` act on both names, as in a model without
groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from growc.algebra.indexmap import IndexMap, Ints
from growc.algebra.space import Space, atoms_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.ir.lowered_statement import Regroup, Stage, Units, pool, shuffle, split
from growc.passes.heads.insert_groups import averages
from growc.passes.lowering.axis_maps import AxisStatement, Requests, chosen, size_span
from growc.passes.ranking.rankings import listed_units
from growc.passes.roles.name_axes import RoleAxis, Roles
from growc.recipe import syntax_tree as ast
from growc.recipe.option_rules import StatementOptions
from growc.recipe.ranking_rules import RANKINGS

POOL = "key/value heads cannot become means"
SPLIT = "groups of query heads cannot split"
SHUFFLE = "groups of query heads cannot have their heads in another order"


@dataclass(frozen=True, eq=False)
class Pair:
    """The `heads` and `kv_heads` of one grouped attention.

    keys, group: the atoms that count key/value heads, and query heads in each group.
    """

    heads: RoleAxis
    kv_heads: RoleAxis
    keys: Space
    group: Space

    @property
    def alone(self) -> bool:
        """Whether every key/value head has one query head in the source."""
        return self.group.size[0] == 1

    def bearer(self, name: str) -> RoleAxis | None:
        """The axis that has this name."""
        return {"heads": self.heads, "kv_heads": self.kv_heads}.get(name)


def pairs_of(roles: Roles) -> list[Pair]:
    """Every attention whose heads are a row-major (keys group), both of them atoms."""
    pairs = []
    for heads in roles.axes.get("heads", []):
        keys = roles.without_groups(heads.spaces)
        group = [s for s in heads.spaces if s in roles.expanded]
        if len(keys) == len(group) == 1:
            pairs.append(Pair(heads, RoleAxis(keys), keys[0], group[0]))
    return pairs


@dataclass(frozen=True)
class SettledHeads:
    """The final sizes of a pair.

    split: into how many groups each group of the source splits, before the fill of `kv_heads`.
    keys: the number of key/value heads, K'.
    group: the number of query heads in every group, G'.
    """

    split: int
    keys: int
    group: int


def settle(
    keys: int, group: int, kv_heads: int, heads: int, span: Span, others: Sequence[Span]
) -> SettledHeads:
    """Settle the sizes that follow from K, G and the sizes asked for.

    Raises GrowError (G301) if these do not make whole groups.
    """
    labelled = tuple((s, "and this") for s in others)
    if heads % kv_heads:
        each = f"every group would have {heads / kv_heads:.4g}"
        message = f"{heads} `heads` cannot share {kv_heads} `kv_heads`: {each}"
        help_ = f"use a multiple of {kv_heads} for `heads`"
        raise GrowError(Diagnostic("G301", message, span, "", (), help_, labelled))
    new_group = heads // kv_heads
    if new_group >= group or kv_heads <= keys:
        return SettledHeads(1, kv_heads, new_group)
    if group % new_group:
        message = f"groups of {group} query heads cannot split into groups of {new_group}"
        divisors = ", ".join(str(d) for d in range(1, group + 1) if group % d == 0)
        help_ = f"a group can become {divisors} or more"
        raise GrowError(Diagnostic("G301", message, span, "", (), help_, labelled))
    return SettledHeads(group // new_group, kv_heads, new_group)


@dataclass
class Pairs:
    """Statements on grouped heads, postponed until the last statement before `by mean`, or of the recipe, is
    known.
    """

    requests: Requests
    pairs: list[Pair]
    asks: dict[Pair, list[AxisStatement]] = field(default_factory=dict)
    """The postponed requests of each pair."""
    sized: set[Pair] = field(default_factory=set)
    """Pairs whose number of `heads` the recipe gives."""
    pooled: set[Pair] = field(default_factory=set)
    """Pairs whose key/value heads were averaged."""
    held: dict[Pair, Ints] = field(default_factory=dict)
    """The query heads of the source that stand in every group, by pair; -1 for a head that is not one of
    them.
    """
    fronts: dict[Stage, list[Stage]] = field(default_factory=dict)
    """Stages that act before a statement's own stage: first the shuffles, then the splits."""
    notes: list[str] = field(default_factory=list)
    """Notes for a reader of the plan."""

    def of(self, name: str, target: RoleAxis) -> Pair | None:
        """The pair whose axis of this name is the target."""
        return next((p for p in self.pairs if target == p.bearer(name)), None)

    def without_groups(self, name: str, target: RoleAxis) -> Pair | None:
        """The pair that has the target as both of its axes, because no group has several heads yet."""
        pair = self.of(name, target)
        return pair if pair is not None and pair.alone and pair not in self.pooled else None

    def bears(self, space: Space) -> bool:
        """Whether an atom belongs to a pair."""
        return any(space in (p.keys, p.group) for p in self.pairs)

    def takes(self, ask: AxisStatement) -> bool:
        """Whether an axis belongs to a pair.

        Its statement is then postponed, or settled at once if it averages.
        """
        axis, sizes = ask.stage.axis, self.requests.sizes
        pair = self.of(axis, ask.target)
        if pair is None or (self.without_groups(axis, ask.target) and not averages(ask.statement)):
            return False
        if averages(ask.statement):
            self.settle_one(pair)
            self.pool(pair, ask)
            return True
        before, heads = sizes.product(ask.target.spaces), pair.heads.spaces
        if axis == "heads":
            self.sized.add(pair)
        elif isinstance(ask.statement, ast.Subclone) and pair not in self.sized:
            sizes.ask(heads, sizes.product(heads) * ask.after // before)
        sizes.ask(ask.target.spaces, ask.after)
        self.asks.setdefault(pair, []).append(ask)
        return True

    def make_way(self, name: str, targets: Sequence[RoleAxis]) -> None:
        """Settle the pairs whose atoms a statement on another name maps.

        That statement applies to the heads as they stand then.
        """
        if name in ("heads", "kv_heads"):
            return
        atoms = {atom for target in targets for atom in atoms_of(target.spaces)}
        for pair in self.pairs:
            if pair.keys in atoms or pair.group in atoms:
                self.settle_one(pair)

    def settle(self) -> list[Diagnostic]:
        """Settle all pairs on the sizes after the last statement; return the errors."""
        errors: list[Diagnostic] = []
        for pair in self.pairs:
            try:
                self.settle_one(pair)
            except GrowError as error:
                errors += error.diagnostics
        return errors

    def settle_one(self, pair: Pair) -> None:
        """Settle the postponed statements on one pair."""
        postponed, sizes = self.asks.pop(pair, []), self.requests.sizes
        self.sized.discard(pair)
        if not postponed:
            return
        keys, group = sizes.of(pair.keys)[0], sizes.of(pair.group)[0]
        heads, kv_heads = sizes.product(pair.heads.spaces), sizes.product(pair.kv_heads.spaces)
        spans = [size_span(a.statement) for a in postponed]
        goal = settle(keys, group, kv_heads, heads, spans[-1], spans[:-1])
        front = self.fronts.setdefault(postponed[0].stage, [_front("heads"), _front("kv_heads")])
        if goal.split > 1:
            units = split(keys, group, goal.split)
            sizes.regroup(self.regroup(pair, SPLIT, units, postponed[0], front[1]))
            if keys * goal.split == goal.keys:
                options = [a.stage.options for a in postponed if a.stage.axis == "kv_heads"]
                idle = [words for one in options for words in (*one.on_makers, *one.on_readers)]
                why = "groups that split copy their key and value heads as they are"
                self.notes += [f"`{words}` changes nothing: {why}" for words in idle]
        order = np.tile(np.arange(group), (keys, 1))
        for name, space, last in (("kv_heads", pair.keys, goal.keys), ("heads", pair.group, goal.group)):
            asks = [a for a in postponed if a.stage.axis == name]
            for ask in asks:
                current = sizes.of(space)[0]
                wanted = ask.after if name == "kv_heads" else ask.after // goal.keys
                between = min(max(wanted, current), last) if goal.split > 1 else wanted
                after = last if ask is asks[-1] else between
                if not isinstance(ask.statement, ast.Widen):
                    after = min(after, current)
                if name == "heads" and isinstance(ask.statement, ast.Subclone | ast.Reorder):
                    order = self.ranked(pair, ask, order, current, after)
                elif after != current or (isinstance(ask.statement, ast.Reorder) and current > 1):
                    self.requests.add(ask, [space], current, after)
                sizes.apply_to(space, ask.stage)
        if (order != np.arange(group)).any():
            span = postponed[0].statement.span
            front[0].regroups.append(Regroup(pair.keys, pair.group, *shuffle(order), SHUFFLE, span=span))
            self.held[pair] = np.take_along_axis(self.heads(pair), order, axis=1)
        self.check(pair, goal, spans[-1])
        for bearer in (pair.heads, pair.kv_heads):
            sizes.asked.pop(tuple(s for s in bearer.spaces), None)

    def pool(self, pair: Pair, ask: AxisStatement) -> None:
        """Replace key/value heads by means; query heads stay as they are.

        Raises GrowError (G301) unless each mean has equally many heads.
        """
        keys, group = (self.requests.sizes.of(s)[0] for s in (pair.keys, pair.group))
        if keys % ask.after:
            message = f"{keys} key/value heads cannot become the means of as many each: {ask.after} of them"
            divisors = ", ".join(str(d) for d in range(1, keys) if keys % d == 0)
            remedy = f"they can become {divisors}"
            raise GrowError(Diagnostic("G301", message, size_span(ask.statement), help=remedy))
        parts = keys // ask.after
        if parts == 1:
            return
        self.regroup(pair, POOL, pool(keys, group, parts), ask, ask.stage)
        self.pooled.add(pair)

    def heads(self, pair: Pair) -> Ints:
        """The query heads of the source that stood in every group when the current statements began: those of
        the recipe, or those after `by mean`.
        """
        keys, group = pair.keys.size[0], pair.group.size[0]
        return self.held.get(pair, np.arange(keys * group).reshape(keys, group))

    def standing(self, pair: Pair, keys: int, group: int) -> Ints:
        """The query heads of the source that stand in every group now; -1 if that is unknown."""
        source_heads, maps = self.heads(pair), self.requests.rankings.maps
        both = zip((pair.keys, pair.group), source_heads.shape, strict=True)
        rows, columns = (maps.get(space, IndexMap.identity(n)) for space, n in both)
        if (rows.size, columns.size) != (keys, group) or not (rows.copies.all() and columns.copies.all()):
            return np.full((keys, group), -1)
        return source_heads[rows.index][:, columns.index]

    def regroup(
        self, pair: Pair, cannot: str, units: tuple[Units, Units], ask: AxisStatement, stage: Stage
    ) -> Regroup:
        """Move key/value heads together with the query heads of their groups."""
        averaging = averages(ask.statement)
        self.require_free(ask, (pair.keys, pair.group), grows=not averaging)
        regrouping = Regroup(pair.keys, pair.group, *units, cannot, averaging, ask.statement.span)
        stage.regroups.append(regrouping)
        keys, group = (self.requests.sizes.of(s)[0] for s in (pair.keys, pair.group))
        self.held[pair] = self.standing(pair, keys, group).reshape(regrouping.sizes)
        for space, space_units, size in zip((pair.keys, pair.group), units, (keys, group), strict=True):
            self.requests.rankings.pool(space, space_units.mean(size))
        return regrouping

    def require_free(self, ask: AxisStatement, spaces: Sequence[Space], *, grows: bool) -> None:
        """Raise GrowError (G304) if an operator prevents other units, or more of them."""
        placing = replace(self.requests.placing(ask), grows=grows)
        for space in spaces:
            if placing.fixed(space) is not None:
                raise placing.frozen(space)

    def ranked(self, pair: Pair, ask: AxisStatement, order: Ints, now: int, after: int) -> Ints:
        """The heads of every group in their new order. If heads are dropped, those that stay come first."""
        statement = ask.statement
        assert not isinstance(statement, ast.Widen)
        ranking = statement.ranking
        rule = RANKINGS[ranking.name]
        if rule.places is not None:
            drops = isinstance(statement, ast.Subclone) and after < now
            if drops or not rule.orders:
                self.requests.add(ask, [pair.group], now, after)
            return order
        self.require_free(ask, [pair.group], grows=False)
        self.requests.rankings.allow(None, [pair.group], ranking.span)
        columns = self.columns(pair, ask, len(order), now)
        places = self.best(pair, ask, order[:, columns], after)
        if isinstance(statement, ast.Subclone):
            stays = np.zeros(places.shape, dtype=bool)
            np.put_along_axis(stays, places[:, :after], True, axis=1)
            places = np.argsort(~stays, axis=1, kind="stable")
        self.requests.unmoved(ask, pair.group, places[:, :after], now)
        new_order = order.copy()
        new_order[:, columns] = np.take_along_axis(order[:, columns], places, axis=1)
        if after < now:
            self.requests.put(ask, chosen(ask, pair.group, now, np.arange(after)))
        return new_order

    def columns(self, pair: Pair, ask: AxisStatement, keys: int, now: int) -> Ints:
        """The places in the groups of `heads` at which the remaining heads stood, the same for each of
        `keys`.

        Raises GrowError (G309) if the heads were widened or split.
        """
        source_heads = self.heads(pair)
        group_map = self.requests.rankings.maps.get(pair.group, IndexMap.identity(now))
        traceable = (keys, group_map.source) == source_heads.shape and (source_heads >= 0).all()
        if not traceable or not group_map.copies.all() or (group_map.counts > 1).any():
            message = "query heads that were widened, or split into other groups, cannot be ranked"
            raise GrowError(Diagnostic("G309", message, ask.statement.span))
        return group_map.index

    def best(self, pair: Pair, ask: AxisStatement, order: Ints, after: int) -> Ints:
        """The places of the heads of every group, highest-ranked first, in terms of `order`.

        Raises GrowError (G309, G313) for listed heads that do not fit the groups.
        """
        statement = ask.statement
        assert not isinstance(statement, ast.Widen)
        keys, size = order.shape
        if RANKINGS[statement.ranking.name].scores is not None:
            heads = [pair.keys, pair.group]
            scores = self.requests.rankings.scores(statement, heads, ask.draws, of_source=True)
            current = np.take_along_axis(scores[self.heads(pair)], order, axis=1)
            return np.argsort(-current, axis=1, kind="stable")
        if pair.keys in self.requests.rankings.maps:
            message = "`heads` that are listed by number, and other `kv_heads`, are not done together"
            raise GrowError(Diagnostic("G309", message, statement.ranking.span))
        listed = listed_units(statement.ranking, keys * size)
        counts = np.bincount(listed // size, minlength=keys)
        if isinstance(statement, ast.Subclone) and (counts != after).any():
            message = f"`heads` keep the same number in every group of {size}: {after} of each"
            raise GrowError(Diagnostic("G313", message, statement.ranking.span))
        rank = np.full(keys * size, len(listed))
        rank[listed] = np.arange(len(listed))
        return np.argsort(rank.reshape(keys, size), axis=1, kind="stable")

    def check(self, pair: Pair, goal: SettledHeads, span: Span) -> None:
        """Raise GrowError (G301) unless all statements together reach the sizes asked for."""
        keys, group = (self.requests.sizes.of(s)[0] for s in (pair.keys, pair.group))
        if (keys, group) != (goal.keys, goal.group):
            message = f"{goal.keys} groups of {goal.group} query heads cannot be made: groups do not merge"
            remedy = f"{goal.keys * group} `heads` suit {goal.keys} `kv_heads`"
            raise GrowError(Diagnostic("G301", message, span, help=remedy))


def _front(axis: str) -> Stage:
    return Stage(0, axis, axis, StatementOptions())
