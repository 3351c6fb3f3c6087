"""The list of layers of the result, from the statements on layers.

Needs: the resolved statements, the model's layers. Gives: `DepthChange`. Raises GrowError with every
statement that the model cannot follow.

The result computes what the source computes if the source's layers stand once and in order, and every other
layer adds nothing to the stream. Such layers are the zero-initialised layers of Gesmundo and Maile, and the
identity blocks of LLaMA-Pro.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import gcd, lcm

from growc.algebra.draws import Draws
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.grammar import depth_text
from growc.ir.graph import Value
from growc.passes.analysis import AXES
from growc.passes.compilation import Arranged, Request, Source
from growc.passes.layers.layer_runs import (
    DepthChange,
    Drawn,
    Layer,
    LayerGap,
    Layers,
    Move,
    Obstacle,
    ResultLayer,
    Run,
    RunHistory,
)
from growc.passes.lowering.lower_recipe import lowered
from growc.passes.lowering.resolve_axis import named, only_size
from growc.passes.lowering.scopes import runs_in
from growc.passes.new_layers.zero_branches import Branches, Passage
from growc.passes.runner import run as run_passes
from growc.plans.memory_bound import OF_NODE, require
from growc.plans.plan import Gap, Summary
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Expr, SizeName, evaluate
from growc.recipe.layer_orders import SHALLOWER, arrangement, counted_back, layers_of, new_layers
from growc.recipe.layer_orders import Depth as DepthStatement
from growc.recipe.scope_keys import scope_key
from growc.resolve.bound import Bound

SizeOf = Callable[[str, Span, int], int]
"""Returns the size of an axis before the statement with the given number."""

SILENT = "layers added `with zero outputs` change nothing"


def depth_pass(c: Request) -> Arranged:
    """Which layer of the source each layer is; where they move, a model edited and analysed again."""
    branches = Branches(c.axes, c.layers)
    return rearranged(c, depth_of(c, c.statements, branches), branches)


def depth_of(c: Request, statements: Sequence[Bound], branches: Branches) -> DepthChange:
    """The layers of every run after all statements. Raises GrowError (G3xx) with all their errors."""
    runs, size_of = c.layers.runs, partial(size_before, c, statements)
    depths = [RunHistory.of(len(run.layers)) for run in runs]
    errors: list[Diagnostic] = []
    summaries: list[tuple[int, Summary]] = []
    warnings: list[str] = []
    notes: list[str] = []
    measure: ast.Measure | None = None
    for bound in statements:
        if isinstance(bound.statement, ast.Measure):
            measure = bound.statement
        if not isinstance(bound.statement, DepthStatement):
            continue
        try:
            inside = [runs.index(r) for r in runs_in(c.layers, bound.scopes, bound.statement.span)]
            chosen = [k for k in inside if bound.scopes or k not in c.kept.runs]
            staying = len(inside) - len(chosen)
            stays = f"{staying} of {len(inside)} runs of `layers` stay{'s' if staying == 1 else ''} as before"
            if not chosen:
                raise GrowError(Diagnostic("G314", f"{stays}: {c.kept.cause}", bound.statement.span))
            notes += [f"{stays}: {c.kept.cause}"] if staying else []
            grafted = isinstance(bound.statement, ast.StackFrom)
            before = tuple(0 if grafted else depths[k].count_before(None) for k in chosen)
            ranks = by_scores(bound.statement)
            scores = [] if ranks is None else c.outside.layer_scores(c, measure, ranks)
            for ordinal, k in enumerate(chosen):
                layer_scores = (
                    of_places(depths[k], scores[k], ranks) if ranks is not None and scores else None
                )
                warnings += _counted_back(bound, depths[k], size_of)
                nodes = max(len(layer.nodes) for layer in runs[k].layers)
                depths[k] = _after(bound, depths[k], size_of, layer_scores, nodes, ordinal)
        except GrowError as error:
            errors += error.diagnostics
            continue
        after = tuple(depths[k].count_before(None) for k in chosen)
        orders = [depths[k].moves[-1].order for k in chosen]
        dropped = tuple(tuple(sorted({*range(n)}.difference(o))) for n, o in zip(before, orders, strict=True))
        note = depth_text(bound.statement)
        summaries.append((bound.number, Summary("layers", before, after, note, len(chosen), dropped)))
    if errors:
        raise GrowError(*errors)
    gaps = tuple(tuple(gaps_of(run, depth, branches)) for run, depth in zip(runs, depths, strict=True))
    phase_warnings = [w for run, past in zip(runs, depths, strict=True) for w in out_of_phase(run, past)]
    warnings = list(dict.fromkeys([*warnings, *phase_warnings]))
    return DepthChange(
        tuple(depths),
        gaps,
        tuple(summaries),
        warnings=tuple(warnings),
        notes=tuple(dict.fromkeys(notes)),
    )


def rearranged(c: Request, depth: DepthChange, branches: Branches) -> Arranged:
    """The model with other layers, analysed again.

    Raises GrowError (G314) if they cannot stand in this order.
    """
    if not depth.changed:
        layers = with_past(c.layers, depth)
        return Arranged(**vars(c) | {"layers": layers}, depth=depth, renamed={})
    rearranged_model = c.model.rearrange(c.graph, c.layers, instances(c.layers, depth, branches))
    try:
        analysis = run_passes(AXES, replace(c.part(Source), model=rearranged_model.model))
    except GrowError as error:  # The source was analysed before, so its order causes no contradiction.
        raise GrowError(*map(_of_the_order, error.diagnostics)) from error
    layers = rearranged_model.layers(analysis.graph, depth)
    request = Request(**vars(analysis), layers=layers, first=c.first, edited=c.edited)
    return Arranged(**vars(request), depth=depth, renamed=rearranged_model.renamed)


def _of_the_order(diagnostic: Diagnostic) -> Diagnostic:
    """A contradiction of sizes (G311) reworded as an error of the order of layers (G314)."""
    if diagnostic.code != "G311":
        return diagnostic
    return Diagnostic(
        "G314", "the layers cannot stand in this order", notes=(diagnostic.message, *diagnostic.notes)
    )


def size_before(c: Request, statements: Sequence[Bound], name: str, span: Span, moment: int) -> int:
    """The size of an axis before a statement, for expressions in statements on layers."""
    sizes = lowered(c, [b for b in statements if b.number < moment], DepthChange()).sizes
    candidates = (sizes.product(a.spaces) for a in named(name, span, c.roles, c.axes))
    return only_size(name, sorted(candidates), span)


def by_scores(statement: DepthStatement) -> ast.LayerOrder | None:
    """The order of a statement that ranks layers by scores."""
    order = statement.order if isinstance(statement, ast.SubcloneLayers) else None
    return order if order is not None and SHALLOWER[order.name].scored else None


def of_places(depth: RunHistory, scores: Sequence[float | None], order: ast.LayerOrder) -> list[float]:
    """The scores of the layers in their current places: those of the source's layers, and 0 for layers that
    add nothing.

    Raises GrowError (G313) for layers without a score: drawn at random, merged, or not measured.
    """
    unknown = next((k for k in depth.order if scores[k] is None), None)
    places = zip(depth.drawn, depth.zeroed, strict=True)
    drawn = next((place for place, (past, zero) in enumerate(places) if past and not zero), None)
    merged = next((place for place, sources in enumerate(depth.merged) if len(sources) > 1), None)
    if unknown is not None or drawn is not None or merged is not None:
        why = "no tensor shows what it adds" if drawn is None else "it is drawn at random"
        if drawn is None and order.file is not None:
            why = f"`{order.file.value}` has no score of it"
        layer = unknown if drawn is None else drawn
        layer, why = (layer, why) if merged is None else (merged, "it is the mean of several")
        message = f"the importance of layer {layer} cannot be measured: {why}"
        remedy = "write another order, `by middle` or `even`"
        raise GrowError(Diagnostic("G313", message, order.span, help=remedy))
    return [0.0 if zero else scores[k] or 0.0 for k, zero in zip(depth.order, depth.zeroed, strict=True)]


def _evaluated(bound: Bound, depth: RunHistory, size_of: SizeOf, expr: Expr) -> int:
    """The value of an expression in a statement on layers, with the sizes before that statement."""

    def size(axis: SizeName) -> int:
        if axis.name == "layers":
            return depth.count_before(axis.moment)
        return size_of(axis.name, axis.span, bound.number if axis.moment is None else axis.moment)

    return evaluate(expr, size)


def _counted_back(bound: Bound, depth: RunHistory, size_of: SizeOf) -> Iterator[str]:
    statement = bound.statement
    ranges = statement.layers if isinstance(statement, ast.Arrange) else ()
    all_ranges = (statement.layers,) if isinstance(statement, ast.Drop | ast.MergeLayers) else ranges
    for layers in all_ranges:
        yield from counted_back(layers, depth.count_before(None), partial(_evaluated, bound, depth, size_of))


def _after(
    bound: Bound, depth: RunHistory, size_of: SizeOf, scores: Sequence[float] | None, nodes: int, ordinal: int
) -> RunHistory:
    """The layers of a run after a statement.

    nodes: how many nodes the run's largest layer has.
    ordinal: the number of the run among those of the statement.
    """
    count, statement = depth.count_before(None), bound.statement
    assert isinstance(statement, DepthStatement)
    if isinstance(statement, ast.Stack):
        size = _evaluated(bound, depth, size_of, statement.size)
        require(f"{size} layers", OF_NODE * nodes * (size - count), statement.size.span)
    order = arrangement(statement, count, partial(_evaluated, bound, depth, size_of), scores)
    fill, zero = None, False
    if isinstance(statement, ast.Stack | ast.StackFrom | ast.Arrange):
        fill, zero = statement.fill, statement.zero_outputs
    zeroed, drawn = [depth.zeroed[k] for k in order], [depth.drawn[k] for k in order]
    draws = None if fill is None else _draws(bound, fill, ordinal)
    std = None if fill is None else fill.std
    grafted = isinstance(statement, ast.StackFrom)
    for place in (place for place, new in enumerate(new_layers(order)) if new or grafted):
        zeroed[place] = zero or (zeroed[place] and draws is None)
        drawn[place] = drawn[place] if draws is None else Drawn(bound.number, draws.at(place), std)
    merged = [depth.merged[k] for k in order]
    if isinstance(statement, ast.MergeLayers):
        merged_layers = layers_of(statement.layers, count, partial(_evaluated, bound, depth, size_of))
        merged[order.index(merged_layers[0])] = _mean_of(depth, merged_layers, statement.span)
    depth = replace(depth, grafted=depth.grafted or grafted)
    return depth.after(Move(bound.number, tuple(order)), tuple(zeroed), tuple(drawn), tuple(merged))


def _mean_of(depth: RunHistory, layers: Sequence[int], span: Span) -> tuple[int, ...]:
    """The source's layers that a merged layer is the mean of; a layer that counts several times is listed as
    often.

    Raises GrowError (G314) for layers that a statement made.
    """
    new = next((k for k in layers if depth.zeroed[k] or depth.drawn[k] is not None), None)
    if new is not None and len(layers) > 1:
        message = f"layer {new} cannot be merged: a statement above made it"
        raise GrowError(Diagnostic("G314", message, span, help="merge layers first, and add others then"))
    common_multiple = lcm(*(len(depth.merged[k]) for k in layers))
    sources = [
        source for k in layers for source in depth.merged[k] * (common_multiple // len(depth.merged[k]))
    ]
    divisor = gcd(*(sources.count(source) for source in sources))
    return tuple(source for source in dict.fromkeys(sources) for _ in range(sources.count(source) // divisor))


def _draws(bound: Bound, fill: ast.LayerFill, ordinal: int) -> Draws:
    """The random numbers of a statement for the new layers of one run."""
    seed = 0 if fill.seed is None else evaluate(fill.seed, lambda axis: 0)
    return Draws.of(seed, bound.number, "layers", scope_key(bound.scopes), ordinal)


def gaps_of(run: Run, depth: RunHistory, branches: Branches) -> Iterator[LayerGap]:
    """The gaps that the new list of layers causes."""
    if depth.grafted:
        yield from _foreign(run, depth, branches)
        return
    if not depth.moved:
        return
    order = depth.order
    new = [zero or past is not None for zero, past in zip(depth.zeroed, depth.drawn, strict=True)]
    full = [source for source, is_new in zip(order, new, strict=True) if not is_new]
    remaining = {
        source_layer
        for merged, is_new in zip(depth.merged, new, strict=True)
        if not is_new
        for source_layer in merged
    }
    for layer in sorted(set(range(depth.count)) - remaining):
        yield LayerGap(None, _gap(run, layer, f"layer {layer} is left out"))
    for place, merged in enumerate(depth.merged):
        if len(merged) > 1:
            listed = ", ".join(map(str, dict.fromkeys(merged)))
            yield LayerGap(place, _gap(run, merged[0], f"layer {place} is the mean of layers {listed}"))
    seen: set[int] = set()
    places = zip(order, branches.passages(run, depth), strict=True)
    for place, (source, passage) in enumerate(places):
        if passage is not None:
            yield from _lasting(branches, run, place, passage)
        elif depth.drawn[place] is not None:
            cause = f"layer {place} is drawn at random, and adds to the stream"
            yield LayerGap(place, _gap(run, source, cause, SILENT))
        elif source in seen:
            cause = f"layer {place} is layer {source} once more, and adds to the stream"
            yield LayerGap(place, _gap(run, source, cause, SILENT))
        if not new[place]:
            seen.add(source)
    once = list(dict.fromkeys(full))
    if once != sorted(once):
        yield LayerGap(None, _gap(run, once[0], "the layers stand in another order"))


def _foreign(run: Run, depth: RunHistory, branches: Branches) -> Iterator[LayerGap]:
    """The gaps of layers from a template or drawn at random."""
    for place, (source, passage) in enumerate(zip(depth.order, branches.passages(run, depth), strict=True)):
        if passage is not None:
            yield from _lasting(branches, run, place, passage)
            continue
        origin = "one of the template" if depth.drawn[place] is None else "drawn at random"
        cause = f"layer {place} is {origin}, and adds to the stream"
        yield LayerGap(place, _gap(run, source, cause, SILENT))


def out_of_phase(run: Run, past: RunHistory) -> Iterator[str]:
    """Warnings about layers of several kinds whose period differs between source and result."""
    kinds = [run.kinds[source] for source in past.order]
    if run.period > 1 and any(kind != run.kinds[k % run.period] for k, kind in enumerate(kinds)):
        source, result = (
            " ".join(chr(ord("A") + kind) for kind in numbers) for numbers in (run.kinds, kinds)
        )
        yield f"layers of several kinds have another period: {result}, in the source {source}"


def _lasting(branches: Branches, run: Run, place: int, passage: Passage) -> Iterator[LayerGap]:
    """The gap of a layer with zero outputs, if a node keeps it from passing the stream on unchanged."""
    obstacle = passage.obstacle
    if obstacle is not None:
        cause = f"layer {place} cannot pass the stream on as it is: `{obstacle.node.name}` {obstacle.cause}"
        passing = (
            branches.passed(layer, passage.before, passage.stands, drawn=passage.drawn).obstacle is None
            for layer in run.layers
        )
        alternative = next((k for k, passes in enumerate(passing) if passes), None)
        remedy = "" if alternative is None else f"a copy of layer {alternative} in this place changes nothing"
        yield LayerGap(place, Gap.at(obstacle.node, cause, remedy))


def _gap(run: Run, layer: int, cause: str, remedy: str = "") -> Gap:
    node = run.layers[layer].nodes[0]
    return Gap.at(node, cause, remedy)


def instances(layers: Layers, depth: DepthChange, branches: Branches) -> dict[int, list[ResultLayer]]:
    """The layers to build, for every run that changes."""
    by_run: dict[int, list[ResultLayer]] = {}
    for number, (run, past) in enumerate(zip(layers.runs, depth.runs, strict=True)):
        if past.moved:
            writers = [
                _writers(branches, run.layers[k]) if k in past.sources_zeroed else ()
                for k in range(past.count)
            ]
            pairs = zip(past.order, branches.passages(run, past), strict=True)
            by_run[number] = [
                ResultLayer(source, merged=merged if len(merged) > 1 else ())
                if passage is None
                else ResultLayer(source, writers[source], steps=passage.steps)
                for (source, passage), merged in zip(pairs, past.merged, strict=True)
            ]
    return by_run


def _writers(branches: Branches, layer: Layer) -> tuple[Value, ...]:
    """The uses of weights that must be zero for a layer to add nothing."""
    branches_or_obstacle = branches.of(layer)
    terms = (
        branches_or_obstacle.branches if isinstance(branches_or_obstacle, Obstacle) else branches_or_obstacle
    )
    return tuple(use for branch in terms for use in branch.writer)


def with_past(layers: Layers, depth: DepthChange) -> Layers:
    """The layers, each run with its history."""
    runs = tuple(replace(run, past=past) for run, past in zip(layers.runs, depth.runs, strict=True))
    return replace(layers, runs=runs)
