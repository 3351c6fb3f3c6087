"""Rows that multiply and sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from growc.algebra.space import Size, ratio
from growc.dialects.onnx.operators import einsum as equation
from growc.dialects.onnx.operators.infer_types import turned
from growc.dialects.onnx.operators.site import first, line, places, unit
from growc.ir.notation import Line, Product, Term
from growc.ir.operator_rows import Site, broadcast_label, opaque


def gemm(site: Site) -> Line:
    """A matrix product with a bias that is broadcast."""
    a: list[Term] = ["k", "m"] if site.attribute("transA", 0) else ["m", "k"]
    b: list[Term] = ["n", "k"] if site.attribute("transB", 0) else ["k", "n"]
    inputs: list[Sequence[Term] | None] = [a, b]
    if (bias := site.input(2)) is not None:
        pairs = list(zip(reversed(bias.shape), ("n", "m"), reversed(site.outputs[0].shape), strict=False))
        inputs.append([broadcast_label(t, s, r) for s, t, r in pairs][::-1])
    return line(inputs, [["m", "n"]])


def fused_matmul(site: Site) -> Line:
    """A matrix product of operands whose axes may be in another order."""
    a, b, result = first(site), site.operand(1), site.outputs[0].shape
    lead = len(result) - (a.rank > 1) - (b.rank > 1)
    inputs: list[Sequence[Term]] = []
    for operand, which, own in ((a, "A", ("m", "k")), (b, "B", ("k", "n"))):
        order = turned(operand.rank, site.node.attributes, which)
        stacked = range(lead - operand.rank + 2, lead)
        sizes = [operand.shape[i] for i in order]
        logical = [broadcast_label(f"e{i}", s, result[i]) for i, s in zip(stacked, sizes, strict=False)]
        logical += list(own) if operand.rank > 1 else ["k"]
        inputs.append([logical[order.index(i)] for i in range(operand.rank)])
    result_axes = [*["m"] * (a.rank > 1), *["n"] * (b.rank > 1)]
    return line(inputs, [[*(f"e{i}" for i in range(lead)), *result_axes]])


def einsum(site: Site) -> Line:
    """One or two operands: no letter twice in one of them, and no summed letter that only one operand has."""
    operands, result = equation.parse(str(site.attribute("equation", "")))
    parts = [*operands, result]
    alone = [x for p in operands for x in p if x not in result and sum(x in o for o in operands) < 2]
    if len(operands) > 2 or any(len(set(p)) != len(p) for p in parts):
        return opaque(site)
    if alone and len(operands) > 1:
        return opaque(site)
    sizes = site.outputs[0].shape
    lead = len(sizes) - len(result) + 1 if "..." in result else 0
    stretched = sizes[result.index("...") :][:lead] if "..." in result else ()
    inputs = [_letters(part, site.operand(i).shape, stretched) for i, part in enumerate(operands)]
    contraction = line(inputs, [_letters(result, sizes, stretched)])
    return replace(contraction, treatment="sum" if alone else "layout") if len(operands) == 1 else contraction


def _letters(part: Sequence[str], sizes: Sequence[Size], stretched: Sequence[Size]) -> list[Term]:
    """Return one term's labels. Axes under the ellipsis are broadcast from the right."""
    if "..." not in part:
        return list(part)
    at = part.index("...")
    own = sizes[at : at + len(sizes) - len(part) + 1]
    ends = [
        broadcast_label(f"e{i}", s, w)
        for i, (s, w) in enumerate(zip(own[::-1], stretched[::-1], strict=False))
    ]
    return [*part[:at], *ends[::-1], *part[at + 1 :]]


def conv(site: Site) -> Line:
    """Kernels slide over opaque axes; a grouped convolution's channels are (g c), g tied on both sides."""
    data, kernel, groups = first(site), site.operand(1), site.node.integer("group", 1)
    space: list[Term] = ["_"] * (data.rank - 2)
    g: Size = (groups,) * len(kernel.shape[0])
    flip = site.node.op == "ConvTranspose"
    inside, outside = kernel.shape[0 if flip else 1], kernel.shape[1 if flip else 0]
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
    rank = data.rank
    # the kernel is multiplied at each place of the result, a transposed one at each place of the operand
    over = (*places(0, range(rank), result=not flip), *places(1, range(1, rank)))
    convolution = line(inputs, [["b", out, *space]], **used)
    return replace(convolution, sums=(Product((0,), (1,), over),))


def _grouped(name: str, size: Size, groups: int) -> Term:
    if groups == 1:
        return name
    return "g" if unit(size) else ("*", ("g", name))


def recurrent(site: Site) -> Line:
    """LSTM, GRU, RNN: gates of the same units one after the other; each direction is separate."""
    sizes = [None if o is None else o.sizes for o in site.inputs]
    rows, columns = sizes[1], sizes[2]
    if rows is None or columns is None:
        return opaque(site)
    label_sizes: dict[str, Size] = {"h": columns[2]}

    def gates(operand: int, name: str) -> list[Term] | None:
        own = sizes[operand] if operand < len(sizes) else None
        if own is None:
            return None
        count = ratio(own[1], columns[2])
        if count is None or unit(columns[2]) or unit(count):
            return ["_", "h"]
        label_sizes[name] = count
        return ["_", ("*", (f"{name}!", "h"))]

    state: list[Term] = ["_", "_", "h"]
    inputs: list[Sequence[Term] | None] = [["_", "_", "i"]]
    inputs += [
        [*(gates(1, "w") or []), "i"],
        [*(gates(2, "w") or []), "k"],
        gates(3, "b"),
        ["_"],
        state,
        state,
    ]
    inputs += [gates(7, "p")]
    present = [t if o is not None else None for t, o in zip(inputs, site.inputs, strict=False)]
    first_result: list[Term] = ["_", "_", "_", "h"]
    outputs = [first_result if n == 0 else state for n in range(len(site.outputs))]
    state_operands = tuple(n for n in range(len(site.inputs)) if n != 2)
    sums = (
        Product((0,), (1,), (*places(0, range(3)), *places(1, range(2)))),
        Product(state_operands, (2,), (*places(0, range(2)), *places(2, range(3)))),
    )
    return replace(line(present, outputs, **label_sizes), alike=(("h", "k"),), sums=sums)
