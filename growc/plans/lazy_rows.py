"""Tensors by their rows, which are computed on demand: no intermediate is as large as a tensor.

Needs: a source, and the steps of a plan. Gives: `Rows`. A step on the first axis chooses the rows to read. A
step on another axis changes the rows that were read. The values of a row do not depend on the other rows that
are read with it.
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
"""Bytes of rows that are computed together. With intermediates they fit a cache."""
AHEAD = 2
"""The number of blocks that are computed at once."""
SMALL = 1 << 16
"""Bytes of a block that no thread computes: handing it over would take longer."""

Key = TypeVar("Key")


@dataclass(frozen=True)
class Rows:
    """A tensor of shape (count, *rest). `compute` takes the numbers of rows, at least one."""

    count: int
    rest: tuple[int, ...]
    dtype: np.dtype[np.generic]
    compute: Callable[[Ints], Array]

    def read(self, rows: Ints) -> Array:
        """The rows with these numbers, shape (numbers, *rest)."""
        return self.compute(rows) if len(rows) else np.empty((0, *self.rest), self.dtype)

    @property
    def width(self) -> int:
        """The number of elements of a row."""
        return prod(self.rest)

    @property
    def step(self) -> int:
        """The number of rows of a block."""
        return max(1, BLOCK // max(1, self.nbytes(1)))

    def nbytes(self, count: int) -> int:
        """The bytes of so many rows."""
        return count * self.width * self.dtype.itemsize

    def blocks(self) -> Iterator[Array]:
        """Yield all rows in order, about BLOCK bytes at a time. Some blocks are computed in advance."""
        if self.count <= self.step:
            yield self.read(np.arange(self.count))
        else:
            yield from (block for _, block in end_to_end([(self, 0, lambda: self)]))

    def whole(self) -> Array:
        """All rows, in a new array."""
        array = np.empty((self.count, *self.rest), self.dtype)
        self.into(array)
        return array

    def into(self, place: Array) -> None:
        """Write all rows, block by block, into an array of their shape."""
        start = 0
        for block in self.blocks():
            place[start : start + len(block)] = block
            start += len(block)

    def then(self, change: Callable[[Array], Array]) -> Rows:
        """The rows with each element changed by `change`."""
        dtype = change(np.empty(0, self.dtype)).dtype
        return Rows(self.count, self.rest, dtype, lambda rows: change(self.read(rows)))

    def at(self, count: int, place: Callable[[Ints], Ints]) -> Rows:
        """A tensor of `count` rows, of which each is the row of this tensor that `place` gives."""
        return Rows(count, self.rest, self.dtype, lambda rows: self.read(place(rows)))


def content(block: Array) -> memoryview:
    """The bytes of some rows."""
    return np.ascontiguousarray(block).reshape(-1).view(np.uint8).data


def end_to_end(parts: Iterable[tuple[Key, int, Callable[[], Rows]]]) -> Iterator[tuple[Key, Array]]:
    """Yield the blocks of several tensors in order, each with the key of its tensor.

    An empty tensor has no blocks. parts: for each tensor its key, the bytes that it takes beside blocks, and
    a function that makes it. A tensor that takes such bytes is made alone: after all tensors before it are
    done, and before others begin.
    """
    coming: deque[tuple[Key, Future[Array]]] = deque()
    alone = False
    with ThreadPoolExecutor(AHEAD) as threads:  # numpy computes without Python's lock
        for key, extra_bytes, make in parts:
            if alone or extra_bytes:
                yield from _done(coming)
            rows, alone = make(), extra_bytes > 0
            for start in range(0, rows.count, rows.step):
                numbers = np.arange(start, min(start + rows.step, rows.count))
                if rows.step == 1 < rows.count:  # a single row may take most of the memory
                    yield from _done(coming)
                    yield key, rows.read(numbers)
                    continue
                if rows.nbytes(len(numbers)) <= SMALL:
                    coming.append((key, _now(rows.read(numbers))))
                else:  # the thread needs this thread's numpy error settings
                    coming.append((key, threads.submit(copy_context().run, rows.read, numbers)))
                if len(coming) > AHEAD:
                    yield from _done(coming, AHEAD)
        yield from _done(coming)


def _done(coming: deque[tuple[Key, Future[Array]]], left: int = 0) -> Iterator[tuple[Key, Array]]:
    """Yield the first blocks, when they are done, until `left` blocks remain."""
    while len(coming) > left:
        key, block = coming.popleft()
        yield key, block.result()


def _now(block: Array) -> Future[Array]:
    """A block that is computed already."""
    done: Future[Array] = Future()
    done.set_result(block)
    return done


def stored(array: Array) -> Rows:
    """The rows of an array, which may be a mapped file. A single number is a row."""
    plain = np.asarray(array).reshape(array.shape or (1,))

    def read(rows: Ints) -> Array:
        run = rows[-1] - rows[0] + 1 == len(rows) and bool((np.diff(rows) == 1).all())
        return plain[rows[0] : rows[-1] + 1] if run else plain.take(rows, axis=0)

    return Rows(len(plain), plain.shape[1:], plain.dtype, read)


def as_rows(source: Array | Rows) -> Rows:
    """The rows of a source, which may be given by its rows already."""
    return source if isinstance(source, Rows) else stored(source)


class Flat:
    """The elements of a tensor in order. The rows that were read last are cached."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.range, self.block = rows, (0, 0), np.empty(0, rows.dtype)

    def __len__(self) -> int:
        return self.rows.count * self.rows.width

    def read(self, start: int, stop: int) -> Array:
        """The elements from `start` up to `stop`, exclusive."""
        width = max(1, self.rows.width)
        first, last = start // width, -(-stop // width)
        if self.range != (first, last):
            self.range, self.block = (first, last), self.rows.read(np.arange(first, last)).reshape(-1)
        return self.block[start - first * width : stop - first * width]


def runs(numbers: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield (place of the first, first number, count) of each run of consecutive numbers."""
    ends = [*(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
    for start, end in zip([0, *ends], ends, strict=False):
        yield start, int(numbers[start]), end - start


def choice(one: Rows, other: Rows, taken: Bools) -> Rows:
    """The rows of one tensor, or of the other where `taken` says so."""

    def read(rows: Ints) -> Array:
        from_other = taken[rows]
        result = np.empty((len(rows), *one.rest), one.dtype)
        result[~from_other], result[from_other] = one.read(rows[~from_other]), other.read(rows[from_other])
        return result

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
    """The rows of several pieces, each cut into `outer` shares: first shares of all, then second ones, …"""
    lengths = [piece.count // outer for piece in pieces]
    ends = np.cumsum(lengths)

    def read(rows: Ints) -> Array:
        place, inner = np.divmod(rows, int(ends[-1]))
        which = np.searchsorted(ends, inner, side="right")
        result = np.empty((len(rows), *pieces[0].rest), pieces[0].dtype)
        for k in np.flatnonzero(np.bincount(which)):
            mine = which == k
            result[mine] = pieces[k].read(place[mine] * lengths[k] + inner[mine] - (ends[k] - lengths[k]))
        return result

    return Rows(outer * int(ends[-1]), pieces[0].rest, pieces[0].dtype, read)
