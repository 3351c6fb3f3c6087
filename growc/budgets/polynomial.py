"""Polynomials in the shares of axes: a model's cost as a function of its sizes.

A share is 1 if an axis keeps its size, and 1/2 if it has half of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod

import numpy as np

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, find

Exponents = tuple[int, ...]


@dataclass(frozen=True)
class Polynomial:
    """A polynomial, as coefficients by the powers of each share."""

    terms: Mapping[Exponents, Fraction] = field(default_factory=dict)

    @staticmethod
    def constant(value: int | Fraction, count: int) -> Polynomial:
        """A constant polynomial in `count` shares."""
        return Polynomial({(0,) * count: Fraction(value)} if value else {})

    @staticmethod
    def share(number: int, count: int) -> Polynomial:
        """The share with this number, of `count` shares."""
        return Polynomial({tuple(int(k == number) for k in range(count)): Fraction(1)})

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for powers, value in other.terms.items():
            terms[powers] = terms.get(powers, Fraction(0)) + value
        return Polynomial({powers: value for powers, value in terms.items() if value})

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Exponents, Fraction] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                powers = tuple(x + y for x, y in zip(left, right, strict=True))
                terms[powers] = terms.get(powers, Fraction(0)) + a * b
        return Polynomial({powers: value for powers, value in terms.items() if value})

    def times(self, factor: int | Fraction) -> Polynomial:
        """The polynomial times a factor."""
        return Polynomial({powers: value * factor for powers, value in self.terms.items() if factor})

    def at(self, shares: Iterable[Fraction]) -> Fraction:
        """The value at given shares."""
        point = tuple(shares)
        values = (
            value * prod((x**n for x, n in zip(point, powers, strict=True)), start=Fraction(1))
            for powers, value in self.terms.items()
        )
        return sum(values, Fraction(0))


@dataclass(frozen=True)
class Shares:
    """The shares of atoms.

    count: the number of shares. number: the share of each atom that has one. size: today's size of every
    atom.
    """

    count: int
    number: Mapping[Space, int]
    size: Mapping[Space, int]

    def of(self, space: Space) -> Polynomial:
        """The size of a space, as a polynomial."""
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
        """The product of several polynomials."""
        return prod(parts, start=Polynomial.constant(1, self.count))

    @property
    def ones(self) -> tuple[Fraction, ...]:
        """The shares of today's model: all 1."""
        return (Fraction(1),) * self.count


@dataclass(frozen=True)
class Cost:
    """The cost of a model for each number of layers.

    by_layers: a polynomial for each level of the layers; just one if their number does not change.
    """

    by_layers: tuple[Polynomial, ...]
    count: int

    def table(self) -> tuple[Floats, Floats]:
        """Coefficients, with a row for each level and a column for each term; and the powers of each term."""
        powers_present = sorted({powers for polynomial in self.by_layers for powers in polynomial.terms})
        rows = [
            [float(polynomial.terms.get(powers, 0)) for powers in powers_present]
            for polynomial in self.by_layers
        ]
        shape = (len(powers_present), self.count)
        return np.array(rows), np.array(powers_present, dtype=np.float64).reshape(shape)

    def exact(self, level: int, shares: Iterable[Fraction]) -> Fraction:
        """The exact cost at a level of the layers, for given shares."""
        return self.by_layers[level if len(self.by_layers) > 1 else 0].at(shares)
