"""Spaces: the axes of tensors that must change together.

A *space* is an atom, a row-major product of spaces, or a sum (spaces end to end). Unifying two spaces
gives both the structure of either. Products are matched factor by factor from the right, sums segment by
segment from the left. A sum meets a product by taking the last factor out of every segment. Packed
projections of every kind and grouped queries follow from these rules alone.

Spaces that cannot be matched are *frozen*, with the place that froze them. Conflicts are normal (windows,
patches) and never abort. Sizes are tuples, one number for each sample point; equal means equal at all of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from growc.errors.short_repr import brief

Size = tuple[int, ...]
"""One dimension: its value at every sample point. Equal sizes are equal at all of them."""

Where = object
"""The operator or the use of a weight that an equation comes from. Spaces only store it, for messages."""


class Reason(NamedTuple):
    """The reason why a space cannot take an arbitrary map: the node, the cause in one clause, the remedy."""

    node: Where
    cause: str
    remedy: str = ""


@dataclass(eq=False)
class Space:
    """One space. Call `find` before reading any field except `size`.

    frozen: set if only the identity may act on it. addressed: set if its units have numbers, so that only its
    end may grow.
    """

    __repr__ = brief

    size: Size
    kind: str = "atom"
    parts: tuple[Space, ...] = ()
    frozen: Reason | None = None
    addressed: Reason | None = None
    chosen: Reason | None = None
    """Set if an operator reads it as a whole: its units may be reordered or chosen from, and nothing else."""
    parent: Space | None = field(default=None, repr=False)
    counts: bool = False
    """Whether its one element is a unit: there could be more (growc.passes.axes.units)."""

    @property
    def unit(self) -> bool:
        """Whether the space has a single element at every sample point that does not count as a unit."""
        return self.size.count(1) == len(self.size) and not find(self).counts

    @property
    def static(self) -> bool:
        """Whether the size does not depend on the model's inputs."""
        return len(set(self.size)) == 1


def find(space: Space) -> Space:
    """The representative of a space, with path compression."""
    root = space
    while root.parent is not None:
        root = root.parent
    while space.parent is not None:
        space.parent, space = root, space.parent
    return root


def times(a: Size, b: Size) -> Size:
    """The size of a product."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def plus(a: Size, b: Size) -> Size:
    """The size of a sum."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def ratio(a: Size, b: Size) -> Size | None:
    """a / b where it is an integer at every sample point, else None."""
    if any(y == 0 or x % y for x, y in zip(a, b, strict=True)):
        return None
    return tuple(x // y for x, y in zip(a, b, strict=True))


def product(parts: Sequence[Space]) -> Space:
    """A row-major product; factors of size one drop out."""
    kept = [p for p in parts if not p.unit]
    if len(kept) == 1:
        return kept[0]
    if not kept:
        return parts[0]
    return Space(reduce(times, (p.size for p in kept)), "product", tuple(kept))


def sum_of(parts: Sequence[Space]) -> Space:
    """Spaces end to end; empty segments drop out."""
    kept = [p for p in parts if any(p.size)]
    if len(kept) == 1:
        return kept[0]
    return Space(reduce(plus, (p.size for p in kept)), "sum", tuple(kept))


def factors(space: Space) -> list[Space]:
    """The factors of a space, nested products flattened: [space] for an atom or a sum."""
    space = find(space)
    if space.kind != "product":
        return [space]
    return [f for p in space.parts for f in factors(p) if not f.unit]


def segments(space: Space) -> list[Space]:
    """The segments of a space, nested sums flattened: [space] for an atom or a product."""
    space = find(space)
    if space.kind != "sum":
        return [space]
    return [s for p in space.parts for s in segments(p)]


def leaves(space: Space) -> Iterator[Space]:
    """Yield the atoms of a space from left to right, a tied atom as often as it occurs.

    Single elements (`Space.unit`) are left out.
    """
    space = find(space)
    if space.kind == "atom":
        if not space.unit:
            yield space
        return
    for part in space.parts:
        yield from leaves(part)


def atoms_of(spaces: Iterable[Space]) -> Iterator[Space]:
    """Yield the atoms of these spaces, one space after the other."""
    for space in spaces:
        yield from leaves(space)


def freeze(space: Space, reason: Reason) -> None:
    """Freeze a space: no map except the identity may act on it or on anything inside it."""
    space = find(space)
    if space.frozen is None:
        space.frozen = reason
    for part in space.parts:
        if find(part).frozen is None:
            freeze(part, reason)


def choose(space: Space, reason: Reason) -> None:
    """Restrict a space and everything inside it: its units may only be reordered or chosen from."""
    space = find(space)
    if space.chosen is None:
        space.chosen = reason
        for part in space.parts:
            choose(part, reason)


def address(space: Space, reason: Reason) -> None:
    """Mark that the units of a space have numbers: units keep their numbers, and only the end may grow.

    In a product the outermost factor may grow, in a sum the last segment. Everything else inside is frozen.
    """
    space = find(space)
    if space.addressed is None:
        space.addressed = reason
    parts = [p for p in space.parts if space.kind == "sum" or not find(p).unit]
    if parts:
        grows = parts[0] if space.kind == "product" else parts[-1]
        alone = sum(find(p) is find(grows) for p in parts) == 1
        for part in parts:
            if alone and find(part) is find(grows):
                address(part, reason)
            else:
                freeze(part, reason)


def structure(space: Space, structured: Space) -> None:
    """Give the atom `space` the structure of `structured`, in place, so that every alias sees it."""
    space.kind, space.parts = structured.kind, structured.parts
    _pass_on(space)


def _pass_on(space: Space) -> None:
    """Pass the restrictions of a space on to its parts."""
    if space.frozen is not None:
        freeze(space, space.frozen)
    if space.addressed is not None:
        address(space, space.addressed)
    if space.chosen is not None:
        for part in space.parts:
            choose(part, space.chosen)


def _link(child: Space, root: Space) -> None:
    child.parent = root
    root.frozen = root.frozen or child.frozen
    root.addressed = root.addressed or child.addressed
    root.chosen = root.chosen or child.chosen
    root.counts = root.counts or child.counts
    _pass_on(root)


def unify(a: Space, b: Space, node: Where) -> None:
    """Make two spaces one. Parts that cannot be matched are frozen, with `node` as the reason."""
    a, b = find(a), find(b)
    if a is b:
        return
    if a.size != b.size:
        _conflict([a, b], node, f"sizes {a.size[0]} and {b.size[0]} meet")
    elif (a.parts or b.parts) and (_inside(a, b) or _inside(b, a)):
        # the other parts are single elements that count as units
        rest = [x for x in [*leaves(a), *leaves(b)] if x is not a and x is not b]
        _conflict(rest, node, "an axis meets itself without it")
    elif a.kind == "atom":
        _link(a, b)
    elif b.kind == "atom":
        _link(b, a)
    elif a.kind == "product" and b.kind == "product":
        _link(b, a)
        _match_factors(list(a.parts), list(b.parts), node)
    elif a.kind == "sum" and b.kind == "sum":
        _link(b, a)
        a.parts = tuple(_match_segments(list(a.parts), list(b.parts), node) or a.parts)
    elif a.kind == "sum":
        _link(a, b)
        _match_sum_product(list(a.parts), list(b.parts), node)
    else:
        _link(b, a)
        _match_sum_product(list(b.parts), list(a.parts), node)


def merge_equal(spaces: Iterable[Space]) -> None:
    """Make spaces one that have the same parts in the same order: they are one axis, reassembled."""
    known: dict[object, Space] = {}

    def key(space: Space) -> object:
        parts = factors(space) if space.kind == "product" else segments(space)
        return space if len(parts) < 2 else (space.kind, *map(key, parts))

    for root in map(find, spaces):
        first = known.setdefault(key(root), root)
        if first is not root:
            _link(root, first)


def _inside(part: Space, whole: Space) -> bool:
    """Whether a space is a part of another, at any depth."""
    return any(find(p) is part or _inside(part, find(p)) for p in whole.parts)


def _conflict(spaces: Sequence[Space], node: Where, cause: str) -> None:
    for space in spaces:
        freeze(space, Reason(node, cause))


def _match_factors(xs: list[Space], ys: list[Space], node: Where) -> None:
    """Match two lists of factors of one product from the right: the join in the lattice of divisor chains."""
    while xs and ys:
        x, y = find(xs.pop()), find(ys.pop())
        if x.unit or y.unit:
            xs.extend([x] if not x.unit else [])
            ys.extend([y] if not y.unit else [])
        elif x.size == y.size:
            unify(x, y, node)
        elif (x.counts or y.counts) and (x if y.counts else y).kind != "atom":
            _conflict([x, y, *xs, *ys], node, "one element meets several")
            return
        elif x.kind == "product":
            xs.extend(x.parts)
            ys.append(y)
        elif y.kind == "product":
            ys.extend(y.parts)
            xs.append(x)
        elif (rest := _take_factor(x, y, node)) is not None:
            xs.append(rest)
        elif (rest := _take_factor(y, x, node)) is not None:
            ys.append(rest)
        else:
            _conflict([x, y, *xs, *ys], node, f"an axis is cut into factors {x.size[0]} and {y.size[0]}")
            return
    _conflict([s for s in [*xs, *ys] if not find(s).unit], node, "factors do not match")


def _take_factor(x: Space, y: Space, node: Where) -> Space | None:
    """Split the last factor y off x, an atom or a sum: x becomes (rest y). Return the rest.

    None where y does not divide x.
    """
    size = ratio(x.size, y.size)
    if size is None:
        return None
    rest = Space(size)
    if x.kind == "atom":
        structure(x, product([rest, y]))
    else:
        unify(x, product([rest, y]), node)
    return rest


def _match_segments(xs: list[Space], ys: list[Space], node: Where) -> list[Space] | None:
    """Match two lists of segments of one sum from the left. Return the common refinement.

    None after a conflict.
    """
    refinement: list[Space] = []
    xs, ys = xs[::-1], ys[::-1]
    while xs and ys:
        x, y = find(xs.pop()), find(ys.pop())
        if x.size == y.size:
            unify(x, y, node)
            refinement.append(x)
        elif x.kind == "sum":
            xs.extend(x.parts[::-1])
            ys.append(y)
        elif y.kind == "sum":
            ys.extend(y.parts[::-1])
            xs.append(x)
        elif (cut := _cut(x, y, node)) is not None:
            refinement.append(y)
            xs.append(cut)
        elif (cut := _cut(y, x, node)) is not None:
            refinement.append(x)
            ys.append(cut)
        else:
            _conflict([x, y, *xs, *ys], node, f"an axis is cut at {x.size[0]} and at {y.size[0]}")
            return None
    _conflict([*xs, *ys], node, "segments do not match")
    return refinement


def _cut(x: Space, y: Space, node: Where) -> Space | None:
    """Cut the larger x into y and a rest, and return the rest.

    A product can be cut only at multiples of its inner factors. None where no cut is possible.
    """
    if not all(a > b for a, b in zip(x.size, y.size, strict=True)):
        return None
    rest = Space(tuple(a - b for a, b in zip(x.size, y.size, strict=True)))
    if x.kind == "atom":
        structure(x, sum_of([y, rest]))
        return rest
    first, inner = find(x.parts[0]), x.parts[1:]
    whole = product(inner)
    head, tail = ratio(y.size, whole.size), ratio(rest.size, whole.size)
    if head is None or tail is None:
        return None
    upper, lower = Space(head), Space(tail)
    unify(first, sum_of([upper, lower]), node)
    unify(y, product([upper, *inner]), node)
    unify(rest, product([lower, *inner]), node)
    return rest


def _match_sum_product(parts: list[Space], others: list[Space], node: Where) -> None:
    """Match a sum with a product: take the last factor out of every segment, then match the rest.

    If no segment has a rest, the leading factor only counts equal segments: it becomes a sum of single
    elements, and the segments are tied. If a segment is no multiple of the last factor (a group of channels
    that reaches into the next segment), all are cut at its multiples. Each run of pieces is then one of these
    equal segments.
    """
    last = others[-1]
    heads = []
    for part in parts:
        size = ratio(part.size, last.size)
        if size is None:
            inner = find(last)
            if inner.kind == "product":
                _match_sum_product(parts, [*others[:-1], *inner.parts], node)
            elif (runs := _runs(parts, last.size)) is not None:
                for run in runs:
                    unify(sum_of(run), last, node)
                units = [Space((1,) * len(last.size)) for _ in runs]
                unify(sum_of(units), product(others[:-1]), node)
            else:
                _conflict(
                    [*parts, *others], node, f"a segment of {part.size[0]} is no multiple of {last.size[0]}"
                )
            return
        head = Space(size)
        unify(part, product([head, last]), node)
        heads.append(head)
    unify(sum_of(heads), product(others[:-1]), node)


def _runs(parts: Sequence[Space], size: Size) -> list[list[Space]] | None:
    """Cut segments at all multiples of `size`. Return the pieces of each run of that size.

    None where a segment cannot be cut.
    """
    pending, room = list(parts)[::-1], size
    runs: list[list[Space]] = []
    run: list[Space] = []
    while pending:
        part = find(pending.pop())
        if part.kind == "sum":
            pending.extend(part.parts[::-1])
            continue
        if all(a > b for a, b in zip(part.size, room, strict=True)):
            piece = Space(room)
            rest = _cut(part, piece, None)
            if rest is None:
                return None
            pending.append(rest)
            part = piece
        elif not all(a <= b for a, b in zip(part.size, room, strict=True)):
            return None
        run.append(part)
        room = tuple(a - b for a, b in zip(room, part.size, strict=True))
        if not any(room):
            runs.append(run)
            run, room = [], size
    return None if run else runs
