"""Linear equations of a few unknowns each, most of which follow from one another one by one.

Needs: `Balance`s. Gives: values of all unknowns, or that there are none.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from growc.dialects.transformers.log.entry import Wire
from growc.dialects.transformers.log.scale_rules import Balance

TOLERANCE = 1e-6
"""Sums that differ by less are equal, and a coefficient that is less is none."""

Terms = dict[Wire, float]
"""Unknowns with their coefficients."""


class Equations:
    """The equations that there are, and what is known by them."""

    def __init__(self) -> None:
        self.known: dict[Wire, float] = {}
        self.open: list[tuple[Terms, float]] = []
        self.at: dict[Wire, list[int]] = defaultdict(list)
        self.fresh: deque[Wire] = deque()
        self.sound = True

    def take(self, equations: Iterable[Balance]) -> None:
        """Add equations."""
        for equation in equations:
            terms = {wire: factor for wire, factor in equation.terms.items() if factor}
            for wire in terms:
                self.at[wire].append(len(self.open))
            self.open.append((terms, equation.total))

    def settle(self, free: Sequence[Wire]) -> bool:
        """Find all unknowns. Of `free` the last are zero as far as the equations leave that open. False where
        they contradict.
        """
        for number in range(len(self.open)):
            self.look(number)
        self.follow()
        if self.sound:
            self.eliminate(free)
        return self.sound

    def know(self, wire: Wire, value: float) -> None:
        """One unknown less."""
        self.known[wire] = value
        self.fresh.append(wire)

    def follow(self) -> None:
        """What follows from what was found last."""
        while self.fresh and self.sound:
            for number in self.at[self.fresh.popleft()]:
                self.look(number)

    def look(self, number: int) -> None:
        """An equation of one unknown gives it; one of none is true or not."""
        terms, total = self.open[number]
        for wire in [wire for wire in terms if wire in self.known]:
            total -= terms.pop(wire) * self.known[wire]
        self.open[number] = terms, total
        if not terms:
            self.sound = self.sound and abs(total) < TOLERANCE
        elif len(terms) == 1:
            [(wire, factor)] = terms.items()
            self.know(wire, total / factor)

    def eliminate(self, free: Sequence[Wire]) -> None:
        """Solve what no single equation gives: each gives its first unknown, in an order in which `free`
        stands last, and what is left without one is zero. Before it stand results, the last made first: an
        equation says what an operator makes, and little has to be put in.
        """
        wires = {wire for terms, _ in self.open for wire in terms}
        made = sorted(wires.difference(free), key=lambda w: (0 if isinstance(w, str) else -w[0], repr(w)))
        places = {wire: number for number, wire in enumerate((*made, *free))}
        firsts: dict[Wire, tuple[Terms, float]] = {}
        for terms, total in self.open:
            left, sum_ = dict(terms), total
            while left and (first := min(left, key=places.__getitem__)) in firsts:
                left, sum_ = _without(first, left, sum_, *firsts[first])
            if left:
                firsts[first] = left, sum_
            elif abs(sum_) > TOLERANCE:
                self.sound = False
                return
        for first in sorted(firsts, key=places.__getitem__, reverse=True):
            terms, total = firsts[first]
            rest = sum(factor * self.known.get(w, 0.0) for w, factor in terms.items() if w != first)
            self.known[first] = (total - rest) / terms[first]


def _without(first: Wire, terms: Terms, total: float, others: Terms, value: float) -> tuple[Terms, float]:
    """An equation less that multiple of another one that takes an unknown out of it."""
    times = terms[first] / others[first]
    made = {wire: terms.get(wire, 0.0) - times * others.get(wire, 0.0) for wire in terms | others}
    kept = {wire: factor for wire, factor in made.items() if wire != first and abs(factor) > TOLERANCE}
    return kept, total - times * value
