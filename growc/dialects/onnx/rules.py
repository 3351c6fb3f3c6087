"""Rows whose line depends on values or attributes: one function each, from a site to a line.

They see sizes and small known integers only. An axis about which they cannot tell is opaque (`_`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from growc.axes import ratio, times
from growc.graph import Size
from growc.operators import Axes, Line, Operand, Site, Term, broadcast_label, opaque

REAL = frozenset({1, 10, 11, 16})
"""onnx's numbers of float32, float16, float64 and bfloat16."""

HUGE = 1 << 31
"""Slice bounds beyond this mean the end of the axis."""


def names(prefix: str, n: int) -> list[Term]:
    return [f"{prefix}{i}" for i in range(n)]


def line(inputs: Sequence[Sequence[Term] | None], outputs: Sequence[Sequence[Term]], **sizes: Size) -> Line:
    def axes(terms: Sequence[Term] | None) -> Axes | None:
        return None if terms is None else tuple(terms)

    return Line(tuple(map(axes, inputs)), tuple(map(axes, outputs)), "", sizes)


def first(site: Site) -> Operand:
    operand = site.inputs[0]
    assert operand is not None and operand.sizes is not None
    return operand


def rest(site: Site) -> list[Sequence[Term] | None]:
    """Shape operands: their axes mean nothing."""
    return [None if o is None else ["_"] * o.rank for o in site.inputs[1:]]


def axis_of(site: Site, default: int = 0, rank: int | None = None) -> int:
    axis = site.attribute("axis", default)
    assert isinstance(axis, int)
    return axis % (rank or max(first(site).rank, 1))


def axes_of(site: Site, operand: int = 1) -> list[int] | None:
    """The `axes` of Squeeze, Unsqueeze and reductions: an attribute in old opsets, an operand in new ones."""
    axes = site.attribute("axes")
    if axes is None and len(site.inputs) > operand and site.inputs[operand] is not None:
        found = site.static(operand)
        return None if found is None else [int(a) for a in np.atleast_1d(found)]
    return None if axes is None else [int(a) for a in axes]  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------ layout


def transpose(site: Site) -> Line:
    terms = names("a", first(site).rank)
    order = site.attribute("perm") or range(len(terms))[::-1]
    return line([terms], [[terms[int(i)] for i in order]])  # type: ignore[attr-defined]


def reshape(site: Site) -> Line:
    """Shortest groups of axes with equal products; within a group, factors matched from the right."""
    source, result = first(site).sizes, site.outputs[0].sizes
    assert source is not None and result is not None
    left: list[Term] = []
    right: list[Term] = []
    sizes: dict[str, Size] = {}
    for a, b in _groups(source, result):
        x, y = _refine(a, b, len(left), sizes)
        left += x
        right += y
    return line([left, *rest(site)], [right], **sizes)


def _groups(source: Sequence[Size], result: Sequence[Size]) -> list[tuple[list[Size], list[Size]]]:
    found: list[tuple[list[Size], list[Size]]] = []
    i = j = 0
    while i < len(source) or j < len(result):
        a, b = list(source[i : i + 1]), list(result[j : j + 1])
        i, j = i + len(a), j + len(b)
        while (p := _total(a, source, result)) != (q := _total(b, source, result)):
            if i < len(source) and (p[0] <= q[0] or j == len(result)):
                a.append(source[i])
                i += 1
            elif j < len(result):
                b.append(result[j])
                j += 1
            else:
                break
        found.append((a, b))
    return found


def _total(sizes: Sequence[Size], *others: Sequence[Size]) -> Size:
    points = next((len(s) for group in (sizes, *others) for s in group), 1)
    total: Size = (1,) * points
    for size in sizes:
        total = times(total, size)
    return total


def _unit(size: Size) -> bool:
    return all(s == 1 for s in size)


def _refine(a: list[Size], b: list[Size], base: int, sizes: dict[str, Size]) -> tuple[list[Term], list[Term]]:
    """Labels for one group: the coarsest common refinement of both factorisations; opaque where there is none."""
    xs: list[list[Term]] = [[] for _ in a]
    ys: list[list[Term]] = [[] for _ in b]
    left = [(i, s) for i, s in enumerate(a) if not _unit(s)]
    right = [(j, s) for j, s in enumerate(b) if not _unit(s)]
    while left and right:
        (i, x), (j, y) = left.pop(), right.pop()
        name = f"g{base}_{len(sizes)}"
        if x == y:
            common = x
        elif (more := ratio(x, y)) is not None:
            common = y
            left.append((i, more))
        elif (more := ratio(y, x)) is not None:
            common = x
            right.append((j, more))
        else:
            return ["_"] * len(a), ["_"] * len(b)
        sizes[name] = common
        xs[i].insert(0, name)
        ys[j].insert(0, name)
    if left or right:
        return ["_"] * len(a), ["_"] * len(b)
    return [_product(x) for x in xs], [_product(y) for y in ys]


def _product(parts: Sequence[Term]) -> Term:
    return "1" if not parts else parts[0] if len(parts) == 1 else ("*", tuple(parts))


def squeeze(site: Site) -> Line:
    return reshape(site)


def expand(site: Site) -> Line:
    source, result = first(site).sizes or (), site.outputs[0].sizes or ()
    lead = len(result) - len(source)
    left = [broadcast_label(f"a{lead + i}", s, result[lead + i]) for i, s in enumerate(source)]
    return line([left, *rest(site)], [names("a", len(result))])


def concat(site: Site) -> Line:
    axis = axis_of(site)
    terms = names("a", first(site).rank)
    parts: list[Term] = names("p", len(site.inputs))
    inputs: list[Sequence[Term]] = [[*terms[:axis], p, *terms[axis + 1 :]] for p in parts]
    kept = [p for p, o in zip(parts, site.inputs, strict=True) if o and o.sizes and any(o.sizes[axis])]
    whole: Term = ("+", tuple(kept)) if len(kept) > 1 else (kept or ["_"])[0]
    return line(inputs, [[*terms[:axis], whole, *terms[axis + 1 :]]])


def split(site: Site) -> Line:
    axis = axis_of(site)
    terms = names("a", first(site).rank)
    parts: list[Term] = names("p", len(site.outputs))
    outputs = [[*terms[:axis], p, *terms[axis + 1 :]] for p in parts]
    whole: Term = ("+", tuple(parts)) if len(parts) > 1 else parts[0]
    return line([[*terms[:axis], whole, *terms[axis + 1 :]], *rest(site)], outputs)


def slice_(site: Site) -> Line:
    """Static bounds cut an axis into segments; run-time bounds from the front address it."""
    data, result = first(site), site.outputs[0]
    assert data.sizes is not None and result.sizes is not None
    left: list[Term] = names("a", data.rank)
    right = list(left)
    sizes: dict[str, Size] = {}
    for axis, starts, ends, step in _slice_bounds(site):
        size, out = data.sizes[axis], result.sizes[axis]
        if size == out and step == 1:
            continue
        left[axis], right[axis] = _cut_term(axis, size, out, starts, ends, step, sizes)
    return line([left, *rest(site)], [right], **sizes)


def _slice_bounds(site: Site) -> list[tuple[int, list[int] | None, list[int] | None, int | None]]:
    """(axis, start at each sample point, end, step) for every sliced axis; None where it is not known."""
    data = first(site)
    if "starts" in site.node.attributes:
        points = len(data.sizes[0]) if data.sizes else 1
        starts = np.asarray([site.attribute("starts")] * points)
        ends = np.asarray([site.attribute("ends")] * points)
        axes, steps = site.attribute("axes"), None
    else:
        starts, ends = _rows(site, 1), _rows(site, 2)
        axes = site.static(3)
        steps = site.static(4) if len(site.inputs) > 4 and site.inputs[4] else None
        if len(site.inputs) > 4 and site.inputs[4] is not None and steps is None:
            return [(a, None, None, None) for a in range(data.rank)]
        if len(site.inputs) > 3 and site.inputs[3] is not None and axes is None:
            return [(a, None, None, None) for a in range(data.rank)]
    count = next((o.sizes[0][0] for o in site.inputs[1:2] if o is not None and o.sizes), data.rank)
    if starts is not None:
        count = starts.shape[1]
    order = list(range(count)) if axes is None else [int(a) % data.rank for a in axes]  # type: ignore[attr-defined]
    found: list[tuple[int, list[int] | None, list[int] | None, int | None]] = []
    for i, axis in enumerate(order):
        begin = None if starts is None else [int(s) for s in starts[:, i]]
        stop = None if ends is None else [int(e) for e in ends[:, i]]
        found.append((axis, begin, stop, 1 if steps is None else int(steps[i])))
    return found


def _rows(site: Site, i: int) -> np.ndarray | None:  # type: ignore[type-arg]
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
        whole = ratio(size, out)
        if whole is None or step < 1 or whole != (step,) * len(size) or not all(0 <= s < step for s in starts):
            return "_", "_"
        sizes[f"y{axis}"], sizes[f"stride{axis}"] = out, whole
        return ("*", (f"y{axis}", f"stride{axis}!")), f"y{axis}"
    begin = [min(max(s + n if s < 0 else s, 0), n) for s, n in zip(starts, size, strict=True)]
    if len(set(begin)) == 1 and len(set(size)) == 1 and len(set(out)) == 1:
        return _segments(axis, size, begin[0], out, sizes)
    stop = [e if e < HUGE else -1 for e in ends]
    if len(set(size)) == 1 and min(starts) >= 0 and min(stop) >= 0:
        return "#", f"y{axis}"
    return "_", "_"


def _segments(axis: int, size: Size, begin: int, out: Size, sizes: dict[str, Size]) -> tuple[Term, Term]:
    points = len(size)
    parts: list[str] = []
    for name, n in ((f"x{axis}", begin), (f"y{axis}", out[0]), (f"z{axis}", size[0] - begin - out[0])):
        if n > 0:
            sizes[name] = (n,) * points
            parts.append(name)
    if not out[0]:
        return "_", "_"
    return (("+", tuple(parts)) if len(parts) > 1 else parts[0]), f"y{axis}"


def gather(site: Site) -> Line:
    """Constant contiguous indices cut segments; others address the axis by number."""
    data, indices = first(site), site.inputs[1]
    assert data.sizes is not None and indices is not None
    axis = axis_of(site)
    left: list[Term] = names("a", data.rank)
    middle: list[Term] = names("i", indices.rank)
    sizes: dict[str, Size] = {}
    size = data.sizes[axis]
    fixed = site.static(1)
    known = site.known(1)
    if known is not None and all(_counts_up(k, n) for k, n in zip(known, size, strict=True)):
        return _gather_all(axis, left, size, indices)
    if fixed is not None and len(set(size)) == 1 and _contiguous(fixed, size[0]):
        begin = int(fixed.reshape(-1)[0]) % size[0]
        out = (fixed.size,) * len(size)
        left[axis], taken = _segments(axis, size, begin, out, sizes)
        middle = [] if fixed.ndim == 0 else [taken] if fixed.ndim == 1 else ["_"] * fixed.ndim
        index: Sequence[Term] = ["_"] * indices.rank
    else:
        negative = known is not None and any((k < 0).any() for k in known)
        left[axis] = "_" if negative else "#"
        index = middle = ["_"] * indices.rank if fixed is not None else middle
    return line([left, index], [[*left[:axis], *middle, *left[axis + 1 :]]], **sizes)


def _counts_up(index: np.ndarray, size: int) -> bool:  # type: ignore[type-arg]
    return index.ndim > 0 and index.size == size and bool((index.reshape(-1) == np.arange(size)).all())


def _contiguous(index: np.ndarray, size: int) -> bool:  # type: ignore[type-arg]
    flat = index.reshape(-1)
    return index.ndim <= 1 and 0 < flat.size <= size - flat[0] % size and bool((np.diff(flat) == 1).all())


def _gather_all(axis: int, left: list[Term], size: Size, indices: Operand) -> Line:
    """Indices that count over the whole axis: nothing is chosen, the axis is reshaped to that of the indices."""
    sizes: dict[str, Size] = {}
    whole, parts = _refine([size], list(indices.sizes or ()), axis, sizes)
    return line(
        [[*left[:axis], *whole, *left[axis + 1 :]], ["_"] * indices.rank],
        [[*left[:axis], *parts, *left[axis + 1 :]]],
        **sizes,
    )


def gather_nd(site: Site) -> Line:
    data, indices = first(site), site.inputs[1]
    assert data.sizes is not None and indices is not None and indices.sizes is not None
    batch = int(site.attribute("batch_dims", 0))  # type: ignore[call-overload]
    depth = indices.sizes[-1][0]
    terms: list[Term] = names("a", data.rank)
    kept = terms[batch + depth :]
    chosen: list[Term] = ["#"] * depth
    index = ["_"] * batch + names("i", indices.rank - 1)[batch:]
    return line([["_"] * batch + chosen + kept, [*index, "_"]], [["_"] * batch + index[batch:] + kept])


def scatter_nd(site: Site) -> Line:
    data, indices, updates = first(site), site.inputs[1], site.inputs[2]
    if site.attribute("reduction", "none") not in ("none", "add"):
        return opaque(site)
    assert indices is not None and indices.sizes is not None and updates is not None
    depth = indices.sizes[-1][0]
    kept: list[Term] = names("a", data.rank)[depth:]
    whole = ["_"] * depth + kept
    lead: list[Term] = ["_"] * (updates.rank - len(kept))
    return line([whole, ["_"] * indices.rank, lead + kept], [whole])


def gather_elements(site: Site) -> Line:
    if site.attribute("reduction", "none") not in ("none", "add"):
        return opaque(site)
    axis, terms = axis_of(site), names("a", first(site).rank)
    terms[axis] = "_"
    return line([terms] * len(site.inputs), [terms])


def tile(site: Site) -> Line:
    source, result = first(site).sizes or (), site.outputs[0].sizes or ()
    left: list[Term] = []
    right: list[Term] = []
    sizes: dict[str, Size] = {}
    for i, (a, b) in enumerate(zip(source, result, strict=True)):
        repeat = ratio(b, a)
        left.append("1" if _unit(a) and not _unit(b) else f"a{i}")
        if a == b:
            right.append(f"a{i}")
        elif _unit(a) or repeat is None:
            right.append(f"r{i}")
        else:
            sizes[f"r{i}"] = repeat
            right.append(("*", (f"r{i}", f"a{i}")))
    return line([left, *rest(site)], [right], **sizes)


def pad(site: Site) -> Line:
    """Axes that are padded or resized are opaque; the others pass, linearly unless a constant comes in."""
    source, result = first(site).sizes or (), site.outputs[0].sizes or ()
    terms = ["_" if a != b else f"a{i}" for i, (a, b) in enumerate(zip(source, result, strict=True))]
    filler = site.static(2) if site.node.op == "Pad" and len(site.inputs) > 2 and site.inputs[2] else np.zeros(1)
    linear = filler is not None and not filler.any() and not site.attribute("value", 0.0)
    return replace(line([terms, *rest(site)], [terms]), treatment="layout" if linear else "pointwise")


def cast(site: Site) -> Line:
    """Casts between real types pass every map, casts to integers and booleans only plain ones."""
    terms = names("a", first(site).rank)
    linear = site.attribute("to") in REAL
    return replace(line([terms], [terms]), treatment="layout" if linear else "pointwise zero")


def cast_like(site: Site) -> Line:
    """As Cast, to the type of the second operand: only its own rows may be counted on."""
    terms = names("a", first(site).rank)
    return replace(line([terms, *rest(site)], [terms]), treatment="pointwise zero")


def dropout(site: Site) -> Line:
    """Nothing happens outside of training."""
    training = site.static(2) if len(site.inputs) > 2 and site.inputs[2] is not None else np.zeros(1)
    if training is None or training.any() or len(site.outputs) > 1:
        return opaque(site)
    terms = names("a", first(site).rank)
    return line([terms, *rest(site)], [terms])


def trilu(site: Site) -> Line:
    """A triangle of the last two axes stays."""
    terms = [*names("a", first(site).rank - 2), "_", "_"]
    return line([terms, *rest(site)], [terms])


def depth_to_space(site: Site) -> Line:
    """Channels are (c blocks) or (blocks c), and the blocks are opaque."""
    shallow = site.inputs[0] if site.node.op == "SpaceToDepth" else site.outputs[0]
    assert shallow is not None and shallow.sizes is not None and shallow.rank == 4
    size = site.attribute("blocksize")
    assert isinstance(size, int)
    last = site.node.op == "DepthToSpace" and site.attribute("mode", "DCR") == "CRD"
    points = len(shallow.sizes[0])
    deep: Term = ("*", ("c", "r!") if last else ("r!", "c"))
    left: list[Term] = ["b", deep, "_", "_"]
    right: list[Term] = ["b", "c", "_", "_"]
    pair = (left, right) if site.node.op == "DepthToSpace" else (right, left)
    return line([pair[0]], [pair[1]], c=shallow.sizes[1], r=(size * size,) * points)


def power(site: Site) -> Line:
    """A positive exponent keeps zeros."""
    exponent = _number(site, 1)
    return _elementwise(site, zero=exponent is not None and exponent > 0)


def clip(site: Site) -> Line:
    """Bounds around zero keep zeros; where each is zero or infinite, factors too."""
    bounds = [_bound(site, i, name, default) for i, name, default in ((1, "min", -np.inf), (2, "max", np.inf))]
    if any(b is None for b in bounds):
        return _elementwise(site, zero=False)
    low, high = (float(b) for b in bounds if b is not None)
    return _elementwise(site, zero=low <= 0 <= high, homogeneous={low, high} <= {0.0, -np.inf, np.inf})


def extreme(site: Site) -> Line:
    """Max and Min keep zeros where all operands have them or a number on the other side of zero."""
    result, sign = site.outputs[0].sizes, 1 if site.node.op == "Max" else -1
    numbers = [_number(site, i) for i in range(len(site.inputs))]
    whole = all(n is not None or o is None or o.sizes == result for n, o in zip(numbers, site.inputs, strict=True))
    constant = [sign * n for n in numbers if n is not None]
    return _elementwise(site, zero=whole and all(c <= 0 for c in constant), homogeneous=not any(constant))


def _elementwise(site: Site, *, zero: bool, homogeneous: bool = False) -> Line:
    """Operands broadcast from the right; `homogeneous` counts where zeros are kept."""
    result = site.outputs[0].sizes or ()
    terms = names("e", len(result))[::-1]

    def axes(operand: Operand | None) -> list[Term] | None:
        if operand is None:
            return None
        lead, sizes = len(result) - operand.rank, operand.sizes or ()
        return [broadcast_label(str(terms[lead + i]), s, result[lead + i]) for i, s in enumerate(sizes)]

    treatment = "pointwise zero homogeneous" if zero and homogeneous else "pointwise zero" if zero else "pointwise"
    return replace(line([axes(o) for o in site.inputs], [terms]), treatment=treatment)


def _number(site: Site, i: int) -> float | None:
    """Operand i where it is one known number."""
    found = site.static(i)
    return float(found.reshape(-1)[0]) if found is not None and found.size == 1 else None


def _bound(site: Site, i: int, name: str, default: float) -> float | None:
    """A bound of Clip: an attribute in old opsets, an operand in new ones; None where it is not known."""
    if i < len(site.inputs) and site.inputs[i] is not None:
        return _number(site, i)
    return float(site.attribute(name, default))  # type: ignore[arg-type]


def constant_of_shape(site: Site) -> Line:
    return line([["_"]], [names("a", site.outputs[0].rank)])


def depends_on_shape_only(site: Site) -> Line:
    """Shape and Size take no values: they constrain nothing."""
    return line([None if o is None else names("a", o.rank) for o in site.inputs], [["_"] * site.outputs[0].rank])


# ------------------------------------------------------------------------------------------ along an axis


def along(site: Site) -> Line:
    """Softmax, CumSum, ArgMax, TopK, …: one axis is read as a whole."""
    rank = first(site).rank
    default = -1 if site.node.op in ("TopK",) or site.opset >= 13 else 1
    if site.node.op in ("ArgMax", "ArgMin"):
        default = 0
    if site.node.op == "CumSum":
        fixed = site.static(1)
        opaque_axes = set(range(rank)) if fixed is None else {int(fixed) % max(rank, 1)}
    elif site.node.op in ("Softmax", "LogSoftmax", "Hardmax") and site.opset < 13:
        opaque_axes = set(range(axis_of(site, 1), rank))
    else:
        opaque_axes = {axis_of(site, default)}
    terms: list[Term] = ["_" if i in opaque_axes else f"a{i}" for i in range(rank)]
    outputs = [terms if o.rank == rank else [t for t in terms if t != "_"] for o in site.outputs]
    return line([terms, *rest(site)], outputs)


def reduce(site: Site) -> Line:
    rank = first(site).rank
    axes = axes_of(site)
    if axes is None and len(site.inputs) > 1 and site.inputs[1] is not None:
        return opaque(site)
    chosen = {a % rank for a in axes} if axes else set(range(rank))
    if not axes and site.attribute("noop_with_empty_axes", 0):
        chosen = set()
    keep = site.attribute("keepdims", 1)
    terms: list[Term] = names("a", rank)
    out = ["1" if i in chosen else t for i, t in enumerate(terms) if keep or i not in chosen]
    return line([terms, *rest(site)], [out])


def fold_whole(site: Site) -> Line:
    """Reductions that neither pass factors on nor follow from fewer units: what they reduce is opaque."""
    found = reduce(site)
    kept = {t for t in found.outputs[0] or () if t != "1"}
    terms = [t if t in kept else "_" for t in found.inputs[0] or ()]
    return found if found.treatment else line([terms, *rest(site)], [found.outputs[0] or ()])


def global_pool(site: Site) -> Line:
    rank = first(site).rank
    return line([names("a", rank)], [["a0", "a1", *["1"] * (rank - 2)]])


def normalization(site: Site) -> Line:
    """LayerNormalization and RMSNormalization over the last axis; over several, they are opaque there."""
    rank = first(site).rank
    spread = any(o is not None and not all(map(_unit, (o.sizes or ())[:-1])) for o in site.inputs[1:])
    if axis_of(site, -1) != rank - 1 or spread or len(site.outputs) > 1:
        return opaque(site)
    terms = names("a", rank - 1)
    parameters: list[Sequence[Term] | None] = []
    for operand in site.inputs[1:]:
        parameters.append(None if operand is None else ["1"] * (operand.rank - 1) + ["c"])
    return line([[*terms, "c"], *parameters], [[*terms, "c"]])


def instance_norm(site: Site) -> Line:
    space: list[Term] = ["_"] * (first(site).rank - 2)
    return line([["b", "c", *space], ["c"], ["c"]], [["b", "c", *space]])


# ------------------------------------------------------------------------------------------ contractions


def gemm(site: Site) -> Line:
    a: list[Term] = ["k", "m"] if site.attribute("transA", 0) else ["m", "k"]
    b: list[Term] = ["n", "k"] if site.attribute("transB", 0) else ["k", "n"]
    inputs: list[Sequence[Term] | None] = [a, b]
    bias = site.inputs[2] if len(site.inputs) > 2 else None
    if bias is not None:
        result = site.outputs[0].sizes or ()
        pairs = list(zip(reversed(bias.sizes or ()), ("n", "m"), reversed(result), strict=False))
        inputs.append([broadcast_label(t, s, r) for s, t, r in pairs][::-1])
    return line(inputs, [["m", "n"]])


def attention(site: Site) -> Line:
    """Attention on (batch, heads, sequence, channels): query heads are (h g) over h key/value heads.

    Without a `scale` it is computed from the channels, which are frozen then. With caches, or on packed operands,
    it is opaque.
    """
    q, k, v = (site.inputs[i] if i < len(site.inputs) else None for i in range(3))
    if q is None or k is None or v is None or any(o.rank != 4 for o in (q, k, v)) or any(site.inputs[4:]):
        return opaque(site)
    assert q.sizes is not None and k.sizes is not None
    group = ratio(q.sizes[1], k.sizes[1])
    if group is None or len(site.outputs) > 1:
        return opaque(site)
    depth = "d" if site.attribute("scale") is not None else "d!"
    heads: Term = "h" if _unit(group) else "g" if _unit(k.sizes[1]) else ("*", ("h", "g"))
    inputs: list[Sequence[Term] | None] = [
        ["b", heads, "_", depth],
        ["b", "1" if heads == "g" else "h", "_", depth],
        ["b", "1" if heads == "g" else "h", "_", "e"],
    ]
    for mask in site.inputs[3:4]:
        sizes = () if mask is None else mask.sizes or ()
        whole: list[Term] = ["b", heads, "_", "_"]
        terms = ["1" if _unit(s) else t for s, t in zip(sizes, whole[4 - len(sizes) :], strict=True)]
        inputs.append(None if mask is None else terms)
    found = {"h": k.sizes[1], "g": group, "d": q.sizes[3]}
    return line(inputs, [["b", heads, "_", "e"]], **{n: s for n, s in found.items() if not _unit(s)})


def rotary_embedding(site: Site) -> Line:
    """RotaryEmbedding on (batch, heads, sequence, channels): the channels come in pairs and are frozen."""
    if first(site).rank != 4:
        return opaque(site)
    tables: list[Sequence[Term] | None] = [None if o is None else ["_"] * o.rank for o in site.inputs[1:]]
    batch = "_" if any(o is not None and o.rank > 2 for o in site.inputs[1:]) or len(site.inputs) > 3 else "b"
    return line([[batch, "h", "_", "_"], *tables], [[batch, "h", "_", "_"]])


def einsum(site: Site) -> Line:
    """Two operands, no repeated letter in one of them, and none that is summed in one operand alone."""
    equation = str(site.attribute("equation", "")).replace(" ", "")
    if "..." in equation or "->" not in equation or equation.count(",") != 1:
        return opaque(site)
    left, right = equation.split("->")
    parts = [*left.split(","), right]
    repeated = any(len(set(p)) != len(p) for p in parts)
    if repeated or any(sum(letter in p for p in parts) < 2 for letter in set(left) - {","}):
        return opaque(site)
    return line([list(parts[0]), list(parts[1])], [list(right)])


def conv(site: Site) -> Line:
    """Kernels slide over opaque axes; a grouped convolution's channels are (g c), the g of both sides tied."""
    data, kernel = first(site), site.inputs[1]
    assert data.sizes is not None and kernel is not None and kernel.sizes is not None
    groups = site.attribute("group", 1)
    assert isinstance(groups, int)
    space: list[Term] = ["_"] * (data.rank - 2)
    points = len(kernel.sizes[0])
    g: Size = (groups,) * points
    flip = site.node.op == "ConvTranspose"
    inside, outside = kernel.sizes[0 if flip else 1], kernel.sizes[1 if flip else 0]
    per_group = ratio(inside if flip else outside, g)
    if per_group is None:
        return opaque(site)
    i, o = (per_group, outside) if flip else (inside, per_group)
    into, out = _grouped("i", i, groups), _grouped("o", o, groups)
    sizes = {"g": g, "i": i, "o": o}
    weight: list[Term] = [into, "o" if not _unit(o) else "1"] if flip else [out, "i" if not _unit(i) else "1"]
    inputs: list[Sequence[Term] | None] = [["b", into, *space], [*weight, *space]]
    inputs += [[out] if o is not None else None for o in site.inputs[2:]]
    used = {k: v for k, v in sizes.items() if not _unit(v)}
    return line(inputs, [["b", out, *space]], **used)


def _grouped(name: str, size: Size, groups: int) -> Term:
    if groups == 1:
        return name
    return "g" if _unit(size) else ("*", ("g", name))


def pool(site: Site) -> Line:
    """Windows slide over opaque axes. Indices of maxima count through all axes."""
    if len(site.outputs) > 1:
        return opaque(site)
    space: list[Term] = ["_"] * (first(site).rank - 2)
    return line([["b", "c", *space]], [["b", "c", *space]])


RULES = {
    name.rstrip("_"): function
    for name, function in list(globals().items())
    if callable(function) and getattr(function, "__annotations__", {}).get("site") == "Site" and name[0] != "_"
}

