"""Solver for sparse linear equations: `Balance`s of a few unknowns each.

It returns values of all unknowns, or reports that there are none.
"""

from __future__ import annotations

from collections.abc import Sequence

from growc.dialects.transformers.log.entry import Wire
from growc.dialects.transformers.log.scale_rules import Balance

TOLERANCE = 1e-6
"""The largest difference of equal sums, and the largest coefficient that counts as zero."""

Terms = dict[Wire, float]
"""Unknowns with their coefficients."""


def solution(equations: Sequence[Balance], free: Sequence[Wire]) -> Terms | None:
    """Return the values of the unknowns, or None if the equations contradict each other.

    Unknowns that are missing in the result are zero. As far as the equations leave `free` unknowns open, the
    last ones are zero. Each equation is solved for its first unknown, in an order in which `free` comes last.
    Results come before, the latest first. An equation then defines the result of an operator, and little has
    to be substituted. For the same reason equations of few unknowns come first.
    """
    wires = {wire for equation in equations for wire in equation.terms}
    computed = sorted(wires.difference(free), key=lambda w: (0 if isinstance(w, str) else -w[0], repr(w)))
    places = {wire: number for number, wire in enumerate((*computed, *free))}
    firsts: dict[Wire, tuple[Terms, float]] = {}
    for equation in sorted(equations, key=lambda equation: len(equation.terms)):
        remaining, total = {wire: factor for wire, factor in equation.terms.items() if factor}, equation.total
        while remaining and (first := min(remaining, key=places.__getitem__)) in firsts:
            remaining, total = _without(first, remaining, total, *firsts[first])
        if remaining:
            firsts[first] = remaining, total
        elif abs(total) > TOLERANCE:
            return None
    values: Terms = {}
    for first in sorted(firsts, key=places.__getitem__, reverse=True):
        terms, total = firsts[first]
        rest = sum(factor * values.get(w, 0.0) for w, factor in terms.items() if w != first)
        values[first] = (total - rest) / terms[first]
    return values


def _without(first: Wire, terms: Terms, total: float, others: Terms, value: float) -> tuple[Terms, float]:
    """Eliminate an unknown from an equation by subtracting a multiple of another one."""
    times = terms[first] / others[first]
    difference = {wire: terms.get(wire, 0.0) - times * others.get(wire, 0.0) for wire in terms | others}
    remaining = {
        wire: factor for wire, factor in difference.items() if wire != first and abs(factor) > TOLERANCE
    }
    return remaining, total - times * value
