"""Tensors by their rows, which are computed when they are asked for: nothing as large as a tensor in between.

Needs: a source, and the steps of a plan. Gives: `Rows`. A step on the first axis says which rows to read; one
on another axis acts on the rows that were read. What a row holds does not depend on the others that are read
with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from math import prod

import numpy as np

from growc.algebra.indexmap import Array, Bools, Ints

BLOCK = 1 << 20
"""So many bytes of rows are computed together: with what is made on the way they fit a cache."""
AHEAD = 2
"""So many blocks are computed at once."""


@dataclass(frozen=True)
class Rows:
    """A tensor of shape (count, *rest). `compute` takes the numbers of rows, at least one."""

    count: int
    rest: tuple[int, ...]
    dtype: np.dtype[np.generic]
    compute: Callable[[Ints], Array]

    def read(self, rows: Ints) -> Array:
        """Rows by their numbers: (numbers, *rest)."""
        return self.compute(rows) if len(rows) else np.empty((0, *self.rest), self.dtype)

    @property
    def width(self) -> int:
        """How many elements a row has."""
        return prod(self.rest)

    def blocks(self) -> Iterator[Array]:
        """All rows in order, about BLOCK bytes of them at a time, some ahead of what takes them."""
        step = max(1, BLOCK // max(1, self.width * self.dtype.itemsize))
        yield from _ahead(lambda at: self.read(np.arange(at, min(at + step, self.count))), self.count, step)

    def whole(self) -> Array:
        """All rows, in an array of its own."""
        made = np.empty((self.count, *self.rest), self.dtype)
        self.into(made)
        return made

    def into(self, place: Array) -> None:
        """All rows, block by block, into an array of their shape."""
        at = 0
        for block in self.blocks():
            place[at : at + len(block)] = block
            at += len(block)

    def then(self, change: Callable[[Array], Array]) -> Rows:
        """With something done to each element."""
        kind = change(np.empty(0, self.dtype)).dtype
        return Rows(self.count, self.rest, kind, lambda rows: change(self.read(rows)))

    def at(self, count: int, place: Callable[[Ints], Ints]) -> Rows:
        """So many rows, each at its place in these."""
        return Rows(count, self.rest, self.dtype, lambda rows: self.read(place(rows)))


def _ahead(made: Callable[[int], Array], count: int, step: int) -> Iterator[Array]:
    """What is made for 0, step, 2 · step and so on, in order. numpy computes without Python's lock."""
    places = range(0, count, step)
    if count <= step or step == 1:  # a row may be as large as what memory there is
        yield from map(made, places)
        return
    coming: deque[Future[Array]] = deque()
    with ThreadPoolExecutor(AHEAD) as threads:
        for at in places:
            # what numpy ignores here, it ignores there
            coming.append(threads.submit(copy_context().run, made, at))
            if len(coming) > AHEAD:
                yield coming.popleft().result()
        yield from (block.result() for block in coming)


def stored(array: Array) -> Rows:
    """The rows of an array, which may be a file that is mapped; a number is a row."""
    plain = np.asarray(array).reshape(array.shape or (1,))

    def read(rows: Ints) -> Array:
        run = rows[-1] - rows[0] + 1 == len(rows) and bool((np.diff(rows) == 1).all())
        return plain[rows[0] : rows[-1] + 1] if run else plain.take(rows, axis=0)

    return Rows(len(plain), plain.shape[1:], plain.dtype, read)


def runs(numbers: Ints) -> Iterator[tuple[int, int, int]]:
    """Numbers that follow each other: the place of the first, the first, and how many."""
    ends = [*(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
    for at, end in zip([0, *ends], ends, strict=False):
        yield at, int(numbers[at]), end - at


def choice(one: Rows, other: Rows, taken: Bools) -> Rows:
    """The rows of one tensor, and those of another one where they are taken."""

    def read(rows: Ints) -> Array:
        which = taken[rows]
        made = np.empty((len(rows), *one.rest), one.dtype)
        made[~which], made[which] = one.read(rows[~which]), other.read(rows[which])
        return made

    return Rows(one.count, one.rest, one.dtype, read)


def joined(pieces: list[Rows], outer: int) -> Rows:
    """Of each piece its first share of `outer`, then of each the second, and so on."""
    lengths = [piece.count // outer for piece in pieces]
    ends = np.cumsum(lengths)

    def read(rows: Ints) -> Array:
        place, inner = np.divmod(rows, int(ends[-1]))
        which = np.searchsorted(ends, inner, side="right")
        made = np.empty((len(rows), *pieces[0].rest), pieces[0].dtype)
        for k in np.unique(which):
            own = which == k
            made[own] = pieces[k].read(place[own] * lengths[k] + inner[own] - (ends[k] - lengths[k]))
        return made

    return Rows(outer * int(ends[-1]), pieces[0].rest, pieces[0].dtype, read)
