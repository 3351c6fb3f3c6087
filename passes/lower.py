"""From statements to maps: what each statement asks of which spaces.

Needs: the resolved statements, the roles, the axis graph. Gives: `Lowered`, one `Stage` for each statement
that changes something, in order, each on the sizes that the one before left. Raises GrowError with every
statement that the model cannot follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from growc import recipe as ast
from growc.axes import Space, find, leaves
from growc.diagnostic import Diagnostic, GrowError
from growc.draws import Draws
from growc.expression import Expr, evaluate
from growc.fills import FILLS, appended, new_units
from growc.grammar import fill_text
from growc.graph import Node
from growc.indexmap import IndexMap
from growc.layers import Layers
from growc.passes.counts import number_of_layers
from growc.passes.groups import Pair, pairs_of, settle
from growc.passes.region import Region, region_of
from growc.passes.roles import RoleAxis, Roles
from growc.passes.spaces import Axes
from growc.passes.targets import named, targets_of, why_same
from growc.plans import AxisChange, Summary
from growc.resolve import Bound
from growc.source import Span
from growc.stage import NoiseOption, Options, Request, Sizes, Split, Stage

FROM_THE_FRONT = frozenset({"cyclic copy", "average fill"})
"""Fills that repeat whole runs: on a product they act on the outermost factor that can take them."""


@dataclass
class Lowered:
    """What the recipe asks for, in maps."""

    stages: list[Stage] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    summaries: list[Summary] = field(default_factory=list)
    axes: dict[str, AxisChange] = field(default_factory=dict)
    history: list[tuple[int, Sizes]] = field(default_factory=list)
    """The sizes before each statement, by its number."""

    def before(self, moment: int) -> Sizes:
        """The sizes as they stood before the statement of a number."""
        return next((sizes for number, sizes in self.history if number >= moment), self.sizes)


def lower(statements: Sequence[Bound], roles: Roles, axes: Axes, layers: Layers) -> Lowered:
    """Lower every `widen`; `untie` has been dealt with before, and `expect` is judged later."""
    return _Lowering(roles, axes, layers).run(statements)


@dataclass(frozen=True, eq=False)
class Ask:
    """What one statement asks of one axis."""

    stage: Stage
    bound: Bound
    statement: ast.Widen
    target: RoleAxis
    place: int
    after: int


class _Lowering:
    def __init__(self, roles: Roles, axes: Axes, layers: Layers) -> None:
        self.roles, self.axes, self.layers = roles, axes, layers
        self.done = Lowered()
        self.errors: list[Diagnostic] = []
        self.touched: dict[int, tuple[Span, str]] = {}
        self.pairs = pairs_of(roles)
        self.asks: list[Ask] = []
        self.regions: dict[tuple[ast.Scope, ...], Region] = {}
        self.splitting = Stage(0, "kv_heads", "kv_heads", Options())

    def run(self, statements: Sequence[Bound]) -> Lowered:
        for bound in statements:
            self.done.history.append((bound.number, self.done.sizes.copy()))
            if isinstance(bound.statement, ast.Widen):
                try:
                    self.widen(bound, bound.statement)
                except GrowError as error:
                    self.errors += error.diagnostics
        for pair in self.pairs:
            try:
                self.settle(pair)
            except GrowError as error:
                self.errors += error.diagnostics
        if self.errors:
            raise GrowError(*self.errors)
        if self.splitting.splits:
            self.done.stages.insert(self.done.stages.index(self.asks[0].stage), self.splitting)
        self.done.stages = [s for s in self.done.stages if s.requests or s.splits]
        for name, found in self.roles.axes.items():
            before = tuple(dict.fromkeys(a.size for a in found))
            self.done.axes[name] = AxisChange(
                before, tuple(dict.fromkeys(self.done.sizes.product(a.spaces) for a in found))
            )
        return self.done

    # ---------------------------------------------------------------- one statement

    def widen(self, bound: Bound, statement: ast.Widen) -> None:
        name = axis_text(statement.axis)
        if name == "kv_heads" and self.roles.axes.get(name) == self.roles.axes.get("heads", ()):
            message = "`kv_heads` are the `heads` of this model: it has no groups"
            raise GrowError(Diagnostic("G302", message, statement.axis.span, "", (), "write `heads`"))
        region = self.region(bound.scopes)
        span = statement.axis.span
        targets = region.of(targets_of(statement.axis, self.roles, self.axes), name, span)
        region.require(targets, name, span)
        stage = Stage(bound.number, name, name, _options(statement))
        stage.span = statement.span
        changes: list[tuple[int, int]] = []
        for ordinal, target in enumerate(targets):
            before = self.done.sizes.product(target.spaces)
            after = self.evaluate(statement.size, region, target, ordinal)
            self.judge(statement, target, before, after)
            if (before, after) not in changes:
                changes.append((before, after))
            if before == after:
                continue
            place = 0 if name in ("vocab", "positions") else ordinal
            ask = Ask(stage, bound, statement, target, place, after)
            if name in ("heads", "kv_heads") and self.is_grouped(name, target):
                self.asks.append(ask)
                self.done.sizes.asked[tuple(id(s) for s in target.spaces)] = after
            else:
                self.request(ask, target.spaces, before, after)
        self.done.sizes.apply(stage)
        self.touched.update((key, (statement.span, name)) for key in stage.requests)
        noop = all(a == b for a, b in changes)
        note = "no change: that is its size" if noop else fill_text(statement)
        sizes = [tuple(side) for side in zip(*changes, strict=True)]
        count = len(stage.requests) + sum(a.stage is stage for a in self.asks)
        self.done.summaries.append(Summary(name, sizes[0], sizes[1], note, count))
        self.done.stages.append(stage)

    def region(self, scopes: tuple[ast.Scope, ...]) -> Region:
        if scopes not in self.regions:
            self.regions[scopes] = region_of(scopes, self.roles.scopes, self.axes)
        return self.regions[scopes]

    def evaluate(self, expr: Expr, region: Region, target: RoleAxis, ordinal: int) -> int:
        """A size: names mean the model as it stands before the statement; `let`s, at their place."""

        def now(name: str, span: Span) -> int:
            return self.size(name, span, region, target, ordinal, self.done.sizes)

        def earlier(moment: int, name: str, span: Span) -> int:
            return self.size(name, span, region, target, ordinal, self.done.before(moment))

        return evaluate(expr, now, earlier)

    def size(
        self, name: str, span: Span, region: Region, target: RoleAxis, ordinal: int, sizes: Sizes
    ) -> int:
        """The size of a named axis that belongs with the target: its own, the one of its rank, or the only
        one.
        """
        if name == "layers":
            return number_of_layers(self.layers, region.scopes, span)
        found = region.of(named(name, span, self.roles, self.axes), name, span)
        if any(a.spaces == target.spaces for a in found):
            return sizes.product(target.spaces)
        if ordinal < len(found):
            return sizes.product(found[ordinal].spaces)
        have = [sizes.product(a.spaces) for a in found]
        if len(set(have)) == 1:
            return have[0]
        listed = ", ".join(map(str, dict.fromkeys(have)))
        raise GrowError(Diagnostic("G312", f"`{name}` has several sizes here: {listed}", span))

    def judge(self, statement: ast.Widen, target: RoleAxis, before: int, after: int) -> None:
        """The size is on the right side of today's, and no other name of the same axis was given another
        size.
        """
        name = axis_text(statement.axis)
        for leaf in (x for s in target.spaces for x in leaves(s)):
            earlier = self.touched.get(id(leaf))
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
        if after < before:
            raise GrowError(
                Diagnostic(
                    "G303",
                    f"`widen {name}` cannot make it smaller: it is {before} now",
                    statement.size.span,
                    f"{after} is less than {before}",
                    (),
                    f"`subclone {name} to {after} by …` shrinks an axis",
                )
            )

    # ---------------------------------------------------------------- maps

    def is_grouped(self, name: str, target: RoleAxis) -> bool:
        return any((p.heads if name == "heads" else p.kv_heads) == target for p in self.pairs)

    def settle(self, pair: Pair) -> None:
        """What a pair's statements come to, on the sizes after the last one."""
        mine = [a for a in self.asks if a.target in (pair.heads, pair.kv_heads)]
        if not mine:
            return
        sizes = self.done.sizes
        keys, group = sizes.of(pair.keys)[0], sizes.of(pair.group)[0]
        heads, kv_heads = sizes.product(pair.heads.spaces), sizes.product(pair.kv_heads.spaces)
        spans = [a.statement.size.span for a in mine]
        goal = settle(keys, group, kv_heads, heads, spans[-1], spans[:-1])
        if goal.split > 1:
            for space in (pair.keys, pair.group):
                if space.frozen is not None:
                    raise GrowError(self.frozen(space, mine[0].statement))
            split = Split(pair.keys, pair.group, goal.split, mine[0].statement.span)
            self.splitting.splits.append(split)
            sizes.apply(Stage(0, "", "", Options(), splits=[split]))
        for bearer, space, last in (
            (pair.kv_heads, pair.keys, goal.keys),
            (pair.heads, pair.group, goal.group),
        ):
            asks = [a for a in mine if a.target == bearer]
            for ask in asks:
                now = sizes.of(space)[0]
                wanted = ask.after if bearer == pair.kv_heads else ask.after // goal.keys
                after = last if ask is asks[-1] else min(max(wanted, now), last)
                if after > now:
                    self.request(ask, [space], now, after)
                    sizes.apply(ask.stage)
        for bearer in (pair.heads, pair.kv_heads):
            sizes.asked.pop(tuple(id(s) for s in bearer.spaces), None)

    def request(self, ask: Ask, spaces: Sequence[Space], before: int, after: int) -> None:
        statement, stage = ask.statement, ask.stage
        draws = Draws.of(_seed(statement), ask.bound.number, stage.axis, _scope(ask.bound), ask.place)
        option = ast.option(statement.options, ast.InBlocks)
        block = (
            1
            if option is None
            else self.evaluate(option.size, self.region(ask.bound.scopes), ask.target, ask.place)
        )
        if option is not None and (block < 1 or before % block or after % block):
            raise GrowError(
                Diagnostic(
                    "G305", f"{before} and {after} are not both multiples of {block}", option.size.span
                )
            )
        if stage.axis == "channels":
            spaces, before, after = self.inside_groups(spaces, before, after, statement)
        found = self.place(spaces, before, after, statement, block)
        for space, d, size, unit in found:
            key = id(find(space))
            if key in stage.requests:
                self.agree(stage, statement, space, size)
                continue
            filled = FILLS[statement.fill.name](d // unit, size // unit, draws.at("g"))
            if find(space).addressed is not None:
                filled = appended(filled)
            new = np.repeat(new_units(filled), unit)
            filled = filled if unit == 1 else filled.kron(IndexMap.identity(unit))
            stage.requests[key] = Request(find(space), statement.fill.name, filled, new, draws, unit)

    def inside_groups(
        self, spaces: Sequence[Space], before: int, after: int, statement: ast.Widen
    ) -> tuple[list[Space], int, int]:
        """The factors of channels that do not count groups, and their size before and after."""
        inner = [s for s in spaces if not all(id(x) in self.roles.counters for x in leaves(s))]
        part = self.done.sizes.product(inner)
        groups = before // part
        if after % groups:
            message = f"`channels` cannot be {after}: their number of groups stays {groups}"
            wrong = f"{after} is no multiple of {groups}"
            raise GrowError(Diagnostic("G301", message, statement.size.span, wrong))
        return inner, part, after // groups

    def agree(self, stage: Stage, statement: ast.Widen, space: Space, size: int) -> None:
        """Axes of one name that share a space must want one size of it."""
        have = stage.requests[id(find(space))].map.size
        if have != size:
            raise GrowError(
                Diagnostic(
                    "G301",
                    f"`{stage.axis}` are tied to each other: the same units would become {have} and {size}",
                    statement.size.span,
                    notes=tuple(why_same(self.axes, space)),
                    help=f"a size relative to today's, as `2 * {stage.axis}`, suits all of them"
                    if isinstance(statement.axis, ast.NamedAxis)
                    else "",
                )
            )

    def place(
        self, spaces: Sequence[Space], before: int, after: int, statement: ast.Widen, block: int
    ) -> list[tuple[Space, int, int, int]]:
        """(atom, size before, size after, block) for every atom that takes the map of a row-major product."""
        if not spaces:
            cause = (
                f"`{axis_text(statement.axis)}` cannot change its size: there is one, and nothing counts it"
            )
            raise GrowError(Diagnostic("G304", cause, statement.axis.span))
        if len(spaces) == 1:
            space = find(spaces[0])
            if space.kind == "sum":
                return self.place_sum(space, before, after, statement, block)
            if space.kind == "product":
                return self.place(list(space.parts), before, after, statement, block)
            if space.frozen is not None:
                raise GrowError(self.frozen(space, statement))
            if space.unit:
                cause = f"`{axis_text(statement.axis)}` cannot change its size: a part of it is a single unit"
                raise GrowError(Diagnostic("G304", cause, statement.axis.span))
            return [(space, before, after, block)]
        order = list(spaces) if statement.fill.name in FROM_THE_FRONT else list(spaces)[::-1]
        for space in order:
            size = self.done.sizes.of(space)[0]
            if all(x.frozen is not None for x in leaves(space)) or after * size % before:
                continue
            inner = int(
                np.prod([self.done.sizes.of(s)[0] for s in spaces[spaces.index(space) + 1 :]], dtype=np.int64)
            )
            unit = block // inner if block % inner == 0 and size % max(block // inner, 1) == 0 else 1
            try:
                return self.place([space], size, after * size // before, statement, max(unit, 1))
            except GrowError:
                continue
        free = [s for s in spaces if not all(x.frozen is not None for x in leaves(s))]
        if not free:
            raise GrowError(self.frozen(find(spaces[0]), statement))
        parts = " x ".join(str(self.done.sizes.of(s)[0]) for s in spaces)
        raise GrowError(
            Diagnostic(
                "G305",
                f"`{axis_text(statement.axis)}` is made of {parts} units, "
                f"and {after} keeps none of these factors whole",
                statement.size.span,
                help=f"use a multiple of {before // min(self.done.sizes.of(s)[0] for s in free)}",
            )
        )

    def place_sum(
        self, space: Space, before: int, after: int, statement: ast.Widen, block: int
    ) -> list[tuple[Space, int, int, int]]:
        found: list[tuple[Space, int, int, int]] = []
        for part in space.parts:
            size = self.done.sizes.of(part)[0]
            if after * size % before:
                name = axis_text(statement.axis)
                cause = f"`{name}` has segments, and one of {size} units would not come out whole"
                raise GrowError(Diagnostic("G305", cause, statement.size.span))
            found += self.place([part], size, after * size // before, statement, block)
        return found

    def frozen(self, space: Space, statement: ast.Widen) -> Diagnostic:
        from growc.axisgraph import way_to_reason

        found = next((x for x in [space, *leaves(space)] if x.frozen is not None), None)
        message = f"`{axis_text(statement.axis)}` cannot change its size"
        if found is None or found.frozen is None:
            return Diagnostic("G304", message, statement.axis.span)
        node, cause, remedy = found.frozen.node, found.frozen.cause, found.frozen.remedy
        if not isinstance(node, Node):
            return Diagnostic("G304", f"{message}: {cause}", statement.axis.span, "frozen", (), remedy)
        way = [f"{n.kind} {n.name}".rstrip() for n in way_to_reason(self.axes, found, found.frozen)]
        notes = (f"it comes there by {', '.join(way)}",) if way else ()
        at = f"{message}: {cause}, at `{node.name or node.kind}`"
        return Diagnostic("G304", at, statement.axis.span, "frozen", notes)


def axis_text(axis: ast.AxisRef) -> str:
    """An axis as the recipe writes it."""
    return axis.name


def _options(statement: ast.Widen) -> Options:
    split, noise = ast.option(statement.options, ast.Split), ast.option(statement.options, ast.Noise)
    kinds = {"new": "new", "on copies": "copies", "balanced": "balanced"}
    return Options(
        split is not None and split.how == "random",
        None if noise is None or noise.scale == 0 else NoiseOption(noise.scale, kinds[noise.kind]),  # type: ignore[arg-type]
        ast.option(statement.options, ast.ZeroOutputs) is not None,
        ast.option(statement.options, ast.Plain) is not None,
    )


def _seed(statement: ast.Widen) -> int:
    seed = ast.option(statement.options, ast.Seed)
    return 0 if seed is None else evaluate(seed.number, lambda name, span: 0, lambda moment, name, span: 0)


def _scope(bound: Bound) -> str:
    return " ".join(map(repr, bound.scopes))
