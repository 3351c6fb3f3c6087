"""Rows that multiply and sum."""

from __future__ import annotations

from collections.abc import Sequence

from growc.axes import ratio
from growc.dialects.onnx.operand import first, line, unit
from growc.graph import Size
from growc.operators import Line, Site, Term, broadcast_label, opaque


def gemm(site: Site) -> Line:
    """A matrix product with a bias that is broadcast."""
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

    Without a `scale` it is computed from the channels, which are frozen then. With caches, or on packed
    operands, it is opaque.
    """
    q, k, v = (site.inputs[i] if i < len(site.inputs) else None for i in range(3))
    if q is None or k is None or v is None or any(o.rank != 4 for o in (q, k, v)) or any(site.inputs[4:]):
        return opaque(site)
    assert q.sizes is not None
    assert k.sizes is not None
    group = ratio(q.sizes[1], k.sizes[1])
    if group is None or len(site.outputs) > 1:
        return opaque(site)
    depth = "d" if site.attribute("scale") is not None else "d!"
    heads: Term = "h" if unit(group) else "g" if unit(k.sizes[1]) else ("*", ("h", "g"))
    inputs: list[Sequence[Term] | None] = [
        ["b", heads, "_", depth],
        ["b", "1" if heads == "g" else "h", "_", depth],
        ["b", "1" if heads == "g" else "h", "_", "e"],
    ]
    for mask in site.inputs[3:4]:
        sizes = () if mask is None else mask.sizes or ()
        whole: list[Term] = ["b", heads, "_", "_"]
        terms = ["1" if unit(s) else t for s, t in zip(sizes, whole[4 - len(sizes) :], strict=True)]
        inputs.append(None if mask is None else terms)
    found = {"h": k.sizes[1], "g": group, "d": q.sizes[3]}
    return line(inputs, [["b", heads, "_", "e"]], **{n: s for n, s in found.items() if not unit(s)})


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
    """Kernels slide over opaque axes; a grouped convolution's channels are (g c), g tied on both sides."""
    data, kernel = first(site), site.inputs[1]
    assert data.sizes is not None
    assert kernel is not None
    assert kernel.sizes is not None
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
    weight: list[Term] = [into, "o" if not unit(o) else "1"] if flip else [out, "i" if not unit(i) else "1"]
    inputs: list[Sequence[Term] | None] = [["b", into, *space], [*weight, *space]]
    inputs += [[out] if o is not None else None for o in site.inputs[2:]]
    used = {k: v for k, v in sizes.items() if not unit(v)}
    return line(inputs, [["b", out, *space]], **used)


def _grouped(name: str, size: Size, groups: int) -> Term:
    if groups == 1:
        return name
    return "g" if unit(size) else ("*", ("g", name))
