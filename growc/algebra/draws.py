"""Random numbers that depend only on the place where they are used.

Every draw comes from Philox under a key made of the seed and the place of the draw: statement, axis, scope,
layer, part, ordinal of the use. The counter is the element's number, so any part of a stream can be computed
alone. Results do not depend on names, exporters, chunks or the order of execution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from growc.algebra.indexmap import Floats, Ints

CHUNK = 1 << 14
"""The number of words drawn together. They and the numbers made of them fit a cache. A multiple of four."""


@dataclass(frozen=True)
class Draws:
    """A stream of random numbers, addressed by element. `key` has 128 bits."""

    key: int

    @staticmethod
    def of(*place: object) -> Draws:
        """The stream of one place: any tuple of strings and integers."""
        return Draws(int.from_bytes(hashlib.blake2b(repr(place).encode(), digest_size=16).digest(), "big"))

    def at(self, *place: object) -> Draws:
        """The stream of a place within this one."""
        return Draws.of(self.key, *place)

    def _words(self, start: int, count: int) -> Iterator[NDArray[np.uint64]]:
        """Yield words of the stream in order, at most CHUNK at a time."""
        source = np.random.Philox(key=self.key)
        source.advance(start // 4)
        source.random_raw(start % 4)
        for start_of_chunk in range(0, count, CHUNK):
            yield np.asarray(source.random_raw(min(CHUNK, count - start_of_chunk)))

    def _uniform(self, start: int, count: int) -> Iterator[Floats]:
        for words in self._words(start, count):
            words >>= np.uint64(11)
            numbers = words.astype(np.float64)
            numbers += 1.0
            numbers *= 2.0**-53
            yield numbers

    def uniform(self, start: int, count: int) -> Floats:
        """Elements start..start+count of a uniform stream on (0, 1]."""
        return _end_to_end(self._uniform(start, count), count)

    def normal(self, start: int, count: int) -> Floats:
        """Elements of a standard normal stream (Box and Muller; two words an element)."""
        pairs = (numbers.reshape(-1, 2) for numbers in self._uniform(2 * start, 2 * count))
        return _end_to_end((_normal(pair) for pair in pairs), count)

    def integers(self, count: int, bound: int) -> Ints:
        """The first `count` elements of a uniform stream on 0 .. bound-1."""
        return np.minimum((self.uniform(0, count) * bound).astype(np.int64), bound - 1)

    def shares(self, groups: Ints, count: int) -> Floats:
        """For rows in `groups` (numbers below `count`), positive shares that sum to one in each group.

        Uniform on the simplex, mixed half and half with the equal share.
        """
        waits = -np.log(self.uniform(0, len(groups)))
        total = np.bincount(groups, weights=waits, minlength=count)[groups]
        size = np.bincount(groups, minlength=count)[groups]
        return 0.5 * waits / np.where(total > 0, total, 1.0) + 0.5 / size


def _normal(pairs: Floats) -> Floats:
    numbers = np.log(pairs[:, 0])
    numbers *= -2.0
    np.sqrt(numbers, out=numbers)
    numbers *= np.cos(2.0 * np.pi * pairs[:, 1])
    return numbers


def _end_to_end(pieces: Iterator[Floats], count: int) -> Floats:
    numbers, filled = np.empty(count), 0
    for piece in pieces:
        numbers[filled : filled + len(piece)] = piece
        filled += len(piece)
    return numbers
