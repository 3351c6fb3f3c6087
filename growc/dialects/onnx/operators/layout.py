"""Rows that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from growc.algebra.indexmap import Array
from growc.algebra.space import Size, ratio, times
from growc.dialects.onnx.operators.site import axis_of, first, line, names, refine, rest, unit
from growc.ir.notation import Line, Term
from growc.ir.operator_rows import Site, broadcast_label


def transpose(site: Site) -> Line:
    """Axes in another order."""
    terms = names("a", first(site).rank)
    order = site.node.integers("perm") or range(len(terms))[::-1]
    return line([terms], [[terms[i] for i in order]])


def reshape(site: Site) -> Line:
    """Shortest groups of axes with equal products; within a group, factors matched from the right."""
    source, result = first(site).shape, site.outputs[0].shape
    left: list[Term] = []
    right: list[Term] = []
    sizes: dict[str, Size] = {}
    for a, b in _groups(source, result):
        x, y = refine(a, b, len(left), sizes)
        left += x
        right += y
    return line([left, *rest(site)], [right], **sizes)


def _groups(source: Sequence[Size], result: Sequence[Size]) -> list[tuple[list[Size], list[Size]]]:
    groups: list[tuple[list[Size], list[Size]]] = []
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
        groups.append((a, b))
    return groups


def _total(sizes: Sequence[Size], *others: Sequence[Size]) -> Size:
    points = next((len(s) for group in (sizes, *others) for s in group), 1)
    total: Size = (1,) * points
    for size in sizes:
        total = times(total, size)
    return total


def expand(site: Site) -> Line:
    """Axes of one element are expanded. A result made of a single zero has any map of zeros."""
    source, result = first(site).shape, site.outputs[0].shape
    lead = len(result) - len(source)
    left = [broadcast_label(f"a{lead + i}", s, result[lead + i]) for i, s in enumerate(source)]
    expanded, filler = line([left, *rest(site)], [names("a", len(result))]), site.static(0)
    return (
        expanded if filler is None or filler.size != 1 or filler.any() else replace(expanded, treatment="add")
    )


def tile(site: Site) -> Line:
    """Repetitions stand outside: (r a)."""
    source, result = first(site).shape, site.outputs[0].shape
    left: list[Term] = []
    right: list[Term] = []
    sizes: dict[str, Size] = {}
    for i, (a, b) in enumerate(zip(source, result, strict=True)):
        repeat = ratio(b, a)
        left.append("1" if unit(a) and not unit(b) else f"a{i}")
        if a == b:
            right.append(f"a{i}")
        elif unit(a) or repeat is None:
            right.append(f"r{i}")
        else:
            sizes[f"r{i}"] = repeat
            right.append(("*", (f"r{i}", f"a{i}")))
    return line([left, *rest(site)], [right], **sizes)


def concat(site: Site) -> Line:
    """Axes end to end."""
    axis = axis_of(site)
    terms = names("a", first(site).rank)
    parts: list[Term] = names("p", len(site.inputs))
    inputs: list[Sequence[Term]] = [[*terms[:axis], p, *terms[axis + 1 :]] for p in parts]
    nonempty = [p for p, o in zip(parts, site.inputs, strict=True) if o and o.sizes and any(o.sizes[axis])]
    whole: Term = ("+", tuple(nonempty)) if len(nonempty) > 1 else (nonempty or ["_"])[0]
    return line(inputs, [[*terms[:axis], whole, *terms[axis + 1 :]]])


def split(site: Site) -> Line:
    """The parts of an axis."""
    axis = axis_of(site)
    terms = names("a", first(site).rank)
    parts: list[Term] = names("p", len(site.outputs))
    outputs = [[*terms[:axis], p, *terms[axis + 1 :]] for p in parts]
    whole: Term = ("+", tuple(parts)) if len(parts) > 1 else parts[0]
    return line([[*terms[:axis], whole, *terms[axis + 1 :]], *rest(site)], outputs)


def pad(site: Site) -> Line:
    """Zeros in front of an axis and behind it are segments; an axis with other padding is opaque.

    All other axes pass, linearly unless a constant comes in.
    """
    source = first(site).shape
    filler = np.zeros(1) if site.input(2) is None else site.static(2)
    zero = filler is not None and not filler.any() and not site.attribute("value", 0.0)
    zero = zero and site.attribute("mode", "constant") in ("constant", b"constant")
    pads = _pads(site, len(source))
    left: list[Term] = []
    right: list[Term] = []
    sizes: dict[str, Size] = {}
    for k, size in enumerate(source):
        front, behind = (-1, -1) if pads is None else pads[k]
        around = {f"p{k}": front, f"q{k}": behind}
        if any(around.values()) and not (zero and min(front, behind) >= 0):
            left.append("_")
            right.append("_")
            continue
        added: dict[str, Size] = {name: (n,) * len(size) for name, n in around.items() if n}
        sizes |= added
        parts = [n for n in (f"p{k}", f"a{k}", f"q{k}") if n in added or n == f"a{k}"]
        left.append(f"a{k}")
        right.append(("+", tuple(parts)) if added else f"a{k}")
    return replace(line([left, *rest(site)], [right], **sizes), treatment="layout" if zero else "pointwise")


def _pads(site: Site, rank: int) -> list[tuple[int, int]] | None:
    """Return (in front, behind) of each axis, −1 for numbers that vary with the inputs; None if not known."""
    amounts, axes = site.node.integers("pads"), site.static(3)
    if amounts is None:
        known = site.known(1)
        constants = None if known is None else _constants(known)
        amounts = None if constants is None else [int(p) for p in constants]
    if amounts is None or (axes is None and site.input(3) is not None):
        return None
    chosen = list(range(rank)) if axes is None else [int(a) % rank for a in axes.reshape(-1)]
    by_axis = {a: (amounts[k], amounts[k + len(chosen)]) for k, a in enumerate(chosen)}
    return [by_axis.get(k, (0, 0)) for k in range(rank)]


def _constants(known: Sequence[Array]) -> list[int]:
    """Return the numbers that are the same at every sample point, −1 for the others."""
    first, *others = (array.reshape(-1) for array in known)
    same = [all(len(o) == len(first) and o[k] == number for o in others) for k, number in enumerate(first)]
    return [int(number) if fixed else -1 for number, fixed in zip(first, same, strict=True)]


def resize(site: Site) -> Line:
    """Axes that keep their size pass, unless they are scaled by more than their size shows."""
    source, result = first(site).shape, site.outputs[0].shape
    scales = site.static(2)
    mode = site.attribute("coordinate_transformation_mode")
    cropped = mode in (b"tf_crop_and_resize", "tf_crop_and_resize")
    chosen = [a % len(source) for a in site.node.integers("axes") or range(len(source))]
    factors = {} if scales is None or not scales.size else dict(zip(chosen, scales.tolist(), strict=True))
    pairs = enumerate(zip(source, result, strict=True))
    terms = [f"a{k}" if a == b and factors.get(k, 1) == 1 and not cropped else "_" for k, (a, b) in pairs]
    return line([terms, *rest(site)], [terms])


def trilu(site: Site) -> Line:
    """A triangle of the last two axes stays."""
    terms = [*names("a", first(site).rank - 2), "_", "_"]
    return line([terms, *rest(site)], [terms])


def depth_to_space(site: Site) -> Line:
    """Channels are (c blocks) or (blocks c), and the blocks are opaque."""
    shallow = first(site) if site.node.op == "SpaceToDepth" else site.outputs[0]
    assert shallow.rank == 4
    size = site.node.integer("blocksize")
    last = site.node.op == "DepthToSpace" and site.attribute("mode", "DCR") == "CRD"
    points = len(shallow.shape[0])
    deep: Term = ("*", ("c", "r!") if last else ("r!", "c"))
    left: list[Term] = ["b", deep, "_", "_"]
    right: list[Term] = ["b", "c", "_", "_"]
    pair = (left, right) if site.node.op == "DepthToSpace" else (right, left)
    return line([pair[0]], [pair[1]], c=shallow.shape[1], r=(size * size,) * points)


def constant_of_shape(site: Site) -> Line:
    """A constant tensor has axes of any size; zeros have any map of zeros."""
    value = site.node.array("value")
    zeros = value is None or not value.any()
    filled = line([["_"]], [names("a", site.outputs[0].rank)])
    return replace(filled, treatment="add") if zeros else filled


def depends_on_shape_only(site: Site) -> Line:
    """Shape and Size read no values: they constrain nothing."""
    return line(
        [None if o is None else names("a", o.rank) for o in site.inputs], [["_"] * site.outputs[0].rank]
    )
