"""Linear equations of a few unknowns each. Needs: `Balance`s. Gives: values of all unknowns, or that there
are none.
"""

from __future__ import annotations

from collections.abc import Sequence

from growc.dialects.transformers.log.entry import Wire
from growc.dialects.transformers.log.scale_rules import Balance

TOLERANCE = 1e-6
"""Sums that differ by less are equal, and a coefficient that is less is none."""

Terms = dict[Wire, float]
"""Unknowns with their coefficients."""


def solution(equations: Sequence[Balance], free: Sequence[Wire]) -> Terms | None:
    """The unknowns; those that are left out are zero. None where the equations contradict.

    Of `free` the last are zero as far as the equations leave that open. Each equation gives its first
    unknown, in an order in which `free` stands last. Before it stand results, the last made first: an
    equation says what an operator makes, and little has to be put in. For the same reason equations of few
    unknowns come first.
    """
    wires = {wire for equation in equations for wire in equation.terms}
    made = sorted(wires.difference(free), key=lambda w: (0 if isinstance(w, str) else -w[0], repr(w)))
    places = {wire: number for number, wire in enumerate((*made, *free))}
    firsts: dict[Wire, tuple[Terms, float]] = {}
    for equation in sorted(equations, key=lambda equation: len(equation.terms)):
        left, total = {wire: factor for wire, factor in equation.terms.items() if factor}, equation.total
        while left and (first := min(left, key=places.__getitem__)) in firsts:
            left, total = _without(first, left, total, *firsts[first])
        if left:
            firsts[first] = left, total
        elif abs(total) > TOLERANCE:
            return None
    known: Terms = {}
    for first in sorted(firsts, key=places.__getitem__, reverse=True):
        terms, total = firsts[first]
        rest = sum(factor * known.get(w, 0.0) for w, factor in terms.items() if w != first)
        known[first] = (total - rest) / terms[first]
    return known


def _without(first: Wire, terms: Terms, total: float, others: Terms, value: float) -> tuple[Terms, float]:
    """An equation less that multiple of another one that takes an unknown out of it."""
    times = terms[first] / others[first]
    made = {wire: terms.get(wire, 0.0) - times * others.get(wire, 0.0) for wire in terms | others}
    kept = {wire: factor for wire, factor in made.items() if wire != first and abs(factor) > TOLERANCE}
    return kept, total - times * value
