"""The compiler, in order. Reading PIPELINE is reading how growc works; each pass is a module of this folder.

Every entry takes a `Compilation` and returns it with the fields that the pass fills in.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from growc import recipe as ast
from growc.compilation import Compilation
from growc.depth import Depth
from growc.diagnostic import Diagnostic, GrowError
from growc.graph import Node, Value
from growc.indexmap import Bools
from growc.matching import Known
from growc.passes.ancestry import Ancestry
from growc.passes.assemble import assemble_weights, count_parameters
from growc.passes.below_zero import BelowZero
from growc.passes.branches import Branches
from growc.passes.certify import certify
from growc.passes.depth import arrange_layers, instances, with_past
from growc.passes.grouping import groups_of_one
from growc.passes.groups import regroup
from growc.passes.inner_heads import count_inner_heads
from growc.passes.jumps import jumps
from growc.passes.layers import find_layers
from growc.passes.links import build_links, carriers_of
from growc.passes.lower import Lowered, lower
from growc.passes.match import expand_matches, known_sizes
from growc.passes.next_layer import NextLayers, from_next_layer, gaps_of
from growc.passes.norms import find_norms
from growc.passes.outgoing import Outgoing
from growc.passes.packing import packed_heads
from growc.passes.pooling import averaged, blended, pool
from growc.passes.ranges import Ranges
from growc.passes.reduction import Rescaling, dropped
from growc.passes.roles import find_roles
from growc.passes.single_heads import count_heads
from growc.passes.solve import solve
from growc.passes.spaces import infer_spaces
from growc.passes.steps import put_in_order, weight_steps
from growc.passes.symmetry import heard
from growc.passes.tables import continue_tables
from growc.passes.targets import named
from growc.passes.ties import cut_by_untie, find_ties
from growc.passes.units import count_units
from growc.passes.unseen import unseen_units
from growc.passes.untie import heads_to_untie
from growc.plans import AxisStep, Gap
from growc.resolve import Bound
from growc.source import Span
from growc.stage import Sizes

Pass = Callable[[Compilation], Compilation]


def capture_pass(c: Compilation) -> Compilation:
    """The neutral graph: one weight one use, canonical order."""
    return replace(c, graph=c.model.capture())


def simulate_pass(c: Compilation) -> Compilation:
    """Sizes and small values at a few sample points."""
    return replace(c, simulation=c.model.simulate(c.graph))


def norms_pass(c: Compilation) -> Compilation:
    """Norms that stand in pieces."""
    return replace(c, norms=find_norms(c.graph))


def spaces_pass(c: Compilation) -> Compilation:
    """Index spaces: which axes change together. Heads that no operator counts are made to be counted."""
    axes = infer_spaces(c.graph)
    unseen = unseen_units(axes)
    if unseen.unfolds or unseen.repeats:
        c.model.spread(unseen)
        c = norms_pass(simulate_pass(capture_pass(c)))
        axes = infer_spaces(c.graph)
    count_units(axes)
    count_heads(axes)
    if c.inside:
        count_inner_heads(axes)
    return replace(c, axes=axes)


def ties_pass(c: Compilation) -> Compilation:
    """Weights that are one."""
    return replace(c, ties=find_ties(c.axes, c.untied))


def roles_pass(c: Compilation) -> Compilation:
    """Names for spaces."""
    return replace(c, roles=find_roles(c.axes))


def layers_pass(c: Compilation) -> Compilation:
    """Equal parts of streams, one behind the other."""
    return replace(c, layers=find_layers(c.axes, c.roles.scopes.of_sum))


def untie_pass(c: Compilation) -> Compilation:
    """The model analysed again, without the ties that the recipe cuts."""
    asked = [b for b in c.statements if isinstance(b.statement, ast.Untie)]
    untied = heads_to_untie(asked, c.axes, c.roles.scopes, c.layers) if asked else frozenset()
    return run(ANALYSIS, replace(c, untied=untied, parameters=parameters_of(c))) if untied else c


def parameters_of(c: Compilation) -> int:
    """How many parameters the source has."""
    return c.parameters or count_parameters(c.axes, c.ties)


def groups_pass(c: Compilation) -> Compilation:
    """The model analysed again, with groups of one head each, where a statement is to make them larger."""
    packed = packed_heads(c.statements, c.axes, c.roles)
    if packed:
        c.model.unpack(packed)
        c = run(ANALYSIS, c)
    single = groups_of_one(c.statements, c.axes, c.roles, c.ties)
    if not single.repeats:
        return c
    c.model.spread(single)
    return run(ANALYSIS, c)


def match_pass(c: Compilation) -> Compilation:
    """Plain statements in the place of `match`, by the sizes that the ones before it leave."""

    def today(done: Sequence[Bound]) -> Known:
        sizes = lowered(c, done).sizes
        depth = depth_of(replace(c, statements=done), Branches(c.axes, c.layers))
        return known_sizes(c.roles, sizes, c.layers, [run.count_before(None) for run in depth.runs])

    if not any(isinstance(b.statement, ast.Match) for b in c.statements):
        return c
    return replace(c, statements=expand_matches(c.statements, today))


def depth_of(c: Compilation, branches: Branches) -> Depth:
    """What the statements make of the layers."""
    measuring = partial(c.model.measure_layers, c)
    return arrange_layers(c.statements, c.layers, branches, lambda *asked: size_before(c, *asked), measuring)


def depth_pass(c: Compilation) -> Compilation:
    """The model with the layers that the recipe gives it, analysed again."""
    branches = Branches(c.axes, c.layers)
    return rearranged(c, depth_of(c, branches), branches)


def rearranged(c: Compilation, depth: Depth, branches: Branches) -> Compilation:
    """The model with other layers, analysed again."""
    if not depth.changed:
        return replace(c, depth=depth, layers=with_past(c.layers, depth))
    made = instances(c.layers, depth, branches)
    placed = c.model.rearrange(c.graph, c.layers, made)
    again = run(ANALYSIS[:-1], c)
    layers = placed.layers(again.graph, c.layers, depth)
    return replace(again, depth=depth, renamed=placed.renamed, layers=layers, parameters=parameters_of(c))


def size_before(c: Compilation, name: str, span: Span, moment: int) -> int:
    """The size of an axis in the source before a statement, for expressions on numbers of layers."""
    statements = [b for b in c.statements if b.number < moment]
    sizes = lowered(c, statements).sizes
    found = {sizes.product(a.spaces) for a in named(name, span, c.roles, c.axes)}
    if len(found) > 1:
        listed = ", ".join(map(str, sorted(found)))
        raise GrowError(Diagnostic("G312", f"`{name}` has several sizes here: {listed}", span))
    return found.pop()


def lower_pass(c: Compilation) -> Compilation:
    """Statements as maps on spaces."""
    return replace(c, lowered=lowered(c, c.statements))


def lowered(c: Compilation, statements: Sequence[Bound]) -> Lowered:
    """What statements come to, on the layers that the compilation has by now."""
    measuring = partial(c.model.measure, c)
    return lower(statements, c.roles, c.axes, c.ties, c.layers, c.depth, measuring=measuring)


def solve_pass(c: Compilation) -> Compilation:
    """States of all tensors, statement by statement; what is done to each weight; what is not exact."""
    carriers, ancestry = carriers_of(c.axes), Ancestry(c.axes, c.layers)
    steps: dict[Value, list[AxisStep]] = defaultdict(list, put_in_order(c.graph))
    scales: dict[Value, float] = defaultdict(lambda: 1.0)
    attributes: dict[Node, dict[str, float]] = {}
    gaps: list[Gap] = []
    reached: dict[int, Bools] = {}
    outgoing = Outgoing()
    sizes = Sizes()
    rescaling = Rescaling(c.axes, c.ties, c.norms, c.roles.routers)
    ranges = Ranges(c.graph.dialect.ranges)
    below_zero = BelowZero(c.axes, c.lowered.taken.constants, ranges)
    noisy = any(stage.options.noise is not None for stage in c.lowered.stages)
    for stage in c.lowered.stages:
        if stage.regroups or stage.pools:
            moved, kept = (regroup if stage.regroups else pool)(c.axes, stage, sizes)
            for use, found in moved.items():
                steps[use] += found
            blends = blended(c.axes, stage, sizes)
            for place, state in kept.items():
                outgoing.follow(place, state, blends.get(place))
            gaps += averaged(stage)
            sizes.apply(stage)
            continue
        links = build_links(c.axes, c.norms, c.ties, set(stage.requests))
        solution = solve(links, stage, sizes, carriers, ranges, steps.keys())
        reached = heard(solution, reached)
        made = weight_steps(solution, c.ties, ancestry)
        if stage.options.next_layer:
            following = NextLayers(c.layers, c.axes, c.norms, ancestry, stage.number)
            made = from_next_layer(made, steps, stage, following)
            gaps += gaps_of(made, stage)
        for use, found in made.items():
            steps[use] += found
        for use, factor in solution.eps.items():
            scales[use] *= factor
        for node, factor in solution.epsilons.items():
            changed = attributes.setdefault(node, {})
            before = changed.get("epsilon", node.attributes.get("epsilon", 1e-5))
            changed["epsilon"] = float(before) * factor
        rescaling.apply(solution, sizes)
        fresh = (
            *dropped(stage),
            *solution.gaps,
            *below_zero.gaps(stage),
            *(jumps(solution) if noisy else ()),
        )
        gaps += [g for g in fresh if g not in gaps]
        for place, state in solution.outputs.items():
            outgoing.follow(place, state)
        sizes.apply(stage)
    for use, factor in rescaling.factors.items():
        scales[use] *= factor
    return replace(
        c,
        steps=dict(steps),
        scales=dict(scales),
        attributes=attributes,
        gaps=gaps,
        outputs=outgoing.maps,
        blends=outgoing.blends,
        heard=reached,
        notes=(*rescaling.notes, *below_zero.notes),
    )


def mend_pass(c: Compilation) -> Compilation:
    """Every size of the result, accounted for."""
    return replace(c, mended=c.model.mend(c.axes, c.simulation, c.lowered.sizes.of, c.lowered.taken))


def assemble_pass(c: Compilation) -> Compilation:
    """Stored tensors out of uses."""
    sizes = c.lowered.sizes
    shapes = {u: tuple(sizes.of(s)[0] for s in c.axes.of(u)) for u in c.graph.uses()}
    tables = continue_tables(c.graph, c.roles, sizes)
    cut = cut_by_untie(c.axes, c.untied)
    gone = c.lowered.taken.gone
    made = assemble_weights(c.graph, c.steps, c.scales, shapes, tables, c.mended.patches, cut, gone)
    return replace(c, assembled=c.model.put_back(made))


def certify_pass(c: Compilation) -> Compilation:
    """The plan with its certificate."""
    return replace(c, plan=certify(c))


def hold_pass(c: Compilation) -> Compilation:
    """What stores the result: of a class with a config, the config that is the plan."""
    held: Compilation = c.model.hold(c)
    return held


ANALYSIS: tuple[Pass, ...] = (
    capture_pass,
    simulate_pass,
    norms_pass,
    spaces_pass,
    ties_pass,
    roles_pass,
    layers_pass,
)

AFTER_DEPTH: tuple[Pass, ...] = (
    lower_pass,
    solve_pass,
    mend_pass,
    assemble_pass,
    certify_pass,
)

PIPELINE: tuple[Pass, ...] = (
    *ANALYSIS,
    untie_pass,
    groups_pass,
    match_pass,
    depth_pass,
    *AFTER_DEPTH,
    hold_pass,
)


def run(passes: Sequence[Pass], c: Compilation) -> Compilation:
    """All passes in order, without looking for circular garbage: that costs more the larger the graph is."""
    collects = gc.isenabled()
    gc.disable()
    try:
        for one in passes:
            c = one(c)
        return c
    finally:
        if collects:
            gc.enable()
