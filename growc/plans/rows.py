"""Tensors by their rows, which are computed when they are asked for: nothing as large as a tensor in between.

Needs: a source, and the steps of a plan. Gives: `Rows`. A step on the first axis says which rows to read; one
on another axis acts on the rows that were read. What a row holds does not depend on the others that are read
with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

from growc.algebra.indexmap import Array, Bools, Ints
from growc.ir.graph import wide

BLOCK = 1 << 20
"""So many bytes of rows are computed together: with what is made on the way they fit a cache."""
AHEAD = 2
"""So many blocks are computed at once."""

Key = TypeVar("Key")


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

    @property
    def step(self) -> int:
        """How many rows make a block."""
        return max(1, BLOCK // max(1, self.width * self.dtype.itemsize))

    def blocks(self) -> Iterator[Array]:
        """All rows in order, about BLOCK bytes of them at a time, some ahead of what takes them."""
        if self.count <= self.step:
            yield self.read(np.arange(self.count))
        else:
            yield from (block for _, block in end_to_end([(self, 0, lambda: self)]))

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


def content(block: Array) -> memoryview:
    """The bytes of some rows."""
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8).data


def end_to_end(parts: Iterable[tuple[Key, int, Callable[[], Rows]]]) -> Iterator[tuple[Key, Array]]:
    """The blocks of several tensors in order, each with the key of its tensor; of an empty tensor there are
    none.

    parts: of each tensor its key, how many bytes it takes beside blocks, and what makes it. One that takes
    some is made when all others before it are done, and done before others begin.
    """
    coming: deque[tuple[Key, Future[Array]]] = deque()
    alone = False
    with ThreadPoolExecutor(AHEAD) as threads:  # numpy computes without Python's lock
        for key, beside, make in parts:
            if alone or beside:
                yield from _done(coming)
            rows, alone = make(), beside > 0
            for at in range(0, rows.count, rows.step):
                numbers = np.arange(at, min(at + rows.step, rows.count))
                if rows.step == 1 < rows.count:  # a row may be as large as what memory there is
                    yield from _done(coming)
                    yield key, rows.read(numbers)
                    continue
                # what numpy ignores here, it ignores there
                coming.append((key, threads.submit(copy_context().run, rows.read, numbers)))
                if len(coming) > AHEAD:
                    yield from _done(coming, AHEAD)
        yield from _done(coming)


def _done(coming: deque[tuple[Key, Future[Array]]], left: int = 0) -> Iterator[tuple[Key, Array]]:
    """The first of what is computed, when they are done, until so many are left."""
    while len(coming) > left:
        key, block = coming.popleft()
        yield key, block.result()


def stored(array: Array) -> Rows:
    """The rows of an array, which may be a file that is mapped; a number is a row."""
    plain = np.asarray(array).reshape(array.shape or (1,))

    def read(rows: Ints) -> Array:
        run = rows[-1] - rows[0] + 1 == len(rows) and bool((np.diff(rows) == 1).all())
        return plain[rows[0] : rows[-1] + 1] if run else plain.take(rows, axis=0)

    return Rows(len(plain), plain.shape[1:], plain.dtype, read)


def as_rows(source: Array | Rows) -> Rows:
    """The rows of what may be known by them already."""
    return source if isinstance(source, Rows) else stored(source)


class Flat:
    """The elements of a tensor in their order, some at a time; the rows that were read last are kept."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.range, self.block = rows, (0, 0), np.empty(0, rows.dtype)

    def __len__(self) -> int:
        return self.rows.count * self.rows.width

    def read(self, start: int, stop: int) -> Array:
        """Elements start..stop."""
        width = max(1, self.rows.width)
        first, last = start // width, -(-stop // width)
        if self.range != (first, last):
            self.range, self.block = (first, last), self.rows.read(np.arange(first, last)).reshape(-1)
        return self.block[start - first * width : stop - first * width]


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


def average(pieces: Sequence[Rows]) -> Rows:
    """The mean of tensors of one shape, added up in double precision, and rounded once."""
    first = pieces[0]

    def read(rows: Ints) -> Array:
        total = wide(first.read(rows)).copy()
        for piece in pieces[1:]:
            total += wide(piece.read(rows))
        return np.asarray((total / len(pieces)).astype(first.dtype))

    return first if len(pieces) == 1 else Rows(first.count, first.rest, first.dtype, read)


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
