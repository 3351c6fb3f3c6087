"""Rows that choose elements by number: static bounds cut segments, others address an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from growc.algebra.indexmap import Array
from growc.algebra.space import Size, ratio
from growc.dialects.onnx.operators.index_grids import counted
from growc.dialects.onnx.operators.site import axis_of, first, line, names, refine, rest, segments, unit
from growc.ir.graph import Value
from growc.ir.notation import Line, Term
from growc.ir.operator_rows import Site, opaque
from growc.ir.traits import REPEAT

HUGE = 1 << 31
"""Slice bounds beyond this mean the end of the axis."""


def slice_(site: Site) -> Line:
    """Static bounds cut an axis into segments; run-time bounds from the front address it."""
    data, result = first(site), site.outputs[0]
    left: list[Term] = names("a", data.rank)
    right = list(left)
    sizes: dict[str, Size] = {}
    for axis, starts, ends, step in _slice_bounds(site):
        size, out = data.shape[axis], result.shape[axis]
        if size == out and step == 1:
            continue
        left[axis], right[axis] = _cut_term(axis, size, out, starts, ends, step, sizes)
    return line([left, *rest(site)], [right], **sizes)


def _slice_bounds(site: Site) -> list[tuple[int, list[int] | None, list[int] | None, int | None]]:
    """Return (axis, start at each sample point, end, step) for every sliced axis; None if not known."""
    data = first(site)
    if "starts" in site.node.attributes:
        points = len(data.shape[0]) if data.shape else 1
        starts: Array | None = np.asarray([site.attribute("starts")] * points)
        ends: Array | None = np.asarray([site.attribute("ends")] * points)
        axes, steps = site.node.array("axes"), None
    else:
        starts, ends = _rows(site, 1), _rows(site, 2)
        axes, steps = site.static(3), site.static(4)
        if any(site.input(i) is not None and numbers is None for i, numbers in ((3, axes), (4, steps))):
            return [(a, None, None, None) for a in range(data.rank)]
    count = next((o.shape[0][0] for o in site.inputs[1:2] if o is not None and o.shape), data.rank)
    if starts is not None:
        count = starts.shape[1]
    order = list(range(count)) if axes is None else [int(a) % data.rank for a in axes]
    bounds: list[tuple[int, list[int] | None, list[int] | None, int | None]] = []
    for i, axis in enumerate(order):
        begin = None if starts is None else [int(s) for s in starts[:, i]]
        stop = None if ends is None else [int(e) for e in ends[:, i]]
        bounds.append((axis, begin, stop, 1 if steps is None else int(steps[i])))
    return bounds


def _rows(site: Site, i: int) -> Array | None:
    known = site.known(i)
    return None if known is None else np.stack([np.atleast_1d(k) for k in known])


def _cut_term(
    axis: int,
    size: Size,
    out: Size,
    starts: list[int] | None,
    ends: list[int] | None,
    step: int | None,
    sizes: dict[str, Size],
) -> tuple[Term, Term]:
    if starts is None or ends is None or step is None:
        return "_", "_"
    if step != 1:
        whole: Size = (step,) * len(size)
        if step < 1 or ratio(size, out) != whole or not all(0 <= s < step for s in starts):
            return "_", "_"
        sizes[f"y{axis}"], sizes[f"stride{axis}"] = out, whole
        return ("*", (f"y{axis}", f"stride{axis}!")), f"y{axis}"
    begin = [min(max(s + n if s < 0 else s, 0), n) for s, n in zip(starts, size, strict=True)]
    if len(set(begin)) == 1 and len(set(size)) == 1 and len(set(out)) == 1:
        return segments(axis, size, begin[0], out, sizes)
    stop = [e if e < HUGE else -1 for e in ends]
    if len(set(size)) == 1 and min(starts) >= 0 and min(stop) >= 0:
        return "#", f"y{axis}"
    return "_", "_"


def gather(site: Site) -> Line:
    """Constant contiguous indices cut segments; others address the axis by number."""
    return _chosen(site, axis_of(site), site.operand(1).rank)


def _chosen(site: Site, axis: int, rank: int) -> Line:
    """Elements of one axis, by indices of rank `rank`, which may have an axis of one element behind."""
    data, indices = first(site), site.operand(1)
    behind: list[Term] = ["_"] * (indices.rank - rank)
    left: list[Term] = names("a", data.rank)
    middle: list[Term] = names("i", rank)
    sizes: dict[str, Size] = {}
    size = data.shape[axis]
    known = site.known(1)
    if known is not None and behind:
        known = tuple(k[..., 0] for k in known)
    fixed = known[0] if known is not None and site.static(1) is not None else None
    if known is not None and all(_counts_up(k, n) for k, n in zip(known, size, strict=True)):
        return _all_chosen(axis, left, size, list(indices.shape)[:rank], behind)
    if fixed is not None and len(set(size)) == 1 and _contiguous(fixed, size[0]):
        begin = int(fixed.reshape(-1)[0]) % size[0]
        out = (fixed.size,) * len(size)
        left[axis], taken = segments(axis, size, begin, out, sizes)
        middle = [] if fixed.ndim == 0 else [taken] if fixed.ndim == 1 else ["_"] * fixed.ndim
        index: Sequence[Term] = ["_"] * rank
    else:
        negative = known is not None and any((k < 0).any() for k in known)
        left[axis] = "_" if negative and fixed is None else "#"
        index = middle = ["_"] * rank if fixed is not None else middle
    return line([left, [*index, *behind]], [[*left[:axis], *middle, *left[axis + 1 :]]], **sizes)


def _counts_up(index: Array, size: int) -> bool:
    return index.ndim > 0 and index.size == size and bool((index.reshape(-1) == np.arange(size)).all())


def _contiguous(index: Array, size: int) -> bool:
    flat = index.reshape(-1)
    return index.ndim <= 1 and 0 < flat.size <= size - flat[0] % size and bool((np.diff(flat) == 1).all())


def _all_chosen(axis: int, left: list[Term], size: Size, indices: list[Size], behind: Sequence[Term]) -> Line:
    """Indices that count over the whole axis choose nothing: the axis is reshaped to theirs."""
    sizes: dict[str, Size] = {}
    whole, parts = refine([size], indices, axis, sizes)
    return line(
        [[*left[:axis], *whole, *left[axis + 1 :]], [*("_" for _ in indices), *behind]],
        [[*left[:axis], *parts, *left[axis + 1 :]]],
        **sizes,
    )


def gather_nd(site: Site) -> Line:
    """GatherND with one number for each element and no batch axes is a Gather.

    Else leading axes are addressed by number, or opaque if one is counted from the end; batch axes are
    opaque.
    """
    data, indices = first(site), site.operand(1)
    batch = site.node.integer("batch_dims")
    depth = indices.shape[-1][0]
    if depth == 1 and not batch:
        return _chosen(site, 0, indices.rank - 1)
    terms: list[Term] = names("a", data.rank)
    trailing = terms[batch + depth :]
    known = site.known(1) or ()
    chosen = ["_" if any((k[..., i] < 0).any() for k in known) else "#" for i in range(depth)]
    index = ["_"] * batch + names("i", indices.rank - 1)[batch:]
    return line(
        [["_"] * batch + chosen + trailing, [*index, "_"]], [["_"] * batch + index[batch:] + trailing]
    )


def scatter_nd(site: Site) -> Line:
    """Indices that count along an axis cut a segment of it; other addressed axes are opaque."""
    data, indices, updates = first(site), site.operand(1), site.operand(2)
    if site.attribute("reduction", "none") not in ("none", "add"):
        return opaque(site)
    depth = indices.shape[-1][0]
    trailing: list[Term] = names("a", data.rank)[depth:]
    whole: list[Term] = [*("_" for _ in range(depth)), *trailing]
    lead: list[Term] = ["_"] * (updates.rank - len(trailing))
    grid: list[Term] = ["_"] * indices.rank
    sizes: dict[str, Size] = {}
    for axis, begin in enumerate(counted(site.node)):
        if begin is None:
            continue
        size, out = data.shape[axis], updates.shape[axis] if updates.shape else ()
        if begin == 0 and size == out:
            whole[axis] = lead[axis] = grid[axis] = f"a{axis}"
        elif len(set(size)) == 1 and len(set(out)) == 1:
            whole[axis], lead[axis] = segments(axis, size, begin, out, sizes)
            grid[axis] = lead[axis]
    return line([whole, grid, [*lead, *trailing]], [whole], **sizes)


def gather_elements(site: Site) -> Line:
    """The axis that is chosen along is opaque, the others are tied.

    An index that is constant along an axis fits any state of that axis.
    """
    if site.attribute("reduction", "none") not in ("none", "add"):
        return opaque(site)
    axis, terms = axis_of(site), names("a", first(site).rank)
    terms[axis] = "_"
    index = [f"i{k}" if _stretched(site.node.input(1), k) else t for k, t in enumerate(terms)]
    gathered = line([terms, index, *[terms] * (len(site.inputs) - 2)], [terms])
    pairs = tuple((str(t), str(i)) for t, i in zip(terms, index, strict=True) if t not in ("_", i))
    return replace(gathered, alike=pairs)


def _stretched(value: Value | None, axis: int) -> bool:
    """Whether one element was expanded to a whole axis."""
    node = None if value is None else value.producer
    if node is None or not node.has(REPEAT) or node.inputs[0] is None or node.outputs[0].sizes is None:
        return False
    before, after = node.inputs[0].sizes or (), node.outputs[0].sizes
    at = axis - len(after) + len(before)
    return at < 0 or (unit(before[at]) and not unit(after[axis]))


def one_hot(site: Site) -> Line:
    """Numbers become an axis, which is opaque."""
    terms = names("a", first(site).rank)
    axis = axis_of(site, -1, len(terms) + 1)
    return line([terms, *rest(site)], [[*terms[:axis], "_", *terms[axis:]]])


def compress(site: Site) -> Line:
    """Some elements of one axis, which is opaque, are kept. Without an axis all is opaque."""
    if site.attribute("axis") is None:
        return opaque(site)
    terms = names("a", first(site).rank)
    terms[axis_of(site)] = "_"
    return line([terms, *rest(site)], [terms])
