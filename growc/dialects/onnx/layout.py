"""Rows that move elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from growc.axes import ratio, times
from growc.dialects.onnx.operand import axis_of, first, line, names, refine, rest, unit
from growc.graph import Size
from growc.operators import Line, Site, Term, broadcast_label


def transpose(site: Site) -> Line:
    """Axes in another order."""
    terms = names("a", first(site).rank)
    order = site.attribute("perm") or range(len(terms))[::-1]
    return line([terms], [[terms[int(i)] for i in order]])  # type: ignore[attr-defined]


def reshape(site: Site) -> Line:
    """Shortest groups of axes with equal products; within a group, factors matched from the right."""
    source, result = first(site).sizes, site.outputs[0].sizes
    assert source is not None
    assert result is not None
    left: list[Term] = []
    right: list[Term] = []
    sizes: dict[str, Size] = {}
    for a, b in _groups(source, result):
        x, y = refine(a, b, len(left), sizes)
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


def expand(site: Site) -> Line:
    """Axes of one element are stretched."""
    source, result = first(site).sizes or (), site.outputs[0].sizes or ()
    lead = len(result) - len(source)
    left = [broadcast_label(f"a{lead + i}", s, result[lead + i]) for i, s in enumerate(source)]
    return line([left, *rest(site)], [names("a", len(result))])


def tile(site: Site) -> Line:
    """Repetitions stand outside: (r a)."""
    source, result = first(site).sizes or (), site.outputs[0].sizes or ()
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
    kept = [p for p, o in zip(parts, site.inputs, strict=True) if o and o.sizes and any(o.sizes[axis])]
    whole: Term = ("+", tuple(kept)) if len(kept) > 1 else (kept or ["_"])[0]
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
    """Axes that are padded or resized are opaque; the others pass, linearly unless a constant comes in."""
    source, result = first(site).sizes or (), site.outputs[0].sizes or ()
    terms = ["_" if a != b else f"a{i}" for i, (a, b) in enumerate(zip(source, result, strict=True))]
    filler = (
        site.static(2) if site.node.op == "Pad" and len(site.inputs) > 2 and site.inputs[2] else np.zeros(1)
    )
    linear = filler is not None and not filler.any() and not site.attribute("value", 0.0)
    return replace(line([terms, *rest(site)], [terms]), treatment="layout" if linear else "pointwise")


def trilu(site: Site) -> Line:
    """A triangle of the last two axes stays."""
    terms = [*names("a", first(site).rank - 2), "_", "_"]
    return line([terms, *rest(site)], [terms])


def depth_to_space(site: Site) -> Line:
    """Channels are (c blocks) or (blocks c), and the blocks are opaque."""
    shallow = site.inputs[0] if site.node.op == "SpaceToDepth" else site.outputs[0]
    assert shallow is not None
    assert shallow.sizes is not None
    assert shallow.rank == 4
    size = site.attribute("blocksize")
    assert isinstance(size, int)
    last = site.node.op == "DepthToSpace" and site.attribute("mode", "DCR") == "CRD"
    points = len(shallow.sizes[0])
    deep: Term = ("*", ("c", "r!") if last else ("r!", "c"))
    left: list[Term] = ["b", deep, "_", "_"]
    right: list[Term] = ["b", "c", "_", "_"]
    pair = (left, right) if site.node.op == "DepthToSpace" else (right, left)
    return line([pair[0]], [pair[1]], c=shallow.sizes[1], r=(size * size,) * points)


def constant_of_shape(site: Site) -> Line:
    """A tensor that is the same everywhere has axes of any size."""
    return line([["_"]], [names("a", site.outputs[0].rank)])


def depends_on_shape_only(site: Site) -> Line:
    """Shape and Size take no values: they constrain nothing."""
    return line(
        [None if o is None else names("a", o.rank) for o in site.inputs], [["_"] * site.outputs[0].rank]
    )
