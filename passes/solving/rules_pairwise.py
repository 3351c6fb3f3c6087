"""Rules of links between two classes: products with a gain or with each other, and contractions.

Needs: the states that are known so far. Gives: the states of results, of gains, and of weights that read.
"""

from __future__ import annotations

import numpy as np

from growc.algebra.indexmap import Bools, Floats, IndexMap
from growc.ir.lowered_statement import SpaceRequest
from growc.passes.solving.constraints import Link, Var
from growc.passes.solving.solution import READS, SCALES, Solving
from growc.recipe.fills import Entry


def product(solving: Solving, link: Link, inverse: bool = False) -> None:
    """The rule of products: a state times a gain, which takes any factor, or times another state."""
    if len(link.sources) == 1:
        state = solving.need(link.sources[0])
        solving.arrive(link, state.reciprocal() if inverse else state)
        return
    a, b = link.sources
    if solving.is_free(a) and not solving.is_free(b) and not inverse:
        a, b = b, a
    state = solving.need(a)
    weights = all(solving.classes.free[solving.links.root(v)] for v in (a, b))
    if solving.is_free(b) and not weights:
        _scale(solving, link, a, b, inverse)
        return
    other = solving.need(b)
    solving.arrive(link, state.times(other.reciprocal() if inverse else other))


def quotient(solving: Solving, link: Link) -> None:
    """The rule of quotients: the product with the reciprocal.

    growc.passes.soundness.finite checks whether a zero divides.
    """
    product(solving, link, inverse=True)


def remainder(solving: Solving, link: Link) -> None:
    """The rule of remainders: on a row that is a copy, both sides have one factor.

    Zero by any divisor is zero.
    """
    a, b = link.sources
    state = solving.need(a)
    if solving.is_free(b) and not solving.is_free(a):
        after = state.pointwise(zero=True, homogeneous=True)
        solving.give(b, IndexMap.of(state.source, state.index, state.weight, None, ~after.copies), SCALES)
        solving.done.ones.add(solving.links.root(b))
    else:
        after = state.remainders(solving.need(b))
    solving.arrive(link, after)


def _scale(solving: Solving, link: Link, scaled: Var, gain: Var, inverse: bool) -> None:
    """Give a per-channel weight its state behind a state: it can take any factor on a row that is a copy.

    A mean unit behind the gain is a mean of products with the gain. Where only weights make the units in
    front, the rows of these weights become such means, and the gain is one there.
    """
    target, state = link.targets[0], solving.need(scaled)
    wanted = solving.known(target)
    if wanted is None:
        wanted = solving.give(target, _choose(solving, link, state, target))
    same = state.copies & wanted.copies & (state.index == wanted.index)
    lost = ~(same | (state.zeros & wanted.zeros) | wanted.junk)
    if lost.any() and (inverse or not _weigh_means(solving, state, wanted, lost, scaled, gain)):
        solving.gap(
            link,
            f"a per-channel weight cannot carry {solving.axis_name(gain)} into the state expected behind it",
        )
    if inverse:
        solving.done.ones.add(solving.links.root(gain))
    top, bottom = (state.weight, wanted.weight) if inverse else (wanted.weight, state.weight)
    factor = np.divide(top, bottom, out=np.ones(state.size), where=same)
    solving.give(gain, IndexMap.of(state.source, state.index, factor, None, ~same), SCALES)


def _weigh_means(
    solving: Solving, state: IndexMap, wanted: IndexMap, lost: Bools, scaled: Var, gain: Var
) -> bool:
    """Whether only mean units are lost, and the weights in front of the gain can weigh their means by it.

    Where that is so, note it in the solution.
    """
    means = (state.index < 0) & (wanted.index < 0) & (state.mean != 0) & (state.mean == wanted.mean)
    gain_name = "" if (lost & ~means).any() else _gain_alone(solving, scaled, gain)
    if gain_name:
        solving.done.factors[solving.links.root(scaled)] = gain_name
        solving.done.ones.add(solving.links.root(gain))
    return bool(gain_name)


def _gain_alone(solving: Solving, scaled: Var, gain: Var) -> str:
    """The name of a gain's stored tensor, if weights make the state in front of it for this gain alone.

    Otherwise an empty string. A mean unit behind the gain is the mean of products. So is a row of these
    weights that is a mean of rows times elements of the gain. The gain itself is one there (docs/theory.md).
    The tensor has a plain element for each unit.
    """
    facts, request = solving.classes, solving.request(gain)
    root, other = solving.links.root(scaled), solving.links.root(gain)
    value = solving.links.owner[gain]
    weight = None if value is None else value.weight
    alone = facts.touches[root] == 1 and facts.touches[other] == 1 and facts.members[other] == 1
    if weight is None or request is None or not alone or value in solving.changed or weight.computed:
        return ""
    integers = root in facts.quantised or other in facts.quantised
    plain = request.unit == 1 and weight.elements == request.map.source
    return weight.name if plain and not integers else ""


def _choose(solving: Solving, link: Link, state: IndexMap, target: Var) -> IndexMap:
    """Choose the state behind a gain.

    It is plain copies. If a tied table reads it, it is the state that pairs with the table. If it is
    contracted with itself or a norm reads it, it is weighted for these.
    """
    plain = IndexMap.of(state.source, state.index, None, None, state.junk | (state.mean != 0))
    for partner in solving.classes.partners[solving.links.root(target)]:
        table = solving.done.states.get(partner)
        if table is None or plain.pairs_with(table):
            continue
        paired = plain.paired(table)
        if paired is not None:
            return paired
    return solving.isometric(target, plain)


def pair(solving: Solving, link: Link) -> None:
    """The rule of contractions: a weight reads a state, or two activations meet, whose states must pair."""
    a, b = link.sources
    if solving.is_free(a) and (not solving.is_free(b) or _constness(solving, a) > _constness(solving, b)):
        a, b = b, a
    state = solving.need(a)
    if solving.is_free(b):
        _read(solving, link, state, b)
        return
    for reader, other in ((a, b), (b, a)):
        if solving.links.root(reader) in solving.done.read:
            _read_again(solving, link, solving.need(other), reader)
    if not solving.need(a).pairs_with(solving.need(b)):
        tied = solving.classes.free[solving.links.root(b)] or READS in (
            solving.done.verbs.get(solving.links.root(x)) for x in (a, b)
        )
        root = solving.links.root(b)
        owners = (o for v, o in enumerate(solving.links.owner) if solving.links.root(v) == root)
        table = any(o is not None and o.weight is not None for o in owners)
        if tied or table:
            solving.gap(
                link,
                f"a weight that also makes {solving.axis_name(a)} reads it, "
                "and no norm stands between to settle it",
                "`untie head` lets the two become different weights",
            )
        else:
            solving.gap(
                link, f"two activations are contracted over {solving.axis_name(a)}, whose maps do not pair"
            )


def _constness(solving: Solving, var: Var) -> int:
    owner = solving.links.owner[var]
    return 0 if owner is None else 2 if owner.weight is not None else 1


def _read(solving: Solving, link: Link, state: IndexMap, reader: Var) -> None:
    """Give a weight that contracts a state a left inverse of it."""
    root = solving.links.root(reader)
    solving.done.ordinals[root] = solving.readers
    solving.readers += 1
    request = solving.request(reader)
    shares = _shares(solving, state, request, solving.done.ordinals[root])
    rescaled = _rescales(solving, request)
    alone = rescaled or root in solving.classes.quantised
    inverse = state.left_inverse(_alone(state) if alone else shares)
    if inverse is not None and rescaled:
        inverse = _rescaled(inverse)
    if inverse is None:
        solving.gap(link, f"not every unit of {solving.axis_name(reader)} is still there")
        inverse = state.plain()
    solving.give(reader, inverse.without(state.zeros), READS)  # where nothing arrives, any column is right
    solving.done.read[root] = state
    _drawn(solving, link, state, reader)


def _read_again(solving: Solving, link: Link, state: IndexMap, reader: Var) -> None:
    """Adapt a weight that contracts one more state.

    A column is free only where both states are zero. Noise must vanish in both.
    """
    root = solving.links.root(reader)
    present, first_state = solving.done.states[root], solving.done.read[root]
    if (first_state.source, first_state.size) != (state.source, state.size):
        return
    _drawn(solving, link, state, reader)
    free = present.junk & state.zeros
    solving.done.states[root] = IndexMap.of(present.source, present.index, present.weight, present.mean, free)
    solving.done.read[root] = first_state.without(first_state.differs(state))


def _drawn(solving: Solving, link: Link, state: IndexMap, reader: Var) -> None:
    """Record a gap where a weight draws or rescales its columns although the units it reads are not zero."""
    request = solving.request(reader)
    if request is None or solving.stage.options.zero_outputs:
        return
    if not (~solving.need(reader).copies & ~state.zeros).any():
        return
    axis = solving.axis_name(reader)
    if request.entries.reading is Entry.DRAWN:
        solving.gap(link, f"it reads new units of {axis} that are drawn at random")
    elif _rescales(solving, request):
        cause = f"it reads copies of {axis} so that the RMS of what it makes is kept, not the function"
        solving.gap(link, cause, "`cyclic copy` shares its columns out and keeps the function")


def _rescales(solving: Solving, request: SpaceRequest | None) -> bool:
    """Whether weights that read copies keep the RMS of their result instead of the function."""
    rule = request is not None and request.entries.reading is Entry.RESCALED
    return rule and not solving.stage.options.zero_outputs


def _rescaled(inverse: IndexMap) -> IndexMap:
    """An inverse with the columns of one copy of each unit times sqrt(d/D); all others are drawn.

    See docs/theory.md.
    """
    factor = float(np.sqrt(inverse.source / inverse.size))
    return inverse.scaled(factor).without(~inverse.copies)


def _alone(state: IndexMap) -> Floats:
    """Shares that give all of a unit to its first copy, so that integers and their scales stay."""
    shares = np.zeros(state.size)
    rows = np.flatnonzero(state.copies)
    _, first = np.unique(state.index[rows], return_index=True)
    shares[rows[first]] = 1.0
    return shares


def _shares(solving: Solving, state: IndexMap, request: SpaceRequest | None, ordinal: int) -> Floats:
    """The share of each copy in a reading weight. The shares of one unit's copies sum to one."""
    rows = state.copies
    groups = np.where(rows, state.index, 0)
    counts = np.bincount(groups[rows], minlength=state.source)
    if request is None:
        return 1.0 / np.maximum(counts[groups], 1)
    if solving.stage.options.zero_outputs:
        return np.asarray(rows & ~request.new, dtype=np.float64)
    shares = 1.0 / np.maximum(counts[groups], 1)
    if solving.stage.options.split_random:
        shares[rows] = request.draws.at("shares", ordinal).shares(groups[rows], state.source)
    return shares
