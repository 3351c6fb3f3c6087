"""The solver of states: every tensor of the result in terms of the source's, and where that is not exact.

Needs: links and one lowered statement. Gives: `Solution`, the state of every class of variables, the factors
of eps, and every gap.

The solver makes one forward pass over the links. A class that only weights make takes the requested map. Its
copies are weighted by 1/sqrt(C) where an RMS norm reads it and counts differ, or where two activations are
contracted over it. Norms, products and nonlinearities carry the state on. Behind a gain it is plain copies
again, unless a tied table reads it: then it is the state that pairs with the table's. A weight that contracts
a known state takes a left inverse of it. docs/theory.md proves each step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from growc.algebra.indexmap import Bools, IndexMap
from growc.ir.graph import Value
from growc.ir.lowered_statement import Sizes, Stage
from growc.passes.dataflow.ranges import Ranges
from growc.passes.solving.class_facts import classes_of
from growc.passes.solving.constraints import Link, Links, Var
from growc.passes.solving.rules_pairwise import pair, product, quotient, remainder
from growc.passes.solving.rules_whole_axis import addressed, choice, norm, output, shown, statistic
from growc.passes.solving.solution import Solution, Solving
from growc.passes.soundness.finite import gaps_of_infinite_units
from growc.passes.soundness.narrowed import gaps_of_casts


def solve(
    links: Links,
    stage: Stage,
    sizes: Sizes,
    carriers: set[Value],
    ranges: Ranges,
    changed: Collection[Value] = (),
) -> Solution:
    """Solve all classes.

    `sizes`: as they stand before the statement. `carriers`: weights and their layouts. `ranges`: the bounds
    of the source's numbers. `changed`: uses of weights that earlier statements have changed.

    Two states may meet in one class that no norm reads, and differ in new units only. Then those units are
    given up: readers take zero columns for them. That changes states upstream of the meeting too, so all is
    solved again.
    """
    classes, given_up = classes_of(links, carriers), dict[Var, Bools]()
    while True:
        solving = Solving(links, stage, sizes, classes, given_up, changed, ranges)
        for link in links.links:
            RULES[link.kind](solving, link)
        for var in range(len(links.atoms)):
            solving.need(var)
        if not solving.more:
            solving.done.gaps += [
                *gaps_of_infinite_units(solving.done, carriers),
                *gaps_of_casts(solving.done),
            ]
            return solving.done
        for root, more in solving.more.items():
            given_up[root] = given_up[root] | more if root in given_up else more


def _make(solving: Solving, link: Link) -> None:
    if link.node is not None and link.node.chain:  # a weight on its way to its use decides nothing
        return
    for target in link.targets:
        if not solving.classes.free[solving.links.root(target)]:
            solving.need(target)


def _broadcast(solving: Solving, link: Link) -> None:
    """The rule of a new axis whose units are all alike.

    A row of the requested map that does not sum to one becomes a copy of the first unit: any would do.
    """
    for target in link.targets:
        state = solving.base(target)
        is_kept = np.isclose(state.row_sums, 1.0) & ~state.junk
        index = np.where(is_kept, state.index, 0)
        weight, mean = np.where(is_kept, state.weight, 1.0), np.where(is_kept, state.mean, 0.0)
        solving.meet(link, target, IndexMap.of(state.source, index, weight, mean))


def _pointwise(solving: Solving, link: Link) -> None:
    state = solving.need(link.sources[0])
    solving.arrive(link, state.pointwise(zero=link.zero, homogeneous=link.homogeneous))


def _shift(solving: Solving, link: Link) -> None:
    solving.arrive(link, solving.need(link.sources[0]).shifted())


RULES: dict[str, Callable[[Solving, Link], None]] = {
    "make": _make,
    "broadcast": _broadcast,
    "pointwise": _pointwise,
    "shift": _shift,
    "product": product,
    "quotient": quotient,
    "remainder": remainder,
    "pair": pair,
    "addressed": addressed,
    "choice": choice,
    "statistic": statistic,
    "norm": norm,
    "state": shown,
    "output": output,
}
"""The rule that a link applies to the states of its classes, by the link's kind."""
