"""Lowering of statements to index maps on spaces.

Needs: the resolved statements, the roles, the axis graph. Gives: `Lowered`, with one `Stage` for each
statement that changes something, in order. Each stage starts from the sizes that the previous one left.
Raises GrowError with every statement that the model cannot follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path

from growc.algebra.space import Space, atoms_of, find, leaves
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.grammar import manner_text, mixture_text
from growc.ir.lowered_statement import Sizes, Stage
from growc.passes.axes.unstacked_experts import taken
from growc.passes.compilation import Arranged, Mapped, Request
from growc.passes.heads.insert_groups import averages
from growc.passes.layers.layer_runs import DepthChange
from growc.passes.layers.origin_of_layers import Ancestry
from growc.passes.lowering.axis_maps import AxisStatement, Requests, Resizing, options_of
from growc.passes.lowering.choose_factor import FixedError
from growc.passes.lowering.chosen_units import choices_after, chosen_now
from growc.passes.lowering.grouped_query import Pairs, pairs_of
from growc.passes.lowering.kept_axes import spaces_kept
from growc.passes.lowering.lowered import Lowered
from growc.passes.lowering.merging import means, parts_of
from growc.passes.lowering.renumber_inputs import constants, mapped, renumbered
from growc.passes.lowering.resolve_axis import named, only_size, targets_of, why_same
from growc.passes.lowering.scopes import ModelPart, counted_from_the_end, number_of_layers, region_of
from growc.passes.ranking.magnitude import Magnitudes
from growc.passes.ranking.rankings import By, Rankings
from growc.passes.ranking.unit_scores import MeasuredScores
from growc.passes.roles.name_axes import RoleAxis
from growc.passes.roles.why_tied import bearers
from growc.passes.upcycling.experts import made_here
from growc.plans.plan import AxisChange, Summary
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Binary, Expr, Name, SizeName, evaluate, spell
from growc.recipe.expression import parts_of as nodes_of
from growc.recipe.layer_orders import Depth as DepthStatement
from growc.recipe.layer_orders import statistic_of
from growc.recipe.option_rules import StatementOptions
from growc.recipe.statistics import IMPORTANCE
from growc.resolve.bound import Bound


def lower_pass(c: Arranged) -> Mapped:
    """The statements on axes: a map for each space that one resizes."""
    return Mapped(**vars(c), lowered=lowered(c, c.statements, c.depth))


def lowered(c: Request, statements: Sequence[Bound], depth: DepthChange) -> Lowered:
    """The maps that these statements ask for, on the layers that the model has at this stage."""
    return _Lowering(c).run(statements, depth)


BY_PARTS = ("channels", "heads", "ffn")
"""Axes that stand for many spaces, each of which may change by itself.

A space that cannot change is left out.
"""


class _Lowering:
    def __init__(self, c: Request) -> None:
        self.c, self.roles, self.axes, self.layers = c, c.roles, c.axes, c.layers
        self.statements: tuple[ast.Statement, ...] = ()
        self.done = Lowered()
        self.errors: list[Diagnostic] = []
        self.touched: dict[Space, tuple[Span, str]] = {}
        self.ancestry = Ancestry(c.axes, c.layers)
        self.regions: dict[tuple[tuple[ast.Scope, ...], int], ModelPart] = {}
        self.measurement: ast.Measure | None = None
        self.scored: dict[tuple[str, Path | None, ast.AxisRef | None], MeasuredScores | None] = {}
        rankings = Rankings(Magnitudes(c.axes, c.ties), scores_for=self.scores)
        self.requests = Requests(c.roles, c.axes, self.done.sizes, rankings, self.size_of)
        self.pairs = Pairs(self.requests, pairs_of(c.roles))
        self.kept = spaces_kept(c)

    def run(self, statements: Sequence[Bound], depth: DepthChange) -> Lowered:
        self.statements = tuple(bound.statement for bound in statements)
        lines = iter(depth.summaries)
        for bound in statements:
            self.done.sizes.moment = bound.number
            self.done.history.append((bound.number, self.done.sizes.copy()))
            if isinstance(bound.statement, DepthStatement):
                self.done.summaries += [line for _, line in islice(lines, 1)]
            if isinstance(bound.statement, ast.Upcycle):
                self.upcycled(bound, bound.statement)
            if isinstance(bound.statement, Resizing | ast.Merge | ast.Measure):
                rankings, stages = self.requests.rankings.copy(), list(self.done.stages)
                try:
                    if isinstance(bound.statement, ast.Measure):
                        self.measure(bound.statement)
                    elif isinstance(bound.statement, ast.Merge):
                        self.merge(bound, bound.statement)
                    else:
                        self.resize(bound, bound.statement)
                except GrowError as error:  # Later statements are checked as if this one were absent.
                    self.errors += error.diagnostics
                    self.requests.rankings, self.done.stages = rankings, stages
                    if isinstance(bound.statement, ast.Measure):
                        break  # The following statements depend on this measurement.
        self.done.sizes.moment = None
        self.errors += self.pairs.settle()
        self.done.notes += dict.fromkeys(self.pairs.notes)
        if self.errors:
            raise GrowError(*self.errors)
        self.done.prefixes = dict(sorted(self.done.prefixes.items(), key=lambda item: Fraction(item[0])))
        maps = self.requests.rankings.since_source()
        self.done.numbers = renumbered(self.axes, maps)
        movable = [e for e in self.axes.experts if e.refusal is None]
        one_by_one = taken([(e, mapped(self.axes.of(e.whole)[e.axis], maps)) for e in movable])
        self.done.taken = replace(one_by_one, constants=constants(self.axes, maps))
        stages = [s for stage in self.done.stages for s in (*self.pairs.fronts.get(stage, ()), stage)]
        self.done.stages = [s for s in stages if s.changes]
        single_networks = made_here(self.c)  # The source has one network of each.
        for name, role_axes in self.roles.axes.items():
            sizes = (a.size if single_networks.isdisjoint(map(find, a.spaces)) else 1 for a in role_axes)
            before = tuple(dict.fromkeys(sizes))
            self.done.axes[name] = AxisChange(
                before, tuple(dict.fromkeys(self.done.sizes.product(a.spaces) for a in role_axes))
            )
        return self.done

    def upcycled(self, bound: Bound, statement: ast.Upcycle) -> None:
        """Add a plan summary for an upcycling, which edited the model before, and a warning about `top 1`."""
        marks = (weight.upcycled for weight in self.c.graph.weights)
        networks = {mark.network for mark in marks if mark is not None and mark.statement == bound.number}
        count = evaluate(statement.count, lambda size: 0)
        note = f"copies of ffn, {mixture_text(statement)}"
        self.done.summaries.append(Summary("experts", (1,), (count,), note, len(networks)))
        if statement.parts is not None:
            self.in_parts(bound, statement, statement.parts)
        if count > 1 and evaluate(statement.top, lambda size: 0) == 1:
            top_1 = "with `top 1` the weight of the chosen expert is 1 whatever its score"
            self.done.warnings.append(
                f"{top_1}, so that no gradient reaches the router; with `top 2` one does"
            )

    def in_parts(self, bound: Bound, statement: ast.Upcycle, parts: Expr) -> None:
        """Each expert keeps its part of the units of a copy, which stands in front."""
        size = Binary("/", Name("ffn", span=statement.axis.span), parts, span=parts.span)
        first = ast.Ranking("first", span=statement.span)
        unscaled = (ast.Option("unscaled", span=statement.span),)
        self.resize(bound, ast.Subclone(statement.axis, size, first, unscaled, span=statement.span))
        self.done.stages[-1].in_parts = True
        note = f"the part of {spell(parts)} that each expert has of a copy"
        self.done.summaries[-1] = replace(self.done.summaries[-1], note=note)

    # ---------------------------------------------------------------- one statement

    def resize(self, bound: Bound, statement: Resizing) -> None:
        name = statement.axis.name
        targets, region = self.targets(bound, statement)
        self.pairs.make_way(name, targets)
        stage = Stage(bound.number, name, name, options_of(statement), span=statement.span)
        self.done.stages.append(stage)
        changes: list[tuple[int, int]] = []
        fixed: list[tuple[int, FixedError]] = []
        put_off = 0
        places = self.ancestry.ordinals([target.spaces for target in targets], bound.number)
        for ordinal, target in enumerate(targets):
            before = self.done.sizes.product(target.spaces)
            place = 0 if name in ("vocab", "positions") else places[ordinal]
            ask = AxisStatement(stage, bound, statement, target, place, before)
            undo = self.requests.rankings.copy(), dict(stage.requests)
            try:
                self.let_go(ask)
                ask = replace(ask, after=self.asked(ask, region, ordinal))
                put_off += self.request(ask, before)
            except GrowError as error:
                if bound.scopes or name not in BY_PARTS:
                    raise
                reason = error if isinstance(error, FixedError) else self.requests.fixed(ask)
                if reason is None:
                    raise
                self.requests.rankings, stage.requests = undo
                fixed.append((before, reason))
                continue
            if (before, ask.after) not in changes:
                changes.append((before, ask.after))
            if isinstance(ask.statement, ast.Widen):
                top = stage.options.top
                count = None if top is None else self.evaluate(top, region, target, ordinal)
                stage.choices += choices_after(self.axes, ask, self.done.sizes, count)
        self.stay(name, fixed, len(targets))
        self.done.sizes.apply(stage)
        changed = (key for key in stage.requests if not self.pairs.bears(key))
        self.touched.update((key, (statement.span, name)) for key in changed)
        self.summarise(statement, changes, len(stage.requests) + put_off)

    def merge(self, bound: Bound, statement: ast.Merge) -> None:
        """Merge consecutive units to their mean."""
        name, span, region = statement.axis.name, statement.axis.span, self.region(bound)
        targets = region.of(targets_of(statement.axis, self.roles, self.axes), name, span)
        region.require(targets, name, span)
        stage = Stage(bound.number, name, name, StatementOptions(), span=span)
        self.done.stages.append(stage)
        changes: list[tuple[int, int]] = []
        for ordinal, target in enumerate(targets):
            before = self.done.sizes.product(target.spaces)
            after = self.evaluate(statement.size, region, target, ordinal)
            parts = parts_of(self.axes, statement, target.spaces, before, after)
            self.suffices(statement, target, before, after)
            space = find(target.spaces[0])
            if parts > 1:
                stage.merges[space] = parts
                self.requests.rankings.pool(space, means(before, parts))
                self.touched[space] = (statement.span, name)
            changes += [] if (before, after) in changes else [(before, after)]
        self.done.sizes.apply(stage)
        self.summarise(statement, changes, len(stage.merges))

    def let_go(self, ask: AxisStatement) -> None:
        """Raise FixedError (G304) if the axis must stay as it is."""
        if not ask.bound.scopes and not self.kept.isdisjoint(atoms_of(ask.target.spaces)):
            cause = self.c.kept.cause
            message = f"`{ask.stage.axis}` cannot be resized: {cause}"
            raise FixedError(Diagnostic("G304", message, ask.statement.axis.span), cause)

    def asked(self, ask: AxisStatement, region: ModelPart, ordinal: int) -> int:
        """The size that a statement gives an axis. Raises GrowError if the axis cannot have it."""
        if isinstance(ask.statement, ast.Reorder):
            self.nest(ask, ask.statement)
            return ask.after
        after = self.evaluate(ask.statement.size, region, ask.target, ordinal)
        self.judge(ask.statement, ask.target, ask.after, after)
        return after

    def nest(self, ask: AxisStatement, statement: ast.Reorder) -> None:
        """Record the sizes that the shares of a `nest` stand for.

        Raises GrowError (G312) for shares that are not whole.
        """
        name = ask.stage.axis
        for share in statement.at or ():
            size, rest = divmod(ask.after * share.numerator, share.denominator)
            if rest:
                message = f"{share} of `{name}` ({ask.after}) is not whole"
                raise GrowError(Diagnostic("G312", message, share.span))
            sizes_by_axis = self.done.prefixes.setdefault(str(share), {})
            sizes_by_axis[name] = tuple(dict.fromkeys([*sizes_by_axis.get(name, ()), size]))

    def request(self, ask: AxisStatement, before: int) -> bool:
        """Put maps into the stage; return whether the statement is postponed until another one is known."""
        ungrouped = self.pairs.without_groups(ask.stage.axis, ask.target)
        if self.pairs.takes(ask):
            return True
        if before != ask.after or (isinstance(ask.statement, ast.Reorder) and before > 1):
            self.requests.add(
                ask, ask.target.spaces if ungrouped is None else [ungrouped.keys], before, ask.after
            )
        return False

    def stay(self, name: str, fixed: Sequence[tuple[int, FixedError]], count: int) -> None:
        """Note the spaces that cannot change. Raises FixedError if none of the axis's spaces can."""
        if fixed and len(fixed) == count:
            raise fixed[0][1]
        for cause in dict.fromkeys(error.cause for _, error in fixed):
            sizes = [size for size, error in fixed if error.cause == cause]
            how_many = f"{len(sizes)} of {count} spaces of `{name}`"
            listed = "/".join(map(str, dict.fromkeys(sizes)))
            self.done.notes.append(f"{how_many} ({listed}) stay as they are: {cause}")

    def measure(self, statement: ast.Measure) -> None:
        """Measure importance.

        Raises GrowError (G315) after a change, since importance is that of the source.
        """
        if any(stage.requests or stage.regroups for stage in self.done.stages) or self.pairs.asks:
            message = "importance is measured on the source, and a statement above has changed it"
            remedy = "write `measure importance` first"
            raise GrowError(Diagnostic("G315", message, statement.span, help=remedy))
        self.measurement, self.scored = statement, {}
        parts = (part for part in nodes_of(self.statements) if isinstance(part, ast.Ranking | ast.LayerOrder))
        statistics = [statistic_of(part) for part in parts]
        if IMPORTANCE in statistics or not any(statistics):
            self.scores(None)  # The plan states the importance of dropped units under every ranking.

    def scores(self, by: By | None) -> MeasuredScores | None:
        """The scores for a statement, measured or from its file; without a statement, the importance of
        units.
        """
        file = None if by is None or by.ranking.file is None else by.ranking.file.path
        key = "" if by is None else by.ranking.name, file, None if by is None or file is None else by.axis
        if key not in self.scored:
            self.scored[key] = self.c.outside.scores(self.c, self.measurement, by)
        return self.scored[key]

    def targets(self, bound: Bound, statement: Resizing) -> tuple[list[RoleAxis], ModelPart]:
        """The axes that a statement names, and the part of the model that it sees.

        Raises GrowError (G302, G306, G307).
        """
        name, span = statement.axis.name, statement.axis.span
        averaging, same_axes = (
            averages(statement),
            self.roles.axes.get(name) == self.roles.axes.get("heads", ()),
        )
        if name == "kv_heads" and same_axes and not averaging:
            raise GrowError(no_groups(span))
        region = self.region(bound)
        targets = region.of(targets_of(statement.axis, self.roles, self.axes), name, span)
        region.require(targets, name, span)
        ungrouped = any(self.pairs.without_groups(name, target) for target in targets)
        if name == "kv_heads" and ungrouped and not averaging:
            raise GrowError(no_groups(span))
        return targets, region

    def summarise(
        self, statement: Resizing | ast.Merge, changes: Sequence[tuple[int, int]], count: int
    ) -> None:
        """Add a summary of the statement to the plan."""
        noop = not isinstance(statement, ast.Reorder) and all(a == b for a, b in changes)
        note = "no change: that is its size" if noop else manner_text(statement)
        sizes = [tuple(side) for side in zip(*changes, strict=True)]
        self.done.summaries.append(Summary(statement.axis.name, sizes[0], sizes[1], note, count))

    def size_of(self, expr: Expr, ask: AxisStatement) -> int:
        """The value of a size expression for one axis of a statement."""
        return self.evaluate(expr, self.region(ask.bound), ask.target, ask.place)

    def region(self, bound: Bound) -> ModelPart:
        scopes, moment = key = bound.scopes, bound.number
        if key not in self.regions:
            self.regions[key] = region_of(scopes, self.roles.scopes, self.axes, self.layers, moment)
            negative_numbers = counted_from_the_end(scopes, self.layers, moment)
            self.done.warnings += (
                warning for warning in negative_numbers if warning not in self.done.warnings
            )
        return self.regions[key]

    def evaluate(self, expr: Expr, region: ModelPart, target: RoleAxis, ordinal: int) -> int:
        """The value of a size expression.

        Names mean sizes before the statement; a `let` uses the sizes at its own place.
        """

        def size(axis: SizeName) -> int:
            sizes = self.done.sizes if axis.moment is None else self.done.before(axis.moment)
            return self.size(axis.name, axis.span, region, target, ordinal, sizes)

        try:
            return evaluate(expr, size)
        except GrowError as error:
            where = [f"asked for axis {k} of `{v.name}`" for v, k in bearers(self.axes, target)[:1]]
            diagnostics = (
                replace(diagnostic, notes=(*diagnostic.notes, *where)) for diagnostic in error.diagnostics
            )
            raise GrowError(*diagnostics) from error

    def size(
        self, name: str, span: Span, region: ModelPart, target: RoleAxis, ordinal: int, sizes: Sizes
    ) -> int:
        """The size of a named axis that belongs to the target: the target's own, the one with its ordinal, or
        the only one.
        """
        if name == "layers":
            return number_of_layers(self.layers, region.scopes, span, sizes.moment)
        candidates = region.of(named(name, span, self.roles, self.axes), name, span)
        if any(a.spaces == target.spaces for a in candidates):
            return sizes.product(target.spaces)
        if ordinal < len(candidates):
            return sizes.product(candidates[ordinal].spaces)
        return only_size(name, (sizes.product(a.spaces) for a in candidates), span)

    def judge(self, statement: ast.Widen | ast.Subclone, target: RoleAxis, before: int, after: int) -> None:
        """Raise GrowError unless the size is possible: on the right side of the current size (G303), at least
        1 (G312), and consistent with other names of the same axis (G301).
        """
        name = statement.axis.name
        for leaf in atoms_of(target.spaces):
            earlier = self.touched.get(leaf)
            if earlier is not None and earlier[1] != name and after != before:
                raise GrowError(
                    Diagnostic(
                        "G301",
                        f"`{name}` cannot be {after}: it is the same axis as `{earlier[1]}`, "
                        f"which is {before} now",
                        statement.size.span,
                        f"{after} here",
                        tuple(why_same(self.axes, leaf)),
                        "give both the same size, or leave one of the statements out",
                        ((earlier[0], f"`{earlier[1]}` becomes {before} here"),),
                    )
                )
        grows = isinstance(statement, ast.Widen)
        if after < before if grows else after > before:
            verb, wrong = ("widen", "smaller") if grows else ("subclone", "larger")
            message = f"`{verb} {name}` cannot make it {wrong}: it is {before} now"
            label = f"{after} is {'less' if grows else 'more'} than {before}"
            alternative = f"subclone {name} to {after} by" if grows else f"widen {name} to {after} with"
            remedy = f"`{alternative} …` {'shrinks' if grows else 'grows'} an axis"
            raise GrowError(Diagnostic("G303", message, statement.size.span, label, (), remedy))
        if after < 1:
            raise GrowError(Diagnostic("G312", f"`{name}` cannot be {after}", statement.size.span))
        if isinstance(statement, ast.Subclone):
            self.suffices(statement, target, before, after)

    def suffices(
        self, statement: ast.Subclone | ast.Merge, target: RoleAxis, before: int, after: int
    ) -> None:
        """Raise GrowError (G301) if fewer units remain than a ranking chooses."""
        atoms = set(atoms_of(target.spaces))
        for ranking, space in self.axes.ranked.items():
            concerned = any(leaf in atoms for leaf in leaves(space))
            remaining = self.done.sizes.of(space)[0] * after // before
            chosen = chosen_now(self.axes, ranking, self.done.sizes)
            if concerned and remaining < chosen:
                message = f"`{statement.axis.name}` cannot be {after}: {ranking.name or ranking.op} "
                message += f"chooses {chosen} of them"
                raise GrowError(Diagnostic("G301", message, statement.size.span))


def no_groups(span: Span) -> Diagnostic:
    """The error for a statement on key/value heads that have one query head each."""
    message = "`kv_heads` are the `heads` of this model: it has no groups"
    remedy = "write `heads`; `subclone kv_heads to N by mean` makes groups"
    return Diagnostic("G302", message, span, "", (), remedy)
