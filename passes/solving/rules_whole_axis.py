"""Rules of links over whole axes: norms, statistics, choices, and outputs of the model.

Needs: the states that are known so far. Gives: the states behind, factors of eps, the states of outputs,
gaps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from growc.algebra.indexmap import IndexMap
from growc.algebra.space import Space, factors
from growc.algebra.whole_axis import assemble, distribute, scalable, shows, unscaled
from growc.ir.graph import Node
from growc.passes.dataflow.ranges import Ranges
from growc.passes.solving.constraints import Link, Var
from growc.passes.solving.solution import Solving
from growc.recipe.fills import Entry


def choice(solving: Solving, link: Link) -> None:
    """The rule of operators that number or order units: they must find every unit once."""
    assert link.node is not None
    what = f"{link.node.op} over {solving.stage.axis}"
    states = [solving.need(v) for v in link.sources]
    if not all(state.is_order and state.same(states[0]) for state in states):
        solving.gap(link, f"{what} reads units that are not all there once")
    elif link.detail == "pointwise" and any(r.drops for v in link.sources if (r := solving.request(v))):
        solving.gap(link, f"{what} chooses from fewer, or shares out among fewer")


def addressed(solving: Solving, link: Link) -> None:
    """The rule of units taken by number: every unit of the source is still there, with its values."""
    assert link.node is not None
    for var in link.sources:
        state, wanted = solving.need(var), solving.base(var)
        rows = np.flatnonzero(wanted.copies)
        first = rows[np.unique(wanted.index[rows], return_index=True)[1]]
        if not unscaled(state, wanted)[first].all():
            cause = f"{link.node.op} takes units of {solving.axis_name(var)} by their numbers, "
            cause += "and what reads them as well gives them other values"
            solving.gap(link, cause, "`untie head` lets the two become different weights")


def statistic(solving: Solving, link: Link) -> None:
    """The rule of reductions: they must weigh the units as before."""
    state = _whole(solving, link.sources, link.space, brief=True)
    is_kept: dict[str, Callable[[], bool]] = {
        "mean": state.is_weighted_evenly,
        "sum": state.sums_to_one,
        "extreme": lambda: state.covers(positive=not state.covers() and _has_zero(link.node, solving.ranges)),
        "fold": state.is_once,
        "fold squares": state.is_once,
    }
    if not is_kept[link.detail]():
        solving.gap(link, f"a {link.detail} over {solving.stage.axis} weighs the units differently now")


def _has_zero(node: Node | None, ranges: Ranges) -> bool:
    """Whether a maximum or a minimum is the same when a zero is added to the numbers."""
    assert node is not None
    data = node.inputs[0]
    if node.laws.with_zero or data is None:
        return node.laws.with_zero
    interval = ranges.of(data)
    return not interval.rests and (interval.high <= 0 if node.laws.least else interval.low >= 0)


def norm(solving: Solving, link: Link) -> None:
    """The rule of norms: a norm scales the state of the axis that it runs over, and its eps with it."""
    assert link.space is not None
    assert link.formula is not None
    state = _whole(solving, link.sources, link.space, brief=True)
    behind_and_factor = link.formula.behind(state)
    before = [solving.need(v) for v in link.sources]
    if behind_and_factor is None:
        after, factor = before, 1.0
        solving.gap(link, *_norm_cause(solving, link, state))
    else:
        behind, factor = behind_and_factor
        row = int(np.flatnonzero(behind.copies)[0])
        dropped = _dropped(solving, link)
        root = link.formula.rooted(dropped)
        scale = float(behind.weight[row] / state.weight[row]) / root
        factor *= root if link.formula.outside else dropped
        if not np.isclose(scale, 1.0, 1e-9) and not scalable(link.space):
            solving.gap(link, f"{link.formula} over {solving.stage.axis} scales a segment of a single unit")
        after = distribute(link.space, before, scale)
    if factor != 1.0:
        _scale_eps(solving, link, factor)
    for target, state_behind in zip(link.targets, after, strict=True):
        solving.meet(link, target, state_behind)


def _dropped(solving: Solving, link: Link) -> float:
    """The factor d/d' by which the mean square of an axis grows when units that add nothing to it are
    dropped.

    It is 1 unless the statement says `rescaled in norms`, which makes dropping such units exact.
    """
    assert link.space is not None
    assert link.formula is not None
    if solving.stage.options.rescale != "norms" or link.formula.total:
        return 1.0
    after = solving.sizes.copy()
    after.apply(solving.stage)
    return solving.sizes.of(link.space)[0] / after.of(link.space)[0]


def _scale_eps(solving: Solving, link: Link, factor: float) -> None:
    norm, node = link.norm, link.node
    assert node is not None
    if norm is not None and not norm.by_operator:
        if norm.eps is not None:
            solving.done.eps[norm.eps_weight()] = factor
    elif link.formula is not None and not link.formula.total:
        solving.done.epsilons[node] = factor


def _norm_cause(solving: Solving, link: Link, state: IndexMap) -> tuple[str, str]:
    assert link.formula is not None
    name, axis = str(link.formula), solving.stage.axis
    multiple = f"a multiple of {state.source}" if len(link.sources) == 1 else "a whole multiple"
    if state.junk.any():
        return f"{name} over {axis} sees units that are no combination of the source's", ""
    if state.zeros.any() and any(r.entries.making is Entry.MEAN for r in solving.stage.requests.values()):
        cause = f"{name} over {axis} reads a stream that a norm makes (post-norm), "
        cause += "where mean units have become zeros"
        return cause, f"{multiple} with `cyclic copy` is exact"
    if state.zeros.any():
        return (
            f"{name} over {axis} sees zero units on a stream that is not centred",
            "`average fill` is exact here",
        )
    if state.mean.any():
        return f"{name} over {axis} sees mean units beside copies", ""
    counts = ", ".join(map(str, np.unique(state.counts)))
    remedy = f"{multiple} with `cyclic copy` is exact"
    if link.formula.centred:
        remedy = f"`average fill` is exact where no norm makes the stream; {remedy}"
    return f"{name} over {axis} sees unequal copy counts ({counts})", remedy


def shown(solving: Solving, link: Link) -> None:
    """The rule of states that the model carries to the next step: record the state by output and axis."""
    assert link.space is not None
    for var in link.sources:
        solving.need(var)
    states = [solving.done.whole(v) for v in link.sources]
    solving.done.outputs[link.detail, link.axis] = assemble(link.space, states)


def output(solving: Solving, link: Link) -> None:
    """The rule of outputs: an output must show every unit of the source where the statement puts it."""
    shown(solving, link)
    for var in link.sources:
        state, wanted = solving.need(var), solving.base(var)
        if not shows(state, wanted):
            solving.gap(
                link,
                f"the output `{link.detail}` carries {solving.axis_name(var)} in another state than it had",
            )


def _whole(
    solving: Solving, variables: tuple[Var, ...], space: Space | None, *, brief: bool = False
) -> IndexMap:
    """The map of a whole axis, from the states of its leaves.

    `brief`: two units stand for all units of a factor of a product that does not change.
    """
    assert space is not None
    pending = [solving.need(v) for v in variables]
    if brief and all(f.kind == "atom" for f in factors(space)):
        pending = [IndexMap.identity(min(s.size, 2)) if s.is_identity else s for s in pending]
    whole = assemble(space, pending)
    assert not pending
    return whole
