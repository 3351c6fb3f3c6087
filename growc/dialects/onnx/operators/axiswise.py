"""Rows that read an axis as a whole: softmax, reductions, pooling, norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from growc.algebra.space import Size, ratio
from growc.dialects.onnx.operators.site import axes_of, axis_of, first, line, names, number, rest, unit
from growc.ir.notation import Line, Operand, Term, names_of
from growc.ir.operator_rows import Site, opaque

SHARING = frozenset({"Softmax", "LogSoftmax"})
"""Operators that treat all units of the axis alike, and return one number for each."""


def along(site: Site) -> Line:
    """Softmax, CumSum, ArgMax, TopK, …: one axis is read as a whole."""
    rank = first(site).rank
    default = -1 if site.node.op in ("TopK",) or site.opset >= 13 else 1
    if site.node.op in ("ArgMax", "ArgMin"):
        default = 0
    if site.node.op == "CumSum":
        position = number(site, 1)  # a scalar, or a list of one
        opaque_axes = set(range(rank)) if position is None else {int(position) % max(rank, 1)}
    elif site.node.op in ("Softmax", "LogSoftmax", "Hardmax") and site.opset < 13:
        opaque_axes = set(range(axis_of(site, 1), rank))
    else:
        opaque_axes = {axis_of(site, default)}
    terms: list[Term] = ["_" if i in opaque_axes else f"a{i}" for i in range(rank)]
    if site.node.op in SHARING and len(opaque_axes) == 1 and _static(site, *opaque_axes):
        terms[opaque_axes.pop()] = "u~"
    outputs = [terms if o.rank == rank else [t for t in terms if t != "_"] for o in site.outputs]
    return line([terms, *rest(site)], outputs)


TRANSFORM = "mixes all entries of this axis: it is a Fourier transform"


def dft(site: Site) -> Line:
    """DFT: one axis is transformed, and the last one holds real and imaginary parts."""
    given_axis = site.static(2) if site.opset >= 20 else None
    if given_axis is None and site.input(2) is not None:
        return opaque(site)
    rank = first(site).rank
    axis = (
        axis_of(site, -2 if site.opset >= 20 else 1)
        if given_axis is None
        else int(given_axis.reshape(-1)[0]) % rank
    )
    return _transformed(site, {axis, rank - 1})


def fourier(site: Site) -> Line:
    """Transforms of complex numbers along the axes that the attribute names."""
    return _transformed(site, set(site.node.integers("axes") or ()))


def _transformed(site: Site, axes: set[int]) -> Line:
    terms: list[Term] = ["_" if i in axes else f"a{i}" for i in range(first(site).rank)]
    return replace(line([terms, *rest(site)], [terms]), because=TRANSFORM)


def _static(site: Site, axis: int) -> bool:
    return len(set(first(site).shape[axis])) == 1


def reduce(site: Site) -> Line:
    """Reductions. If no axes are named, all are reduced."""
    rank = first(site).rank
    axes = axes_of(site)
    if axes is None and site.input(1) is not None:
        return opaque(site)
    chosen = {a % rank for a in axes} if axes else set(range(rank))
    if not axes and site.attribute("noop_with_empty_axes", 0):
        chosen = set()
    keeps_axes = site.attribute("keepdims", 1)
    terms: list[Term] = names("a", rank)
    out = ["1" if i in chosen else t for i, t in enumerate(terms) if keeps_axes or i not in chosen]
    return line([terms, *rest(site)], [out])


def fold_whole(site: Site) -> Line:
    """Reductions that neither pass factors on nor follow from fewer units, whatever the units' order."""
    reduction = reduce(site)
    remaining = {t for t in reduction.outputs[0] or () if t != "1"}
    source = reduction.inputs[0] or ()
    terms = [t if t in remaining else f"{t}~" if _static(site, k) else "_" for k, t in enumerate(source)]
    return reduction if reduction.treatment else line([terms, *rest(site)], [reduction.outputs[0] or ()])


def global_pool(site: Site) -> Line:
    """Reductions over all axes but the first two."""
    rank = first(site).rank
    return line([names("a", rank)], [["a0", "a1", *["1"] * (rank - 2)]])


def pool(site: Site) -> Line:
    """Windows slide over opaque axes; windows of one element move nothing.

    Indices of maxima count through all axes.
    """
    if len(site.outputs) > 1:
        return opaque(site)
    rank = first(site).rank - 2
    plain = site.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID", b"NOTSET", b"VALID")

    def still(axis: int) -> bool:
        window, step = _each(site, "kernel_shape", axis), _each(site, "strides", axis)
        padded = _each(site, "pads", axis, 0), _each(site, "pads", axis + rank, 0)
        return plain and window == step == 1 and not any(padded)

    space: list[Term] = [f"s{k}" if still(k) else "_" for k in range(rank)]
    return line([["b", "c", *space]], [["b", "c", *space]])


def _each(site: Site, name: str, axis: int, default: int = 1) -> int:
    """Return one element of an attribute of numbers; the default if the attribute is absent."""
    numbers = site.node.integers(name)
    return numbers[axis] if numbers else default


def normalization(site: Site) -> Line:
    """LayerNormalization and RMSNormalization over the last axes, with parameters for these axes only."""
    rank = first(site).rank
    start = axis_of(site, -1)
    spread = any(o is not None and not all(map(unit, o.shape[: start - rank])) for o in site.inputs[1:])
    if spread or len(site.outputs) > 1:
        return opaque(site)
    terms = [*names("a", start), *(names("c", rank - start) if start < rank - 1 else ["c"])]
    parameters = [None if o is None else _aligned(o, terms) for o in site.inputs[1:]]
    return over(line([terms, *parameters], [terms]), terms[start:])


def lp_normalization(site: Site) -> Line:
    """x/‖x‖ along one axis, Euclidean or of magnitudes."""
    terms = names("a", first(site).rank)
    treatment = "l1_norm" if site.attribute("p", 2) == 1 else "l2_norm"
    return replace(over(line([terms], [terms]), [terms[axis_of(site, -1)]]), treatment=treatment)


def instance_norm(site: Site) -> Line:
    """Each channel of each sample is normalised by its own numbers."""
    space = names("s", first(site).rank - 2)
    return over(line([["b", "c", *space], ["c"], ["c"]], [["b", "c", *space]]), space)


def batch_norm(site: Site) -> Line:
    """Each channel is normalised by its stored statistics.

    In training mode it is a norm over the channel's own rows and places, if nothing reads the measured
    statistics.
    """
    space = names("s", first(site).rank - 2)
    data: list[Term] = ["b", "c", *space]
    stored: list[list[Term]] = [["c"]] * 4
    normed = line([data, *stored], [data, *stored[: len(site.outputs) - 1]])
    if not site.attribute("training_mode", 0):
        return normed if len(site.outputs) == 1 else opaque(site)
    if any(value.users for value in site.node.outputs[1:]):
        return opaque(site)
    return replace(over(normed, ["b", *space]), treatment="layer_norm")


def group_norm(site: Site) -> Line:
    """Each group of channels of each sample is normalised by its own numbers.

    Gain and bias belong to channels; before opset 21 they belong to groups.
    """
    data = first(site)
    g: Size = (site.node.integer("num_groups"),) * len(data.shape[1])
    inner = ratio(data.shape[1], g)
    if inner is None:
        return opaque(site)
    sizes = {name: size for name, size in (("g", g), ("c", inner)) if not unit(size)}
    channels: Term = ("*", ("g", "c")) if len(sizes) > 1 else next(iter(sizes), "1")
    parameter: Term = channels if site.opset >= 21 else "g" if "g" in sizes else "1"
    space = names("s", data.rank - 2)
    normed = line([["b", channels, *space], [parameter], [parameter]], [["b", channels, *space]], **sizes)
    return over(normed, [*(["c"] if "c" in sizes else []), *space])


def over(norm_line: Line, terms: Sequence[Term]) -> Line:
    """Return a norm's line with the labels that the norm runs over."""
    return replace(norm_line, over=tuple(names_of(terms)))


def _aligned(operand: Operand, terms: Sequence[Term]) -> list[Term]:
    """Return the terms of an operand that is broadcast from the right."""
    lead = len(terms) - operand.rank
    return ["1" if unit(s) else terms[lead + k] for k, s in enumerate(operand.shape)]
