"""Polynomials in the shares of axes that stay: what a model costs, as a function of its sizes.

A share is 1 where an axis keeps its size, and 1/2 where it has half of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

import numpy as np

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, find

Powers = tuple[int, ...]


@dataclass(frozen=True)
class Polynomial:
    """Coefficients by the powers of each share."""

    terms: Mapping[Powers, Fraction] = field(default_factory=dict)

    @staticmethod
    def constant(value: int | Fraction, count: int) -> Polynomial:
        """A number, in so many shares."""
        return Polynomial({(0,) * count: Fraction(value)} if value else {})

    @staticmethod
    def share(number: int, count: int) -> Polynomial:
        """One of so many shares."""
        return Polynomial({tuple(int(k == number) for k in range(count)): Fraction(1)})

    def __add__(self, other: Polynomial) -> Polynomial:
        found = dict(self.terms)
        for powers, value in other.terms.items():
            found[powers] = found.get(powers, Fraction(0)) + value
        return Polynomial({powers: value for powers, value in found.items() if value})

    def __mul__(self, other: Polynomial) -> Polynomial:
        found: dict[Powers, Fraction] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                powers = tuple(x + y for x, y in zip(left, right, strict=True))
                found[powers] = found.get(powers, Fraction(0)) + a * b
        return Polynomial({powers: value for powers, value in found.items() if value})

    def times(self, factor: int | Fraction) -> Polynomial:
        """All of it so many times."""
        return Polynomial({powers: value * factor for powers, value in self.terms.items() if factor})

    def at(self, shares: Iterable[Fraction]) -> Fraction:
        """Its value."""
        given = tuple(shares)
        values = (
            value * prod((x**n for x, n in zip(given, powers, strict=True)), start=Fraction(1))
            for powers, value in self.terms.items()
        )
        return sum(values, Fraction(0))


@dataclass(frozen=True)
class Shares:
    """Which share each atom has: by its number. sizes: of every atom today."""

    count: int
    number: Mapping[Space, int]
    size: Mapping[Space, int]

    def of(self, space: Space) -> Polynomial:
        """The size of a space."""
        space = find(space)
        if space.kind == "atom":
            size = Polynomial.constant(self.size.get(space, space.size[0]), self.count)
            number = self.number.get(space)
            return size if number is None else size * Polynomial.share(number, self.count)
        parts = [self.of(part) for part in space.parts]
        if space.kind == "sum":
            return sum(parts, Polynomial())
        return self.product(parts)

    def product(self, parts: Iterable[Polynomial]) -> Polynomial:
        """The product of several."""
        return prod(parts, start=Polynomial.constant(1, self.count))

    @property
    def ones(self) -> tuple[Fraction, ...]:
        """The shares of today's model."""
        return (Fraction(1),) * self.count


@dataclass(frozen=True)
class Cost:
    """What a model costs with each number of layers. by_layers: a polynomial for each level of the layers,
    one where these do not change.
    """

    by_layers: tuple[Polynomial, ...]
    count: int

    def table(self) -> tuple[Floats, Floats]:
        """Coefficients, a row for each level and a column for each term; and the powers of each term."""
        known = sorted({powers for one in self.by_layers for powers in one.terms})
        rows = [[float(one.terms.get(powers, 0)) for powers in known] for one in self.by_layers]
        shape = (len(known), self.count)
        return np.array(rows), np.array(known, dtype=np.float64).reshape(shape)

    def exact(self, level: int, shares: Iterable[Fraction]) -> Fraction:
        """The cost at a level of the layers."""
        return self.by_layers[level if len(self.by_layers) > 1 else 0].at(shares)
