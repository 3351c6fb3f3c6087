"""The stored tensors of the result: each once, and copies for uses whose values come to differ.

Needs: the steps of every use, the factors of eps, the repairs. Gives: the weights of the plan, and the uses
that each of them serves.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from growc.ir.graph import Graph, Node, Value, Weight
from growc.ir.naming import unused
from growc.passes.axes.infer import Axes
from growc.passes.axes.ties import Tie, cut_by_untie, uncounted
from growc.passes.axes.unstacked_experts import ExpertRemoval
from growc.passes.compilation import Repaired, Solved, Stored
from growc.passes.edits import Patch, Repairs
from growc.passes.finish.assembled import Assembled
from growc.passes.finish.continue_tables import continue_tables
from growc.plans.plan import AxisStep, WeightPlan


def repair_shapes_pass(c: Solved) -> Repaired:
    """Repair shape operands and attributes that depend on sizes, by the dialect, if some size changes."""
    if resizes(c):
        repairs = c.model.repair(c.axes, c.sampled, c.lowered.sizes.of, c.lowered.taken)
    else:
        repairs = Repairs(c.lowered.taken, sizes={value: value.sizes for value in c.graph.values()})
    return Repaired(**vars(c), repairs=repairs)


def resizes(c: Solved) -> bool:
    """Whether the statements change the size of an axis, or the numbers of units that are taken singly."""
    sizes = c.lowered.sizes.current
    return c.lowered.taken != ExpertRemoval() or any(size != space.size[0] for space, size in sizes.items())


def assemble_pass(c: Repaired) -> Stored:
    """Make the stored tensors of the result from the steps of their uses."""
    sizes = c.lowered.sizes
    shapes = {u: tuple(sizes.of(s)[0] for s in c.axes.of(u)) for u in c.graph.uses()}
    tables = continue_tables(c.graph, c.roles, sizes)
    cut = cut_by_untie(c.axes, c.untied)
    removed = c.lowered.taken.gone
    assembled = assemble_weights(c.graph, c.steps, c.scales, shapes, tables, c.repairs.patches, cut, removed)
    return Stored(**vars(c), assembled=c.model.put_back(assembled))


def assemble_weights(
    graph: Graph,
    steps: Mapping[Value, Sequence[AxisStep]],
    scales: Mapping[Value, float],
    shapes: Mapping[Value, tuple[int, ...]],
    literals: Mapping[Weight, WeightPlan],
    patches: Mapping[Node, Patch],
    cut: frozenset[Value] = frozenset(),
    gone: frozenset[Value] = frozenset(),
) -> Assembled:
    """One `WeightPlan` for each group of uses of a stored tensor that need the same values.

    `cut`: uses that share no plan with others. `gone`: uses without a plan.
    """
    by_weight: dict[Weight, list[Value]] = defaultdict(list)
    for use in graph.uses():
        assert use.weight is not None
        if use not in gone:
            by_weight[use.weight].append(use)
    taken = {w.name for w in graph.weights}
    assembled = Assembled()
    for weight, uses in by_weight.items():
        by_values: dict[object, list[Value]] = defaultdict(list)
        for use in uses:
            steps_of_use = tuple(s.signature for s in steps.get(use, ()))
            by_values[(steps_of_use, scales.get(use, 1.0), use in cut)].append(use)
        groups = [group for alike in by_values.values() for group in _by_chain(alike, patches)]
        for k, members in enumerate(groups):
            name = weight.name if k == 0 else unused(_parted(weight, k), taken)
            first = members[0]
            plan = literals.get(weight) or WeightPlan(
                name,
                weight.name,
                weight.dtype,
                weight.stored_shape,
                shapes[first],
                tuple(steps.get(first, ())),
                scales.get(first, 1.0),
                copy_of=weight.copy_of,
                zero=weight.zero,
                mean_of=weight.mean_of,
                shift=weight.shift,
                new=weight.upcycled is not None and weight.upcycled.router,
            )
            assembled.weights.append(plan)
            assembled.uses.append(members)
            assembled.sources.append(weight)
    return _apart(assembled)


def _apart(assembled: Assembled) -> Assembled:
    """Mark computed weights as stored where they do not change, but a tensor they are computed from does."""
    altered = {w.source for w in assembled.weights if w.steps or w.scale != 1.0 or w.literal is not None}
    pairs = zip(assembled.weights, assembled.sources, strict=True)
    weights = [
        w if w.changed or altered.isdisjoint(s.computed) else replace(w, stored=True) for w, s in pairs
    ]
    return Assembled(weights, assembled.uses, assembled.sources)


def _parted(weight: Weight, k: int) -> str:
    """The name of the k-th group of uses that gets a copy of a weight."""
    return weight.aliases[k - 1] if k <= len(weight.aliases) else f"{weight.name}.{k + 1}"


def _by_chain(uses: Sequence[Value], patches: Mapping[Node, Patch]) -> list[list[Value]]:
    """The uses of one tensor, in groups that agree on the patches of the layout nodes they share."""
    groups: list[tuple[list[Value], dict[object, str]]] = []
    for use in uses:
        patches_by_origin = {node.origin: repr(patches.get(node)) for node in chain(use)}
        for members, agreed in groups:
            if all(agreed.get(origin, patch) == patch for origin, patch in patches_by_origin.items()):
                members.append(use)
                agreed.update(patches_by_origin)
                break
        else:
            groups.append(([use], patches_by_origin))
    return [members for members, _ in groups]


def chain(use: Value) -> Iterator[Node]:
    """Yield the layout operators from a stored tensor to its use."""
    while use.users and use.users[0][0].chain:
        yield use.users[0][0]
        use = use.users[0][0].outputs[0]


def count_parameters(
    axes: Axes, ties: Sequence[Tie], shapes: Mapping[Value, tuple[int, ...]] | None = None
) -> int:
    """The number of stored floating-point weight elements.

    Tied tensors count once (`uncounted`). Tensors that an exporter merged count for each use. Single numbers
    do not count.
    """
    uses = counted_uses(axes, ties)
    if shapes is not None:
        return sum(math.prod(shapes[use]) for use, _ in uses if use in shapes)
    return sum(weight.elements for _, weight in uses)


def counted_uses(axes: Axes, ties: Sequence[Tie]) -> Iterator[tuple[Value, Weight]]:
    """The uses of weights whose elements count, as `count_parameters` says, each with its weight.

    Weights that no node reads do not count.
    """
    live = {i.node for i in axes.instances}
    counted_elsewhere = uncounted(ties)
    for use in axes.graph.uses():
        weight = use.weight
        assert weight is not None
        used = not use.users or any(n in live for n, _ in use.users)
        if weight.floating and weight.elements > 1 and used and use not in counted_elsewhere:
            yield use, weight
