"""Index maps for the atoms that one statement resizes, from its fill or its ranking.

Needs: a statement, one of its axes, sizes before and after. Gives: a `SpaceRequest` for each atom, in its
stage. Raises GrowError (G301, G304, G305, G309, G313) if an axis cannot follow the statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import IndexMap, Ints
from growc.algebra.space import Reason, Space, atoms_of, find, leaves
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.ir.graph import Node
from growc.ir.lowered_statement import Sizes, SpaceRequest, Stage
from growc.passes.axes.infer import Axes
from growc.passes.lowering.choose_factor import FixedError, Placing, SizedAtom
from growc.passes.lowering.renumber_inputs import computed_along
from growc.passes.lowering.resolve_axis import why_same
from growc.passes.ranking.rankings import Rankings
from growc.passes.roles.name_axes import RoleAxis, Roles
from growc.plans.memory_bound import OF_UNIT, require
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Expr, evaluate
from growc.recipe.fills import FILLS, appended, new_units, reset
from growc.recipe.option_rules import RESCALED, StatementOptions
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.scope_keys import scope_key
from growc.resolve.bound import Bound

Resizing = ast.Widen | ast.Subclone | ast.Reorder
"""Statements that map axes to index maps."""


@dataclass(frozen=True, eq=False)
class AxisStatement:
    """One statement applied to one axis.

    place: the ordinal of the axis, or of the one it is a copy of, among the targets of the statement. It
        seeds the random numbers.
    after: the size that the statement gives the axis.
    """

    stage: Stage
    bound: Bound
    statement: Resizing
    target: RoleAxis
    place: int
    after: int

    @property
    def draws(self) -> Draws:
        """The random numbers of this statement on this axis."""
        scope = scope_key(self.bound.scopes)
        return Draws.of(_seed(self.statement), self.bound.number, self.stage.axis, scope, self.place)


@dataclass
class Requests:
    """Puts requests into stages.

    size_of: evaluates a size expression for one `AxisStatement`.
    """

    roles: Roles
    axes: Axes
    sizes: Sizes
    rankings: Rankings
    size_of: Callable[[Expr, AxisStatement], int]
    computed: dict[Space, Reason] = field(init=False)
    taken: int = 0
    """Bytes of memory that the maps requested so far take."""

    def __post_init__(self) -> None:
        self.computed = computed_along(self.axes)

    @cached_property
    def holders(self) -> Counter[Space]:
        """The number of axes of weights that each atom is a part of."""
        spaces = (space for use in self.axes.graph.uses() for space in self.axes.of(use))
        return Counter(atoms_of(spaces))

    def add(self, ask: AxisStatement, spaces: Sequence[Space], before: int, after: int) -> None:
        """Map a row-major product of spaces from `before` to `after` units."""
        if ask.stage.axis == "channels":
            spaces, before, after = self.inside_groups(ask, spaces, before, after)
        if before != after and self.has_come(ask.stage, spaces, after):
            return
        places = self.places(ask, spaces, before, after)
        for k, place in enumerate(places):
            space = find(place.space)
            if space in ask.stage.requests:
                self.agree(ask, space, place.after)
            elif isinstance(ask.statement, ast.Widen):
                self.put(ask, self.filled(ask, ask.statement, place))
            else:
                self.put(ask, self.ranked(ask, ask.statement, place, k))

    def has_come(self, stage: Stage, spaces: Sequence[Space], after: int) -> bool:
        """Whether a product already has its size through a factor that it shares with another axis of the
        statement. Shuffled channels have the factors of the channels before them, in another order.
        """
        mapped = [x for x in map(find, atoms_of(spaces)) if x in stage.requests]
        if not mapped:
            return False
        sizes = self.sizes.copy()
        for atom in mapped:
            sizes.apply_to(atom, stage)
        return sizes.product(spaces) == after

    def put(self, ask: AxisStatement, request: SpaceRequest) -> None:
        """Give one atom its map."""
        self.unmoved(ask, request.space, request.map.index, request.map.source)
        ask.stage.requests[request.space] = request
        self.rankings.follow(request.space, request.map)

    def unmoved(self, ask: AxisStatement, space: Space, index: Ints, source: int) -> None:
        """Raise FixedError (G304) if the map moves units that computed numbers tell apart.

        Shape of `index`: (…, units). source: the number of units before.
        """
        reason = self.computed.get(space)
        overlap = min(source, index.shape[-1])
        if reason is not None and (index[..., :overlap] != np.arange(overlap)).any():
            assert isinstance(reason.node, Node)
            node = reason.node.name or reason.node.op
            cause = f"{reason.cause}, at `{node}`"
            message = f"units of `{ask.stage.axis}` cannot move: {cause}"
            raise FixedError(Diagnostic("G304", message, ask.statement.axis.span), cause)

    def filled(self, ask: AxisStatement, statement: ast.Widen, place: SizedAtom) -> SpaceRequest:
        """The request for an atom that a fill widens."""
        space, unit, fill = find(place.space), place.unit, FILLS[statement.fill.name]
        self.taken += OF_UNIT * place.after * (1 + self.holders[space])
        require(f"`{ask.stage.axis}` of {ask.after}", self.taken, size_span(statement))
        index_map = fill.map(place.before // unit, place.after // unit, ask.draws.at("g"))
        if space.addressed is not None:
            index_map = appended(index_map)
        if part := options_of(statement).reset:
            fill, index_map = reset(fill, index_map, part, ask.draws.at("reset"))
        new = np.repeat(new_units(index_map), unit)
        index_map = index_map if unit == 1 else index_map.kron(IndexMap.identity(unit))
        return SpaceRequest(space, fill, index_map, new, ask.draws, unit)

    def ranked(
        self, ask: AxisStatement, statement: ast.Subclone | ast.Reorder, place: SizedAtom, ordinal: int
    ) -> SpaceRequest:
        """The request for an atom whose units a ranking selects or reorders.

        Raises GrowError (G309) for rankings that average.
        """
        ranking, draws = statement.ranking, ask.draws.at(ordinal)
        if RANKINGS[ranking.name].averages:
            message = (
                f"`by {ranking.name}` averages heads of keys and values, and these have none of their own"
            )
            notes = tuple(why_same(self.axes, place.space))
            raise GrowError(Diagnostic("G309", message, ranking.span, notes=notes))
        if isinstance(statement, ast.Subclone):
            index = self.rankings.selection(statement, [place.space], place.after, draws)
        else:
            self.rankings.allow(None, [place.space], ranking.span)
            index = self.rankings.order(statement, [place.space], draws)
        request = chosen(ask, place.space, place.before, index)
        share = self.rankings.share(statement, place.space, request.map) if request.drops else None
        return replace(request, share=share) if request.drops else request

    def placing(self, ask: AxisStatement) -> Placing:
        """The assignment of this axis's map to atoms."""
        statement = ask.statement
        front = isinstance(statement, ast.Widen) and FILLS[statement.fill.name].whole_runs
        name, span = statement.axis.name, statement.axis.span
        grows = isinstance(statement, ast.Widen)
        return Placing(self.axes, self.sizes, name, span, size_span(statement), front, ask.target.at, grows)

    def places(self, ask: AxisStatement, spaces: Sequence[Space], before: int, after: int) -> list[SizedAtom]:
        """The atoms that the statement maps. Raises GrowError (G305) if its blocks do not fit."""
        statement = ask.statement
        if isinstance(statement, ast.Reorder):
            return self.placing(ask).all_of(spaces)
        block_expr = options_of(statement).block
        block = 1 if block_expr is None else self.size_of(block_expr, ask)
        if block_expr is not None and (block < 1 or before % block or after % block):
            message = f"{before} and {after} are not both multiples of {block}"
            raise GrowError(Diagnostic("G305", message, block_expr.span))
        return self.placing(ask).resized(spaces, before, after, block)

    def fixed(self, ask: AxisStatement) -> FixedError | None:
        """Why the axis cannot change to any size; None if it can."""
        spaces = ask.target.spaces
        size = self.sizes.product(spaces)
        try:
            if ask.stage.axis == "channels":
                self.inside_groups(ask, spaces, size, size)
            self.placing(ask).resized(spaces, size, size)
        except FixedError as error:
            return error
        except GrowError:
            return None
        return None

    def inside_groups(
        self, ask: AxisStatement, spaces: Sequence[Space], before: int, after: int
    ) -> tuple[list[Space], int, int]:
        """The factors of channels that do not count groups, with their size before and after.

        The number of groups stays. Raises GrowError: G301 if `after` is no multiple of it, G304 if the
        channels only count groups.
        """
        inner = [s for s in spaces if not all(leaf in self.roles.counters for leaf in leaves(s))]
        if not inner:
            placing = self.placing(ask)
            raise placing.refused(f"they are groups, whose number stays{placing.where(spaces[0])}")
        part = self.sizes.product(inner)
        groups = before // part
        if after % groups:
            message = f"`channels` cannot be {after}: their number of groups stays {groups}"
            wrong = f"{after} is no multiple of {groups}"
            raise GrowError(Diagnostic("G301", message, size_span(ask.statement), wrong))
        return inner, part, after // groups

    def agree(self, ask: AxisStatement, space: Space, size: int) -> None:
        """Raise GrowError (G301) unless axes of one name that share a space ask for the same size."""
        earlier, axis = ask.stage.requests[space].map.size, ask.stage.axis
        if earlier == size:
            return
        named = isinstance(ask.statement.axis, ast.NamedAxis)
        raise GrowError(
            Diagnostic(
                "G301",
                f"`{axis}` are tied to each other: the same units would become {earlier} and {size}",
                size_span(ask.statement),
                notes=tuple(why_same(self.axes, space)),
                help=f"a size relative to today's, as `2 * {axis}`, suits all of them" if named else "",
            )
        )


def chosen(ask: AxisStatement, space: Space, before: int, index: Ints) -> SpaceRequest:
    """The request for a choice of units."""
    index_map = IndexMap.of(before, index)
    return SpaceRequest(find(space), None, index_map, np.zeros(len(index), dtype=bool), ask.draws)


def size_span(statement: Resizing) -> Span:
    """The span that an error about a size points at."""
    return statement.axis.span if isinstance(statement, ast.Reorder) else statement.size.span


def options_of(statement: Resizing) -> StatementOptions:
    """The options of a statement, with the default of `rescale` for its kind."""
    if isinstance(statement, ast.Reorder):
        return StatementOptions()
    shrinks = isinstance(statement, ast.Subclone) and statement.axis.name in RESCALED
    return StatementOptions(rescale="readers" if shrinks else "nowhere").and_also(statement.options)


def _seed(statement: Resizing) -> int:
    seed = options_of(statement).seed if isinstance(statement, ast.Widen) else statement.ranking.seed
    return 0 if seed is None else evaluate(seed, lambda axis: 0)
