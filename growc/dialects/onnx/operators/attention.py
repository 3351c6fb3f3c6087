"""Rows of attention: its core on (batch, heads, sequence, channels), and the operators around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from growc.algebra.space import Size, ratio
from growc.dialects.onnx.operators.site import first, line, names, places, rest, unit
from growc.ir.notation import Line, Product, Term
from growc.ir.operator_rows import Site, opaque

ONE_WIDTH = "growc.one_width"
"""Attribute of attention whose values have as many channels a head as queries and keys."""


def attention(site: Site) -> Line:
    """Query heads are (h g) over h key/value heads; operands behind the bias are the same for all heads."""
    q, k, v = site.inputs[:3]
    if q is None or k is None or v is None or any(o.rank != 4 for o in (q, k, v)):
        return opaque(site)
    group = ratio(q.shape[1], k.shape[1])
    if group is None:
        return opaque(site)
    heads: Term = "h" if unit(group) else "g" if unit(k.shape[1]) else ("*", ("h", "g"))
    shared, batch = "1" if heads == "g" else "h", "_" if any(site.inputs[4:]) else "b"
    inputs: list[Sequence[Term] | None] = [
        [batch, heads, "_", "d"],
        [batch, shared, "_", "d"],
        [batch, shared, "_", "e"],
    ]
    for bias in site.inputs[3:4]:
        sizes = () if bias is None else bias.shape
        whole: list[Term] = [batch, heads, "_", "_"]
        terms = ["1" if unit(s) else t for s, t in zip(sizes, whole[4 - len(sizes) :], strict=True)]
        inputs.append(None if bias is None else terms)
    inputs += [None if o is None else ["_"] * o.rank for o in site.inputs[4:]]
    label_sizes = {"h": k.shape[1], "g": group, "d": q.shape[3]}
    outputs: list[list[Term]] = [[batch, heads, "_", "e"], [batch, heads, "_", "_"]]
    attended = line(inputs, outputs, **{n: s for n, s in label_sizes.items() if not unit(s)})
    weighing = tuple(n for n in range(len(site.inputs)) if n != 2)
    scores = Product((0,), (1,), (*places(0, range(4)), *places(1, [2])))
    averages = Product(weighing, (2,), (*places(0, range(3)), *places(2, [2, 3])))
    alike = (("d", "e"),) if site.node.integer(ONE_WIDTH) else ()
    return replace(attended, sums=(scores, averages), alike=alike)


def split_packed(site: Site) -> Line:
    """q, k and v side by side, each (heads channels)."""
    sizes: dict[str, Size] = {}
    parts: list[Term] = []
    for heads, channels, out in zip("qkv", "def", site.outputs, strict=True):
        sizes |= {heads: out.shape[1], channels: out.shape[3]}
        parts.append(("*", (heads, channels)))
    outputs = [["b", heads, "s", channels] for heads, channels in zip("qkv", "def", strict=True)]
    return line([["b", "s", ("+", tuple(parts))]], outputs, **sizes)


def unfold(site: Site) -> Line:
    """Heads stand in front of the channels, and move to the axis of one element."""
    out, axis = site.outputs[0], site.node.integer("axis")
    left, right = names("a", out.rank), names("a", out.rank)
    left[axis], right[axis] = "1", "h"
    left[-1], right[-1] = ("*", ("h", "d")), "d"
    return line([left], [right], h=out.shape[axis], d=out.shape[-1])


def repeat(site: Site) -> Line:
    """Each of h heads is repeated g times, possibly once."""
    source, out, axis = first(site), site.outputs[0], site.node.integer("axis")
    group = ratio(out.shape[axis], source.shape[axis])
    if group is None:
        return opaque(site)
    left, right = names("a", out.rank), names("a", out.rank)
    left[axis], right[axis] = "h", ("*", ("h", "g"))
    return replace(line([left], [right], h=source.shape[axis], g=group), counted=("g",))


def rotary_embedding(site: Site) -> Line:
    """Channels come in pairs and are frozen; heads are an axis, or stand in front of the channels."""
    x = first(site)
    tables = rest(site)
    batch = "_" if any(o is not None and o.rank > 2 for o in site.inputs[1:]) or len(site.inputs) > 3 else "b"
    if x.rank == 4:
        heads_first: list[Term] = [batch, "h", "_", "_"]
        return line([heads_first, *tables], [heads_first])
    heads = site.node.integer("num_heads")
    channels = ratio(x.shape[-1], (heads,) * len(x.shape[-1])) if heads else _channels(site)
    count = None if channels is None else ratio(x.shape[-1], channels)
    if x.rank != 3 or channels is None or count is None:
        return opaque(site)
    whole: Term = "d!" if unit(count) else ("*", ("h", "d!"))
    sizes = {"d": channels} if unit(count) else {"h": count, "d": channels}
    return line([[batch, "_", whole], *tables], [[batch, "_", whole]], **sizes)


def _channels(site: Site) -> Size | None:
    """Return the channels of a head from its tables, which hold one number for each pair."""
    table = site.input(2)
    return None if table is None or not table.sizes else tuple(2 * s for s in table.sizes[-1])
